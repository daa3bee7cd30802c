// SPDX-License-Identifier: Apache-2.0
// What grids of one even wave are made for.
#pragma once

namespace hearth::kernels {

/// Multiprocessors of an H100 and an H200. A constant, since sums of blocks must not depend on the device.
inline constexpr int multiprocessors = 132;

}  // namespace hearth::kernels
