// SPDX-License-Identifier: Apache-2.0
// Nodes, tape slots and the switches of the tape.
#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "autograd/grad_mode.h"
#include "autograd/op_observer.h"
#include "autograd/record.h"
#include "core/in_place.h"
#include "core/profiler_spans.h"

namespace hearth {
namespace {

std::atomic<std::uint64_t> next_number{1};
thread_local bool grad_on = true;
thread_local bool recording_on = false;
thread_local bool recomputing_on = false;
thread_local std::optional<DType> low_precision_type;
thread_local OpObserver* op_observer = nullptr;
thread_local int ops_under_way = 0;
thread_local std::uint64_t op_number = 0;

// Slots whose destruction is under way. A chain of nodes is taken apart in a loop, so depth never meets the stack.
thread_local std::vector<std::shared_ptr<Node>>* doomed = nullptr;

}  // namespace

Node::Node(const char* name)
    : name_(name), layer_(current_origin().layer), number_(next_number.fetch_add(1, std::memory_order_relaxed)) {}
Node::~Node() = default;

GradState::~GradState() {
  if (!node) return;
  if (doomed != nullptr) {
    // Without memory for the list the node is taken apart here, by recursion.
    try {
      doomed->push_back(std::move(node));
    } catch (const std::bad_alloc&) {
    }
    return;
  }
  std::vector<std::shared_ptr<Node>> queue;
  doomed = &queue;
  node.reset();
  while (!queue.empty()) {
    const std::shared_ptr<Node> last = std::move(queue.back());
    queue.pop_back();
  }
  doomed = nullptr;
}

bool is_flat(const Tensor& tensor) {
  return tensor.defined() && tensor.grad_state() != nullptr && !tensor.grad_state()->flat.expired();
}

bool needs_grad(const Tensor& tensor) {
  return tensor.defined() && tensor.grad_state() != nullptr && tensor.grad_state()->frozen == 0;
}

namespace {

bool is_recorded_result(const Tensor& tensor) { return needs_grad(tensor) && tensor.grad_state()->node != nullptr; }

/// What copy_from() and fill_() ask. Leaves are written, whatever their values come from: before the forward pass that
/// is how they get them, and after it backward() finds the write. They are copied as well, as weights to another model.
void check_write(const char* what, const Tensor& to, const Tensor* source) {
  if (!grad_on) return;
  HEARTH_CHECK(UsageError, !is_recorded_result(to), what, ": writes into ", describe(to),
               " in place, which the tape does not record; make a new tensor (x = x + y, where(), concat()), or write "
               "within NoGrad where no gradient is meant");
  HEARTH_CHECK(UsageError, source == nullptr || needs_grad(to) || !is_recorded_result(*source), what, ": copies ",
               source == nullptr ? std::string() : describe(*source),
               ", which needs a gradient, and the tape does not record the copy; use the source itself, copy "
               "source.detach(), or copy within NoGrad");
}

[[maybe_unused]] const bool installed = (detail::write_check = check_write, true);

}  // namespace

Tensor requires_grad(const Tensor& tensor) {
  HEARTH_CHECK(DTypeError, is_floating(tensor.dtype()), "requires_grad: a tensor of ", tensor.dtype(),
               " has no gradient; use f32, f64, f16 or bf16");
  HEARTH_CHECK(UsageError, tensor.grad_state() == nullptr || tensor.grad_state()->node == nullptr,
               "requires_grad: the tensor is the result of an op; detach() it first");
  if (tensor.grad_state() != nullptr) return tensor;
  return tensor.with_grad_state(std::make_shared<GradState>(tensor));
}

namespace {

GradState& leaf_state(const Tensor& leaf, const char* what) {
  HEARTH_CHECK(UsageError, leaf.defined() && leaf.grad_state() != nullptr && leaf.grad_state()->node == nullptr, what,
               ": the tensor is not a leaf; make it one with requires_grad before the forward pass");
  return *leaf.grad_state();
}

}  // namespace

Tensor grad_of(const Tensor& leaf) {
  GradState& state = leaf_state(leaf, "grad_of");
  HEARTH_CHECK(UsageError, state.place == nullptr, "grad_of: ", describe(leaf),
               ": ranks keep a part of its gradient each (zero 2 and 3), so that no rank has it whole; read "
               "FlatParameters::grads(), this rank's part, or use zero 0 or 1");
  if (!state.grad.defined())
    state.grad = Tensor::zeros(leaf.shape(), leaf.dtype(), leaf.device());
  else if (state.is_zero)
    state.grad.fill_(0);
  state.is_zero = false;
  return state.grad;
}

void zero_grad(const Tensor& leaf) { leaf_state(leaf, "zero_grad").is_zero = true; }

void register_hook(const Tensor& tensor, std::function<Tensor(const Tensor&)> f) {
  HEARTH_CHECK(UsageError, needs_grad(tensor), "register_hook: no gradient reaches this tensor (", describe(tensor),
               "); make a leaf of it with requires_grad() before the forward pass, and see that NoGrad is off");
  HEARTH_CHECK(UsageError, f != nullptr, "register_hook: the function is empty");
  tensor.grad_state()->hooks.push_back(std::move(f));
}

void on_grad_ready(const Tensor& leaf, std::function<void()> f) {
  GradState& state = leaf_state(leaf, "on_grad_ready");
  HEARTH_CHECK(UsageError, f != nullptr, "on_grad_ready: the function is empty; give one to call");
  state.ready_hooks.push_back(std::move(f));
}

bool grad_enabled() { return grad_on; }
bool is_recording() { return recording_on; }
bool is_recomputing() { return recomputing_on; }
std::optional<DType> autocast_dtype() { return low_precision_type; }

NoGrad::NoGrad() : previous_(std::exchange(grad_on, false)) {}
NoGrad::~NoGrad() { grad_on = previous_; }

AutocastScope::AutocastScope(std::optional<DType> low_precision) : previous_(low_precision_type) {
  HEARTH_CHECK(DTypeError, !low_precision || *low_precision == DType::f16 || *low_precision == DType::bf16,
               "autocast: ", low_precision ? name_of(*low_precision) : "",
               " is not a low-precision type; use f16 or bf16");
  low_precision_type = low_precision;
}
AutocastScope::~AutocastScope() { low_precision_type = previous_; }

OpObserverScope::OpObserverScope(OpObserver& observer) : previous_(std::exchange(op_observer, &observer)) {}
OpObserverScope::~OpObserverScope() { op_observer = previous_; }

namespace detail {

namespace {

/// What an op reads and writes at least, for the profiler; a view moves nothing.
double bytes_of(std::span<const Tensor> inputs, const Tensor& result) {
  std::size_t bytes = result.byte_size();
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (input.same_storage(result)) return 0;
    bytes += input.byte_size();
  }
  return static_cast<double>(bytes);
}

}  // namespace

void observe(const OpInfo& info, std::span<const Tensor> inputs, const Tensor& result) {
  if (profiler::enabled()) profiler::add_bytes(bytes_of(inputs, result));
  if (op_observer != nullptr) op_observer->after(info, inputs, result);
}

OpScope::OpScope() {
  if (ops_under_way++ == 0) ++op_number;
}
OpScope::~OpScope() { --ops_under_way; }

std::uint64_t current_op() { return ops_under_way > 0 ? op_number : ++op_number; }

RecordingScope::RecordingScope(bool on)
    : previous_recording_(std::exchange(recording_on, on)), previous_grad_(std::exchange(grad_on, false)) {}
RecordingScope::~RecordingScope() {
  recording_on = previous_recording_;
  grad_on = previous_grad_;
}

RecomputingScope::RecomputingScope()
    : previous_recomputing_(std::exchange(recomputing_on, true)), previous_grad_(std::exchange(grad_on, true)) {}
RecomputingScope::~RecomputingScope() {
  recomputing_on = previous_recomputing_;
  grad_on = previous_grad_;
}

void check_devices(const char* op, std::span<const Tensor> inputs) {
  const Tensor* first = nullptr;
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (first == nullptr) first = &input;
    HEARTH_CHECK(DeviceError, input.device() == first->device(), op, ": inputs on ", first->device(), " and ",
                 input.device(), " (", describe(*first), " and ", describe(input), "); move one with to(device)");
  }
}

bool any_needs_grad(std::span<const Tensor> inputs) {
  for (const Tensor& input : inputs)
    if (needs_grad(input)) return true;
  return false;
}

namespace {

/// A backward pass writes into the gradients that leaves have. None of them may be what the same op reads: a gradient
/// that was taken from its leaf and multiplied with it, say.
void take_apart(const char* op, std::span<const Tensor> inputs) {
  for (const Tensor& leaf : inputs) {
    if (!needs_grad(leaf) || leaf.grad_state()->node != nullptr || !leaf.grad_state()->grad.defined()) continue;
    Tensor& gradient = leaf.grad_state()->grad;
    const bool is_read = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) {
      return input.defined() && input.same_storage(gradient);
    });
    if (!is_read) continue;
    HEARTH_CHECK(UsageError, !is_flat(leaf), op, ": an input is the gradient of another, of ", describe(leaf),
                 " in FlatParameters, and the backward pass writes there; give a clone() of the gradient");
    gradient = gradient.clone();
  }
}

}  // namespace

Tensor attach(std::shared_ptr<Node> node, std::span<const Tensor> inputs, const Tensor& result) {
  take_apart(node->name(), inputs);
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) node->inputs.push_back(needs_grad(input) ? input.grad_state() : nullptr);
  auto state = std::make_shared<GradState>(result);
  state->node = std::move(node);
  return result.with_grad_state(std::move(state));
}

void throw_consumed(const char* op) {
  throw UsageError(join_text(op, ": backward ran through this graph already; run the forward pass again"));
}

}  // namespace detail

/// The leaf whose gradient an op may write itself; null if there is none.
const GradState* NeedsGrad::leaf_of_single_use(std::size_t i, const Shape& shape, DType dtype) const {
  const GradState* state = inputs_[i].get();
  // An input used twice by one op gets two contributions, so neither may claim the final place.
  // Hooks see a gradient before it gets there.
  if (state == nullptr || !state->hooks.empty() || std::count(inputs_.begin(), inputs_.end(), inputs_[i]) > 1)
    return nullptr;
  const bool fits =
      state->node == nullptr && state->grad.defined() && state->grad.shape() == shape && state->grad.dtype() == dtype;
  return fits ? state : nullptr;
}

Tensor NeedsGrad::make(std::size_t i, const Shape& shape, DType dtype) const {
  const GradState* leaf = leaf_of_single_use(i, shape, dtype);
  return leaf != nullptr && leaf->is_zero ? leaf->grad : Tensor::empty(shape, dtype, device_);
}

DType NeedsGrad::type_for(std::size_t i, DType own) const {
  const GradState* state = inputs_[i].get();
  const bool collects = state != nullptr && state->node == nullptr && state->grad.defined();
  return collects && state->grad.dtype() == DType::f32 && size_of(own) == 2 ? DType::f32 : own;
}

Tensor NeedsGrad::sum_so_far(std::size_t i, const Shape& shape, DType dtype) const {
  if (i >= 64) return {};  // the backward pass watches so many
  if (const GradState* leaf = leaf_of_single_use(i, shape, dtype))
    return !leaf->is_zero && leaf->grad.is_contiguous() ? leaf->grad : Tensor();
  const GradState* state = inputs_[i].get();
  if (state == nullptr || state->node == nullptr || std::count(inputs_.begin(), inputs_.end(), inputs_[i]) > 1)
    return {};
  const Tensor& sum = state->pending;
  const bool fits = sum.defined() && sum.shape() == shape && sum.dtype() == dtype;
  return fits && sum.is_contiguous() && sum.sole_owner() ? sum : Tensor();
}

SavedTensor& SavedTensor::operator=(const Tensor& tensor) {
  // Without the tape slot: a kept result must not hold the node that keeps it.
  tensor_ = tensor.defined() && tensor.grad_state() ? tensor.detach() : tensor;
  version_ = tensor.defined() ? tensor.storage()->version() : 0;
  return *this;
}

const Tensor& SavedTensor::get() const {
  if (tensor_.defined()) tensor_.storage()->bring();
  HEARTH_CHECK(UsageError, !tensor_.defined() || tensor_.storage()->version() == version_, current_origin(),
               ": the tensor ", describe(tensor_),
               ", which the gradient needs, was changed in place after the forward pass; write to it after backward(), "
               "or to a clone() of it, and read through data<const T>(), as data<T>() counts as a write");
  return tensor_;
}

}  // namespace hearth
