// SPDX-License-Identifier: Apache-2.0
// All layers.
#pragma once

#include "hearth/models/nn/conv.h"       // IWYU pragma: export
#include "hearth/models/nn/dropout.h"    // IWYU pragma: export
#include "hearth/models/nn/embedding.h"  // IWYU pragma: export
#include "hearth/models/nn/init.h"       // IWYU pragma: export
#include "hearth/models/nn/linear.h"     // IWYU pragma: export
#include "hearth/models/nn/list.h"       // IWYU pragma: export
#include "hearth/models/nn/module.h"     // IWYU pragma: export
#include "hearth/models/nn/norm.h"       // IWYU pragma: export
#include "hearth/models/nn/pool.h"       // IWYU pragma: export
#include "hearth/models/nn/summary.h"    // IWYU pragma: export
