// SPDX-License-Identifier: Apache-2.0
// What a user of PyTorch writes first and must not compile: check_rejected looks for an error at each line with a
// comment, whose text the compiler prints.
#include "hearth.h"

using namespace hearth;

void rejected(const Tensor& x, const Tensor& y, nn::Linear& layer, optim::Optimizer& optimizer,
              FlatParameters& parameters) {
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
  cat({x, y}, 1);                                                   // rejected: write concat({x, y}, axis)
  x.mm(y);                                                          // rejected: write x.matmul(y)
  x.t();                                                            // rejected: write x.transpose(0, 1)
  x.std();                                                          // rejected: write sqrt(x.var())
  x.softmax(-1);                                                    // rejected: write softmax(x, axis)
  equal(x, y).any();                                                // rejected: write x.to(DType::f32).max()
  x.isnan();                                                        // rejected: write not_equal(x, x)
  x.cuda();                                                         // rejected: write x.to({DeviceType::cuda, 0})
  x(0, 1);                                                          // rejected: write x[0][1], or x[{0, 1}]
  ~equal(x, y);                                                     // rejected: write equal(mask, 0)
  rand_like(x);                                                     // rejected: write rand(x.shape(), x.dtype()
  outer(x, y);                                                      // rejected: or multiply by broadcasting
  nll_loss(log_softmax(x), y);                                      // rejected: write cross_entropy(logits, labels)
  binary_cross_entropy(sigmoid(x), y);                              // rejected: write bce_with_logits(x, target)
  interpolate(x, 2);                                                // rejected: write interpolate(x, {.scale = 2})
  no_grad();                                                        // rejected: const NoGrad no_grad;
  nn::GELU gelu_layer;                                              // rejected: write gelu(x) in forward()
  nn::Sequential net(layer, layer);                                 // rejected: add() them to an nn::ModuleList
  nn::MultiheadAttention attends(8, 2);                             // rejected: write attention(q, k, v)
  nn::RMSNorm norm(8);                                              // rejected: write rms_norm(x, gamma)
  nn::InstanceNorm2d instance(3);                                   // rejected: with as many groups as channels
  layer.state_dict();                                               // rejected: write save(model, path)
  layer.parameters()[0].grad();                                     // rejected: write p.tensor->grad()
  layer.clone();                                                    // rejected: make a second model
  optim::AdamW decoupled(parameters, {.lr = 0.1});                  // rejected: write optim::Adam, whose
  optim::Adam adam(parameters, 1e-3);                               // rejected: write {.lr = 1e-3}
  (void)(loss + mean + count);
}
