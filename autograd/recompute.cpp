// SPDX-License-Identifier: Apache-2.0
#include "hearth/autograd/recompute.h"

#include <optional>

#include "hearth/autograd/backward.h"
#include "hearth/autograd/record.h"
#include "hearth/core/random.h"

namespace hearth {
namespace {

struct Recompute {
  static constexpr OpInfo info{.name = "recompute", .autocast = Autocast::as_is};
  struct Kept {
    KeptTensor x;
    RandomKey random;
    std::optional<DType> narrow;
  };
  std::function<Tensor(const Tensor&)> f;

  Tensor forward(Kept& kept, std::span<const Tensor> inputs) const {
    kept.x = inputs.front();
    kept.random = random_position();
    kept.narrow = autocast_dtype();
    return f(inputs.front());
  }

  // The parameters' gradients arrive within: their leaves are those of the inner graph too.
  std::vector<Tensor> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    std::vector<Tensor> gradients(wants.size());
    const detail::RecomputingScope recomputing;
    const RandomScope random(kept.random);
    const AutocastScope autocast(kept.narrow);
    Tensor x = kept.x.get().detach();
    if (wants[0]) x = as_leaf(x);
    const Tensor y = f(x);
    hearth::backward(y, dy);
    if (wants[0]) gradients[0] = grad_of(x);
    return gradients;
  }
};

}  // namespace

Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x, const std::vector<Tensor>& parameters) {
  HEARTH_CHECK(UsageError, f != nullptr, "recompute: the function is empty");
  HEARTH_CHECK(UsageError, x.defined(), "recompute: x is undefined");
  std::vector<Tensor> inputs{x};
  for (const Tensor& parameter : parameters) {
    HEARTH_CHECK(UsageError, wants_grad(parameter) && parameter.grad_state()->node == nullptr, "recompute: parameter ",
                 inputs.size() - 1, " (", describe(parameter), ") is not a leaf; give what f trains");
    inputs.push_back(parameter);
  }
  return record_list(Recompute{std::move(f)}, std::move(inputs));
}

}  // namespace hearth
