// SPDX-License-Identifier: Apache-2.0
// Views, joining and padding: places by index arithmetic, gradients, shared storage, refusals.
#include <functional>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/binary.h"
#include "ops/shape/concat.h"
#include "ops/shape/split.h"
#include "ops/shape/view.h"
#include "tests/support/op_test.h"

namespace hearth::test::shape_test {
namespace {

using Place = std::vector<std::int64_t>;

/// Elements of the result of shape `shape`, each read from x at the position that `source` names.
std::vector<double> gathered(const Tensor& x, const Shape& shape, const std::function<Place(Place)>& source) {
  const std::vector<double> values = x.to_doubles();
  std::vector<double> result;
  for (std::int64_t flat = 0; flat < shape.size(); ++flat) {
    Place place(static_cast<std::size_t>(shape.rank()));
    std::int64_t rest = flat;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      place[static_cast<std::size_t>(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    const Place from = source(place);
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < from.size(); ++axis) at = at * x.shape()[static_cast<int>(axis)] + from[axis];
    result.push_back(values[static_cast<std::size_t>(at)]);
  }
  return result;
}

OP_TEST(Reshape) {
  const auto same = [](const Shape& shape) { return [=](Draw& draw) { return draw.normal(shape).to_doubles(); }; };
  check([](Draw& draw) { return reshape(draw.normal({4, 6}), {2, -1, 3}); }, same({4, 6}));
  check([](Draw& draw) { return reshape(draw.normal({4, 6}), Shape{24}); }, same({4, 6}));
  check([](Draw& draw) { return reshape(draw.normal({1, 1}), {}); }, same({1, 1}));
  check([](Draw& draw) { return reshape(draw.normal({0, 3}), {5, 0}); }, same({0, 3}));
  check([](Draw& draw) { return flatten(draw.normal({2, 3, 4}), 1); }, same({2, 3, 4}));
  check([](Draw& draw) { return flatten(draw.normal({2, 3, 4}), -3); }, same({2, 3, 4}));
  check([](Draw& draw) { return reshape(transpose(draw.normal({4, 6}), {1, 0}), {8, 3}); });
}

OP_TEST(Transpose) {
  check(
      [](Draw& draw) {
        return transpose(draw.normal({3, 37}), {1, 0});
      },
      [](Draw& draw) {
        return gathered(draw.normal({3, 37}), {37, 3}, [](const Place& p) { return Place{p[1], p[0]}; });
      });
  check(
      [](Draw& draw) {
        return transpose(draw.normal({2, 3, 4, 5}), {2, 0, 3, 1});
      },
      [](Draw& draw) {
        return gathered(draw.normal({2, 3, 4, 5}), {4, 2, 5, 3}, [](const Place& p) {
          return Place{p[1], p[3], p[0], p[2]};
        });
      });
  check([](Draw& draw) { return transpose(draw.normal({}), {}); });
  check([](Draw& draw) { return transpose(draw.normal({0, 3}), {1, 0}); });
}

OP_TEST(Slice) {
  check(
      [](Draw& draw) {
        return slice(draw.normal({4, 9, 3}), 1, 2, 9, 3);
      },
      [](Draw& draw) {
        return gathered(draw.normal({4, 9, 3}), {4, 3, 3}, [](const Place& p) {
          return Place{p[0], 2 + 3 * p[1], p[2]};
        });
      });
  check([](Draw& draw) { return slice(draw.normal({7}), -1, 6, 7); });
  check([](Draw& draw) { return slice(draw.normal({7, 2}), 0, 7, 7); });
  check([](Draw& draw) { return slice(draw.normal({7, 2}), 0, 1, 4, std::int64_t{1} << 62); });
  // Overlapping parts of one tensor add their gradients.
  check([](Draw& draw) {
    const Tensor x = draw.normal({5, 6});
    return mul(slice(x, 1, 0, 4), slice(x, 1, 2, 6));
  });
}

OP_TEST(Expand) {
  check(
      [](Draw& draw) {
        return expand(draw.normal({3, 1}), {2, 3, 4});
      },
      [](Draw& draw) {
        return gathered(draw.normal({3, 1}), {2, 3, 4}, [](const Place& p) { return Place{p[1], 0}; });
      });
  check([](Draw& draw) { return expand(draw.normal({}), {5}); });
  check([](Draw& draw) { return expand(draw.normal({1, 3}), {0, 3}); });
  check([](Draw& draw) { return expand(draw.normal({2, 3}), {2, 3}); });
}

OP_TEST(Concat) {
  for (const int axis : {0, 1, -1}) {
    check([&](Draw& draw) {
      const Tensor a = draw.normal({2, 3, 4});
      const Tensor b = draw.normal(a.shape().with(axis, 5));
      const Tensor c = draw.normal(a.shape().with(axis, 0));
      return concat({a, b, c, a}, axis);
    });
  }
  check(
      [](Draw& draw) {
        const Tensor a = draw.normal({2, 3});
        return concat({a, draw.normal({2, 2})}, 1);
      },
      [](Draw& draw) {
        const std::vector<double> a = draw.normal({2, 3}).to_doubles();
        const std::vector<double> b = draw.normal({2, 2}).to_doubles();
        return std::vector<double>{a[0], a[1], a[2], b[0], b[1], a[3], a[4], a[5], b[2], b[3]};
      });
  check([](Draw& draw) {
    const Tensor a = draw.normal({70, 2000});
    return concat({a, draw.normal({70, 5})}, 1);
  });
  check([](Draw& draw) { return concat({draw.normal({0, 3})}, 1); });
}

OP_TEST(Pad) {
  check(
      [](Draw& draw) {
        return pad(draw.normal({2, 3}), {{0, 1}, {2, 0}}, 0.5);
      },
      [](Draw& draw) {
        const std::vector<double> x = draw.normal({2, 3}).to_doubles();
        return std::vector<double>{.5, .5, x[0], x[1], x[2], .5, .5, x[3], x[4], x[5], .5, .5, .5, .5, .5};
      });
  check([](Draw& draw) { return pad(draw.normal({2, 4, 4, 3}), {{0, 0}, {1, 1}, {1, 2}, {0, 0}}); });
  check([](Draw& draw) { return pad(draw.normal({0, 2}), {{1, 1}, {0, 0}}); });
  check([](Draw& draw) { return pad(draw.normal({}), {}); });
}

TEST(Shapes, ViewsShareStorage) {
  const Tensor x = Tensor::zeros({4, 6});
  for (const Tensor& y :
       {reshape(x, {24}), flatten(x, 0), transpose(x, {1, 0}), slice(x, 0, 1, 3), expand(x, {2, 4, 6})})
    EXPECT_TRUE(y.same_storage(x));
  slice(x, 1, 2, 3).fill_(7.0);
  EXPECT_EQ(transpose(x, {1, 0}).to_doubles()[9], 7.0);
  EXPECT_FALSE(concat({x}, 0).same_storage(x));
  EXPECT_FALSE(pad(x, {{0, 0}, {0, 0}}).same_storage(x));
}

TEST(Shapes, AnyElementTypeIsTaken) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::boolean}) {
    const Tensor x = Tensor::full({2, 3}, 1.0, dtype);
    EXPECT_EQ(concat({x, x}, 1).to_doubles(), std::vector<double>(12, 1.0));
    EXPECT_EQ(reshape(transpose(x, {1, 0}), {-1}).dtype(), dtype);
    EXPECT_EQ(pad(x, {{1, 0}, {0, 0}}, 0.0).to_doubles()[0], 0.0);
    EXPECT_EQ(expand(slice(x, 0, 0, 1), {3, 3}).to_doubles(), std::vector<double>(9, 1.0));
  }
}

TEST(Shapes, OfNoElementsAreJoinedAndPadded) {
  const Tensor a = requires_grad(Tensor::zeros({2, 0})), b = requires_grad(Tensor::zeros({2, 0}));
  const Tensor y = concat({a, b}, 0);
  EXPECT_EQ(y.shape(), (Shape{4, 0}));
  backward(y, Tensor::zeros({4, 0}));
  EXPECT_EQ(grad_of(b).shape(), (Shape{2, 0}));
  const Tensor c = requires_grad(Tensor::zeros({0})), d = requires_grad(Tensor::zeros({0}));
  backward(stack({c, d}), Tensor::zeros({2, 0}));
  EXPECT_EQ(grad_of(d).shape(), Shape{0});
  EXPECT_EQ(pad(Tensor::zeros({2, 0}), {{1, 0}, {0, 0}}).shape(), (Shape{3, 0}));
  EXPECT_EQ(pad(Tensor::zeros({2, 0}), {{0, 0}, {1, 1}}, 4).to_doubles(), std::vector<double>(4, 4.0));
}

TEST(ShapesRefusal, Reshape) {
  const Tensor x = Tensor::zeros({2, 6});
  const std::int64_t big = std::int64_t{1} << 32;
  refuses<ShapeError>("reshape", [&] { return reshape(x, {-1, -1}); });
  refuses<ShapeError>("reshape", [&] { return reshape(x, {5, -1}); });
  refuses<ShapeError>("reshape", [&] { return reshape(Tensor::zeros({0}), {0, -1}); });
  refuses<ShapeError>("reshape", [&] { return reshape(x, {2, 5}); });
  refuses<ShapeError>("reshape", [&] { return reshape(x, {-2, -6}); });
  refuses<ShapeError>("reshape", [&] { return reshape(x, {big, big}); });
  refuses<ShapeError>("reshape", [&] { return reshape(x, {1, 1, 1, 1, 1, 1, 1, 2, 6}); });
  refuses<UsageError>("reshape", [&] { return reshape(Tensor(), {1}); });
  refuses<ShapeError>("flatten", [&] { return flatten(x, 2); });
  refuses<ShapeError>("flatten", [&] { return flatten(x, -3); });
  refuses<UsageError>("flatten", [&] { return flatten(Tensor(), 0); });
}

TEST(ShapesRefusal, Transpose) {
  const Tensor x = Tensor::zeros({2, 6});
  refuses<ShapeError>("transpose", [&] { return transpose(x, {0}); });
  refuses<ShapeError>("transpose", [&] { return transpose(x, {0, 0}); });
  refuses<ShapeError>("transpose", [&] { return transpose(x, {0, -1}); });
  refuses<ShapeError>("transpose", [&] { return transpose(x, {0, 2}); });
  refuses<ShapeError>("transpose", [&] { return transpose(x, {1, 0, 2}); });
  refuses<UsageError>("transpose", [&] { return transpose(Tensor(), {}); });
  refuses<ShapeError>("transpose", [&] { return x.transpose(0, 2); });
  refuses<ShapeError>("transpose", [&] { return x.transpose(-3, 1); });
}

TEST(ShapesRefusal, SliceAndExpand) {
  const Tensor x = Tensor::zeros({2, 6});
  refuses<ShapeError>("slice", [&] { return slice(x, 1, 0, 6, 0); });
  refuses<ShapeError>("slice", [&] { return slice(x, 1, 0, 6, -1); });
  refuses<ShapeError>("slice", [&] { return slice(x, 1, 0, 7); });
  refuses<ShapeError>("slice", [&] { return slice(x, 1, -1, 3); });
  refuses<ShapeError>("slice", [&] { return slice(x, 1, 4, 3); });
  refuses<ShapeError>("slice", [&] { return slice(x, 2, 0, 1); });
  refuses<UsageError>("slice", [&] { return slice(Tensor(), 0, 0, 1); });
  refuses<ShapeError>("expand", [&] { return expand(x, {6}); });
  refuses<ShapeError>("expand", [&] { return expand(x, {4, 6}); });
  refuses<ShapeError>("expand", [&] { return expand(x, {2, 1}); });
  refuses<UsageError>("expand", [&] { return expand(Tensor(), {2}); });
}

TEST(ShapesRefusal, ConcatAndPad) {
  const Tensor x = Tensor::zeros({2, 6});
  refuses<UsageError>("concat", [&] { return concat({}, 0); });
  refuses<UsageError>("concat", [&] { return concat({x, Tensor()}, 0); });
  refuses<ShapeError>("concat", [&] { return concat({x, Tensor::zeros({2, 5})}, 0); });
  refuses<ShapeError>("concat", [&] { return concat({x, Tensor::zeros({2, 6, 1})}, 0); });
  refuses<ShapeError>("concat", [&] { return concat({x, x}, 2); });
  refuses<DTypeError>("concat", [&] { return concat({x, Tensor::zeros({2, 6}, DType::f64)}, 0); });
  const std::int64_t huge = std::int64_t{1} << 62;
  refuses<ShapeError>("pad", [&] { return pad(x, {{0, 0}}); });
  refuses<ShapeError>("pad", [&] { return pad(x, {{0, -1}, {0, 0}}); });
  refuses<ShapeError>("pad", [&] { return pad(x, {{huge, huge}, {0, 0}}); });
  refuses<ShapeError>("pad", [&] { return pad(x, {{huge, 0}, {0, 0}}); });
  refuses<ShapeError>("pad", [&] { return pad(x, {{std::int64_t{1} << 40, 0}, {std::int64_t{1} << 40, 0}}); });
  refuses<UsageError>("pad", [&] { return pad(Tensor(), {}); });
}

TEST(ShapesRefusal, PadByWhatTheTypeDoesNotHold) {
  const auto padded = [](DType dtype, double value) { return pad(Tensor::zeros({1}, dtype), {{0, 1}}, value); };
  refuses<UsageError>("pad", [&] { return padded(DType::i32, 1.5); });
  refuses<UsageError>("pad", [&] { return padded(DType::i32, 0x1p31); });
  refuses<UsageError>("pad", [&] { return padded(DType::u8, -1); });
  refuses<UsageError>("pad", [&] { return padded(DType::u8, 256); });
  refuses<UsageError>("pad", [&] { return padded(DType::boolean, 2); });
  refuses<UsageError>("pad", [&] { return padded(DType::i64, std::numeric_limits<double>::quiet_NaN()); });
  EXPECT_EQ(padded(DType::i32, -7).to_doubles(), (std::vector<double>{0, -7}));
  EXPECT_EQ(padded(DType::u8, 255).to_doubles(), (std::vector<double>{0, 255}));
  EXPECT_EQ(padded(DType::f16, 1.5).to_doubles(), (std::vector<double>{0, 1.5}));
}

}  // namespace
}  // namespace hearth::test::shape_test
