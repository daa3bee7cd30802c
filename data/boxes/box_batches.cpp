// SPDX-License-Identifier: Apache-2.0
// Batches of images with boxes: moved into a square, boxes behind one another.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "data/boxes/box_dataset.h"
#include "data/boxes/transforms/box_transforms.h"
#include "data/images/transforms/resize.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"
#include "data/loading/quarantine.h"

namespace hearth::data {
namespace {

/// How often mixup looks for an image with boxes.
constexpr int partner_tries = 50;

/// What becomes of a sample, beside the pixels.
struct Row {
  std::vector<MovedBox> boxes{};
  PixelMap map{};
  std::int64_t height = 0, width = 0;  // of the image that the map is from
};

class BoxBatches : public OrderedBatches {
 public:
  BoxBatches(const BoxDataset& dataset, const Transforms& transforms, const LoaderOptions& options)
      : OrderedBatches(dataset.size(), options, dataset.source(), "samples"),
        dataset_(dataset),
        transforms_(transforms),
        how_(transforms.options()),
        side_(how_.image_size),
        margin_(3, pixel_of(how_.fill.value_or(0))),
        mean_(3, 0) {
    check_box_options(how_);
    HEARTH_CHECK(ConfigError, transforms.output_shape().channels == 3,
                 "loader: images with boxes have 3 channels, transforms are of ", transforms.output_shape().channels);
    HEARTH_CHECK(ConfigError, options.mixup_alpha == 0 && options.cutmix_alpha == 0,
                 "loader: mixup_alpha and cutmix_alpha mix labels of whole images; images with boxes have "
                 "TransformOptions::boxes.mixup");
    const DType possible[] = {DType::f32, DType::bf16, DType::f16, DType::u8};
    HEARTH_CHECK(DTypeError, std::count(std::begin(possible), std::end(possible), options.dtype) == 1,
                 "loader: images of ", options.dtype, "; f32, bf16, f16 and u8 are possible");
    for (std::size_t c = 0; c < mean_.size() && !how_.mean.empty(); ++c)
      mean_[c] = pixel_of(how_.mean[how_.mean.size() == 1 ? 0 : c]);
  }

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    const std::int64_t count = batch.size();
    if (!space.kept) begin(batch);
    const Tensor images = batch["images"];
    const std::size_t stride = images.byte_size() / static_cast<std::size_t>(count);
    const bool mixes = batch.epoch * per_epoch() + batch.index < options().mixed_batches;
    std::vector<TensorSample>& rows = space.samples;
    rows.resize(static_cast<std::size_t>(space.kept.value_or(0)));
    space.passed.resize(rows.size());
    for (std::int64_t i = space.kept.value_or(0); i < count; ++i) {
      if (cancelled()) return false;
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(i)];
      const auto epoch = static_cast<std::uint64_t>(batch.epoch);
      Random random = random_of(options().seed, Purpose::augment, epoch, static_cast<std::uint32_t>(sample));
      space.passed.emplace_back();
      const Row row = make_row(space, sample, mixes, random);
      space.clock.enter(Stage::augment);
      put_pixels(space, random, images.bytes() + static_cast<std::size_t>(i) * stride);
      rows.push_back(targets_of(row));
    }
    space.clock.at(Stage::assemble);
    join(batch, rows);
    rows.clear();
    return true;
  }

 private:
  /// How an image of a row lies in its square.
  using Place = std::function<Placement(int height, int width, std::span<const BoxAnnotation> boxes, Random& random)>;

  static std::uint8_t pixel_of(double value) {
    return static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
  }

  void begin(Batch& batch) const {
    batch.set("images", Tensor::empty({batch.size(), side_, side_, 3}, options().dtype));
  }

  /// Puts the pixels into Workspace::image, and drops the boxes that are not to stay.
  Row make_row(Workspace& space, std::int64_t sample, bool mixes, Random& random) const {
    const BoxTransformOptions& boxes = how_.boxes;
    Row row{.height = side_, .width = side_};
    if (!transforms_.training()) {
      draw_single(space, sample, false, random, row);
      return row;
    }
    bool is_whole = true;  // whether the input shows the one image, not turned
    if (mixes && boxes.mosaic > 0 && random.uniform() < boxes.mosaic) {
      is_whole = false;
      draw_tiles(space, sample, random, row);
    } else {
      draw_single(space, sample, true, random, row);
      if (moves()) is_whole = false, turn(space, random, row);
    }
    drop_hidden(row.boxes);
    if (mixes && boxes.mixup > 0 && random.uniform() < boxes.mixup && blend_in(space, random, row)) is_whole = false;
    if (is_whole) return row;
    row.map = {}, row.height = row.width = side_;
    for (MovedBox& box : row.boxes) box.area *= box.scale;
    return row;
  }

  void clear(Image& square, int side) const {
    square.reshape(side, side, 3);
    std::fill(square.pixels.begin(), square.pixels.end(), margin_.front());
  }

  /// Draws an image into `square` and appends its boxes. `random` goes on behind the draws of `place`.
  Placement draw(Workspace& space, std::int64_t sample, const Place& place, Random& random, Image& square,
                 std::vector<MovedBox>& boxes) const {
    space.clock.at(Stage::read, sample);
    const Random start = random;
    Placement placement;
    std::vector<BoxAnnotation> annotated;
    const auto choose = [&](int height, int width) {
      random = start;
      annotated = dataset_.boxes_in_pixels(sample, height, width);
      placement = place(height, width, annotated, random);
      return sizing_of(placement, square.width, how_);
    };
    dataset_.read_region(sample, choose, space.decoded, space.region);
    space.clock.enter(Stage::augment);
    paint(space.decoded, space.region, placement, mean_, space.scratch, square);
    move_boxes(annotated, placement, square.width, boxes);
    return placement;
  }

  /// The same of an image that is not the row's own: where it is bad the next one stands in.
  void draw_other(Workspace& space, std::int64_t sample, const Place& place, Random& random, Image& square,
                  std::vector<MovedBox>& boxes) const {
    const std::shared_ptr<Quarantine>& quarantine = options().quarantine;
    if (!quarantine) return (void)draw(space, sample, place, random, square, boxes);
    while (true) {
      sample = quarantine->stand_in(sample, space.passed.back());
      const Random start = random;
      try {
        return (void)draw(space, sample, place, random, square, boxes);
      } catch (const Error& error) {
        if (!is_bad_sample(error)) throw;
        quarantine->find(sample, error.what());
        random = start;
      }
    }
  }

  void draw_single(Workspace& space, std::int64_t sample, bool trains, Random& random, Row& row) const {
    clear(space.image, side_);
    const auto place = [&](int height, int width, std::span<const BoxAnnotation> boxes, Random& draws) {
      return trains ? place_image(height, width, boxes, how_, draws) : place_whole(height, width, side_, how_.fit);
    };
    row.map = map_of(draw(space, sample, place, random, space.image, row.boxes), side_);
    row.height = space.region.height, row.width = space.region.width;
  }

  bool moves() const {
    const RandomAffine& affine = how_.boxes.affine;
    return affine.rotation > 0 || affine.shear > 0 || affine.translation > 0 || affine.scale[0] != 1 ||
           affine.scale[1] != 1;
  }

  /// Moves what Workspace::image shows, which becomes the input's size.
  void turn(Workspace& space, Random& random, Row& row) const {
    const AffineMap map = draw_affine(how_.boxes.affine, space.image.width, side_, random);
    space.scratch.reshape(side_, side_, 3);
    warp(space.image, inverse_of(map), margin_, space.scratch);
    std::swap(space.image, space.scratch);
    move_boxes(map, side_, row.boxes);
  }

  void draw_tiles(Workspace& space, std::int64_t sample, Random& random, Row& row) const {
    const int canvas = moves() ? 2 * side_ : side_;  // all of the mosaic where it may move in
    clear(space.image, canvas);
    const Mosaic mosaic = draw_mosaic(sample, dataset_.size(), side_, random);
    for (std::size_t tile = 0; tile < mosaic.samples.size(); ++tile) {
      const auto place = [&](int height, int width, std::span<const BoxAnnotation>, Random&) {
        return mosaic_tile(mosaic, tile, height, width, side_, canvas);
      };
      if (tile == 0)
        draw(space, sample, place, random, space.image, row.boxes);
      else
        draw_other(space, mosaic.samples[tile], place, random, space.image, row.boxes);
    }
    if (moves()) turn(space, random, row);
    if (!how_.horizontal_flip || random.below(2) == 0) return;
    flip_horizontally(space.image);
    mirror_boxes(side_, row.boxes);
  }

  /// Mixup. False, and nothing done, where the row has no box, or none of some images drawn has.
  bool blend_in(Workspace& space, Random& random, Row& row) const {
    if (row.boxes.empty()) return false;
    for (int i = 0; i < partner_tries; ++i) {
      const auto partner = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(dataset_.size())));
      if (dataset_.annotated().images[static_cast<std::size_t>(partner)].boxes == 0) continue;
      clear(space.partner, side_);
      const auto place = [&](int height, int width, std::span<const BoxAnnotation>, Random& draws) {
        return place_partner(height, width, side_, draws);
      };
      std::vector<MovedBox> more;
      draw_other(space, partner, place, random, space.partner, more);
      drop_hidden(more);
      blend_evenly(space.image, space.partner);
      row.boxes.insert(row.boxes.end(), more.begin(), more.end());
      return true;
    }
    return false;
  }

  /// Regions stay with what is left of them, since their rest is no background.
  void drop_hidden(std::vector<MovedBox>& boxes) const {
    const auto is_hidden = [&](const MovedBox& box) {
      return !box.is_region() && box.visible < how_.boxes.min_visibility;
    };
    boxes.erase(std::remove_if(boxes.begin(), boxes.end(), is_hidden), boxes.end());
  }

  void put_pixels(Workspace& space, Random& random, std::byte* target) const {
    const ColorJitter& jitter = how_.color_jitter;
    if (transforms_.training() &&
        (jitter.brightness > 0 || jitter.contrast > 0 || jitter.saturation > 0 || jitter.hue > 0))
      jitter_color(space.image, jitter, random);
    if (options().dtype == DType::u8)
      std::memcpy(target, space.image.pixels.data(), space.image.pixels.size());
    else
      transforms_.finish(space.image, random, options().dtype, target);
  }

  /// The row's part of each tensor but the images.
  static TensorSample targets_of(const Row& row) {
    std::vector<float> corners;
    std::vector<double> areas;
    std::vector<std::int64_t> classes;
    std::vector<std::uint8_t> flags;
    for (const MovedBox& box : row.boxes) {
      for (const double value : box.corners) corners.push_back(static_cast<float>(value));
      const float* const at = corners.data() + corners.size() - 4;
      if (!(at[2] > at[0] && at[3] > at[1])) {  // less than f32 tells
        corners.resize(corners.size() - 4);
        continue;
      }
      areas.push_back(box.area * box.visible);
      classes.push_back(box.label);
      flags.push_back(static_cast<std::uint8_t>((box.crowd ? 1 : 0) + (box.ignored ? 2 : 0)));
    }
    const auto boxes = static_cast<std::int64_t>(classes.size());
    const PixelMap& map = row.map;
    return {{"boxes", Tensor::of<float>({boxes, 4}, corners)},
            {"classes", Tensor::of<std::int64_t>({boxes}, classes)},
            {"box_flags", Tensor::of<std::uint8_t>({boxes}, flags)},
            {"box_areas", Tensor::of<double>({boxes}, areas)},
            {"box_counts", Tensor::of<std::int64_t>({1}, {boxes})},
            {"image_sizes", Tensor::of<std::int64_t>({1, 2}, {row.height, row.width})},
            {"image_maps", Tensor::of<double>({1, 4}, {map.sx, map.sy, map.tx, map.ty})}};
  }

  /// The rows' parts behind one another.
  static Tensor joined(const std::vector<TensorSample>& rows, std::size_t which) {
    std::int64_t entries = 0;
    for (const TensorSample& row : rows) entries += row[which].second.dim(0);
    const Tensor& first = rows.front()[which].second;
    const Tensor all = Tensor::empty(first.shape().with(0, entries), first.dtype());
    std::byte* to = all.bytes();
    for (const TensorSample& row : rows) {
      const Tensor& part = row[which].second;
      if (part.byte_size() > 0) std::memcpy(to, part.bytes(), part.byte_size());
      to += part.byte_size();
    }
    return all;
  }
  static void join(Batch& batch, const std::vector<TensorSample>& rows) {
    constexpr std::size_t ragged = 4;  // the first four, which box_counts counts
    const TensorSample& names = rows.front();
    for (std::size_t which = ragged; which < names.size(); ++which) batch.set(names[which].first, joined(rows, which));
    for (std::size_t which = 0; which < ragged; ++which)
      batch.set_ragged(names[which].first, joined(rows, which), "box_counts");
  }

  const BoxDataset& dataset_;
  const Transforms& transforms_;
  const TransformOptions& how_;
  int side_;
  std::vector<std::uint8_t> margin_, mean_;  // a value a channel
};

}  // namespace

std::unique_ptr<BatchMaker> BoxDataset::batches(const Transforms& transforms, const LoaderOptions& options) const {
  return std::make_unique<BoxBatches>(*this, transforms, options);
}

}  // namespace hearth::data
