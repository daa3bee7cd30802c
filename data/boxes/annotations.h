// SPDX-License-Identifier: Apache-2.0
// Images with labelled boxes, in memory: what the readers of COCO, YOLO and Pascal VOC make of their files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/source/source.h"

namespace hearth::data {

/// A box and its class.
struct BoxAnnotation {
  /// x0, y0, x1, y1: edges in pixels, counted from the image's upper left corner, which is 0; or shares of the sides
  /// where AnnotatedImages::normalized.
  std::array<double, 4> corners{};
  double area = 0;  ///< of the object in pixels: of its mask where it has one; 0 where only the image's size tells
  std::int32_t label = 0;  ///< the class
  bool crowd = false;      ///< stands for several objects: no object of its own in training, nor in evaluation
  bool ignored = false;    ///< no miss in evaluation (COCO's ignore, VOC's difficult)

  bool has_area() const { return corners[2] > corners[0] && corners[3] > corners[1]; }
  bool operator==(const BoxAnnotation&) const = default;
};

/// An image and where its boxes are.
struct AnnotatedImage {
  std::string file;  ///< below the folder of images
  std::int64_t id = 0;
  std::int32_t width = 0;  ///< in pixels; 0 where the labels do not tell it
  std::int32_t height = 0;
  std::int64_t first_box = 0;
  std::int64_t boxes = 0;
};

/// The images of a split.
struct AnnotatedImages {
  std::string source;                        ///< of the labels: a file or folder
  std::string folder{};                      ///< of the images; empty where their names are whole
  std::vector<std::string> class_names{};    ///< by label
  std::vector<std::int64_t> category_ids{};  ///< in the labels' own numbers, by label; -1 for a class that they lack
  std::vector<AnnotatedImage> images{};
  std::vector<BoxAnnotation> boxes{};            ///< image by image
  bool normalized = false;                       ///< boxes are shares of the sides
  std::map<std::int64_t, std::string> faults{};  ///< why images cannot be used, where that is to be passed over
  Warnings warnings{};

  std::string path_of(std::size_t image) const {
    return folder.empty() ? images[image].file : name_in(folder, images[image].file);
  }
  std::span<const BoxAnnotation> boxes_of(std::size_t image) const {
    return std::span(boxes).subspan(static_cast<std::size_t>(images[image].first_box),
                                    static_cast<std::size_t>(images[image].boxes));
  }
};

/// Boxes that leave their image by no more than this are clipped: a rounding, or a box that counts its last pixel.
inline constexpr double max_clipped_pixels = 1;
inline constexpr double max_clipped_share = 0.002;

/// Puts boxes into AnnotatedImages and applies the rules that all formats share.
class AnnotationBuilder {
 public:
  /// Faults of an image are DataErrors, or go to `into.faults`.
  AnnotationBuilder(AnnotatedImages& into, OnFault on_fault) : into_(into), fails_(on_fault == OnFault::fail) {}

  /// The next image, whose boxes follow.
  void begin_image(AnnotatedImage image);
  /// A box of that image. `place()` names it in messages: "labels/a.txt:3". A box that leaves the image by a rounding
  /// is clipped. A fault of the image is a box that leaves it by more, has a side below 0 or a number that is not
  /// finite.
  void add(BoxAnnotation box, const std::function<std::string()>& place);
  /// Ends the image: of boxes that are alike one stays, with a warning. One without area stays, with a warning.
  void end_image();
  /// The image cannot be used. DataError with `text` and the remedy, or noted.
  void fault(const std::string& text);
  /// What is behind the last image.
  void finish();

 private:
  void warn(const std::string& text) { into_.warnings.add(text); }
  void drop_repeats();

  AnnotatedImages& into_;
  bool fails_;
  std::int64_t clipped_ = 0;
  std::string first_clipped_;
};

/// Looks for the files of the images in their folder. DataError, with the folder that has them where there is one, if
/// none is there; an image that is missing is a fault of its own.
void require_files(AnnotatedImages& annotated, OnFault on_fault);

/// The classes as `names` order them, for a split beside another one. DataError for a class that they lack.
void match_classes(AnnotatedImages& annotated, const std::vector<std::string>& names);

}  // namespace hearth::data
