// SPDX-License-Identifier: Apache-2.0
// What a user of PyTorch writes first and must not compile: check_rejected looks for an error at each line with a
// comment, whose text the compiler prints.
#include "hearth.h"

using namespace hearth;

void rejected(const Tensor& x, const Tensor& y, nn::Linear& layer, optim::Optimizer& optimizer) {
  if (x < y) return;             // rejected: element by element by less(a, b)
  if (x > 0.5) return;           // rejected: element by element by greater(a, b)
  if (x == y) return;            // rejected: element by element by equal(a, b)
  if (x != 1) return;            // rejected: element by element by not_equal(a, b)
  if (x <= y) return;            // rejected: element by element by less_equal(a, b)
  if (0 >= x) return;            // rejected: element by element by greater_equal(a, b)
  if (less(x, y)) return;        // rejected: x.defined() to ask whether there is one
  (void)x.mean(0, 1);            // rejected: write several axes as a list, x.sum({0, 1})
  (void)logsumexp(x, {0}, 1L);   // rejected: write several axes as a list, x.sum({0, 1})
  (void)argmax(x, 0, 1u);        // rejected: write several axes as a list, x.sum({0, 1})
  x[y];                          // rejected: use index_select(x, axis, ids)
  const float loss = x;          // rejected: x.item<float>()
  const double mean = x.mean();  // rejected: x.item<float>()
  const int count = x + 1;       // rejected: x.item<float>()
  optimizer.attach(optim::CosineSchedule({}, {.total_steps = 1}));  // rejected: use of deleted function
  nn::Linear copy = layer;                                          // rejected: use of deleted function
  (void)(loss + mean + count);
}
