// SPDX-License-Identifier: Apache-2.0
// Protocol buffers as far as the message has them: variable-length integers, and fields that are integers, of 4 or 8
// bytes, or of a length that comes first.
#include "data/formats/example.h"

#include <bit>
#include <cmath>

#include "core/error.h"

namespace hearth::data {
namespace {

enum class Wire : std::uint8_t { varint = 0, eight = 1, lengthed = 2, four = 5 };

/// A field of a message; of a varint the value, of others where its bytes lie.
struct Field {
  std::uint64_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;
  std::uint64_t begin = 0, end = 0;
};

class Message {
 public:
  Message(const BytesAt& bytes, std::uint64_t begin, std::uint64_t end, const std::string& name)
      : bytes_(bytes), at_(begin), end_(end), name_(name) {}

  bool at_end() const { return at_ == end_; }

  std::uint64_t varint() {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(10, end_ - at_));
    const auto bytes = bytes_(at_, count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto byte = std::to_integer<std::uint64_t>(bytes[i]);
      value |= (byte & 0x7f) << (7 * i);
      if (byte < 0x80) {
        at_ += i + 1;
        return value;
      }
    }
    refuse();
  }

  Field next() {
    const std::uint64_t tag = varint();
    Field field{tag >> 3, static_cast<Wire>(tag & 7), 0, 0, 0};
    switch (field.wire) {
      case Wire::varint:
        field.value = varint();
        return field;
      case Wire::eight:
        return take(field, 8);
      case Wire::four:
        return take(field, 4);
      case Wire::lengthed:
        return take(field, varint());
    }
    refuse();
  }

 private:
  Field take(Field field, std::uint64_t count) {
    if (count > end_ - at_) refuse();
    field.begin = at_;
    at_ += count;
    field.end = at_;
    return field;
  }
  [[noreturn]] void refuse() const {
    throw DataError(join_text(name_, ": no tf.train.Example: byte ", at_, " of it does not fit"));
  }

  const BytesAt& bytes_;
  std::uint64_t at_, end_;
  const std::string& name_;
};

std::string text_at(const BytesAt& bytes, std::uint64_t begin, std::uint64_t end) {
  const auto found = bytes(begin, static_cast<std::size_t>(end - begin));
  return {reinterpret_cast<const char*>(found.data()), found.size()};
}

constexpr std::uint64_t longest_text = 4096;

/// An entry of the map: its key, and the list of its value. The key of a name that is too long is empty.
std::pair<std::string, FoundFeature> entry_of(const BytesAt& bytes, const Field& entry, const std::string& name) {
  std::pair<std::string, FoundFeature> result;
  Message fields(bytes, entry.begin, entry.end, name);
  while (!fields.at_end()) {
    const Field field = fields.next();
    if (field.wire != Wire::lengthed) continue;
    if (field.number == 1 && field.end - field.begin <= longest_text)
      result.first = text_at(bytes, field.begin, field.end);
    if (field.number != 2) continue;
    Message feature(bytes, field.begin, field.end, name);
    while (!feature.at_end()) {
      const Field list = feature.next();
      if (list.wire == Wire::lengthed && list.number >= 1 && list.number <= 3)
        result.second = {static_cast<FoundFeature::Kind>(list.number), list.begin, list.end};
    }
  }
  return result;
}

/// The only number of a list, packed or not.
std::optional<std::int64_t> one_number(const BytesAt& bytes, const FoundFeature& feature, const std::string& name) {
  std::vector<std::int64_t> values;
  const auto add_float = [&](std::uint64_t at) {
    std::uint32_t bits = 0;
    const auto found = bytes(at, 4);
    for (std::size_t i = 4; i-- > 0;) bits = bits << 8 | std::to_integer<std::uint32_t>(found[i]);
    const float value = std::bit_cast<float>(bits);
    constexpr float exact = 1 << 24;
    if (std::abs(value) <= exact && value == std::floor(value)) values.push_back(static_cast<std::int64_t>(value));
  };
  const bool is_float = feature.kind == FoundFeature::Kind::floats;
  Message list(bytes, feature.begin, feature.end, name);
  while (!list.at_end() && values.size() < 2) {
    const Field field = list.next();
    if (field.number != 1) continue;
    if (!is_float && field.wire == Wire::varint) values.push_back(static_cast<std::int64_t>(field.value));
    if (is_float && field.wire == Wire::four) add_float(field.begin);
    if (field.wire != Wire::lengthed) continue;
    if (is_float) {
      for (std::uint64_t at = field.begin; at + 4 <= field.end && values.size() < 2; at += 4) add_float(at);
    } else {
      Message packed(bytes, field.begin, field.end, name);
      while (!packed.at_end() && values.size() < 2) values.push_back(static_cast<std::int64_t>(packed.varint()));
    }
  }
  return values.size() == 1 ? std::optional(values.front()) : std::nullopt;
}

void add_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

/// A field with a length in front.
void add_field(std::string& to, char number, std::string_view content) {
  to += static_cast<char>(number << 3 | static_cast<char>(Wire::lengthed));
  add_varint(to, content.size());
  to += content;
}

}  // namespace

std::vector<FoundFeature> find_features(const BytesAt& bytes, std::uint64_t begin, std::uint64_t end,
                                        std::span<const std::string> names, const std::string& name) {
  std::vector<FoundFeature> found(names.size());
  Message example(bytes, begin, end, name);
  while (!example.at_end()) {
    const Field features = example.next();
    if (features.number != 1 || features.wire != Wire::lengthed) continue;
    Message map(bytes, features.begin, features.end, name);
    while (!map.at_end()) {
      const Field entry = map.next();
      if (entry.number != 1 || entry.wire != Wire::lengthed) continue;
      const auto [key, feature] = entry_of(bytes, entry, name);
      for (std::size_t i = 0; i < names.size(); ++i)
        if (names[i] == key) found[i] = feature;
    }
  }
  return found;
}

std::optional<Extent> one_string(const BytesAt& bytes, const FoundFeature& feature, const std::string& name) {
  if (feature.kind != FoundFeature::Kind::bytes) return std::nullopt;
  std::optional<Extent> found;
  Message list(bytes, feature.begin, feature.end, name);
  while (!list.at_end()) {
    const Field field = list.next();
    if (field.number != 1 || field.wire != Wire::lengthed) continue;
    if (found) return std::nullopt;
    found = Extent{field.begin, field.end};
  }
  return found;
}

std::optional<std::string> one_value(const BytesAt& bytes, const FoundFeature& feature, const std::string& name) {
  if (feature.kind == FoundFeature::Kind::bytes) {
    const std::optional<Extent> extent = one_string(bytes, feature, name);
    if (!extent || extent->end - extent->begin > longest_text) return std::nullopt;
    return text_at(bytes, extent->begin, extent->end);
  }
  if (feature.kind == FoundFeature::Kind::none) return std::nullopt;
  const std::optional<std::int64_t> number = one_number(bytes, feature, name);
  return number ? std::optional(std::to_string(*number)) : std::nullopt;
}

void ExampleBuilder::add_feature(std::string_view name, char kind, const std::string& list) {
  std::string feature, entry;
  add_field(feature, kind, list);
  add_field(entry, 1, name);
  add_field(entry, 2, feature);
  add_field(features_, 1, entry);
}

void ExampleBuilder::add(std::string_view name, std::span<const std::byte> value) {
  std::string list;
  add_field(list, 1, {reinterpret_cast<const char*>(value.data()), value.size()});
  add_feature(name, 1, list);
}

void ExampleBuilder::add(std::string_view name, std::int64_t value) {
  std::string packed, list;
  add_varint(packed, static_cast<std::uint64_t>(value));
  add_field(list, 1, packed);
  add_feature(name, 3, list);
}

std::string ExampleBuilder::message() const {
  std::string message;
  add_field(message, 1, features_);
  return message;
}

}  // namespace hearth::data
