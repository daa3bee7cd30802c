// SPDX-License-Identifier: Apache-2.0
#include "data/masks/mask_classes.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iomanip>
#include <set>

#include "core/error.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "data/class_names.h"
#include "data/images/codecs/exif.h"
#include "data/images/codecs/image_codecs.h"

namespace hearth::data {
namespace {

constexpr std::size_t most_mask_classes = 255;

std::uint32_t packed_color(const std::uint8_t* rgb) {
  return std::uint32_t{rgb[0]} << 16 | std::uint32_t{rgb[1]} << 8 | rgb[2];
}

std::string color_text(std::uint32_t color) {
  TextStream out;
  out << '#' << std::hex << std::setfill('0') << std::setw(6) << color;
  return out.str();
}

std::uint32_t color_of(const std::string& text, const char* field) {
  std::uint32_t color = 0;
  const char* const end = text.data() + text.size();
  const bool has_form = text.size() == 7 && text[0] == '#';
  const auto [stop, error] = has_form ? std::from_chars(text.data() + 1, end, color, 16)
                                      : std::from_chars_result{text.data(), std::errc::invalid_argument};
  HEARTH_CHECK(ConfigError, error == std::errc() && stop == end, "/data/", field, ": \"", printable(text),
               "\" is no colour; wanted is red, green and blue in hexadecimal: \"#804080\"");
  return color;
}

/// "row 3, column 5", counted from 0.
std::string place_of(const Image& image, std::size_t pixel) {
  const auto width = static_cast<std::size_t>(image.width);
  return join_text("row ", pixel / width, ", column ", pixel % width);
}

}  // namespace

MaskClasses::MaskClasses(const MaskCode& code) : names_(distinct_classes(code.classes)) {
  HEARTH_CHECK(ConfigError, names_.size() >= 2 && names_.size() <= most_mask_classes, "/data/classes: ", names_.size(),
               " classes; masks are of 2 to ", most_mask_classes, ", the background being one");
  HEARTH_CHECK(ConfigError, code.ids.empty() || code.colors.empty(),
               "/data/ids: masks have ids or colours; leave \"ids\" or \"colors\" out");
  HEARTH_CHECK(ConfigError, code.ids.empty() || code.ids.size() == names_.size(), "/data/ids: ", code.ids.size(),
               " ids for ", names_.size(), " classes; give each class its own");
  HEARTH_CHECK(ConfigError, code.colors.empty() || code.colors.size() == names_.size(),
               "/data/colors: ", code.colors.size(), " colours for ", names_.size(),
               " classes; give each class its own");
  HEARTH_CHECK(ConfigError, code.ignored_colors.empty() || !code.colors.empty(),
               "/data/ignored_colors: needs \"colors\", one for each class");
  if (code.colors.empty())
    set_ids(code);
  else
    set_colors(code);
}

void MaskClasses::set_ids(const MaskCode& code) {
  by_id_.fill(-1);
  const auto set = [&](int id, int label, const char* field) {
    HEARTH_CHECK(ConfigError, id >= 0 && id <= 255, "/data/", field, ": ", id, " is no pixel value; they are 0 to 255");
    int& at = by_id_[static_cast<std::size_t>(id)];
    HEARTH_CHECK(ConfigError, at < 0, "/data/", field, ": ", id, " stands for the class \"",
                 printable(names_[static_cast<std::size_t>(std::max(at, 0))]), "\" and for ",
                 label == ignored_pixel ? "what is ignored; set \"ignored\" to [] or to other values"
                                        : "another class; give each class an id of its own");
    at = label;
  };
  for (std::size_t label = 0; label < names_.size(); ++label)
    set(code.ids.empty() ? static_cast<int>(label) : code.ids[label], static_cast<int>(label), "ids");
  const std::set<int> ignored(code.ignored.begin(), code.ignored.end());
  for (const int id : ignored) set(id, ignored_pixel, "ignored");
}

void MaskClasses::set_colors(const MaskCode& code) {
  const auto set = [&](const std::string& text, std::size_t label, const char* field) {
    const bool is_first = by_color_.emplace(color_of(text, field), static_cast<std::uint8_t>(label)).second;
    HEARTH_CHECK(ConfigError, is_first, "/data/", field, ": ", text,
                 " is there twice; give each class a colour of its own");
  };
  for (std::size_t label = 0; label < names_.size(); ++label) set(code.colors[label], label, "colors");
  for (const std::string& text : code.ignored_colors) set(text, ignored_pixel, "ignored_colors");
}

void MaskClasses::refuse_id(const std::string& name, const Image& image, std::size_t pixel) const {
  throw DataError(join_text(name, ": ", place_of(image, pixel), " has the id ", int{image.pixels[pixel]},
                            ", which is none of the ", names_.size(), " classes",
                            by_id_[ignored_pixel] == ignored_pixel ? " and not ignored" : "",
                            "; add the class to \"classes\" (and its id to \"ids\"), or the id to \"ignored\""));
}

Image MaskClasses::decode(std::span<const std::uint8_t> bytes, const std::string& name,
                          std::int64_t memory_limit) const {
  constexpr std::uint8_t signature[] = {0x89, 'P', 'N', 'G'};
  HEARTH_CHECK(DataError, bytes.size() >= 4 && std::memcmp(bytes.data(), signature, 4) == 0, name,
               ": a mask that is no PNG; other forms change classes; write PNG files of class ids or colours");
  HEARTH_CHECK(DataError, exif_orientation(bytes) == 1, name,
               ": a mask with an EXIF orientation; write it upright and without");
  PngSamples samples = decode_png_samples({bytes, name, memory_limit});
  Image& stored = samples.image;
  const std::size_t pixels = stored.pixels.size() / static_cast<std::size_t>(stored.channels);
  if (uses_ids()) {
    HEARTH_CHECK(DataError, stored.channels == 1, name,
                 ": a mask of colours, and \"colors\" does not say which classes they are; give \"colors\", one for "
                 "each class, or write class ids as 8-bit grey or as a palette");
    for (std::size_t i = 0; i < pixels; ++i) {
      const int label = by_id_[stored.pixels[i]];
      if (label < 0) refuse_id(name, stored, i);
      stored.pixels[i] = static_cast<std::uint8_t>(label);
    }
    return std::move(stored);
  }
  Image classes;
  classes.reshape(stored.height, stored.width, 1);
  for (std::size_t i = 0; i < pixels; ++i) {
    std::uint32_t color = 0;
    if (stored.channels == 3) {
      color = packed_color(&stored.pixels[3 * i]);
    } else if (samples.palette.empty()) {
      color = stored.pixels[i] * 0x010101u;
    } else {
      HEARTH_CHECK(DataError, stored.pixels[i] < samples.palette.size(), name, ": ", place_of(stored, i),
                   " has the number ", int{stored.pixels[i]}, " of a palette of ", samples.palette.size());
      color = packed_color(samples.palette[stored.pixels[i]].data());
    }
    const auto place = by_color_.find(color);
    HEARTH_CHECK(DataError, place != by_color_.end(), name, ": ", place_of(stored, i), " has the colour ",
                 color_text(color), ", which is none of the ", names_.size(),
                 " classes; add it to \"classes\" and \"colors\", or to \"ignored_colors\"");
    classes.pixels[i] = place->second;
  }
  return classes;
}

}  // namespace hearth::data
