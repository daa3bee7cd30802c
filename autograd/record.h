// SPDX-License-Identifier: Apache-2.0
// The one door through which every differentiable op passes:
// autocast -> profiler scope -> forward -> (if a gradient is needed) one node that holds the op and what it saved.
//
// An op is a struct:
//
//   struct Softmax {
//     static constexpr OpInfo info{.name = "softmax", .autocast = Autocast::f32};
//     struct Saved { SavedTensor y; };
//     Tensor forward(Saved& saved, const Tensor& x) const;
//     std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const;
//   };
//   Tensor softmax(const Tensor& x) { return record(Softmax{}, x); }
//
// forward must not return an input itself. dy comes by value: an op may overwrite it when dy.sole_owner().
// A gradient whose slot wants[i] is false may be left undefined. An absent optional input is an undefined Tensor.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "autograd/grad_mode.h"
#include "autograd/node.h"
#include "core/origin.h"
#include "core/profiler.h"

namespace hearth {

enum class Autocast {
  follow,         ///< take what comes; where floating types differ the widest wins
  low_precision,  ///< run in the low-precision type: matrix products and convolutions; leaves come as their
                  ///< low-precision copies
  f32,            ///< run in f32: softmax, losses, sums and means, squares, exp, log
  as_is,          ///< the op itself takes mixed types: norms with f32 parameters
};

struct OpInfo {
  const char* name;
  Autocast autocast = Autocast::follow;
  /// How many leading inputs the policy applies to; the rest stay as they are (weights that the op converts itself).
  int autocast_inputs = 8;
};

namespace detail {

/// `tensor` converted by a recorded cast.
HEARTH_API Tensor cast(const Tensor& tensor, DType dtype);
HEARTH_API void apply_autocast(const OpInfo& info, std::span<Tensor> inputs);
HEARTH_API bool any_needs_grad(std::span<const Tensor> inputs);
/// Fills the storages of an op's inputs that have a keeper.
inline void bring(std::span<const Tensor> inputs) {
  for (const Tensor& input : inputs)
    if (input.defined()) input.storage()->bring();
}
/// Shows the call to the thread's OpObserver, if there is one.
HEARTH_API void observe(const OpInfo& info, std::span<const Tensor> inputs, const Tensor& result);
HEARTH_API void check_devices(const char* op, std::span<const Tensor> inputs);
/// `result` as the output of `node`, whose inputs are `inputs`.
HEARTH_API Tensor attach(std::shared_ptr<Node> node, std::span<const Tensor> inputs, const Tensor& result);
[[noreturn]] HEARTH_API void throw_consumed(const char* op);

template <class Op>
class NodeOf final : public Node {
 public:
  NodeOf(Op op, typename Op::Saved saved) : Node(Op::info.name), op_(std::move(op)), saved_(std::move(saved)) {}
  std::vector<Tensor> run(Tensor dy) override {
    if (consumed_) throw_consumed(name());
    consumed_ = true;
    const typename Op::Saved saved = std::exchange(saved_, {});
    const NeedsGrad needs(inputs, dy.device());
    auto gradients = op_.backward(saved, std::move(dy), needs);
    if constexpr (std::is_same_v<decltype(gradients), std::vector<Tensor>>)
      return gradients;
    else
      return {std::make_move_iterator(gradients.begin()), std::make_move_iterator(gradients.end())};
  }

 private:
  Op op_;
  typename Op::Saved saved_;
  bool consumed_ = false;
};

template <class Op, class Forward>
Tensor record_inputs(Op op, std::span<Tensor> inputs, Forward&& forward) {
  const profiler::Scope scope(Op::info.name);
  const OriginScope origin = OriginScope::of_op(Op::info.name);
  const OpScope op_scope;
  check_devices(Op::info.name, inputs);
  apply_autocast(Op::info, inputs);
  bring(inputs);
  const bool wanted = grad_enabled() && any_needs_grad(inputs);
  typename Op::Saved saved;
  Tensor result;
  {
    const RecordingScope recording(wanted);
    result = forward(op, saved);
  }
  observe(Op::info, inputs, result);
  if (!wanted) return result;
  return attach(std::make_shared<NodeOf<Op>>(std::move(op), std::move(saved)), inputs, result);
}

}  // namespace detail

/// Runs op.forward(kept, x...) and records it if a gradient is needed. All x are Tensors; DeviceError unless they are
/// on one device.
template <class Op, class... X>
Tensor record(Op op, const X&... x) {
  std::array<Tensor, sizeof...(X)> inputs{x...};
  return detail::record_inputs(std::move(op), std::span<Tensor>(inputs), [&](const Op& o, auto& saved) {
    return std::apply([&](const auto&... tensor) { return o.forward(saved, tensor...); }, inputs);
  });
}

/// The same for an op over a list: forward(kept, span of tensors), backward returns a vector.
template <class Op>
Tensor record_list(Op op, std::vector<Tensor> x) {
  return detail::record_inputs(std::move(op), std::span<Tensor>(x),
                               [&](const Op& o, auto& saved) { return o.forward(saved, std::span<const Tensor>(x)); });
}

}  // namespace hearth
