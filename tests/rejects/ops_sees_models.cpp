// SPDX-License-Identifier: Apache-2.0
// module: ops
// message: hearth/models/nn/module.h: No such file
#include "hearth/models/nn/module.h"
