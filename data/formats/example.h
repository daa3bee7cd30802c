// SPDX-License-Identifier: Apache-2.0
// tf.train.Example, the message that TFRecord files mostly hold: named features, each a list of byte strings, floats or
// integers (tensorflow/core/example/{example,feature}.proto). Read as it lies, without the protobuf library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::data {

/// A feature of a message: of which kind its list is, and where the list lies.
struct FoundFeature {
  enum class Kind : std::uint8_t { none, bytes, floats, integers };
  Kind kind = Kind::none;
  std::uint64_t begin = 0, end = 0;
};

/// Gives the bytes from an offset on, which are valid up to the next call.
using BytesAt = std::function<std::span<const std::byte>(std::uint64_t offset, std::size_t count)>;

/// The features of these names in the message that lies in [begin, end), in the order of the names; kind none of one
/// that is not there. Other features are passed over unread. DataError, beginning with `name`, for what is no such
/// message.
std::vector<FoundFeature> find_features(const BytesAt& bytes, std::uint64_t begin, std::uint64_t end,
                                        std::span<const std::string> names, const std::string& name);

/// Where the only byte string of a feature lies; nothing if there are none or several.
struct Extent {
  std::uint64_t begin = 0, end = 0;
};
std::optional<Extent> one_string(const BytesAt& bytes, const FoundFeature& feature, const std::string& name);
/// The only value of a feature as text: the byte string, or the number where it is an integer. Nothing if there is none
/// or several, or it is no integer, or a string of more than 4 KiB.
std::optional<std::string> one_value(const BytesAt& bytes, const FoundFeature& feature, const std::string& name);

/// Such a message, made feature by feature.
class ExampleBuilder {
 public:
  void add(std::string_view name, std::span<const std::byte> value);
  void add(std::string_view name, std::int64_t value);
  std::string message() const;

 private:
  void add_feature(std::string_view name, char kind, const std::string& list);
  std::string features_;
};

}  // namespace hearth::data
