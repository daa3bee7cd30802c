// SPDX-License-Identifier: Apache-2.0
// All layers.
#pragma once

#include "models/nn/conv.h"         // IWYU pragma: export
#include "models/nn/conv_norm.h"    // IWYU pragma: export
#include "models/nn/dropout.h"      // IWYU pragma: export
#include "models/nn/embedding.h"    // IWYU pragma: export
#include "models/nn/init.h"         // IWYU pragma: export
#include "models/nn/linear.h"       // IWYU pragma: export
#include "models/nn/list.h"         // IWYU pragma: export
#include "models/nn/module.h"       // IWYU pragma: export
#include "models/nn/norm.h"         // IWYU pragma: export
#include "models/nn/other_names.h"  // IWYU pragma: export
#include "models/nn/pool.h"         // IWYU pragma: export
#include "models/nn/summary.h"      // IWYU pragma: export
#include "models/nn/upsample.h"     // IWYU pragma: export
