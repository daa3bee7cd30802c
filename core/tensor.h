// SPDX-License-Identifier: Apache-2.0
// The tensor: a shared pointer to an immutable body {storage, shape, strides, offset, dtype, device, gradient slot}.
// Bytes are mutable, metadata never is. Copying a Tensor aliases it; clone() copies the bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory/memory.h"
#include "core/origin.h"
#include "core/other_names.h"
#include "core/shape.h"

namespace hearth {

/// Completed by autograd: what the tape keeps beside a tensor.
struct GradState;
/// Completed by ops: what members of a tensor take.
class Extents;
class Index;
struct Sorted;
struct VarianceOptions;

/// What reports say of a storage.
struct StorageRecord {
  Device device;
  std::size_t bytes = 0;
  Shape shape;  ///< of the tensor it was made for
  DType dtype = DType::f32;
  Origin origin;  ///< who made it
};

/// Fills storages whose bytes come and go, as values that ranks gather while ops use them.
class HEARTH_API StorageKeeper {
 public:
  virtual ~StorageKeeper() = default;
  /// Fills the storage of this number, for the op that begins.
  virtual void bring(std::size_t number) = 0;
};

/// Owned bytes. `version` counts in-place writes, so that a gradient can tell that what it saved was changed. All
/// storages alive are chained, for reports.
class HEARTH_API Storage {
 public:
  /// For a contiguous tensor.
  Storage(const Shape& shape, DType dtype, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// UsageError while they are given back.
  std::byte* bytes() const {
    if (released_.load(std::memory_order_relaxed)) throw_released();
    return bytes_;
  }
  std::size_t size() const { return record_.bytes; }
  Device device() const { return record_.device; }
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// From now on bring() asks `keeper`, which outlives that; null: nobody.
  void keep(StorageKeeper* keeper, std::size_t number) { keeper_ = keeper, number_ = number; }
  /// Before an op uses the bytes.
  void bring() const {
    if (keeper_ != nullptr) keeper_->bring(number_);
  }
  // For its keeper.
  /// Gives the bytes back, until refill() takes others.
  void release();
  void refill();
  /// The bytes are those that they were at this version.
  void restore_version(std::uint64_t version) { version_.store(version, std::memory_order_relaxed); }

 private:
  friend struct StorageChain;

  [[noreturn]] static void throw_released();

  MemoryResource* resource_;
  std::byte* bytes_;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<bool> released_{false};
  StorageKeeper* keeper_ = nullptr;
  std::size_t number_ = 0;  ///< for the keeper
  StorageRecord record_;
  Storage* previous_ = nullptr;
  Storage* next_ = nullptr;
};

/// The largest storages that are alive on a device, largest first, at most `count`.
HEARTH_API std::vector<StorageRecord> largest_storages(Device device, std::size_t count);

/// Whether axes that are reduced stay, with extent 1: true or false, and no further axis, as in `x.sum(0, 1)`.
class HEARTH_API KeepDims {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr KeepDims(T keep) : keep_(keep) {  // NOLINT: stands for a bool
    static_assert(std::same_as<T, bool>,
                  "keep_dims is true or false: write several axes as a list, x.sum({0, 1}), and x.sum(0, true) to keep "
                  "the axis");
  }
  constexpr operator bool() const { return keep_; }  // NOLINT: likewise

 private:
  bool keep_;
};

class HEARTH_API Tensor {
 public:
  /// Undefined: stands for "absent", for example a layer without bias.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  /// `x = y` makes x another name of y's elements.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// `x[0] = y` and `x[{all, 1}] = 5` write into x's storage: y is broadcast to the part and converted to its type.
  /// Not recorded: UsageError where x or y needs a gradient, unless NoGrad is on.
  const Tensor& operator=(const Tensor& source) const&&;
  const Tensor& operator=(double value) const&&;

  /// Uninitialised, contiguous. OutOfMemory names the shape.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  /// Every element is `value`, rounded to the dtype.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  /// A copy of `values`, whose count must equal the shape's.
  template <class T>
  static Tensor of(const Shape& shape, std::span<const T> values);
  template <class T>
  static Tensor of(const Shape& shape, std::initializer_list<T> values) {
    return of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <class T>
  static Tensor of(const Shape& shape, const std::vector<T>& values) {
    return of<T>(shape, std::span<const T>(values));
  }
  /// A view on `storage`; every element it can reach is checked to lie inside, once, here. `offset` in elements.
  /// DeviceError unless the storage is on `device`.
  static Tensor view(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, std::int64_t offset,
                     DType dtype, Device device);

  bool defined() const { return body_ != nullptr; }
  /// `float v = loss;` and `if (less(a, b))` do not compile: item() reads the number, and waits for the device.
  template <class T>
  requires std::is_arithmetic_v<T>
  operator T() const {  // NOLINT: to be found by `=`
    static_assert(
        !std::same_as<T, bool>,
        "a tensor is neither true nor false: write x.defined() to ask whether there is one, x.item<bool>() for "
        "its only element, x.to_doubles() for all of them");
    static_assert(std::same_as<T, bool>,
                  "a tensor is no number: write x.item<float>() for the only element, x.to_doubles() for all of them");
    return {};
  }

  const Shape& shape() const { return body().shape; }
  int rank() const { return body().shape.rank(); }
  std::int64_t dim(int axis) const { return body().shape.dim(axis); }
  /// Number of elements.
  std::int64_t size() const { return body().shape.size(); }
  /// Extent of an axis, as dim().
  std::int64_t size(int axis) const { return dim(axis); }
  std::size_t byte_size() const { return static_cast<std::size_t>(size()) * size_of(dtype()); }
  DType dtype() const { return body().dtype; }
  Device device() const { return body().device; }
  const Strides& strides() const { return body().strides; }
  std::int64_t offset() const { return body().offset; }
  bool is_contiguous() const { return body().contiguous; }
  const std::shared_ptr<Storage>& storage() const { return body().storage; }

  /// First element, in the device's memory; T is the dtype's type (DTypeError), and const where it is only read:
  /// data<const float>(). Taking a pointer that can write counts as an in-place write, which bumps the version, so that
  /// a gradient that has saved this tensor throws. Ops and kernels (run_on) are exempt: they say themselves what they
  /// change. A write through a pointer that was taken before the forward pass is not seen.
  template <class T>
  T* data() const {
    check_dtype(dtype_of<std::remove_const_t<T>>());
    if constexpr (!std::is_const_v<T>) count_write();
    return reinterpret_cast<T*>(bytes());
  }
  /// First element, untyped. Does not count as a write: whoever writes calls storage()->bump_version().
  std::byte* bytes() const {
    return body().storage->bytes() + body().offset * static_cast<std::int64_t>(size_of(body().dtype));
  }

  /// The same elements under another shape of equal size, sharing storage; the tensor must be contiguous.
  /// Not differentiable: `reshape` of ops is.
  Tensor as_shape(const Shape& shape) const;
  /// This tensor if contiguous, else a contiguous copy. Not differentiable.
  Tensor contiguous() const;
  /// A copy of the bytes, detached from the tape.
  Tensor clone() const;
  /// The same bytes without the gradient slot.
  Tensor detach() const;
  /// A copy converted to `dtype` (to floats rounded to nearest even, to integers truncated and saturated). Detached.
  Tensor to(DType dtype) const;
  /// A contiguous copy on `device`, or this tensor if it is there already. Detached. Waits when it leaves a CUDA
  /// device.
  Tensor to(Device device) const;
  /// Copies the elements of `source` (same shape; any dtype, any device) into this tensor's storage; bumps the version.
  /// Both may lie in one storage and overlap. Waits when it leaves a CUDA device.
  void copy_from(const Tensor& source) const;
  void fill_(double value) const;
  /// The only element, as double; waits for the device. UsageError unless size() == 1.
  double item() const;
  /// The same as T (float, double, int32_t, int64_t, uint8_t or bool), converted as to() does.
  template <class T>
  T item() const {
    const Tensor host = to(Device{}).to(dtype_of<T>());
    (void)host.item();
    return *host.template data<const T>();
  }
  /// All elements, converted to double, row-major; waits for the device.
  std::vector<double> to_doubles() const;
  /// The same as T, converted as item<T>() is.
  template <class T>
  std::vector<T> to_vector() const {
    const Tensor host = to(Device{}).to(dtype_of<T>()).contiguous();
    const T* const first = host.template data<const T>();
    return {first, first + host.size()};
  }

  /// True if no other tensor shares the storage, so a kernel may overwrite it.
  bool sole_owner() const;
  bool same_storage(const Tensor& other) const { return body().storage == other.body().storage; }

  /// The tape's slot (autograd). Null when no gradient was ever needed.
  const std::shared_ptr<GradState>& grad_state() const { return body().grad; }
  /// The same view with this slot.
  Tensor with_grad_state(std::shared_ptr<GradState> state) const;

  // What follows is differentiable and defined with the ops: each member is the function of that name in ops.h (or
  // autograd), with this tensor as its first argument. A program that calls them links the ops.

  void backward() const;
  /// grad_of().
  Tensor grad() const;
  /// Makes this handle a leaf that collects a gradient: *this = requires_grad(*this). UsageError for `on` = false, with
  /// what to do instead.
  Tensor requires_grad_(bool on = true);
  /// hearth::register_hook(): f(dy) sees each gradient of this tensor and, if it returns a tensor, replaces it.
  template <std::invocable<const Tensor&> F>
  void register_hook(F f) const {
    if constexpr (std::is_void_v<std::invoke_result_t<F, const Tensor&>>) {
      add_hook([f = std::move(f)](const Tensor& dy) mutable {
        f(dy);
        return Tensor();
      });
    } else {
      add_hook(std::move(f));
    }
  }

  /// Part of the tensor by position, a view: x[0], x[-1], x[{0, all}], x[{all, Slice(0, 3), 2}] (ops/shape/indexing.h).
  Tensor operator[](std::int64_t position) const;
  Tensor operator[](std::initializer_list<Index> indices) const;
  template <std::same_as<Tensor> Ids>
  Tensor operator[](const Ids&) const {
    static_assert(sizeof(Ids) == 0, "x[ids]: use index_select(x, axis, ids); for a mask, where() or masked_fill()");
    return {};
  }
  Tensor slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  Tensor reshape(const Extents& extents) const;
  /// reshape() that never copies: UsageError for a tensor that is not contiguous.
  Tensor view(const Extents& extents) const;
  /// reshape(-1, 2) and view(4).
  template <std::integral First, std::integral... More>
  Tensor reshape(First first, More... more) const;
  template <std::integral First, std::integral... More>
  Tensor view(First first, More... more) const;
  Tensor flatten(int first_axis) const;
  /// transpose(x, axes) of ops.
  Tensor permute(const std::vector<int>& axes) const;
  template <std::integral First, std::integral... More>
  Tensor permute(First first, More... more) const {
    return permute(std::vector<int>{static_cast<int>(first), static_cast<int>(more)...});
  }
  /// Two axes exchanged, negative ones counted from the end.
  Tensor transpose(int axis_a, int axis_b) const;
  Tensor expand(const Shape& shape) const;
  /// Without the axes of extent 1, or without this one.
  Tensor squeeze() const;
  Tensor squeeze(int axis) const;
  Tensor unsqueeze(int axis) const;
  /// Views of this many elements each, or of these sizes: x.split(2), x.split({1, 3}, -1).
  template <std::integral Size>
  std::vector<Tensor> split(Size size, int axis = 0) const {
    return split_evenly(static_cast<std::int64_t>(size), axis);
  }
  std::vector<Tensor> split(const std::vector<std::int64_t>& sizes, int axis = 0) const;
  std::vector<Tensor> chunk(std::int64_t count, int axis = 0) const;
  Tensor flip(const std::vector<int>& axes) const;
  template <std::signed_integral Axis>
  Tensor flip(Axis axis) const {
    return flip(std::vector<int>{static_cast<int>(axis)});
  }
  Tensor index_select(int axis, const Tensor& ids) const;
  Tensor gather(int axis, const Tensor& ids) const;
  Tensor masked_fill(const Tensor& mask, double value) const;

  Tensor sum(const std::vector<int>& axes = {}, KeepDims keep_dims = false) const;
  Tensor mean(const std::vector<int>& axes = {}, KeepDims keep_dims = false) const;
  Tensor max(const std::vector<int>& axes = {}, KeepDims keep_dims = false) const;
  Tensor min(const std::vector<int>& axes = {}, KeepDims keep_dims = false) const;
  /// Over one axis: x.sum(0), x.mean(-1, true).
  template <std::signed_integral Axis>
  Tensor sum(Axis axis, KeepDims keep_dims = false) const {
    return sum(std::vector<int>{static_cast<int>(axis)}, keep_dims);
  }
  template <std::signed_integral Axis>
  Tensor mean(Axis axis, KeepDims keep_dims = false) const {
    return mean(std::vector<int>{static_cast<int>(axis)}, keep_dims);
  }
  template <std::signed_integral Axis>
  Tensor max(Axis axis, KeepDims keep_dims = false) const {
    return max(std::vector<int>{static_cast<int>(axis)}, keep_dims);
  }
  template <std::signed_integral Axis>
  Tensor min(Axis axis, KeepDims keep_dims = false) const {
    return min(std::vector<int>{static_cast<int>(axis)}, keep_dims);
  }
  /// The unbiased variance; x.var({0, 1}, {.correction = 0}) is another.
  Tensor var(const std::vector<int>& axes = {}, KeepDims keep_dims = false) const;
  Tensor var(const std::vector<int>& axes, const VarianceOptions& options) const;
  template <std::signed_integral Axis>
  Tensor var(Axis axis, KeepDims keep_dims = false) const {
    return var(std::vector<int>{static_cast<int>(axis)}, keep_dims);
  }
  Tensor logsumexp(const std::vector<int>& axes, KeepDims keep_dims = false) const;
  template <std::signed_integral Axis>
  Tensor logsumexp(Axis axis, KeepDims keep_dims = false) const {
    return logsumexp(std::vector<int>{static_cast<int>(axis)}, keep_dims);
  }
  Tensor argmax(int axis, KeepDims keep_dims = false) const;
  Tensor argmin(int axis, KeepDims keep_dims = false) const;
  Tensor cumsum(int axis) const;
  Sorted sort(int axis = -1, bool descending = false) const;
  Tensor argsort(int axis = -1, bool descending = false) const;
  Sorted topk(std::int64_t k, int axis = -1, bool largest = true) const;

  Tensor add(const Tensor& other) const;
  Tensor add(double other) const;
  Tensor sub(const Tensor& other) const;
  Tensor sub(double other) const;
  Tensor mul(const Tensor& other) const;
  Tensor mul(double other) const;
  Tensor div(const Tensor& other) const;
  Tensor div(double other) const;
  Tensor matmul(const Tensor& other) const;
  Tensor pow(double exponent) const;
  Tensor clamp(double low, double high) const;

  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor relu() const;
  Tensor sigmoid() const;
  Tensor tanh() const;

  HEARTH_OTHER_MEMBER(t, "write x.transpose(0, 1)")
  HEARTH_OTHER_MEMBER(mm, "write x.matmul(y)")
  HEARTH_OTHER_MEMBER(bmm, "write x.matmul(y), which takes batches of matrices")
  HEARTH_OTHER_MEMBER(std, "write sqrt(x.var())")
  HEARTH_OTHER_MEMBER(softmax, "write softmax(x, axis)")
  HEARTH_OTHER_MEMBER(log_softmax, "write log_softmax(x, axis)")
  HEARTH_OTHER_MEMBER(any, "write x.to(DType::f32).max(), which is 1 where any element is not 0 of a bool tensor")
  HEARTH_OTHER_MEMBER(isnan, "write not_equal(x, x), which is true where x is NaN")
  HEARTH_OTHER_MEMBER(cuda, "write x.to({DeviceType::cuda, 0})")
  HEARTH_OTHER_MEMBER(cpu, "write x.to(Device{})")
  HEARTH_OTHER_MEMBER(numel, "write x.size()")
  HEARTH_OTHER_MEMBER(ndim, "write x.rank()")
  HEARTH_OTHER_MEMBER(data_ptr, "write x.data<float>(), or x.data<const float>() to read")
  HEARTH_OTHER_MEMBER(operator(), "write x[0][1], or x[{0, 1}]")

 private:
  struct Body {
    std::shared_ptr<Storage> storage;
    Shape shape;
    Strides strides{};
    std::int64_t offset = 0;
    DType dtype = DType::f32;
    Device device;
    bool contiguous = true;
    std::shared_ptr<GradState> grad;
  };
  explicit Tensor(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  const Body& body() const {
    if (!body_) [[unlikely]]
      throw_undefined();
    return *body_;
  }
  [[noreturn]] static void throw_undefined();
  void check_dtype(DType wanted) const;
  void count_write() const;
  void add_hook(std::function<Tensor(const Tensor&)> f) const;
  std::vector<Tensor> split_evenly(std::int64_t size, int axis) const;
  static Tensor make(Body body);

  std::shared_ptr<const Body> body_;
};

template <class T>
Tensor Tensor::of(const Shape& shape, std::span<const T> values) {
  HEARTH_CHECK(ShapeError, static_cast<std::int64_t>(values.size()) == shape.size(), "tensor: ", values.size(),
               " values for shape ", shape, ", which has ", shape.size());
  Tensor tensor = empty(shape, dtype_of<T>());
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

/// "f32 [8, 56, 56, 48]", or "absent".
HEARTH_API std::string describe(const Tensor& tensor);

}  // namespace hearth
