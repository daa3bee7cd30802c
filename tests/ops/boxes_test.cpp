// SPDX-License-Identifier: Apache-2.0
// Functions of boxes: finite differences, and values and gradients as torchvision's in double precision.
#include "ops/boxes/boxes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/operators.h"
#include "ops/shape/concat.h"
#include "ops/shape/view.h"
#include "tests/ops/boxes_golden.h"
#include "tests/support/op_test.h"

namespace hearth::test::boxes_test {
namespace {

using namespace boxes_golden;
using Values = std::vector<double>;
using OverlapFunction = Tensor (*)(const Tensor&, const Tensor&, double);
using LossFunction = Tensor (*)(const Tensor&, const Tensor&, const BoxLossOptions&);

constexpr BoxFormat formats[] = {BoxFormat::xyxy, BoxFormat::xywh, BoxFormat::cxcywh};
constexpr OverlapFunction overlaps[] = {iou, giou, diou, ciou};
constexpr LossFunction losses[] = {iou_loss, giou_loss, diou_loss, ciou_loss};
constexpr BoxOverlap kinds[] = {BoxOverlap::iou, BoxOverlap::giou, BoxOverlap::diou, BoxOverlap::ciou};
constexpr const char* names[] = {"iou", "giou", "diou", "ciou"};

/// Leaves: corners below and above `middle` by at most `reach`.
Tensor corners(Draw& draw, std::int64_t n, double middle, double reach) {
  const Tensor low = draw.uniform({n, 2}, middle - reach, middle - 1);  // drawn first
  return concat({low, draw.uniform({n, 2}, middle + 1, middle + reach)}, -1);
}

/// The same without gradient: five boxes on eighths of a pixel.
Tensor anchors_of(Draw& draw) {
  Values values;
  for (int i = 0; i < 5; ++i) values.insert(values.end(), {4 + i * 1.5, 9 - i * 0.75, 20 + i * 0.5, 17 + i * 1.25});
  return draw.constant({5, 4}, values);
}

OP_TEST(ConvertBoxes) {
  for (const BoxFormat from : formats)
    for (const BoxFormat to : formats)
      check(
          [=](Draw& draw) {
            return convert_boxes(draw.normal({3, 5, 4}, 4.0), from, to);
          },
          [=](Draw& draw) {
            Values y = draw.normal({3, 5, 4}, 4.0).to_doubles();
            for (std::size_t i = 0; i < y.size(); i += i % 4 == 1 ? 3 : 1) {
              double low = y[i], high = y[i + 2];
              if (from == BoxFormat::xywh) high += low;
              if (from == BoxFormat::cxcywh) low -= high / 2, high = y[i] + high / 2;
              y[i] = to == BoxFormat::cxcywh ? (low + high) / 2 : low;
              y[i + 2] = to == BoxFormat::xyxy ? high : high - low;
            }
            return y;
          },
          // 16-bit results of a sum lose the smaller number's digits.
          {.tolerance_scale = 4.0});
}

OP_TEST(BoxArea) {
  for (const Shape& shape : {Shape{4}, {1, 4}, {37, 4}, {2, 3, 4}, {0, 4}})
    check([&](Draw& draw) { return box_area(draw.normal(shape, 3.0)); });
}

OP_TEST(ClipBoxes) {
  check(
      [](Draw& draw) {
        return clip_boxes(draw.away_from_zero({41, 4}), 0.9, 0.7);
      },
      [](Draw& draw) {
        Values y = draw.away_from_zero({41, 4}).to_doubles();
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::min(std::max(y[i], 0.0), i % 2 == 0 ? 0.7 : 0.9);
        return y;
      });
}

// ciou is left to the golden values: what its gradient leaves out a difference has.
OP_TEST(BoxOverlaps) {
  for (const OverlapFunction overlap : {iou, giou, diou}) {
    check([=](Draw& draw) { return overlap(corners(draw, 9, 16, 12), corners(draw, 9, 16, 9), 1e-7); });
    // Some apart.
    check([=](Draw& draw) { return overlap(corners(draw, 24, 16, 12), corners(draw, 24, 30, 9), 0.25); });
  }
  check([](Draw& draw) { return ciou(corners(draw, 9, 16, 12), corners(draw, 9, 20, 9), 1e-7); },
        {.no_gradient = true});
}

OP_TEST(BoxLosses) {
  for (const LossFunction loss : {iou_loss, giou_loss, diou_loss})
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
      check([=](Draw& draw) {
        return loss(corners(draw, 7, 16, 12), corners(draw, 7, 20, 9), {.reduction = reduction});
      });
}

OP_TEST(DecodeDeltas) {
  for (const DeltaWeights& weights : {DeltaWeights{1, 1, 1, 1}, {10, 10, 5, 5}})
    check([&](Draw& draw) { return decode_deltas(draw.normal({2, 5, 4}), anchors_of(draw), weights); });
}

OP_TEST(DecodeDistances) {
  for (const bool in_sides : {false, true})
    check([&](Draw& draw) { return decode_distances(draw.normal({2, 5, 4}, 2.0), anchors_of(draw), in_sides); });
}

// Encoding what was decoded gives the codes.
OP_TEST(EncodeBoxes) {
  for (const bool in_sides : {false, true})
    check([&](Draw& draw) { return encode_distances(corners(draw, 5, 16, 12), corners(draw, 5, 16, 9), in_sides); },
          {.no_gradient = true});
  check(
      [](Draw& draw) {
        return encode_deltas(corners(draw, 5, 16, 12), corners(draw, 5, 16, 9), {10, 10, 5, 5});
      },
      {.no_gradient = true});
}

OP_TEST(BoxIou) {
  for (const BoxOverlap kind : kinds)
    check([=](Draw& draw) { return box_iou(corners(draw, 6, 16, 12), corners(draw, 37, 18, 9), kind); },
          {.no_gradient = true});
  check(
      [](Draw& draw) {
        const Tensor a = corners(draw, 6, 16, 12).reshape(2, 3, 4);
        return box_iou(a, corners(draw, 10, 18, 9).reshape(2, 5, 4));
      },
      [](Draw& draw) {
        const Values a = corners(draw, 6, 16, 12).to_doubles(), b = corners(draw, 10, 18, 9).to_doubles();
        Values y;
        for (std::size_t i = 0; i < 6; ++i)
          for (std::size_t j = i / 3 * 5; j < i / 3 * 5 + 5; ++j) {
            const double *p = &a[4 * i], *q = &b[4 * j];
            const double w = std::min(p[2], q[2]) - std::max(p[0], q[0]),
                         h = std::min(p[3], q[3]) - std::max(p[1], q[1]);
            const double shared = std::max(w, 0.0) * std::max(h, 0.0);
            y.push_back(shared / ((p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - shared));
          }
        return y;
      },
      {.no_gradient = true});
}

class BoxesGolden : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device_count(GetParam()) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  Device device() const { return Device{GetParam()}; }
  Tensor leaf(const Json& boxes) const { return requires_grad(boxes_of(boxes, device())); }
};

TEST_P(BoxesGolden, LossesAndTheirGradients) {
  const Json& all = golden("overlaps");
  for (std::size_t k = 1; k < 4; ++k) {
    SCOPED_TRACE(names[k]);
    const Json& wanted = all.at(names[k]);
    const Tensor a = leaf(all.at("a")), b = leaf(all.at("b"));
    const Tensor y = losses[k](a, b, {.reduction = Reduction::none});
    expect_values("loss", y, wanted.at("loss"));
    backward(y, arriving(y));
    expect_values("da", grad_of(a), wanted.at("da"));
    expect_values("db", grad_of(b), wanted.at("db"));
    const Tensor similarity = overlaps[k](a, b, 1e-7);
    expect_values("1 - similarity", 1.0 - similarity, wanted.at("loss"));
  }
}

TEST_P(BoxesGolden, OverlapsOfPairs) {
  const Json& all = golden("overlaps");
  const Tensor b = boxes_of(all.at("b"), device()), a = slice(boxes_of(all.at("a"), device()), 0, 0, 7);
  for (std::size_t k = 0; k < 4; ++k) {
    const Tensor y = box_iou(a, b, kinds[k]);
    EXPECT_EQ(y.shape(), (Shape{7, b.dim(0)}));
    expect_values(names[k], y, all.at(names[k]).at("pairs"));
    expect_values(names[k], box_iou(a.to(DType::f32), b.to(DType::f32), kinds[k]), all.at(names[k]).at("pairs"), 1e-5);
  }
}

TEST_P(BoxesGolden, FormatsAndClipping) {
  const char* const spelled[] = {"xyxy", "xywh", "cxcywh"};
  const Tensor boxes = boxes_of(golden("overlaps").at("a"), device());
  for (std::size_t from = 0; from < 3; ++from)
    for (std::size_t to = 0; to < 3; ++to) {
      const std::string name = std::string(spelled[from]) + "_" + spelled[to];
      expect_values(name, convert_boxes(boxes, formats[from], formats[to]), golden("convert").at(name));
    }
  const Tensor wide = leaf(golden("clip").at("boxes"));
  const Tensor y = clip_boxes(wide, 8, 10);
  expect_values("clipped", y, golden("clip").at("y"));
  backward(y, arriving(y));
  expect_values("gradient", grad_of(wide), golden("clip").at("dx"));
}

TEST_P(BoxesGolden, Codes) {
  const Json& all = golden("codes");
  const Tensor boxes = boxes_of(all.at("boxes"), device()), anchors = boxes_of(all.at("anchors"), device());
  for (const char* name : {"plain", "ssd", "pixels", "sides"}) {
    SCOPED_TRACE(name);
    const Json& wanted = all.at(name);
    const bool of_deltas = wanted.find("weights") != nullptr, in_sides = std::string(name) == "sides";
    DeltaWeights weights{};
    if (of_deltas) std::copy_n(numbers_of(wanted.at("weights")).begin(), 4, weights.begin());
    const Tensor codes =
        of_deltas ? encode_deltas(boxes, anchors, weights) : encode_distances(boxes, anchors, in_sides);
    expect_values("codes", codes, wanted.at("encoded"));
    const Json& used = wanted.at(of_deltas ? "deltas" : "encoded");
    const Tensor x = requires_grad(Tensor::of(boxes.shape(), numbers_of(used)).to(device()));
    const Tensor y = of_deltas ? decode_deltas(x, anchors, weights) : decode_distances(x, anchors, in_sides);
    expect_values("boxes", y, wanted.at("decoded"));
    backward(y, arriving(y));
    expect_values("gradient", grad_of(x), wanted.at("dx"));
  }
}

TEST_P(BoxesGolden, BoxesWithoutAreaGiveFiniteLossesAndGradients) {
  const Tensor point = Tensor::of<double>({3, 4}, Values{5, 5, 5, 5, 5, 5, 5, 9, 5, 5, 9, 5}).to(device());
  const Tensor other = Tensor::of<double>({3, 4}, Values{5, 5, 5, 5, 1, 2, 9, 9, 5, 5, 5, 5}).to(device());
  for (const double eps : {1e-7, 0.0})
    for (const LossFunction loss : losses) {
      const Tensor a = requires_grad(point.clone()), b = requires_grad(other.clone());
      const Tensor y = loss(a, b, {.eps = eps});
      backward(y);
      for (const Tensor& found : {y, grad_of(a), grad_of(b)})
        for (const double value : found.to_doubles()) EXPECT_TRUE(std::isfinite(value)) << "eps " << eps;
    }
  EXPECT_EQ(box_iou(point, point).to_doubles(), Values(9, 0));
}

TEST_P(BoxesGolden, NoBoxesHaveALossOfZero) {
  const Tensor none = requires_grad(Tensor::zeros({0, 4}, DType::f32, device()));
  const Tensor loss = giou_loss(none, none.detach());
  EXPECT_EQ(loss.item(), 0);
  backward(loss);
  EXPECT_EQ(grad_of(none).shape(), (Shape{0, 4}));
  EXPECT_EQ(box_iou(none, Tensor::zeros({3, 4}, DType::f32, device())).shape(), (Shape{0, 3}));
  EXPECT_EQ(box_iou(Tensor::zeros({3, 4}, DType::f32, device()), none).shape(), (Shape{3, 0}));
}

INSTANTIATE_TEST_SUITE_P(Devices, BoxesGolden, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& tried) { return tried.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST(Boxes, KeepTheirTypeAndOverlapsAreWide) {
  const Tensor boxes = Tensor::full({2, 4}, 3.0, DType::bf16);
  EXPECT_EQ(convert_boxes(boxes, BoxFormat::xyxy, BoxFormat::xywh).dtype(), DType::bf16);
  EXPECT_EQ(decode_distances(boxes, boxes).dtype(), DType::bf16);
  EXPECT_EQ(box_area(boxes).dtype(), DType::f32);
  EXPECT_EQ(giou(boxes, boxes).dtype(), DType::f32);
  EXPECT_EQ(giou_loss(boxes.to(DType::f64), boxes.to(DType::f64)).dtype(), DType::f64);
  const AutocastScope scope(DType::bf16);
  EXPECT_EQ(decode_deltas(boxes, boxes.to(DType::f32)).dtype(), DType::f32);
}

TEST(BoxesRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 4}), five = Tensor::zeros({2, 5}), wide = x.to(DType::f64);
  refuses<UsageError>("convert_boxes", [] { return convert_boxes(Tensor(), BoxFormat::xyxy, BoxFormat::xywh); });
  refuses<ShapeError>("convert_boxes", [&] { return convert_boxes(five, BoxFormat::xyxy, BoxFormat::xywh); });
  refuses<ShapeError>("box_area", [] { return box_area(Tensor::zeros({})); });
  refuses<DTypeError>("box_area", [&] { return box_area(x.to(DType::i64)); });
  refuses<UsageError>("clip_boxes", [&] { return clip_boxes(x, -1, 4); });
  refuses<UsageError>("clip_boxes", [&] { return clip_boxes(x, 4, std::numeric_limits<double>::infinity()); });
  for (std::size_t k = 0; k < 4; ++k) {
    const std::string loss = std::string(names[k]) + "_loss";
    refuses<ShapeError>(names[k], [&] { return overlaps[k](x, Tensor::zeros({3, 4}), 0); });
    refuses<DTypeError>(names[k], [&] { return overlaps[k](x, wide, 0); });
    refuses<UsageError>(names[k], [&] { return overlaps[k](x, x, -1); });
    refuses<ShapeError>(loss, [&] { return losses[k](five, five, {}); });
    refuses<UsageError>(loss, [&] { return losses[k](x, Tensor(), {}); });
    refuses<UsageError>(loss, [&] { return losses[k](x, x, {.eps = std::nan("")}); });
  }
  refuses<ShapeError>("box_iou", [&] { return box_iou(Tensor::zeros({4}), x); });
  refuses<ShapeError>("box_iou", [&] { return box_iou(Tensor::zeros({3, 2, 4}), Tensor::zeros({2, 2, 4})); });
  refuses<ShapeError>("box_iou", [&] { return box_iou(Tensor::zeros({3, 2, 4}), x); });
  refuses<DTypeError>("box_iou", [&] { return box_iou(x, wide); });
  refuses<UsageError>("box_iou", [&] { return box_iou(x, Tensor()); });
  refuses<ShapeError>("encode_deltas", [&] { return encode_deltas(x, Tensor::zeros({3, 4})); });
  refuses<ShapeError>("encode_deltas", [&] { return encode_deltas(x, Tensor::zeros({1, 2, 4})); });
  refuses<UsageError>("encode_deltas", [&] { return encode_deltas(x, x, {1, 1, 0, 1}); });
  refuses<UsageError>("decode_deltas", [&] { return decode_deltas(x, x, {1, -1, 1, 1}); });
  refuses<DTypeError>("decode_deltas", [&] { return decode_deltas(x, wide); });
  refuses<ShapeError>("encode_distances", [&] { return encode_distances(five, five); });
  refuses<ShapeError>("decode_distances", [&] { return decode_distances(x, Tensor::zeros({4, 2})); });
  refuses<UsageError>("decode_distances", [&] { return decode_distances(Tensor(), x); });
}

}  // namespace
}  // namespace hearth::test::boxes_test
