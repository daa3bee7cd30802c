// SPDX-License-Identifier: Apache-2.0
// module: core
// message: hearth/autograd/record.h: No such file
#include "hearth/autograd/record.h"
