// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <cstring>
#include <utility>

#include "core/blank.h"
#include "core/build.h"
#include "core/convert.h"
#include "core/cpu/parallel.h"
#include "core/cuda/transfer.h"
#include "core/in_place.h"
#include "core/run_on.h"
#include "core/tensor_events.h"

namespace hearth {
namespace {

thread_local int kernel_scopes = 0;
thread_local bool leaves_blank = false;
thread_local TensorListener tensor_listener = nullptr;

/// Events are part of another during its life.
class UntoldScope {
 public:
  UntoldScope() : listener_(std::exchange(tensor_listener, nullptr)) {}
  ~UntoldScope() { tensor_listener = listener_; }
  UntoldScope(const UntoldScope&) = delete;
  UntoldScope& operator=(const UntoldScope&) = delete;

 private:
  TensorListener listener_;
};

void tell(TensorEvent event, const Tensor& from, const Tensor& to) {
  if (tensor_listener != nullptr) tensor_listener(event, from, to);
}

/// Between tensors of one shape and type, both contiguous, on any devices.
void copy_bytes(const Tensor& source, const Tensor& destination) {
  tell(TensorEvent::copy, source, destination);
#if HEARTH_HAS_CUDA
  const Device from = source.device(), to = destination.device();
  if (from.is_cuda() && to.is_cuda()) {
    HEARTH_CHECK(UsageError, from == to, "copy_from: source on ", from, ", destination on ", to,
                 "; go through the cpu");
    return cuda::copy_within(cuda::stream_of(to), destination.bytes(), source.bytes(), source.byte_size());
  }
  if (to.is_cuda()) return cuda::copy_in(cuda::stream_of(to), destination.bytes(), source.bytes(), source.byte_size());
  if (from.is_cuda())
    return cuda::copy_out_and_wait(cuda::stream_of(from), destination.bytes(), source.bytes(), source.byte_size());
#endif
  std::memmove(destination.bytes(), source.bytes(), source.byte_size());
}

/// The bytes from the first element to behind the last.
std::span<const std::byte> reach_of(const Tensor& tensor) {
  std::int64_t last = 0;
  for (int i = 0; i < tensor.rank(); ++i) last += (tensor.dim(i) - 1) * tensor.strides()[static_cast<std::size_t>(i)];
  return {tensor.bytes(), static_cast<std::size_t>(last + 1) * size_of(tensor.dtype())};
}

/// Whether a copy could read what it has written; neither is empty.
bool may_overlap(const Tensor& a, const Tensor& b) {
  if (!a.same_storage(b)) return false;
  const auto in_a = reach_of(a), in_b = reach_of(b);
  return in_a.data() < in_b.data() + in_b.size() && in_b.data() < in_a.data() + in_a.size();
}

StridedBytes strided(const Tensor& tensor) { return {tensor.bytes(), tensor.dtype(), tensor.strides()}; }

/// `source` as contiguous elements of `dtype` on its own device.
Tensor gathered(const Tensor& source, DType dtype) {
  const Tensor dense = source.contiguous();
  return dense.dtype() == dtype ? dense : dense.to(dtype);
}

/// Of one shape. What the tape knows of either is nothing to it.
void copy_elements(const Tensor& source, const Tensor& to) {
  to.storage()->bump_version();
  if (to.size() == 0) return;
  source.storage()->bring();
  if (source.device() != to.device()) {
    // Types and layouts are changed on the side where the source is; only dense bytes cross.
    const Tensor dense = gathered(source, to.dtype());
    if (to.is_contiguous()) return copy_bytes(dense, to);
    const Tensor arrived = Tensor::empty(to.shape(), to.dtype(), to.device());
    copy_bytes(dense, arrived);
    return copy_elements(arrived, to);
  }
  const bool plain = to.is_contiguous() && source.is_contiguous() && source.dtype() == to.dtype();
  // The host's copy of plain bytes allows for that; no other does.
  if (may_overlap(source, to) && !(plain && to.device().is_cpu())) return copy_elements(source.clone(), to);
  if (plain) return copy_bytes(source, to);
  if (to.is_contiguous() && source.is_contiguous()) {
    tell(TensorEvent::copy, source, to);
    run_on(to.device(), [&](auto& stream) {
      kernels::convert(stream, source.dtype(), source.bytes(), to.dtype(), to.bytes(), to.size());
    });
    return;
  }
  // The device's strided copy does not convert.
  const Tensor typed = to.device().is_cuda() && source.dtype() != to.dtype() ? gathered(source, to.dtype()) : source;
  tell(TensorEvent::copy, typed, to);
  run_on(to.device(), [&](auto& stream) { kernels::copy_strided(stream, strided(typed), strided(to), to.shape()); });
}

}  // namespace

detail::WriteCheck detail::write_check = nullptr;

void listen_to_tensors(TensorListener listener) noexcept { tensor_listener = listener; }

KernelScope::KernelScope() noexcept { ++kernel_scopes; }
KernelScope::~KernelScope() { --kernel_scopes; }
BlankTensorScope::BlankTensorScope() : previous_(std::exchange(leaves_blank, true)) {}
BlankTensorScope::~BlankTensorScope() { leaves_blank = previous_; }

void Tensor::throw_undefined() {
  throw UsageError("an undefined tensor was used where a value is needed; was an optional input left out?");
}

void Tensor::check_dtype(DType wanted) const {
  HEARTH_CHECK(DTypeError, dtype() == wanted, "tensor of ", dtype(), " read as ", wanted, "; convert it with to()");
}

// Threads of the pool work for the kernel of the thread that called them.
void Tensor::count_write() const {
  if (kernel_scopes == 0 && current_origin().op == nullptr && !cpu::is_in_parallel()) body().storage->bump_version();
}

Tensor Tensor::make(Body body) { return Tensor(std::make_shared<const Body>(std::move(body))); }

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Body body;
  try {
    body.storage = std::make_shared<Storage>(shape, dtype, device);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(join_text("tensor ", dtype, " ", shape, ": ", error.what()));
  }
  body.shape = shape;
  body.strides = contiguous_strides(shape);
  body.dtype = dtype;
  body.device = device;
  return make(std::move(body));
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  if (tensor.size() == 0) return tensor;
  tell(TensorEvent::fill, {}, tensor);
#if HEARTH_HAS_CUDA
  if (device.is_cuda()) {
    cuda::fill_bytes(cuda::stream_of(device), tensor.bytes(), 0, tensor.byte_size());
    return tensor;
  }
#endif
  if (!leaves_blank) std::memset(tensor.bytes(), 0, tensor.byte_size());
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  if (leaves_blank && device.is_cpu()) return tensor;
  tell(TensorEvent::fill, {}, tensor);
  run_on(device, [&](auto& stream) { kernels::fill(stream, dtype, tensor.bytes(), tensor.size(), value); });
  return tensor;
}

Tensor Tensor::view(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, std::int64_t offset,
                    DType dtype, Device device) {
  HEARTH_CHECK(UsageError, storage != nullptr, "view: there is no storage");
  HEARTH_CHECK(DeviceError, storage->device() == device, "view: on ", device, " of a storage on ", storage->device(),
               "; copy the tensor there with to(device)");
  HEARTH_CHECK(ShapeError, offset >= 0, "view: offset ", offset, " is negative");
  std::int64_t last = offset;
  for (int i = 0; i < shape.rank(); ++i) {
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    HEARTH_CHECK(ShapeError, stride >= 0, "view: stride ", stride, " on axis ", i, " is negative");
    if (shape[i] > 1) last = checked_add(last, checked_mul(shape[i] - 1, stride, "view: extent"), "view: extent");
  }
  const std::int64_t needed = shape.size() == 0 ? 0 : checked_add(last, 1, "view: extent");
  const auto available = static_cast<std::int64_t>(storage->size() / hearth::size_of(dtype));
  HEARTH_CHECK(ShapeError, needed <= available && offset <= available, "view: shape ", shape, " at offset ", offset,
               " reaches element ", needed, " of a storage of ", available, " elements of ", dtype);
  Body body;
  body.storage = std::move(storage);
  body.shape = shape;
  body.strides = strides;
  body.offset = offset;
  body.dtype = dtype;
  body.device = device;
  const Strides dense = contiguous_strides(shape);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] > 1 && strides[static_cast<std::size_t>(i)] != dense[static_cast<std::size_t>(i)])
      body.contiguous = false;
  if (shape.size() <= 1) body.contiguous = true;
  return make(std::move(body));
}

Tensor Tensor::as_shape(const Shape& new_shape) const {
  HEARTH_CHECK(ShapeError, new_shape.size() == size(), "as_shape: ", shape(), " has ", size(), " elements, ", new_shape,
               " has ", new_shape.size());
  HEARTH_CHECK(ShapeError, is_contiguous(), "as_shape: a view of shape ", shape(), " is not contiguous; copy it first");
  return view(storage(), new_shape, contiguous_strides(new_shape), offset(), dtype(), device());
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  return clone();
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape(), dtype(), device());
  copy_elements(*this, copy);
  return copy;
}

Tensor Tensor::detach() const {
  Body copy = body();
  copy.grad = nullptr;
  return make(std::move(copy));
}

Tensor Tensor::to(DType target) const {
  Tensor copy = empty(shape(), target, device());
  copy_elements(*this, copy);
  return copy;
}

Tensor Tensor::to(Device target) const {
  if (target == device()) return detach();
  const Tensor copy = empty(shape(), dtype(), target);
  copy_elements(*this, copy);
  return copy;
}

void Tensor::copy_from(const Tensor& source) const {
  HEARTH_CHECK(ShapeError, source.shape() == shape(), "copy_from: source ", source.shape(), ", destination ", shape());
  if (detail::write_check != nullptr) detail::write_check("copy_from", *this, &source);
  copy_elements(source, *this);
}

void Tensor::fill_(double value) const {
  if (detail::write_check != nullptr) detail::write_check("fill_", *this, nullptr);
  if (leaves_blank && device().is_cpu()) return;
  if (!is_contiguous()) return copy_elements(full(shape(), value, dtype(), device()), *this);
  storage()->bump_version();
  tell(TensorEvent::fill, {}, *this);
  run_on(device(), [&](auto& stream) { kernels::fill(stream, dtype(), bytes(), size(), value); });
}

double Tensor::item() const {
  HEARTH_CHECK(UsageError, size() == 1, "item: the tensor has shape ", shape(), "; one element is needed");
  return to_doubles().front();
}

std::vector<double> Tensor::to_doubles() const {
  tell(TensorEvent::read, *this, {});
  const UntoldScope copies_of_the_read;
  const Tensor wide = to(Device{}).to(DType::f64);
  const double* values = wide.data<double>();
  return std::vector<double>(values, values + wide.size());
}

bool Tensor::sole_owner() const { return body_.use_count() == 1 && body().storage.use_count() == 1; }

Tensor Tensor::with_grad_state(std::shared_ptr<GradState> state) const {
  Body copy = body();
  copy.grad = std::move(state);
  return make(std::move(copy));
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "absent";
  return join_text(tensor.dtype(), " ", tensor.shape());
}

}  // namespace hearth
