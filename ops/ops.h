// SPDX-License-Identifier: Apache-2.0
// Every differentiable function.
#pragma once

// IWYU pragma: begin_exports
#include "hearth/ops/activation.h"
#include "hearth/ops/attention/attention.h"
#include "hearth/ops/attention/rotary.h"
#include "hearth/ops/conv/conv2d.h"
#include "hearth/ops/image/normalize_images.h"
#include "hearth/ops/index/index.h"
#include "hearth/ops/index/row_lengths.h"
#include "hearth/ops/linear/linear.h"
#include "hearth/ops/loss/cross_entropy.h"
#include "hearth/ops/loss/linear_cross_entropy.h"
#include "hearth/ops/loss/loss_sum.h"
#include "hearth/ops/loss/mse.h"
#include "hearth/ops/matmul/matmul.h"
#include "hearth/ops/norm/add_layer_norm.h"
#include "hearth/ops/norm/batch_norm.h"
#include "hearth/ops/norm/layer_norm.h"
#include "hearth/ops/norm/rms_norm.h"
#include "hearth/ops/pointwise/binary.h"
#include "hearth/ops/pointwise/cast.h"
#include "hearth/ops/pointwise/dropout.h"
#include "hearth/ops/pointwise/operators.h"
#include "hearth/ops/pointwise/pointwise.h"
#include "hearth/ops/pointwise/swiglu.h"
#include "hearth/ops/pool/pool.h"
#include "hearth/ops/reduce/reduce.h"
#include "hearth/ops/shape/concat.h"
#include "hearth/ops/shape/view.h"
#include "hearth/ops/softmax/softmax.h"
// IWYU pragma: end_exports
