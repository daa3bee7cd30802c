// SPDX-License-Identifier: Apache-2.0
// The operations of detection in `hearth bench ops`, at sizes of SSD, YOLOX, FCOS3D and Faster R-CNN. Losses and
// features are measured with their gradients.
#include <functional>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/creation.h"
#include "core/memory/memory.h"
#include "ops/ops.h"
#include "train/bench/bench.h"

namespace hearth::train {
namespace {

/// Boxes of some tens of pixels on an image of some hundreds, from the numbers `first`, first + 1, ...
Tensor spread_boxes(std::int64_t n, std::int64_t first, DType dtype, Device device) {
  const Tensor boxes = Tensor::empty({n, 4});
  float* const at = boxes.data<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto number = [k = i + first](std::int64_t a, std::int64_t m) { return static_cast<float>(a * k % m); };
    const float x = number(37, 601), y = number(53, 599), w = 20 + number(29, 101), h = 20 + number(17, 103);
    at[i * 4] = x, at[i * 4 + 1] = y, at[i * 4 + 2] = x + w, at[i * 4 + 3] = y + h;
  }
  return boxes.to(dtype).to(device);
}

/// Numbers without equals up to n = 10007.
Tensor spread_scores(std::int64_t n, DType dtype, Device device) {
  const Tensor scores = Tensor::empty({n});
  for (std::int64_t i = 0; i < n; ++i) scores.data<float>()[i] = static_cast<float>(7919 * i % 10007) / 16384;
  return scores.to(dtype).to(device);
}

/// A grid of which one point in fifty is there.
Tensor sparse_grid(Device device) {
  const Tensor grid = Tensor::empty({100, 100, 10});
  for (std::int64_t i = 0; i < grid.size(); ++i) grid.data<float>()[i] = (i * 2654435761 >> 7) % 50 == 0 ? 1 : 0;
  return not_equal(grid, 0.0).to(device);
}

/// The operation on a device in a type, and all of its results to compare.
struct BoxWork {
  std::function<void()> run;
  std::function<std::vector<double>()> results;
  /// The same in the way that it is compared with; absent where there is none.
  std::function<void()> other = {};
  const char* name_of_other = "";
};
struct BoxCase {
  const char* name;
  Shape shape;
  std::function<BoxWork(DType, Device)> make;
  double error_bound = 1e-4;
};

BoxWork loss_work(DType dtype, Device device) {
  const Tensor a = requires_grad(spread_boxes(32768, 1, dtype, device)), b = spread_boxes(32768, 3, dtype, device);
  return {[=] { backward(giou_loss(a, b)); },
          [=] {
            zero_grad(a);
            backward(giou_loss(a, b));
            return grad_of(a).to_doubles();
          }};
}

BoxWork pair_work(DType dtype, Device device) {
  const Tensor a = spread_boxes(8400, 1, dtype, device), b = spread_boxes(100, 5, dtype, device);
  return {[=] { (void)box_iou(a, b); }, [=] { return box_iou(a, b).to_doubles(); }};
}

BoxWork nms_work(std::int64_t n, DType dtype, Device device) {
  const Tensor boxes = spread_boxes(n, 0, dtype, device), scores = spread_scores(n, dtype, device);
  // No overlap is this, or near it.
  return {[=] { (void)nms(boxes, scores, 0.4567); }, [=] { return nms(boxes, scores, 0.4567).wait().to_doubles(); }};
}

/// The anchors of a RetinaNet's largest map of 320 pixels, and 32 images of 8 boxes.
BoxWork assign_work(DType dtype, Device device) {
  const Tensor anchors = spread_boxes(14400, 1, dtype, device), boxes = spread_boxes(256, 5, dtype, device);
  const Tensor counts = Tensor::full({32}, 8, DType::i64, device);
  return {[=] {
            (void)assign_anchors(anchors, {boxes, counts});
          },
          [=] {
            return assign_anchors(anchors, {boxes, counts}).to_doubles();
          }};
}

BoxWork nonzero_work(DType, Device device) {
  const Tensor mask = sparse_grid(device);
  BoxWork work{[=] { (void)nonzero(mask); }, [=] { return nonzero(mask).wait().to_doubles(); }};
  // The host waits for the mask and sends the positions back.
  if (device.is_cuda()) work.other = [=] { (void)nonzero(mask.to(Device{})).wait().contiguous().to(device); };
  work.name_of_other = "by the host";
  return work;
}

/// YOLOX at 640 pixels with 80 classes, and 20 boxes on each image.
BoxWork simota_work(DType dtype, Device device) {
  constexpr std::int64_t images = 8, of_image = 20, classes = 80;
  std::vector<double> squares;
  for (const int side : {8, 16, 32})
    for (int y = 0; y < 640; y += side)
      for (int x = 0; x < 640; x += side)
        for (const int corner : {x, y, x + side, y + side}) squares.push_back(corner);
  const auto points = static_cast<std::int64_t>(squares.size() / 4);
  const auto typed = [&](const Tensor& x) { return x.to(dtype).to(device); };
  const Tensor anchors = typed(Tensor::of({points, 4}, squares));
  const Tensor logits = Tensor::empty({images, points, classes + 1});
  for (std::int64_t i = 0; i < logits.size(); ++i)
    logits.data<float>()[i] = static_cast<float>(7919 * i % 10007) / 2048 - 5;
  const Tensor rows = typed(logits);
  const BoxList list{spread_boxes(images * of_image, 3, dtype, device),
                     Tensor::full({images}, static_cast<double>(of_image), DType::i64, device)};
  // Each point predicts a box of its image, moved by some pixels.
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < images; ++i)
    for (std::int64_t p = 0; p < points; ++p) ids.push_back(i * of_image + p % of_image);
  const Tensor shifts = reshape(spread_scores(images * points, dtype, device), {images * points, 1});
  const Tensor boxes =
      index_select(list.boxes, 0, Tensor::of<std::int64_t>({images * points}, ids).to(device)) + shifts * 9.0;
  const PointPredictions predicted{reshape(boxes, {images, points, 4}), squeeze(slice(rows, -1, 0, 1), -1),
                                   slice(rows, -1, 1, classes + 1)};
  const Tensor kinds = arange(0, images * of_image, 1, DType::i64).to(device);
  const Tensor labels = less(kinds, 80).to(DType::i64);
  const auto one_by_one = [=] {
    for (std::int64_t i = 0; i < images; ++i) {
      const auto part = [&](const Tensor& x, std::int64_t rows_of_image) {
        return slice(x, 0, i * rows_of_image, (i + 1) * rows_of_image);
      };
      (void)assign_simota(anchors, {part(predicted.boxes, 1), part(predicted.objectness, 1), part(predicted.scores, 1)},
                          {part(list.boxes, of_image), part(list.counts, 1)}, part(labels, of_image));
    }
  };
  return {[=] { (void)assign_simota(anchors, predicted, list, labels); },
          [=] {
            const SimotaAssignment y = assign_simota(anchors, predicted, list, labels);
            std::vector<double> all = y.boxes.to_doubles(), overlaps = y.overlaps.to_doubles();
            all.insert(all.end(), overlaps.begin(), overlaps.end());
            return all;
          },
          one_by_one, "image by image"};
}

BoxWork roi_work(DType dtype, Device device) {
  const Tensor x = requires_grad(Tensor::full({2, 50, 50, 256}, 0.5, dtype, device));
  const Tensor boxes = spread_boxes(256, 1, dtype, device);
  const Tensor images = less(arange(0, 256, 1, DType::i64), 128).to(DType::i64).to(device);
  const RoiAlignOptions options{.scale = 1.0 / 16, .samples = 2};
  const Tensor dy = Tensor::full({256, 7, 7, 256}, 0.25, dtype, device);
  return {[=] { backward(roi_align(x, boxes, images, options), dy.clone()); },
          [=] {
            zero_grad(x);
            backward(roi_align(x, boxes, images, options), dy.clone());
            return grad_of(x).to_doubles();
          }};
}

}  // namespace

std::vector<OpBench> box_benches(Device device) {
  const std::vector<BoxCase> cases = {
      {"giou_loss", {32768, 4}, loss_work},
      {"box_iou/100", {8400, 4}, pair_work},
      {"nms/1000", {1000, 4}, [](DType dtype, Device on) { return nms_work(1000, dtype, on); }, 0},
      {"nms/4096", {4096, 4}, [](DType dtype, Device on) { return nms_work(4096, dtype, on); }, 0},
      {"assign_anchors", {14400, 4}, assign_work, 0},
      {"nonzero", {100, 100, 10}, nonzero_work, 0},
      {"roi_align/7x7", {2, 50, 50, 256}, roi_work},
      {"assign_simota", {8, 8400, 81}, simota_work},
  };
  std::vector<OpBench> all;
  for (const BoxCase& tried : cases) {
    const std::string name = join_text(tried.name, "/f32");
    const auto run = [=] {
      const BoxWork work = tried.make(DType::f32, device);
      BenchCase result;
      result.name = name;
      result.shape = join_text(tried.shape);
      result.device = device;
      result.timing = time_repeated(work.run, device);
      result.items = 1;
      result.unit = "calls/s";
      result.peak_bytes = static_cast<double>(memory_of(device).statistics().peak);
      if (work.other)
        result.implementation = join_text(time_repeated(work.other, device).median_ms / result.timing.median_ms,
                                          " times as fast as ", work.name_of_other);
      return result;
    };
    const auto error = [=] {
      return relative_error(tried.make(DType::f32, device).results(), tried.make(DType::f64, {}).results());
    };
    all.push_back({name, run, error, tried.error_bound});
  }
  return all;
}

}  // namespace hearth::train
