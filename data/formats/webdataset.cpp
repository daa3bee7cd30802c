// SPDX-License-Identifier: Apache-2.0
// WebDataset: consecutive members of a tar archive whose names are the same up to the first dot of the last part are
// one sample (github.com/webdataset/webdataset).
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/formats/shards.h"
#include "data/images/codecs/decode.h"
#include "data/source/tar.h"

namespace hearth::data {
namespace {

constexpr std::uint64_t longest_label = 1 << 16;

/// "a/b.c.jpg" is the sample "a/b", and its part "c.jpg".
std::pair<std::string, std::string> key_and_ending(const std::string& name) {
  const std::size_t slash = name.rfind('/'), begin = slash == name.npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', begin);
  if (dot == name.npos || dot == begin) return {};  // no ending, or a hidden file
  std::string ending = name.substr(dot + 1);
  std::ranges::transform(ending, ending.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; });
  return {name.substr(0, dot), std::move(ending)};
}

bool is_image(const std::string& ending) {
  const char* const known[] = {"jpg", "jpeg", "png", "webp", "bmp"};
  return std::ranges::find(known, ending) != std::end(known);
}

/// The members of one sample, as far as they have come.
struct Sample {
  std::string key;
  std::uint64_t header = 0;
  std::optional<TarMember> image{};
  std::optional<std::string> label{};
  bool label_is_chosen = false;  // by a member of the first choice
  bool label_is_number = false;
  std::string name{};  // before it was packed
};

class Webdataset : public ShardKind {
 public:
  explicit Webdataset(const WebdatasetOptions& options) : label_(options.label), json_key_(options.json_key) {}
  const char* name() const override { return "webdataset"; }
  std::vector<std::string> endings() const override { return {".tar"}; }

  std::vector<FoundSample> scan(const SourceFile& file) const override {
    std::vector<FoundSample> found;
    FileWindow window(file);
    std::optional<Sample> sample;
    scan_tar(file, window, [&](const TarMember& member) {
      auto [key, ending] = key_and_ending(member.name);
      if (key.empty()) return;
      if (sample && sample->key != key) found.push_back(finished(file, *sample)), sample.reset();
      if (!sample) sample = Sample{key, member.header};
      take(file, window, *sample, member, ending);
    });
    if (sample) found.push_back(finished(file, *sample));
    return found;
  }

  std::span<const std::uint8_t> read(const SourceFile& file, std::uint64_t offset, std::uint64_t bytes, std::uint32_t,
                                     const std::string& place, std::vector<std::uint8_t>& content) const override {
    require_readable_size(file.name(), bytes, image_limit);
    content.resize(bytes);
    try {
      file.read(offset, std::as_writable_bytes(std::span(content)));
    } catch (const FileError& error) {
      throw DataError(join_text(place, ": ", error.what()));
    }
    return content;
  }

 private:
  static std::string place(const SourceFile& file, const std::string& name, std::uint64_t header) {
    return join_text(file.name(), ": ", printable(name), " at offset ", header);
  }

  void take(const SourceFile& file, FileWindow& window, Sample& sample, const TarMember& member,
            const std::string& ending) const {
    const std::string at = place(file, member.name, member.header);
    if (is_image(ending)) {
      HEARTH_CHECK(DataError, !sample.image, at, ": a second image of the sample ", sample.key);
      HEARTH_CHECK(DataError, member.bytes <= image_limit.bytes, at, ": ", member.bytes, " bytes; images of at most ",
                   image_limit.bytes, " are read");
      sample.image = member;
      return;
    }
    const bool is_name = ending == packed_name && label_ != packed_name && member.bytes <= longest_label;
    const bool is_first = ending == (label_.empty() ? "cls" : label_);
    if (!is_name && !is_first && !(label_.empty() && ending == "json")) return;
    HEARTH_CHECK(DataError, !is_first || !sample.label_is_chosen, at, ": a second label of the sample ", sample.key);
    if (!is_name && sample.label_is_chosen) return;
    HEARTH_CHECK(DataError, member.bytes <= longest_label, at, ": a label of ", member.bytes, " bytes; at most ",
                 longest_label, " are read");
    const auto content = window.at(member.offset, static_cast<std::size_t>(member.bytes));
    const std::string text(reinterpret_cast<const char*>(content.data()), content.size());
    if (is_name) {
      sample.name = text;
      return;
    }
    if (ending.ends_with("json"))
      read_json(text, at, sample);
    else
      sample.label = trimmed(text);
    HEARTH_CHECK(DataError, !sample.label->empty(), at, ": an empty label");
    sample.label_is_chosen = is_first;
  }

  static std::string trimmed(const std::string& text) {
    const char* const white = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(white);
    return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(white) + 1 - begin);
  }

  void read_json(const std::string& text, const std::string& at, Sample& sample) const {
    try {
      const Json document = parse_json(text, at);
      const Json& value = document.at(json_key_);
      sample.label_is_number = !value.is_string();
      sample.label = value.is_string() ? value.as_string() : std::to_string(value.as_integer());
    } catch (const ConfigError& error) {
      throw DataError(error.what());
    }
  }

  FoundSample finished(const SourceFile& file, Sample& sample) const {
    const std::string wanted = label_.empty() ? "cls or json" : label_;
    HEARTH_CHECK(DataError, sample.image.has_value(), place(file, "sample " + sample.key, sample.header),
                 ": has no image (jpg, jpeg, png, webp, bmp)");
    HEARTH_CHECK(DataError, sample.label.has_value(), place(file, "sample " + sample.key, sample.header),
                 ": has no label (", wanted, ")");
    return {sample.image->offset,
            sample.image->bytes,
            0,
            sample.name.empty() ? sample.image->name : std::move(sample.name),
            *sample.label,
            sample.label_is_number};
  }

  std::string label_;
  std::string json_key_;
};

}  // namespace

std::shared_ptr<const ShardKind> webdataset_kind(const WebdatasetOptions& options) {
  return std::make_shared<Webdataset>(options);
}

ImageSplits webdataset(const WebdatasetOptions& options) { return open_shards(options, webdataset_kind(options)); }

}  // namespace hearth::data
