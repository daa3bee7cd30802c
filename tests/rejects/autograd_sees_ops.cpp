// SPDX-License-Identifier: Apache-2.0
// module: autograd
// message: hearth/ops/activation.h: No such file
#include "hearth/ops/activation.h"
