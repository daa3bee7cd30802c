// SPDX-License-Identifier: Apache-2.0
// What the pixels of a mask mean: ids or colours, and the classes that they stand for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/export.h"
#include "data/images/codecs/image.h"

namespace hearth::data {

/// Marks pixels that do not count in a mask of class numbers.
inline constexpr std::uint8_t ignored_pixel = 255;

/// How the masks of a set are written.
struct MaskCode {
  std::vector<std::string> classes{};  ///< names by label, 2 to 255
  std::vector<int> ids{};              ///< the pixel value of each class; empty for 0, 1, 2 ...
  std::vector<std::string> colors{};   ///< the colour of each class, "#rrggbb", where masks have colours; else empty
  std::vector<int> ignored{255};       ///< pixel values that do not count
  std::vector<std::string> ignored_colors{};  ///< colours that do not count
};

/// Masks from files, as classes by pixel.
class HEARTH_API MaskClasses {
 public:
  /// ConfigError for fewer than 2 classes or more than 255, for other numbers of ids or colours than of classes, for
  /// what is no id or colour, and for one that stands for two classes or for a class and what is ignored.
  explicit MaskClasses(const MaskCode& code);
  const std::vector<std::string>& names() const { return names_; }
  /// A PNG file of class ids (8-bit grey, or a palette, whose numbers are the ids) or of colours (RGB, or the colours
  /// of a palette), as an image of one channel: labels, and ignored_pixel. DataError, with `name`, the position and the
  /// remedy, for a pixel that stands for no class, for another form of image, and as decode_image() has it.
  Image decode(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t memory_limit) const;
  /// Whether pixel values count, not colours.
  bool uses_ids() const { return by_color_.empty(); }
  /// What a pixel value stands for: a label, ignored_pixel, or -1 for nothing.
  int label_of_id(std::uint8_t id) const { return by_id_[id]; }

 private:
  void set_ids(const MaskCode& code);
  void set_colors(const MaskCode& code);
  [[noreturn]] void refuse_id(const std::string& name, const Image& image, std::size_t pixel) const;

  std::vector<std::string> names_;
  std::array<int, 256> by_id_{};
  std::unordered_map<std::uint32_t, std::uint8_t> by_color_;
};

}  // namespace hearth::data
