// SPDX-License-Identifier: Apache-2.0
// module: optim
// message: hearth/ops/activation.h: No such file
#include "hearth/ops/activation.h"
