// SPDX-License-Identifier: Apache-2.0
// Order along an axis. Expected values of the cases with NaN and equals are those of torch.sort(stable=True).
#include "ops/index/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/binary.h"
#include "ops/reduce/reduce.h"
#include "tests/support/op_test.h"

namespace hearth::test::sort_test {
namespace {

using Values = std::vector<double>;

OP_TEST(Sort) {
  for (const Shape& shape : {Shape{1}, {37}, {4, 5, 7}, {3, 1}, {3, 300}, {0, 3}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (const bool descending : {false, true})
        check([&](Draw& draw) { return sort(draw.distinct(shape), axis, descending).values; });
    }
  }
  check([](Draw& draw) { return sort(draw.distinct({2100})).values; },
        [](Draw& draw) {
          Values values = draw.distinct({2100}).to_doubles();
          std::sort(values.begin(), values.end());
          return values;
        });
}

OP_TEST(ArgSort) {
  for (const bool descending : {false, true}) {
    // Five values only: many equals.
    check(
        [&](Draw& draw) {
          return argsort(draw.integers({3, 67}, 5), 1, descending);
        },
        [&](Draw& draw) {
          const Values x = draw.integers({3, 67}, 5).to_doubles();
          Values expected;
          for (std::size_t row = 0; row < 3; ++row) {
            Values order(67);
            for (std::size_t i = 0; i < 67; ++i) order[i] = static_cast<double>(i);
            const auto value = [&](double i) { return x[row * 67 + static_cast<std::size_t>(i)]; };
            std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
              return descending ? value(a) > value(b) : value(a) < value(b);
            });
            expected.insert(expected.end(), order.begin(), order.end());
          }
          return expected;
        },
        {.no_gradient = true});
    check([&](Draw& draw) { return argsort(draw.distinct({5, 33}), 0, descending); }, {.no_gradient = true});
  }
}

OP_TEST(TopK) {
  for (const bool largest : {false, true}) {
    check([&](Draw& draw) { return topk(draw.distinct({4, 37}), 5, 1, largest).values; });
    check([&](Draw& draw) { return topk(draw.distinct({9, 3, 2}), 2, 0, largest).values; });
    check([&](Draw& draw) { return topk(draw.distinct({3, 8}), 8, -1, largest).values; });
    check([&](Draw& draw) { return topk(draw.distinct({3, 8}), 1, -1, largest).indices; }, {.no_gradient = true});
  }
  check([](Draw& draw) { return topk(draw.distinct({3, 8}), 0).values; });
}

// What torch.sort(x, descending=d, stable=True) and torch.topk give.
OP_TEST(SortAsPyTorch) {
  const Tensor x = Tensor::of<double>({7}, std::vector<double>{0.0, NAN, -1, INFINITY, -0.0, NAN, -INFINITY})
                       .to(site_dtype())
                       .to(current_site().device);
  EXPECT_EQ(argsort(x).to_doubles(), (Values{6, 2, 0, 4, 3, 1, 5}));
  EXPECT_EQ(argsort(x, 0, true).to_doubles(), (Values{1, 5, 3, 0, 4, 2, 6}));
  EXPECT_EQ(topk(x, 3).indices.to_doubles(), (Values{1, 5, 3}));
  EXPECT_EQ(topk(x, 3, 0, false).indices.to_doubles(), (Values{6, 2, 0}));
  const Device device = current_site().device;
  const std::int64_t big = std::int64_t{1} << 60, least = std::numeric_limits<std::int64_t>::min();
  const Tensor wide = Tensor::of<std::int64_t>({2, 3}, std::vector<std::int64_t>{big + 1, -5, big, -1, least, 0});
  EXPECT_EQ(argsort(wide.to(device)).to_doubles(), (Values{1, 2, 0, 1, 0, 2}));
  EXPECT_EQ(sort(wide.to(device), 1, true).values.to(Device{}).data<const std::int64_t>()[0], big + 1);
  const Tensor small = Tensor::of<std::int32_t>({4}, std::vector<std::int32_t>{3, -7, 0, 1}).to(device);
  EXPECT_EQ(sort(small).values.to_doubles(), (Values{-7, 0, 1, 3}));
  EXPECT_EQ(sort(small.to(DType::boolean)).indices.to_doubles(), (Values{2, 0, 1, 3}));
  const Tensor bytes = Tensor::of<std::int32_t>({3}, std::vector<std::int32_t>{200, 3, 130}).to(DType::u8).to(device);
  EXPECT_EQ(sort(bytes).values.to_doubles(), (Values{3, 130, 200}));
  EXPECT_EQ(sort(bytes).values.dtype(), DType::u8);
}

TEST(Sort, TheGradientGoesToTheFirstOfEquals) {
  const Tensor x = requires_grad(Tensor::of<float>({4}, std::vector<float>{2, 5, 5, 1}));
  const Sorted best = topk(x, 2);
  EXPECT_EQ(best.indices.to_doubles(), (Values{1, 2}));
  backward(sum(mul(best.values, Tensor::of<float>({2}, std::vector<float>{3, 4}))));
  EXPECT_EQ(grad_of(x).to_doubles(), (Values{0, 3, 4, 0}));
}

TEST(SortRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 3}), scalar = Tensor::zeros({});
  refuses<UsageError>("sort", [] { return sort(Tensor()).values; });
  refuses<ShapeError>("sort", [&] { return sort(x, 2).values; });
  refuses<ShapeError>("sort", [&] { return sort(x, -3).values; });
  refuses<ShapeError>("sort", [&] { return sort(scalar, 0).values; });
  refuses<ShapeError>("sort", [&] { return sort(x, std::numeric_limits<int>::min()).values; });
  refuses<UsageError>("argsort", [] { return argsort(Tensor()); });
  refuses<ShapeError>("argsort", [&] { return argsort(x, 2); });
  refuses<ShapeError>("argsort", [&] { return argsort(x, -3); });
  refuses<ShapeError>("argsort", [&] { return argsort(scalar); });
  refuses<ShapeError>("argsort", [&] { return argsort(x, std::numeric_limits<int>::max()); });
  refuses<UsageError>("topk", [] { return topk(Tensor(), 1).values; });
  refuses<ShapeError>("topk", [&] { return topk(x, 4).values; });
  refuses<ShapeError>("topk", [&] { return topk(x, -1).values; });
  refuses<ShapeError>("topk", [&] { return topk(x, 3, 0).values; });
  refuses<ShapeError>("topk", [&] { return topk(x, 1, 2).values; });
  refuses<ShapeError>("topk", [&] { return topk(scalar, 1).values; });
}

}  // namespace
}  // namespace hearth::test::sort_test
