// SPDX-License-Identifier: Apache-2.0
// The events of nlohmann/json's parser become records. Polygons, which are most of a file, never reach that parser:
// they are checked where they lie, and the parser sees null in their place.
#include "data/boxes/coco_text.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/boxes/polygon_scan.h"
#include "data/boxes/text_window.h"
#include "data/source/file_opener.h"

namespace hearth::data {
namespace {

enum class Section : std::uint8_t { none, images, annotations, categories, other };

/// Fields that are read, each a bit of those that a record has.
enum CocoField : unsigned {
  no_field = 0,
  id_field = 1,
  file_field = 2,
  width_field = 4,
  height_field = 8,
  image_field = 16,
  category_field = 32,
  box_field = 64,
  area_field = 128,
  crowd_field = 256,
  ignore_field = 512,
  mask_field = 1024,
  name_field = 2048,
};

struct CocoName {
  Section section;
  std::string_view key;
  CocoField field;
};
constexpr CocoName coco_names[] = {
    {Section::images, "id", id_field},
    {Section::images, "file_name", file_field},
    {Section::images, "width", width_field},
    {Section::images, "height", height_field},
    {Section::annotations, "id", id_field},
    {Section::annotations, "image_id", image_field},
    {Section::annotations, "category_id", category_field},
    {Section::annotations, "bbox", box_field},
    {Section::annotations, "area", area_field},
    {Section::annotations, "iscrowd", crowd_field},
    {Section::annotations, "ignore", ignore_field},
    {Section::annotations, "segmentation", mask_field},
    {Section::categories, "id", id_field},
    {Section::categories, "name", name_field},
};

const char* name_of(Section section) {
  constexpr const char* names[] = {"", "images", "annotations", "categories", ""};
  return names[static_cast<int>(section)];
}

/// The number that all of the text is; nothing for another text.
std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Receives the events of the parser.
class CocoReader {
 public:
  CocoReader(TextWindow& window, const std::string& path, CocoText& into) : window_(window), path_(path), into_(into) {}

  void read() {
    nlohmann::json::sax_parse(WindowIterator{&window_}, WindowIterator{}, this);
    // The parser takes a zero byte for the end of its input.
    skip_space();
    if (!window_.at_end()) fail("there is more behind the end of the JSON");
    for (const Section section : {Section::images, Section::annotations, Section::categories})
      HEARTH_CHECK(DataError, sections_ & bit(section), path_, ": has no \"", name_of(section),
                   "\"; labels of boxes by COCO have images, annotations and categories",
                   section == Section::annotations ? "; a list of images alone, as of a test set, has no truth" : "");
  }

  bool null() { return depth_ == 3 && field_ == mask_field ? took() : scalar("null"); }
  bool boolean(bool value) {
    if (depth_ == 3 && field_ == crowd_field) return record_.crowd = value, took();
    if (depth_ == 3 && field_ == ignore_field) return record_.ignored = value, took();
    return scalar(value ? "true" : "false");
  }
  bool number_integer(std::int64_t value) { return number(static_cast<double>(value), value); }
  bool number_unsigned(std::uint64_t value) {
    return number(static_cast<double>(value),
                  value >> 63 == 0 ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt);
  }
  bool number_float(double value, const std::string&) { return number(value, std::nullopt); }
  bool string(std::string& text) {
    if (depth_ == 3 && field_ == file_field) return image_.file = std::move(text), took();
    if (depth_ == 3 && field_ == name_field) return category_.name = std::move(text), took();
    if (field_ != no_field && (depth_ == 3 || in_box_)) {
      // Some programs write numbers in quotes.
      const std::optional<double> value = number_in(text);
      if (!value) mistyped("the text \"" + printable(text) + "\"");
      std::int64_t integer = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
      const bool is_integer = error == std::errc() && end == text.data() + text.size();
      return number(*value, is_integer ? std::optional(integer) : std::nullopt);
    }
    return scalar("a text");
  }
  bool binary(nlohmann::json::binary_t&) { return false; }

  bool start_object(std::size_t) {
    if (depth_ == 1 && section_ != Section::other)
      fail(join_text("\"", name_of(section_), "\" is an object; wanted is a list"));
    if (depth_ == 2 && section_ != Section::other) begin_record();
    if (depth_ == 3 && field_ != no_field && field_ != mask_field) mistyped("an object");
    if (depth_ == 3) code_fields_ = 0;
    return enter();
  }
  bool start_array(std::size_t) {
    if (depth_ == 0)
      fail(
          "is a list; wanted is an object of images, annotations and categories. COCO's results are such "
          "a list: they have predictions, and no truth");
    if (depth_ == 2 && section_ != Section::other) fail(join_text(list_place(), " is a list; wanted is an object"));
    if (depth_ == 3 && field_ != no_field) {
      if (field_ != box_field) mistyped("a list");
      in_box_ = true, numbers_ = 0;
    } else if (in_box_) {
      mistyped("a list of lists");
    }
    return enter();
  }
  bool key(std::string& name) {
    if (depth_ == 1) begin_section(name);
    if (depth_ == 4 && field_ == mask_field) code_fields_ |= name == "counts" ? 1 : name == "size" ? 2 : 0;
    if (depth_ != 3 || section_ == Section::other) return true;
    field_ = no_field;
    for (const CocoName& known : coco_names)
      if (known.section == section_ && known.key == name) field_ = known.field;
    if (field_ == no_field) return true;
    if (seen_ & field_) fail(join_text(list_place(), ": \"", name, "\" is there twice"));
    seen_ |= field_;
    if (field_ == mask_field) take_polygons();
    return true;
  }
  bool end_object() {
    --depth_;
    if (depth_ == 2 && section_ != Section::other) end_record();
    if (depth_ == 3 && field_ == mask_field) {
      if (code_fields_ != 3) mistyped("an object without \"counts\" and \"size\"");
      took();
    }
    return true;
  }
  bool end_array() {
    --depth_;
    if (in_box_) {
      if (numbers_ != 4) mistyped(join_text("a list of ", numbers_, " numbers"));
      in_box_ = false;
      took();
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception& error) {
    const std::string_view what = error.what();
    const std::size_t colon = what.find("syntax error ");
    const bool is_nan = token.find("NaN") != token.npos || token.find("Infinity") != token.npos ||
                        (!token.empty() && (token.back() == 'N' || token.back() == 'I'));
    fail(join_text("is no JSON: ", printable(colon == what.npos ? what : what.substr(colon)),
                   is_nan ? "; NaN and Infinity are no JSON: correct what wrote them" : ""));
  }

 private:
  static constexpr int deepest = 64;
  static unsigned bit(Section section) { return 1u << static_cast<unsigned>(section); }

  [[noreturn]] void fail(const std::string& text) const {
    const TextWindow::Position at = window_.position();
    throw DataError(join_text(path_, ": line ", at.line, ", byte ", at.byte, ": ", text));
  }
  std::size_t index() const {
    return section_ == Section::images        ? into_.images.size()
           : section_ == Section::annotations ? into_.annotations.size()
                                              : into_.categories.size();
  }
  /// "annotations[17]".
  std::string list_place() const { return join_text(name_of(section_), '[', index(), ']'); }
  [[noreturn]] void mistyped(const std::string& shown) const {
    std::string_view key, wanted = "an integer";
    for (const CocoName& known : coco_names)
      if (known.section == section_ && known.field == field_) key = known.key;
    if (field_ == file_field || field_ == name_field) wanted = "a text";
    if (field_ == box_field) wanted = "[x, y, width, height], four numbers";
    if (field_ == area_field) wanted = "a number of 0 or more";
    if (field_ == width_field || field_ == height_field) wanted = "a number of pixels from 1 to 2147483647";
    if (field_ == crowd_field || field_ == ignore_field) wanted = "0 or 1";
    if (field_ == mask_field) wanted = "a list of polygons, or a run-length code";
    fail(join_text(list_place(), ": \"", key, "\" is ", shown, "; wanted is ", wanted));
  }

  /// Whether the value that comes is of no field that is read.
  bool is_passed_over() const {
    return depth_ > 3 ? !in_box_ : depth_ > 0 && (section_ == Section::other || (depth_ == 3 && field_ == no_field));
  }
  bool enter() {
    if (++depth_ > deepest) fail(join_text("more than ", deepest, " levels of nesting"));
    return true;
  }
  /// A value that is none of the numbers and strings wanted.
  bool scalar(const std::string& shown) {
    if (is_passed_over()) return true;
    if (depth_ == 0) fail("is " + shown + "; wanted is an object of images, annotations and categories");
    if (depth_ == 1 && section_ != Section::other)
      fail(join_text("\"", name_of(section_), "\" is ", shown, "; wanted is a list"));
    if (depth_ == 2 && section_ != Section::other)
      fail(join_text(list_place(), " is ", shown, "; wanted is an object"));
    if (in_box_ || (depth_ == 3 && field_ != no_field)) mistyped(shown);
    return true;
  }
  /// The field has its value.
  bool took() {
    field_ = no_field;
    return true;
  }

  void begin_section(const std::string& name) {
    section_ = Section::other;
    for (const Section known : {Section::images, Section::annotations, Section::categories})
      if (name == name_of(known)) section_ = known;
    if (section_ == Section::other) return;
    if (sections_ & bit(section_)) fail(join_text("\"", name, "\" is there twice"));
    sections_ |= bit(section_);
  }
  void begin_record() {
    record_ = {}, image_ = {}, category_ = {};
    seen_ = 0, field_ = no_field;
  }
  void require(unsigned field, const char* key, const char* remedy) const {
    if (!(seen_ & field)) fail(join_text(list_place(), " has no \"", key, "\"; ", remedy));
  }
  void end_record() {
    if (section_ == Section::images) {
      require(id_field, "id", "annotations name images by it");
      require(file_field, "file_name", "it names the image below the folder");
      require(width_field, "width", "it says which pixels boxes mean");
      require(height_field, "height", "it says which pixels boxes mean");
      into_.images.push_back(std::move(image_));
    } else if (section_ == Section::annotations) {
      require(box_field, "bbox", "COCO has boxes in instances_*.json, and none in captions and panoptic annotations");
      require(image_field, "image_id", "it names the image");
      require(category_field, "category_id", "it names the class");
      if (!(seen_ & id_field)) record_.id = -1 - static_cast<std::int64_t>(into_.annotations.size());
      if (!(seen_ & area_field)) record_.area = record_.box[2] * record_.box[3];
      into_.annotations.push_back(record_);
    } else {
      require(id_field, "id", "annotations name categories by it");
      require(name_field, "name", "it names the class");
      into_.categories.push_back(std::move(category_));
    }
    field_ = no_field;
  }

  bool number(double value, std::optional<std::int64_t> integer) {
    const auto shown = [&] { return integer ? join_text(*integer) : join_text(value); };
    if (in_box_) {
      if (numbers_ < 4) record_.box[static_cast<std::size_t>(numbers_)] = value;
      ++numbers_;
      return true;
    }
    if (is_passed_over()) return true;
    if (depth_ != 3 || field_ == no_field) return scalar(shown());
    // What is written as 17.0 is 17.
    if (!integer && value == std::floor(value) && std::abs(value) < 0x1p53) integer = static_cast<std::int64_t>(value);
    const auto pixels = [&] {
      if (!integer || *integer < 1 || *integer > 0x7FFFFFFF) mistyped(shown());
      return static_cast<std::int32_t>(*integer);
    };
    const auto flag = [&] {
      if (!integer || (*integer != 0 && *integer != 1)) mistyped(shown());
      return *integer == 1;
    };
    switch (field_) {
      case area_field:
        if (!(value >= 0) || !std::isfinite(value)) mistyped(shown());
        record_.area = value;
        break;
      case width_field:
        image_.width = pixels();
        break;
      case height_field:
        image_.height = pixels();
        break;
      case crowd_field:
        record_.crowd = flag();
        break;
      case ignore_field:
        record_.ignored = flag();
        break;
      case id_field:
      case image_field:
      case category_field:
        if (!integer) mistyped(shown());
        set_id(*integer);
        break;
      default:
        mistyped(shown());
    }
    return took();
  }
  void set_id(std::int64_t id) {
    if (field_ == image_field)
      record_.image = id;
    else if (field_ == category_field)
      record_.category = id;
    else
      (section_ == Section::images ? image_.id : section_ == Section::annotations ? record_.id : category_.id) = id;
  }

  void skip_space() {
    const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (!window_.at_end() && is_space(window_.byte())) window_.advance();
  }
  bool next_is(char wanted) {
    skip_space();
    return !window_.at_end() && window_.byte() == wanted;
  }
  /// Takes the list of polygons behind the key; what else is there is left to the parser. Without polygons the
  /// annotation has a box alone, as many programs write it.
  void take_polygons() {
    if (!next_is(':')) return;
    window_.advance();
    if (!next_is('[')) return window_.put_before(":");
    window_.advance();
    PolygonScan polygons;
    auto event = PolygonScan::Event::none;
    while (event != PolygonScan::Event::end) {
      if (event == PolygonScan::Event::fault || window_.at_end())
        fail(join_text(list_place(), ": \"segmentation\" is no list of polygons [x, y, x, y, ...] from here on"));
      event = polygons.scan(window_.at(), window_.end());
      if (event != PolygonScan::Event::polygon) continue;
      const std::int64_t numbers = polygons.numbers();
      if (numbers < 6 || numbers % 2 != 0)
        into_.mask_faults.emplace(into_.annotations.size(),
                                  join_text("a polygon of ", numbers, " numbers; three points or more have 6, 8, ..."));
    }
    window_.put_before(":null");
  }

  TextWindow& window_;
  const std::string& path_;
  CocoText& into_;
  int depth_ = 0;  // open objects and lists
  Section section_ = Section::none;
  unsigned sections_ = 0;  // that were there
  CocoField field_ = no_field;
  unsigned seen_ = 0;    // fields of the record
  int code_fields_ = 0;  // of a run-length code: counts, 1, and size, 2
  bool in_box_ = false;
  int numbers_ = 0;  // of the box
  CocoRecord record_;
  AnnotatedImage image_;
  CocoCategory category_;
};

}  // namespace

CocoText read_coco_text(const std::string& path) {
  CocoText text;
  const SourceFilePointer file = open_source(path);
  TextWindow window(*file);
  HEARTH_CHECK(DataError, !window.at_end() && window.byte() != '\x1f', path,
               file->size() == 0 ? ": is empty" : ": is compressed; unpack it, as by gunzip");
  CocoReader(window, path, text).read();
  return text;
}

}  // namespace hearth::data
