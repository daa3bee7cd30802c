// SPDX-License-Identifier: Apache-2.0
// Tensors from values, ranges and random numbers, and tensors as text.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <vector>

#include "core/tensor.h"

namespace hearth {

/// A number, or a list of lists of numbers, all of one depth and in each depth of one length.
class HEARTH_API NestedValues {
 public:
  template <class T>
  requires std::integral<T> || std::floating_point<T> NestedValues(T value)  // NOLINT: to be written as a number
      : values_{static_cast<double>(value)} {}
  /// ShapeError, as tensor(), where the rows differ in shape.
  NestedValues(std::initializer_list<NestedValues> rows);
  const Shape& shape() const { return shape_; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  Shape shape_;
};

/// The values as written: tensor({{1, 2}, {3, 4}}) is [2, 2], tensor({1, 2}) is [2]. Integers are exact up to 2^53 in a
/// type that holds them (Tensor::of takes others). ShapeError for rows of different lengths.
HEARTH_API Tensor tensor(std::initializer_list<NestedValues> values, DType dtype = DType::f32, Device device = {});
/// A copy of the values, [n] of their type; Tensor::of gives them a shape.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(const std::vector<T>& values) {
  return Tensor::of<T>({static_cast<std::int64_t>(values.size())}, values);
}

/// Ones. Tensor::of copies a std::vector, Tensor::empty leaves the elements as they are.
HEARTH_API Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = {});
inline Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {}) {
  return Tensor::zeros(shape, dtype, device);
}
inline Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {}) {
  return Tensor::full(shape, value, dtype, device);
}
/// zeros(2, 3) and so on, in f32 on the CPU.
template <std::integral First, std::integral... More>
Tensor zeros(First first, More... more) {
  return Tensor::zeros({static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
}
template <std::integral First, std::integral... More>
Tensor ones(First first, More... more) {
  return ones({static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
}
/// Of the shape and type of `other`, and on its device.
inline Tensor zeros_like(const Tensor& other) { return Tensor::zeros(other.shape(), other.dtype(), other.device()); }
inline Tensor ones_like(const Tensor& other) { return Tensor::full(other.shape(), 1, other.dtype(), other.device()); }
/// begin, begin + step, ... before `end`. [ceil((end - begin) / step)]. UsageError unless step leads from begin to end.
HEARTH_API Tensor arange(double begin, double end, double step = 1, DType dtype = DType::f32, Device device = {});
/// 0, 1, ... before `end`.
inline Tensor arange(double end) { return arange(0, end); }
/// `count` values from begin to end, both included, at equal distances. UsageError unless count >= 1.
HEARTH_API Tensor linspace(double begin, double end, std::int64_t count, DType dtype = DType::f32, Device device = {});
/// The identity matrix, [n, n].
HEARTH_API Tensor eye(std::int64_t n, DType dtype = DType::f32, Device device = {});

// Random values come from next_random_key(): those of a thread count up from manual_seed() or from the RandomScope, and
// are the same on each device. nn::initialize() and the loader have seeds of their own.

/// Normal values with mean 0 and variance 1, rounded to the type. DTypeError for integer types.
HEARTH_API Tensor randn(const Shape& shape, DType dtype = DType::f32, Device device = {});
/// Uniform values in [0, 1). DTypeError for integer types.
HEARTH_API Tensor rand(const Shape& shape, DType dtype = DType::f32, Device device = {});
/// randn(2, 3) and rand(2, 3), in f32 on the CPU.
template <std::integral First, std::integral... More>
Tensor randn(First first, More... more) {
  return randn({static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
}
template <std::integral First, std::integral... More>
Tensor rand(First first, More... more) {
  return rand({static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
}
/// Uniform integers in [low, high). UsageError unless low < high and the type holds each integer in between.
HEARTH_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, DType dtype = DType::i64,
                          Device device = {});

/// The values, then type, shape and device: "[[1, 2], [3, 4]] f32 [2, 2]". Of an axis of more than 6 the first and the
/// last three are written where the tensor has more than 1000 values. Waits for the device.
HEARTH_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace hearth
