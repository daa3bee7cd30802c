// SPDX-License-Identifier: Apache-2.0
#include "data/table/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "data/source/source_bytes.h"
#include "data/table/zip.h"

namespace hearth::data {
namespace {

constexpr ReadLimit array_limit{std::uint64_t{16} << 30, "arrays"};

/// What follows 'KEY': in the dictionary of the header.
std::string_view value_of(std::string_view header, std::string_view key, const std::string& name) {
  const std::size_t at = header.find(join_text('\'', key, "':"));
  HEARTH_CHECK(DataError, at != header.npos, name, ": the header has no '", key, "'");
  std::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

std::vector<std::int64_t> shape_of(std::string_view text, const std::string& name) {
  const std::size_t end = text.find(')');
  HEARTH_CHECK(DataError, text.starts_with("(") && end != text.npos, name, ": a shape that is none");
  std::vector<std::int64_t> shape;
  std::int64_t number = -1;
  for (const char c : text.substr(1, end)) {
    if (c >= '0' && c <= '9') {
      HEARTH_CHECK(DataError, number < (std::int64_t{1} << 40), name, ": a shape beyond any file's");
      number = 10 * std::max<std::int64_t>(number, 0) + (c - '0');
    } else {
      HEARTH_CHECK(DataError, c == ',' || c == ' ' || c == ')', name, ": a shape that is none");
      if (number >= 0) shape.push_back(number);
      number = -1;
    }
  }
  return shape;
}

template <class T>
void convert(std::span<const std::uint8_t> bytes, bool swapped, std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint8_t raw[sizeof(T)];
    std::copy_n(bytes.data() + i * sizeof(T), sizeof(T), raw);
    if (swapped) std::reverse(raw, raw + sizeof(T));
    T value;
    std::memcpy(&value, raw, sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

/// Of IEEE 754's 16 bits.
void convert_halves(std::span<const std::uint8_t> bytes, bool swapped, std::vector<double>& values) {
  std::vector<double> bits(values.size());
  convert<std::uint16_t>(bytes, swapped, bits);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto half = static_cast<std::uint32_t>(bits[i]);
    const std::uint32_t sign = half >> 15 << 31, exponent = half >> 10 & 31, fraction = half & 1023;
    // Shifted into place, an exponent is too small by the difference of the biases: a product puts that right, for
    // subnormal numbers too.
    const std::uint32_t shifted = exponent == 31 ? 0x7f800000u | fraction << 13 : (half & 0x7fffu) << 13;
    float value = std::bit_cast<float>(shifted);
    if (exponent != 31) value *= std::bit_cast<float>(0x77800000u);  // 2^112
    values[i] = sign != 0 ? -value : value;
  }
}

/// DataError unless elements of the type are numbers that convert_type() knows.
void require_numbers(std::string_view type, const std::string& name) {
  static constexpr std::string_view known[] = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"};
  if (std::ranges::count(known, type) > 0) return;
  const bool is_text = type.starts_with('U') || type.starts_with('S') || type.starts_with('O');
  throw DataError(join_text(
      name, ": elements of the type '", type, "', which is not read; numbers are, of f2 f4 f8 i1 to i8 u1 to u8 b1; ",
      is_text ? "save labels as integers, as numpy.unique(y, return_inverse=True) numbers them, and name them in "
                "data.classes"
              : "convert them, as by astype(\"f8\")"));
}

void convert_type(std::string_view type, std::span<const std::uint8_t> bytes, bool swapped,
                  std::vector<double>& values) {
  if (type == "f4") return convert<float>(bytes, swapped, values);
  if (type == "f8") return convert<double>(bytes, swapped, values);
  if (type == "f2") return convert_halves(bytes, swapped, values);
  if (type == "u1" || type == "b1") return convert<std::uint8_t>(bytes, swapped, values);
  if (type == "i1") return convert<std::int8_t>(bytes, swapped, values);
  if (type == "u2") return convert<std::uint16_t>(bytes, swapped, values);
  if (type == "i2") return convert<std::int16_t>(bytes, swapped, values);
  if (type == "u4") return convert<std::uint32_t>(bytes, swapped, values);
  if (type == "i4") return convert<std::int32_t>(bytes, swapped, values);
  if (type == "u8") return convert<std::uint64_t>(bytes, swapped, values);
  return convert<std::int64_t>(bytes, swapped, values);
}

}  // namespace

NumpyArray parse_npy(std::span<const std::uint8_t> bytes, const std::string& name) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  HEARTH_CHECK(DataError, all.starts_with("\x93NUMPY") && bytes.size() >= 12, name, ": no .npy file, or cut off");
  const bool is_first = bytes[6] == 1;
  HEARTH_CHECK(DataError, bytes[6] >= 1 && bytes[6] <= 3, name, ": version ", int{bytes[6]},
               " of the format; 1 to 3 are read");
  const std::size_t begin = is_first ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = begin; i-- > 8;) length = length << 8 | bytes[i];
  HEARTH_CHECK(DataError, length <= bytes.size() - begin, name, ": the header is cut off");
  const std::string_view header = all.substr(begin, length);
  const std::string_view type = value_of(header, "descr", name);
  HEARTH_CHECK(DataError, type.size() >= 5 && type[0] == '\'', name,
               ": elements that are no numbers; save the array with a plain dtype");
  const std::string_view kind = type.substr(2, type.find('\'', 1) - 2);
  require_numbers(kind, name);
  HEARTH_CHECK(DataError, value_of(header, "fortran_order", name).starts_with("False"), name,
               ": an array in Fortran's order; save numpy.ascontiguousarray of it");
  NumpyArray array;
  array.name = name;
  array.shape = shape_of(value_of(header, "shape", name), name);
  HEARTH_CHECK(DataError, !array.shape.empty(), name, ": a single number instead of an array");
  const auto width = static_cast<std::uint64_t>(kind[1] - '0');
  std::uint64_t count = 1;
  for (const std::int64_t extent : array.shape) {
    HEARTH_CHECK(DataError, extent == 0 || count <= bytes.size() / static_cast<std::uint64_t>(extent), name,
                 ": a shape that ", bytes.size(), " bytes cannot fill");
    count *= static_cast<std::uint64_t>(extent);
  }
  const auto content = bytes.subspan(begin + length);
  HEARTH_CHECK(DataError, content.size() == count * width, name, ": ", content.size(),
               " bytes of elements; the shape and "
               "type say ",
               count * width, ": the file was cut off");
  array.is_integer = kind[0] != 'f';
  array.values.resize(count);
  convert_type(kind, content, type[1] == '>' && width > 1, array.values);
  return array;
}

bool has_array(const std::string& path, const std::string& name) {
  return std::ranges::count(zip_members(path), name + ".npy") > 0;
}

NumpyArray read_numpy(const std::string& path, const std::string& name) {
  if (path.ends_with(".npz"))
    return parse_npy(read_zip_member(path, name.ends_with(".npy") ? name : name + ".npy", array_limit),
                     join_text(path, ": ", name));
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes, array_limit);
  return parse_npy(bytes, path);
}

}  // namespace hearth::data
