// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: a length, then JSON. It may come from anywhere, so it is parsed event by event,
// without recursion and without building a document.
#include "core/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/printable.h"
#include "core/io/utf8.h"

namespace hearth::safetensors {

namespace {

// In the order of the reference's enumeration, which its writer sorts by.
constexpr std::array<FormatDType, 20> format_dtypes = {{
    {"BOOL", 8, true, DType::boolean},
    {"F4", 4, false, {}},
    {"F6_E2M3", 6, false, {}},
    {"F6_E3M2", 6, false, {}},
    {"U8", 8, true, DType::u8},
    {"I8", 8, false, {}},
    {"F8_E5M2", 8, false, {}},
    {"F8_E4M3", 8, false, {}},
    {"F8_E8M0", 8, false, {}},
    {"I16", 16, false, {}},
    {"U16", 16, false, {}},
    {"F16", 16, true, DType::f16},
    {"BF16", 16, true, DType::bf16},
    {"I32", 32, true, DType::i32},
    {"U32", 32, false, {}},
    {"F32", 32, true, DType::f32},
    {"C64", 64, false, {}},
    {"F64", 64, true, DType::f64},
    {"I64", 64, true, DType::i64},
    {"U64", 64, false, {}},
}};

/// Receives the events of the JSON parser. Depth 1 is the header object, depth 2 a tensor or the metadata, depth 3 an
/// array of a tensor. Fields of a tensor that the format does not have are passed over, as the reference does.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const std::filesystem::path& path, Header& header) : path_(path), header_(header) {}

  bool null() override {
    if (passes_over() || (depth_ == 1 && in_metadata_)) return true;
    refuse("null");
  }
  bool boolean(bool) override {
    if (passes_over()) return true;
    refuse("a boolean");
  }
  bool number_integer(number_integer_t) override {
    if (passes_over()) return true;
    refuse("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    if (passes_over()) return true;
    refuse("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (passes_over()) return true;
    if (depth_ != 3) refuse("a number");
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (passes_over()) return true;
    if (depth_ == 2 && in_metadata_) {
      if (!header_.metadata.emplace(field_, value).second) duplicate("metadata entry '" + field_ + "'");
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") refuse("a string");
    header_.tensors.back().dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (passes_over()) return ++passed_depth_, true;
    if (depth_ >= 2) refuse("an object");
    ++depth_;
    if (depth_ == 2 && !in_metadata_) {
      header_.tensors.emplace_back().name = entry_;
      seen_ = {};
    }
    return true;
  }

  bool end_object() override {
    if (passed_depth_ > 0) return --passed_depth_, true;
    if (depth_ == 2 && !in_metadata_) {
      for (std::size_t i = 0; i < fields.size(); ++i) {
        if (!seen_[i]) deserialization("tensor '", entry_, "' has no ", fields[i]);
      }
    }
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    if (passes_over()) return ++passed_depth_, true;
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") refuse("an array");
    ++depth_;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (passed_depth_ > 0) return --passed_depth_, true;
    --depth_;
    Declaration& tensor = header_.tensors.back();
    if (field_ == "shape") {
      tensor.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      deserialization("tensor '", entry_, "' has ", numbers_.size(), " data_offsets instead of 2");
    }
    tensor.begin = numbers_[0];
    tensor.end = numbers_[1];
    return true;
  }

  bool key(string_t& name) override {
    if (passed_depth_ > 0) return true;
    if (depth_ == 1) {
      entry_ = name;
      field_.clear();
      in_metadata_ = name == metadata_key;
      if (in_metadata_ && std::exchange(metadata_seen_, true)) duplicate("key '__metadata__'");
      return true;
    }
    field_ = name;
    if (in_metadata_) return true;
    const auto known = std::find(fields.begin(), fields.end(), name);
    if (known != fields.end() && std::exchange(seen_[static_cast<std::size_t>(known - fields.begin())], true)) {
      duplicate("field '", name, "' of tensor '", entry_, "'");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    deserialization("no JSON at byte ", position, " of the header");
  }

 private:
  static constexpr std::array<std::string_view, 3> fields = {"dtype", "shape", "data_offsets"};

  /// True inside the value of a field that the format does not have.
  bool passes_over() const {
    return depth_ == 2 && !in_metadata_ && std::find(fields.begin(), fields.end(), field_) == fields.end();
  }
  template <class... Parts>
  [[noreturn]] void deserialization(const Parts&... parts) const {
    fail(path_, "InvalidHeaderDeserialization", parts...);
  }
  template <class... Parts>
  [[noreturn]] void duplicate(const Parts&... what) const {
    fail(path_, "DuplicateName", what..., " appears twice");
  }
  [[noreturn]] void refuse(const char* found) const {
    if (depth_ == 0) deserialization("the header is ", found, " instead of an object");
    if (in_metadata_) deserialization("metadata entry '", field_, "' is ", found, " instead of a string");
    deserialization("tensor '", entry_, "': unexpected ", found,
                    field_.empty() ? std::string() : " in '" + field_ + "'");
  }

  const std::filesystem::path& path_;
  Header& header_;
  int depth_ = 0;
  std::size_t passed_depth_ = 0;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  std::string entry_;
  std::string field_;
  std::array<bool, 3> seen_{};
  std::vector<std::uint64_t> numbers_;
};

std::uint64_t length_in(const FileReader& file) {
  std::array<std::byte, length_bytes> bytes;
  read(file, 0, bytes);
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = (length << 8) | std::to_integer<std::uint64_t>(bytes[i]);
  return length;
}

}  // namespace

void read(const FileReader& file, std::uint64_t offset, std::span<std::byte> target) {
  try {
    file.read(offset, target);
  } catch (const FileError& error) {
    fail(file.path(), "IoError", error.what());
  }
}

Header read_header(const FileReader& file) {
  const std::filesystem::path& path = file.path();
  if (file.size() < length_bytes)
    fail(path, "HeaderTooSmall", file.size(), " bytes; a safetensors file has at least ", length_bytes);
  const std::uint64_t length = length_in(file);
  if (length > longest_header)
    fail(path, "HeaderTooLarge", "a header of ", length, " bytes; the format allows ", longest_header);
  if (length > file.size() - length_bytes)
    fail(path, "InvalidHeaderLength", "a header of ", length, " bytes in a file of ", file.size(),
         "; the file is cut short or damaged");
  std::string text(length, '\0');
  read(file, length_bytes, std::as_writable_bytes(std::span(text)));
  if (const std::size_t bad = utf8::find_fault(text); bad != std::string_view::npos)
    fail(path, "InvalidHeader", "byte ", bad, " of the header is not UTF-8");
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string::npos || text[start] != '{')
    fail(path, "InvalidHeaderStart", "the header does not begin with '{'");
  // The JSON parser takes a zero byte for the end of its input.
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos)
    fail(path, "InvalidHeaderDeserialization", "byte ", zero, " of the header is zero");
  Header header;
  header.data_offset = length_bytes + length;
  HeaderEvents events(path, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return header;
}

const FormatDType* find_format_dtype(std::string_view name) {
  const auto found =
      std::find_if(format_dtypes.begin(), format_dtypes.end(), [&](const FormatDType& d) { return name == d.name; });
  return found == format_dtypes.end() ? nullptr : &*found;
}

const FormatDType& format_dtype_of(DType dtype) { return format_dtypes[static_cast<std::size_t>(rank_of(dtype))]; }

int rank_of(DType dtype) {
  const auto found = std::find_if(format_dtypes.begin(), format_dtypes.end(),
                                  [&](const FormatDType& d) { return d.supported && d.dtype == dtype; });
  HEARTH_CHECK(InternalError, found != format_dtypes.end(), "safetensors: no name for the type ", dtype);
  return static_cast<int>(found - format_dtypes.begin());
}

}  // namespace hearth::safetensors
