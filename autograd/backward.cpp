// SPDX-License-Identifier: Apache-2.0
// Nodes are numbered in creation order, which is a topological order. So backward is a counting pass (how many
// contributions does each leaf get in this graph?) and one pass with a max-heap on the number: no recursion, and a
// fixed order of summation.
#include "autograd/backward.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/accumulate.h"
#include "autograd/backward_of_part.h"
#include "autograd/grad_mode.h"
#include "autograd/node.h"
#include "core/origin.h"
#include "core/profiler.h"
#include "core/profiler_spans.h"
#include "core/run_on.h"

namespace hearth {
namespace {

void add(const Tensor& sum, const Tensor& term) {
  run_on(sum.device(), [&](auto& stream) { kernels::add_into(stream, sum, term.contiguous()); });
}

class BackwardPass {
 public:
  BackwardPass(const std::shared_ptr<GradState>& root, bool of_part) : of_part_(of_part) { count(root); }
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;
  /// What an exception left unvisited would be taken for visited by the next backward pass that comes there.
  ~BackwardPass() {
    for (const std::shared_ptr<GradState>& state : heap_) state->pending = {};
    if (of_part_) return;  // the outer pass goes on with it
    for (const auto& [state, leaf] : expected_) state->pending = {};
  }

  void run(const std::shared_ptr<GradState>& root, const Tensor& dy) {
    // An op that hands on a leaf's own gradient would seem to have written there.
    const bool is_of_leaf = std::any_of(expected_.begin(), expected_.end(), [&](const auto& leaf) {
      return leaf.first->grad.defined() && leaf.first->grad.same_storage(dy);
    });
    deliver(root, is_of_leaf ? dy.clone() : dy, false);
    const NoGrad no_grad;
    const AutocastScope as_recorded(std::nullopt);  // types are those of the forward pass
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), before);
      const std::shared_ptr<GradState> state = std::move(heap_.back());
      heap_.pop_back();
      const std::shared_ptr<Node> node = state->node;
      Tensor dy_of_node = take_pending(*state);
      const OriginScope origin({node->name(), node->layer(), true});
      const profiler::Scope scope(node->name());
      const detail::OpScope op_scope;
      std::optional<Arrived> arrived;
      if (profiler::enabled()) arrived = {dy_of_node.shape(), dy_of_node.byte_size(), dy_of_node.storage()};
      place_gradients(node->inputs);
      const std::uint64_t open = open_sums(node->inputs);
      std::vector<Tensor> gradients = node->run(std::move(dy_of_node));
      const std::vector<std::shared_ptr<GradState>> inputs = std::exchange(node->inputs, {});
      HEARTH_CHECK(InternalError, gradients.size() == inputs.size(), node->name(), ": backward returned ",
                   gradients.size(), " gradients for ", inputs.size(), " inputs");
      if (arrived) profiler::add_bytes(bytes_of(inputs, gradients, *arrived));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == nullptr) continue;
        if (gradients[i].defined()) check_fits(*inputs[i], gradients[i], node->name(), i);
        deliver(inputs[i], std::move(gradients[i]), i < 64 && (open >> i & 1) != 0);
      }
    }
    finish_leaves();
  }

 private:
  /// Behind an op that gave no gradient nodes do not run, so that a leaf may wait for contributions that never come.
  void finish_leaves() {
    if (of_part_) return;
    for (const auto& [state, leaf] : expected_)
      if (leaf.missing > 0) finish_leaf(*state);
  }

  static void finish_leaf(GradState& state) {
    if (state.pending.defined()) accumulate_leaf(state, take_pending(state), false);
    call_all(state.ready_hooks, [](const auto& hook) { hook(); });
  }

  static bool before(const std::shared_ptr<GradState>& a, const std::shared_ptr<GradState>& b) {
    return a->node->number() < b->node->number();
  }

  /// A gradient that an op was given, for the profiler: kept weakly, so that the op may overwrite it and no other takes
  /// its address.
  struct Arrived {
    Shape shape;
    std::size_t bytes;
    std::weak_ptr<Storage> storage;
  };

  /// What a backward pass of an op reads and writes at least, for the profiler: the gradient of its result, inputs
  /// whose gradients are needed, and these; nothing where it hands on the gradient.
  static double bytes_of(std::span<const std::shared_ptr<GradState>> inputs, std::span<const Tensor> gradients,
                         const Arrived& arrived) {
    const std::shared_ptr<Storage> storage = arrived.storage.lock();
    std::size_t bytes = arrived.bytes;
    int handed_on = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr || !gradients[i].defined()) continue;
      bytes += 2 * gradients[i].byte_size();
      // What is written in place has the shape; the sum of two hands on the same to both.
      if (gradients[i].storage() == storage) handed_on += gradients[i].shape() == arrived.shape ? 1 : 2;
    }
    return handed_on > 1 ? 0 : static_cast<double>(bytes);
  }

  void expect(const std::shared_ptr<GradState>& leaf) {
    Leaf& expected = expected_[leaf.get()];
    expected.state = leaf;
    ++expected.missing;
  }

  void count(const std::shared_ptr<GradState>& root) {
    std::vector<const Node*> stack;
    std::unordered_set<const Node*> seen;
    if (root->node)
      stack.push_back(root->node.get());
    else
      expect(root);
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (!seen.insert(node).second) continue;
      for (const auto& input : node->inputs) {
        if (input == nullptr) continue;
        if (input->node)
          stack.push_back(input->node.get());
        else
          expect(input);
      }
    }
  }

  /// A low-precision leaf may collect in f32.
  static bool widens(const GradState& state, const Tensor& gradient) {
    return state.node == nullptr && state.dtype == DType::f32 && size_of(gradient.dtype()) == 2;
  }

  /// Nothing behind this point looks at shapes again: a gradient that does not fit would be read past its end.
  static void check_fits(const GradState& state, const Tensor& gradient, const char* op, std::size_t input) {
    HEARTH_CHECK(ShapeError, gradient.shape() == state.shape, op, ": backward gave input ", input, ", of shape ",
                 state.shape, ", a gradient of shape ", gradient.shape(),
                 "; return one of the input's shape, summed over what forward broadcast");
    HEARTH_CHECK(DTypeError, gradient.dtype() == state.dtype || widens(state, gradient), op, ": backward gave input ",
                 input, ", whose gradient is ", state.dtype, " ", state.shape, ", one of ", gradient.dtype(),
                 "; convert it with to()");
    HEARTH_CHECK(DeviceError, gradient.device() == state.device, op, ": backward gave input ", input, " on ",
                 state.device, " a gradient on ", gradient.device(), "; make it on the device of dy");
  }

  static void place_gradient(GradState& leaf) {
    if (!leaf.grad.defined() && leaf.place != nullptr) leaf.grad = (*leaf.place)();
  }
  /// Of leaves that an op may write to. Hooks see a gradient before it has a place.
  static void place_gradients(std::span<const std::shared_ptr<GradState>> inputs) {
    for (const std::shared_ptr<GradState>& input : inputs)
      if (input != nullptr && input->node == nullptr && input->hooks.empty()) place_gradient(*input);
  }

  /// Of the first 64 inputs a bit each: whether the op may add to the sum so far (NeedsGrad::sum_so_far) or write the
  /// leaf's gradient (make). What comes back in that memory has been added then, as nobody else holds it.
  static std::uint64_t open_sums(std::span<const std::shared_ptr<GradState>> inputs) {
    std::uint64_t open = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(inputs.size(), 64); ++i) {
      const GradState* const state = inputs[i].get();
      const bool is =
          state != nullptr && (state->node != nullptr ? state->pending.defined() && state->pending.sole_owner()
                                                      : state->grad.defined() && state->hooks.empty());
      open |= static_cast<std::uint64_t>(is) << i;
    }
    return open;
  }

  void deliver(const std::shared_ptr<GradState>& state, Tensor gradient, bool open) {
    if (state->node == nullptr) {
      if (gradient.defined()) {
        if (widens(*state, gradient)) gradient = gradient.contiguous().to(DType::f32);
        if (state->hooks.empty())
          accumulate_leaf(*state, std::move(gradient), open);
        else
          add_pending(*state, std::move(gradient), open);
      }
      // In the backward pass of a recomputed part the last contribution is not known; the outer pass gets there later.
      if (--expected_[state.get()].missing == 0 && !of_part_) finish_leaf(*state);
      return;
    }
    if (!gradient.defined()) return;  // this path contributes nothing
    if (!state->pending.defined()) {
      heap_.push_back(state);
      std::push_heap(heap_.begin(), heap_.end(), before);
    }
    add_pending(*state, std::move(gradient), open);
  }

  /// Whether an op has added its contribution itself to an open sum.
  static bool is_written_in_place(const Tensor& gradient, const Tensor& sum) {
    return gradient.bytes() == sum.bytes() && gradient.same_storage(sum);
  }

  static void add_pending(GradState& state, Tensor gradient, bool open) {
    if (!state.pending.defined()) {
      state.pending = std::move(gradient);
      return;
    }
    if (open && is_written_in_place(gradient, state.pending)) return;
    if (!state.pending.is_contiguous() || !state.pending.sole_owner()) state.pending = state.pending.clone();
    add(state.pending, gradient);
  }

  /// Calls those hooks that are there now: one that registers another moves the list.
  template <class Hook, class Call>
  static void call_all(const std::vector<Hook>& hooks, Call&& call) {
    const std::size_t count = hooks.size();
    for (std::size_t i = 0; i < count; ++i) call(Hook(hooks[i]));
  }

  /// The whole gradient of this pass, as hooks leave it. They may write to what they get; what they give may be
  /// others'.
  static Tensor take_pending(GradState& state) {
    Tensor gradient = std::exchange(state.pending, {});
    if (!state.hooks.empty() && !gradient.sole_owner()) gradient = gradient.clone();
    call_all(state.hooks, [&](const auto& hook) {
      Tensor replacement = hook(gradient);
      if (!replacement.defined()) return;
      check_replacement(state, replacement);
      gradient = replacement.sole_owner() ? std::move(replacement) : replacement.clone();
    });
    return gradient;
  }

  static void check_replacement(const GradState& state, const Tensor& gradient) {
    HEARTH_CHECK(ShapeError, gradient.shape() == state.shape, "backward: a hook returned ", describe(gradient),
                 " for the gradient of a tensor of shape ", state.shape, "; return one of that shape, or nothing");
    HEARTH_CHECK(DTypeError, gradient.dtype() == state.dtype, "backward: a hook returned ", describe(gradient),
                 " for a gradient of type ", state.dtype, "; convert it with to()");
    HEARTH_CHECK(DeviceError, gradient.device() == state.device, "backward: a hook returned a gradient on ",
                 gradient.device(), " for a tensor on ", state.device, "; move it with to(device)");
  }

  static void accumulate_leaf(GradState& state, Tensor gradient, bool open) {
    place_gradient(state);
    if (!state.grad.defined()) {
      state.grad = gradient.sole_owner() && gradient.is_contiguous() ? std::move(gradient) : gradient.clone();
      state.is_zero = false;
      return;
    }
    if (!open || !is_written_in_place(gradient, state.grad)) {
      if (state.is_zero)
        state.grad.copy_from(gradient);
      else
        add(state.grad, gradient);
    }
    // Whoever kept the gradient as it was learns of it.
    state.grad.storage()->bump_version();
    state.is_zero = false;
  }

  /// Held here: its owner may have given it up, and the node that it goes into lets go of it when it has run.
  struct Leaf {
    std::shared_ptr<GradState> state;
    std::int64_t missing = 0;  ///< contributions
  };

  const bool of_part_;
  std::unordered_map<GradState*, Leaf> expected_;
  std::vector<std::shared_ptr<GradState>> heap_;
};

void run(const Tensor& y, const Tensor& dy, bool of_part) {
  HEARTH_CHECK(UsageError, needs_grad(y), "backward: nothing on the tape leads to this tensor (", describe(y),
               "); does any parameter need a gradient, and is NoGrad off?");
  HEARTH_CHECK(ShapeError, dy.shape() == y.shape(), "backward: dy has shape ", dy.shape(), ", y has ", y.shape());
  HEARTH_CHECK(DTypeError, dy.dtype() == y.dtype(), "backward: dy is ", dy.dtype(), ", y is ", y.dtype());
  HEARTH_CHECK(DeviceError, dy.device() == y.device(), "backward: dy is on ", dy.device(), ", y on ", y.device(),
               "; move one with to(device)");
  BackwardPass(y.grad_state(), of_part).run(y.grad_state(), dy);
}

}  // namespace

void backward(const Tensor& y, const Tensor& dy) { run(y, dy, false); }
void detail::backward_of_part(const Tensor& y, const Tensor& dy) { run(y, dy, true); }

void backward(const Tensor& loss, double seed) {
  HEARTH_CHECK(ShapeError, loss.defined() && loss.size() == 1, "backward: the loss is ", describe(loss),
               "; it must have one element (take a sum or a mean)");
  backward(loss, Tensor::full(loss.shape(), seed, loss.dtype(), loss.device()));
}

}  // namespace hearth
