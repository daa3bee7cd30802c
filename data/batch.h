// SPDX-License-Identifier: Apache-2.0
// A batch: a short, ordered list of named tensors, and how many samples and labels it counts. What moves, captures or
// measures batches knows no names; what a batch means is the business of those who make it and of the task.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace hearth::data {

/// Labels of positions that do not count: padding, and what is not to be guessed.
constexpr std::int64_t ignored_label = -100;

/// The named tensors of a sample, on the host.
using TensorSample = std::vector<std::pair<std::string, Tensor>>;

/// Names of the library's own batches:
///
/// - images: "images" [N, H, W, C] and "labels", i64 [N] or, where samples are mixed, f32 [N, classes]. What is still
/// to
///   be done to images of u8 after their normalisation, as normalize_images() takes it, where there is something to do:
///   "erased", the box of each image that becomes 0, i32 [N, 4], and "mix", how pairs are mixed, f32 [5]: share and
///   box.
/// - sequences: "input", ids i32 [N, T], and "labels", i64 [N, T], ignored_label where a position does not count, or
///   i64 [N] where each sequence has one label; where a row holds several sequences "segments", i32 [N, T, 2]: of each
///   position the first one of its sequence and the one behind the last. Each position of the padding is one of its
///   own.
/// - images with boxes: "images" as above, and of all boxes of the batch, image by image, without padding: "boxes", x0,
///   y0, x1, y1 in pixels of the input, f32 [M, 4]; "classes", i64 [M]; "box_flags", u8 [M]: 1 where a box is a
///   crowd's, 2 where it is to be ignored, or both; "box_areas", areas of the objects in square pixels of the image,
///   f64 [M]. "box_counts", i64 [N], how many of them each image has; "image_sizes", height and width of the image as
///   its labels mean it, i64 [N, 2]; "image_maps", f64 [N, 4]: sx, sy, tx, ty, by which (x, y) of the image lies at
///   (sx x + tx, sy y + ty) of the input; sx is below 0 where it is mirrored. Where the input shows several images, or
///   one that is turned, the input itself is the image.
/// - images with masks: "images" as above and "labels", the class of each pixel, i64 [N, H, W], ignored_label where a
///   pixel does not count.
/// - translations: "source", ids i32 [N, S], padded; "target", the ids of the translation so far, i32 [N, T], padded;
///   "labels", i64 [N, T]: `target` one position later.
class HEARTH_API Batch {
 public:
  /// What the first axis of a tensor counts: the rows of the batch, something else that all rows share, or entries of
  /// which each row has some, those of the first row first.
  enum class Axis : std::uint8_t { rows, shared, ragged };
  struct Named {
    std::string name;
    Tensor tensor;
    Axis axis = Axis::rows;
    std::string counts{};  ///< of a ragged tensor: the tensor, i64 [rows], that says how many entries each row has
  };

  /// The tensor of this name. UsageError, with the names that there are, if there is none.
  const Tensor& operator[](std::string_view name) const;
  /// The same, or an undefined tensor.
  Tensor find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name).defined(); }
  /// Replaces the tensor of this name, or appends it.
  void set(std::string_view name, Tensor tensor, Axis axis = Axis::rows);
  /// The same of a ragged tensor. UsageError unless `counts` names a tensor i64 [rows] of the batch; ShapeError, on the
  /// host, unless it adds up to the entries.
  void set_ragged(std::string_view name, Tensor tensor, std::string_view counts);
  const std::vector<Named>& tensors() const { return tensors_; }
  /// A batch with what f makes of each Named, and the same counts.
  template <class F>
  Batch map(F&& f) const {
    Batch mapped = *this;
    for (Named& named : mapped.tensors_) named.tensor = f(named);
    return mapped;
  }
  /// A batch of the same tensors on a device.
  Batch to(Device device) const;
  /// A batch of these rows, in this order, which may repeat, with their entries of ragged tensors; its tensors are on
  /// the host, as this one's. IndexError for a row that there is not. Counts of labels and tokens stay as they are.
  Batch gather(const std::vector<std::int64_t>& rows) const;

  std::int64_t counted = -1;   ///< labels that count in the mean of the losses; -1: as many as rows
  std::int64_t tokens = 0;     ///< ids of sequences that are no padding, source and target together
  std::int64_t positions = 0;  ///< ids of sequences with padding
  std::int64_t epoch = 0;
  std::int64_t index = 0;               ///< within the epoch
  std::vector<std::int64_t> samples{};  ///< index of each sample in the dataset
  double lambda = 1;                    ///< weight of a sample's own label where samples are mixed

  std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }
  /// The first axis of the tensors that count rows; 0 where there are none.
  std::int64_t rows() const;
  /// Labels that count in the mean: images, or ids to be predicted.
  std::int64_t count() const { return counted >= 0 ? counted : rows(); }

 private:
  std::vector<Named> tensors_;
};

/// The batch with spare entries of zeros behind those of its ragged tensors, up to 16 times a power of two each, so
/// that batches have few shapes. Its ragged tensors are on the host. Spare entries belong to no row.
HEARTH_API Batch with_spare_entries(const Batch& batch);

/// Labels of this number become ignored_label, and Batch::counted says how many others there are. Of labels that are
/// not i64, nothing.
HEARTH_API void ignore_labels(Batch& batch, std::int64_t number);

/// Whether two batches hold tensors of the same names and dtypes and, but for the number of rows and entries, the same
/// shapes.
HEARTH_API bool same_but_for_rows(const Batch& a, const Batch& b);
/// Whether two batches hold tensors of the same names, dtypes and shapes.
HEARTH_API bool same_shapes(const Batch& a, const Batch& b);

}  // namespace hearth::data
