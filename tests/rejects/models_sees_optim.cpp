// SPDX-License-Identifier: Apache-2.0
// module: models
// message: hearth/optim/optimizer.h: No such file
#include "hearth/optim/optimizer.h"
