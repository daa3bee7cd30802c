// SPDX-License-Identifier: Apache-2.0
#include "autograd/recompute.h"

#include <optional>

#include "autograd/backward_of_part.h"
#include "autograd/record.h"
#include "core/random.h"

namespace hearth {
namespace {

struct Recompute {
  static constexpr OpInfo info{.name = "recompute", .autocast = Autocast::as_is};
  struct Saved {
    std::vector<SavedTensor> inputs;  ///< and the parameters, which f reads once more
    RandomKey random;
    std::optional<DType> low_precision;
  };
  Recomputable f;
  std::size_t count;  ///< of what f takes; the parameters follow

  Tensor forward(Saved& saved, std::span<const Tensor> inputs) const {
    saved.inputs.resize(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) saved.inputs[i] = inputs[i];
    saved.random = random_position();
    saved.low_precision = autocast_dtype();
    return f(inputs.first(count));
  }

  // The parameters' gradients arrive within: their leaves are those of the inner graph too.
  std::vector<Tensor> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::vector<Tensor> gradients(needs.size()), inputs;
    for (const SavedTensor& tensor : saved.inputs) (void)tensor.get();
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor x = saved.inputs[i].get().detach();
      inputs.push_back(needs[i] ? requires_grad(x) : x);
    }
    const Tensor y = run_again(saved, inputs);
    detail::backward_of_part(y, dy);
    for (std::size_t i = 0; i < count; ++i)
      if (needs[i]) gradients[i] = grad_of(inputs[i]);
    return gradients;
  }

  // As the first time; the backward pass of it, in which hooks run, is none of that.
  Tensor run_again(const Saved& saved, std::span<const Tensor> inputs) const {
    const detail::RecomputingScope recomputing;
    const RandomScope random(saved.random);
    const AutocastScope autocast(saved.low_precision);
    return f(inputs);
  }
};

}  // namespace

Tensor recompute(Recomputable f, std::vector<Tensor> inputs, const std::vector<Tensor>& parameters) {
  HEARTH_CHECK(UsageError, f != nullptr, "recompute: the function is empty");
  HEARTH_CHECK(UsageError, !inputs.empty(), "recompute: there is no input; f takes at least one");
  const std::size_t count = inputs.size();
  for (const Tensor& input : inputs) HEARTH_CHECK(UsageError, input.defined(), "recompute: an input is undefined");
  for (const Tensor& parameter : parameters) {
    HEARTH_CHECK(UsageError, needs_grad(parameter) && parameter.grad_state()->node == nullptr, "recompute: parameter ",
                 inputs.size() - count, " (", describe(parameter), ") is not a leaf; give what f trains");
    inputs.push_back(parameter);
  }
  return record_list(Recompute{std::move(f), count}, std::move(inputs));
}

Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x, const std::vector<Tensor>& parameters) {
  Recomputable of_list;
  if (f != nullptr) of_list = [f = std::move(f)](std::span<const Tensor> inputs) { return f(inputs.front()); };
  return recompute(std::move(of_list), std::vector<Tensor>{x}, parameters);
}

}  // namespace hearth
