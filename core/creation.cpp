// SPDX-License-Identifier: Apache-2.0
#include "core/creation.h"

#include <cmath>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>

#include "core/random.h"

namespace hearth {
namespace {

// Element i is draw(i-th value of the next key's stream).
template <class Draw>
Tensor random_tensor(const Shape& shape, DType dtype, Device device, const Draw& draw) {
  const RandomKey key = next_random_key();
  Random random(key.seed, key.step, key.op);
  const Tensor values = Tensor::empty(shape, DType::f64);
  double* const value = values.data<double>();
  for (std::int64_t i = 0; i < values.size(); ++i) value[i] = draw(random);
  return values.to(dtype).to(device);
}

void check_floating(const char* op, DType dtype) {
  HEARTH_CHECK(DTypeError, is_floating(dtype), op, ": values in ", dtype,
               "; the type is f32, f64, f16 or bf16, and randint() draws integers");
}

/// The integers from `lowest` to `highest` are values of the type; of a floating type there are larger ones, of which
/// some are left out.
struct IntegerRange {
  std::int64_t lowest, highest;
};

IntegerRange integers_of(DType dtype) {
  const auto within_bits = [](int bits) { return IntegerRange{-(std::int64_t{1} << bits), std::int64_t{1} << bits}; };
  switch (dtype) {
    case DType::boolean:
      return {0, 1};
    case DType::u8:
      return {0, std::numeric_limits<std::uint8_t>::max()};
    case DType::i32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case DType::bf16:
      return within_bits(8);
    case DType::f16:
      return within_bits(11);
    case DType::f32:
      return within_bits(24);
    case DType::f64:
      return within_bits(53);
    case DType::i64:
      break;
  }
  return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
}

struct Printer {
  std::ostream& out;
  const Tensor& tensor;
  const bool floating = is_floating(tensor.dtype());
  const Tensor values = tensor.to(Device{}).to(floating ? DType::f64 : DType::i64);
  const bool abridged = tensor.size() > 1000 || tensor.size() == 0;  // one without elements may have any extents

  void number(std::int64_t at) const {
    if (floating)
      out << values.data<const double>()[at];
    else if (const std::int64_t value = values.data<const std::int64_t>()[at]; tensor.dtype() == DType::boolean)
      out << (value != 0 ? "true" : "false");
    else
      out << value;
  }
  void axis(int axis, std::int64_t begin, std::int64_t size) const {
    if (axis == tensor.rank()) return number(begin);
    const std::int64_t extent = tensor.dim(axis), step = extent > 0 ? size / extent : 0;
    const bool inner = axis + 1 == tensor.rank();
    out << '[';
    for (std::int64_t i = 0; i < extent; ++i) {
      if (i > 0) out << (inner ? ", " : ",\n" + std::string(static_cast<std::size_t>(axis) + 1, ' '));
      if (abridged && extent > 6 && i == 3) {
        out << "...";
        i = extent - 4;
        continue;
      }
      this->axis(axis + 1, begin + i * step, step);
    }
    out << ']';
  }
};

}  // namespace

NestedValues::NestedValues(std::initializer_list<NestedValues> rows) {
  const Shape inner = rows.size() > 0 ? rows.begin()->shape_ : Shape{};
  for (const NestedValues& row : rows) {
    HEARTH_CHECK(ShapeError, row.shape_ == inner, "tensor: a row of shape ", row.shape_, " beside one of ", inner,
                 "; all rows have one shape");
    values_.insert(values_.end(), row.values_.begin(), row.values_.end());
  }
  std::vector<std::int64_t> extents{static_cast<std::int64_t>(rows.size())};
  extents.insert(extents.end(), inner.begin(), inner.end());
  shape_ = Shape(std::span<const std::int64_t>(extents));
}

Tensor tensor(std::initializer_list<NestedValues> values, DType dtype, Device device) {
  const NestedValues all(values);
  return Tensor::of<double>(all.shape(), all.values()).to(dtype).to(device);
}

Tensor ones(const Shape& shape, DType dtype, Device device) { return Tensor::full(shape, 1, dtype, device); }

Tensor arange(double begin, double end, double step, DType dtype, Device device) {
  const double steps = (end - begin) / step;
  HEARTH_CHECK(UsageError, std::isfinite(begin) && std::isfinite(end) && std::isfinite(step) && step != 0 && steps >= 0,
               "arange: from ", begin, " to ", end, " in steps of ", step,
               "; the step leads from the one to the other, and all are finite");
  HEARTH_CHECK(UsageError, steps < 0x1p53, "arange: from ", begin, " to ", end, " in steps of ", step, " are ", steps,
               " values; fewer than 2^53 fit, so take a larger step or nearer ends");
  const auto count = static_cast<std::int64_t>(std::ceil(steps));
  const Tensor values = Tensor::empty({count}, DType::f64);
  double* const value = values.data<double>();
  for (std::int64_t i = 0; i < count; ++i) value[i] = begin + static_cast<double>(i) * step;
  return values.to(dtype).to(device);
}

Tensor linspace(double begin, double end, std::int64_t count, DType dtype, Device device) {
  HEARTH_CHECK(UsageError, count >= 1 && std::isfinite(begin) && std::isfinite(end), "linspace: ", count,
               " values from ", begin, " to ", end, "; there is one at least, and the ends are finite");
  const Tensor values = Tensor::full({count}, begin, DType::f64);
  double* const value = values.data<double>();
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  for (std::int64_t i = 1; i < count; ++i) value[i] = i + 1 == count ? end : begin + static_cast<double>(i) * step;
  return values.to(dtype).to(device);
}

Tensor eye(std::int64_t n, DType dtype, Device device) {
  const Tensor values = Tensor::zeros({n, n}, DType::f64);
  double* const value = values.data<double>();
  for (std::int64_t i = 0; i < n; ++i) value[i * n + i] = 1;
  return values.to(dtype).to(device);
}

Tensor randn(const Shape& shape, DType dtype, Device device) {
  check_floating("randn", dtype);
  return random_tensor(shape, dtype, device, [](Random& random) { return random.normal(); });
}

Tensor rand(const Shape& shape, DType dtype, Device device) {
  check_floating("rand", dtype);
  // Rounding to a shorter type must not reach 1.
  const int bits = dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
  return random_tensor(shape, dtype, device, [bits](Random& random) {
    return std::ldexp(std::floor(std::ldexp(random.uniform(), bits)), -bits);
  });
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, DType dtype, Device device) {
  HEARTH_CHECK(UsageError, low < high, "randint: integers from ", low, " to below ", high,
               "; the upper bound is above the lower one");
  const auto [lowest, highest] = integers_of(dtype);
  HEARTH_CHECK(UsageError, low >= lowest && high - 1 <= highest, "randint: integers from ", low, " to below ", high,
               ", but ", dtype, " holds ", is_floating(dtype) ? "every integer from " : "", lowest, " to ", highest,
               "; draw from these or choose another type");
  const auto bound = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const RandomKey key = next_random_key();
  Random random(key.seed, key.step, key.op);
  const Tensor values = Tensor::empty(shape, DType::i64);
  std::int64_t* const value = values.data<std::int64_t>();
  for (std::int64_t i = 0; i < values.size(); ++i)
    value[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + random.below(bound));
  return values.to(dtype).to(device);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "absent";
  std::ostringstream text;  // with a format of its own
  Printer{text, tensor}.axis(0, 0, tensor.size());
  text << ' ' << describe(tensor);
  if (!tensor.device().is_cpu()) text << ' ' << tensor.device();
  return out << text.str();
}

}  // namespace hearth
