// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/dataset.h"

namespace hearth::data {

/// ImageNet's mean and deviation of each channel, with which trunks are trained.
inline ChannelStatistics imagenet_statistics() { return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}; }

}  // namespace hearth::data
