// SPDX-License-Identifier: Apache-2.0
// Reading by index: values by index arithmetic, gradients with repeated indices, accuracy of long sums, refusals.
#include "ops/index/index.h"

#include <cmath>
#include <utility>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::index_test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

OP_TEST(Embedding) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    for (const Shape& shape : {Shape{}, {5}, {2, 7}, {3, 0}, {100}}) {
      check(
          [&](Draw& draw) {
            const Tensor w = draw.normal({9, 37});
            return embedding(w, draw.integers(shape, 9, dtype));
          },
          [&](Draw& draw) {
            const std::vector<double> w = draw.normal({9, 37}).to_doubles();
            std::vector<double> result;
            for (const double id : draw.integers(shape, 9, dtype).to_doubles())
              for (std::int64_t c = 0; c < 37; ++c) result.push_back(w[at(static_cast<std::int64_t>(id) * 37 + c)]);
            return result;
          });
    }
  }
  check([](Draw& draw) {
    const Tensor w = draw.normal({50, 300});
    return embedding(w, draw.integers({4, 60}, 50));
  });
}

// More places than a chunk of the device's sort, and more rows than one digit counts.
OP_TEST(EmbeddingManyPlaces) {
  check([](Draw& draw) {
    const Tensor w = draw.normal({700, 3});
    return embedding(w, draw.integers({5000}, 700));
  });
}

OP_TEST(GatherManyPlaces) {
  check([](Draw& draw) {
    const Tensor x = draw.normal({2, 40, 9});
    return gather(x, 1, draw.integers({2, 300, 9}, 40));
  });
}

OP_TEST(IndexSelect) {
  for (const int axis : {0, 1, -1}) {
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal({3, 4, 5});
          return index_select(x, axis, draw.integers({7}, 3));
        },
        [&](Draw& draw) {
          const std::vector<double> x = draw.normal({3, 4, 5}).to_doubles();
          const std::vector<double> ids = draw.integers({7}, 3).to_doubles();
          std::vector<double> result;
          const Shape shape = Shape{3, 4, 5}.with(axis, 7);
          for (std::int64_t i = 0; i < shape[0]; ++i)
            for (std::int64_t j = 0; j < shape[1]; ++j)
              for (std::int64_t k = 0; k < shape[2]; ++k) {
                std::int64_t place[] = {i, j, k};
                std::int64_t& moved = place[axis < 0 ? axis + 3 : axis];
                moved = static_cast<std::int64_t>(ids[at(moved)]);
                result.push_back(x[at((place[0] * 4 + place[1]) * 5 + place[2])]);
              }
          return result;
        });
  }
  check([](Draw& draw) {
    const Tensor x = draw.normal({3, 4});
    return index_select(x, 1, draw.indices({0}, {}));
  });
}

OP_TEST(Gather) {
  for (const int axis : {0, 1, -1}) {
    const Shape shape = Shape{3, 4, 5}.with(axis, 6);
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal({3, 4, 5});
          return gather(x, axis, draw.integers(shape, 3));
        },
        [&](Draw& draw) {
          const std::vector<double> x = draw.normal({3, 4, 5}).to_doubles();
          const std::vector<double> ids = draw.integers(shape, 3).to_doubles();
          std::vector<double> result;
          for (std::int64_t i = 0; i < shape[0]; ++i)
            for (std::int64_t j = 0; j < shape[1]; ++j)
              for (std::int64_t k = 0; k < shape[2]; ++k) {
                std::int64_t place[] = {i, j, k};
                place[axis < 0 ? axis + 3 : axis] =
                    static_cast<std::int64_t>(ids[at((i * shape[1] + j) * shape[2] + k)]);
                result.push_back(x[at((place[0] * 4 + place[1]) * 5 + place[2])]);
              }
          return result;
        });
  }
  check([](Draw& draw) {
    const Tensor x = draw.normal({600, 200});
    return gather(x, 0, draw.integers({5, 200}, 600));
  });
  check([](Draw& draw) {
    const Tensor x = draw.normal({3, 4});
    return gather(x, 1, draw.indices({3, 0}, {}));
  });
}

// Runs of places that end with a segment of the device's sums, one behind it, and go on over many; in whole packs of
// columns and without.
TEST(Index, RowsWithMostPlacesGetThemAll) {
  std::vector<std::int64_t> ids;
  for (const auto& [id, times] : {std::pair(0, 64), {1, 65}, {3, 63}, {4, 1}, {5, 4500}, {6, 128}, {8, 3}})
    for (int i = 0; i < times; ++i) ids.push_back(id);
  for (std::size_t i = 0; i < ids.size(); ++i) std::swap(ids[i], ids[i * 7919 % ids.size()]);
  const auto n = static_cast<std::int64_t>(ids.size());
  for (const std::int64_t width : {8, 3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<double> values(static_cast<std::size_t>(n * width));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
      const Tensor dy = Tensor::of<double>({n, width}, values).to(dtype);
      const auto gradient = [&](Device device) {
        const Tensor w = requires_grad(Tensor::zeros({9, width}, dtype, device));
        backward(embedding(w, Tensor::of<std::int64_t>({n}, ids).to(device)), dy.to(device));
        return grad_of(w).to_doubles();
      };
      const std::vector<double> expected = gradient({});
      for (const Device device : devices()) {
        const std::vector<double> found = gradient(device);
        EXPECT_EQ(found, gradient(device)) << device << dtype;
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(found[i], expected[i], 1e-6 + std::abs(expected[i]) * (dtype == DType::f32 ? 1e-6 : 8e-3))
              << device << dtype << i;
      }
    }
}

TEST(Index, AMillionHitsOnOneRowSumExactly) {
  const std::int64_t n = 1'000'000;
  const double tenth = static_cast<double>(0.1f);
  const Tensor ids = Tensor::zeros({n}, DType::i32);
  const Tensor w = requires_grad(Tensor::zeros({3, 2}));
  backward(embedding(w, ids), Tensor::full({n, 2}, 0.1));
  const std::vector<double> dw = grad_of(w).to_doubles();
  EXPECT_EQ(dw[0], static_cast<double>(static_cast<float>(tenth * n)));
  EXPECT_EQ(dw[1], dw[0]);
  EXPECT_EQ(dw[2], 0.0);
  const Tensor x = requires_grad(Tensor::zeros({2}));
  backward(gather(x, 0, ids), Tensor::full({n}, 0.1));
  EXPECT_NEAR(grad_of(x).to_doubles()[0], tenth * n, 0.004);
}

// As many as an emulated device counts in a second. Of a 16-bit table: sums kept in its type would stand still at 256
// and at 2,048.
TEST(Index, HitsOnOneRowOnADeviceAreAllCounted) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const Device device{DeviceType::cuda};
  const std::int64_t n = 32'768;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor w = requires_grad(Tensor::zeros({2, 1}, dtype, device));
    backward(embedding(w, Tensor::full({n}, 1, DType::i32, device)), Tensor::full({n, 1}, 1.0, dtype, device));
    EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{0, 32'768})) << dtype;
  }
}

// Ones added one by one in f32 stand still at 16,777,216.
TEST(Index, TwentyMillionHitsOnOneRowAreAllCounted) {
  const std::int64_t n = 20'000'000;
  const Tensor w = requires_grad(Tensor::zeros({2, 1}));
  backward(embedding(w, Tensor::full({n}, 1, DType::i32)), Tensor::full({n, 1}, 1.0));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{0, 20'000'000}));
}

TEST(Index, GradientsOfTwoBatchesAdd) {
  const Tensor w = requires_grad(Tensor::zeros({2, 1}));
  for (int batch = 0; batch < 2; ++batch)
    backward(embedding(w, Tensor::of<std::int32_t>({2}, {0, 0})), Tensor::full({2, 1}, 1.0));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{4, 0}));
}

TEST(Index, SelectionTakesAnyElementType) {
  const Tensor x = Tensor::of<std::uint8_t>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(index_select(x, 0, Tensor::of<std::int64_t>({1}, {1})).to_doubles(), (std::vector<double>{3, 4}));
  EXPECT_EQ(gather(x, 1, Tensor::of<std::int64_t>({2, 1}, {1, 0})).to_doubles(), (std::vector<double>{2, 3}));
}

TEST(Index, OutsideOnADeviceIsReportedWhenTheHostWaits) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const Device device{DeviceType::cuda};
  const Tensor w = Tensor::full({4, 3}, 1).to(device);
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 40}) {
    const Tensor ids = Tensor::of<std::int64_t>({2}, {0, id}).to(device);
    refuses<IndexError>(std::to_string(id), [&] { return embedding(w, ids).to_doubles(); });
    refuses<IndexError>(std::to_string(id), [&] {
      return gather(Tensor::full({2, 4}, 1).to(device), 1, ids.as_shape({2, 1})).to_doubles();
    });
  }
  EXPECT_EQ(embedding(w, Tensor::of<std::int64_t>({1}, {3}).to(device)).to_doubles(), std::vector<double>(3, 1.0));
  EXPECT_THROW(index_select(Tensor::empty({2, 0}, DType::f32, device), 1, Tensor::zeros({1}, DType::i64, device)),
               IndexError);
}

TEST(IndexRefusal, Embedding) {
  const Tensor w = Tensor::zeros({3, 2});
  const auto ids = [](std::int64_t id) { return Tensor::of<std::int64_t>({2, 2}, {0, 2, id, 0}); };
  refuses<IndexError>("embedding", [&] { return embedding(w, ids(3)); });
  refuses<IndexError>("embedding", [&] { return embedding(w, ids(-1)); });
  refuses<IndexError>("embedding", [&] { return embedding(w, ids(std::int64_t{1} << 62)); });
  refuses<ShapeError>("embedding", [&] { return embedding(Tensor::zeros({0, 2}), ids(0)); });
  refuses<ShapeError>("embedding", [&] { return embedding(Tensor::zeros({3}), ids(0)); });
  refuses<ShapeError>("embedding", [&] { return embedding(w, Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 1}, DType::i64)); });
  refuses<DTypeError>("embedding", [&] { return embedding(w, Tensor::zeros({2})); });
  refuses<DTypeError>("embedding", [&] { return embedding(Tensor::zeros({3, 2}, DType::i32), ids(0)); });
  refuses<UsageError>("embedding", [&] { return embedding(w, Tensor()); });
  refuses<UsageError>("embedding", [&] { return embedding(Tensor(), ids(0)); });
  try {
    (void)embedding(w, ids(7));
    FAIL();
  } catch (const IndexError& error) {
    EXPECT_NE(std::string(error.what()).find("index 7 at place 2"), std::string::npos) << error.what();
  }
}

TEST(IndexRefusal, IndexSelect) {
  const Tensor x = Tensor::zeros({3, 2});
  const Tensor ids = Tensor::of<std::int32_t>({2}, {0, 2});
  refuses<IndexError>("index_select", [&] { return index_select(x, 1, ids); });
  refuses<IndexError>("index_select", [&] { return index_select(x, 0, Tensor::of<std::int32_t>({1}, {-1})); });
  refuses<IndexError>("index_select", [&] { return index_select(Tensor::zeros({0, 2}), 0, ids); });
  refuses<ShapeError>("index_select", [&] { return index_select(x, 2, ids); });
  refuses<ShapeError>("index_select", [&] { return index_select(x, 0, Tensor::zeros({1, 1}, DType::i32)); });
  refuses<DTypeError>("index_select", [&] { return index_select(x, 0, Tensor::zeros({1}, DType::u8)); });
  refuses<UsageError>("index_select", [&] { return index_select(Tensor(), 0, ids); });
}

TEST(IndexRefusal, Gather) {
  const Tensor x = Tensor::zeros({3, 2});
  const auto ids = [](std::int64_t id) { return Tensor::of<std::int64_t>({1, 2}, {0, id}); };
  refuses<IndexError>("gather", [&] { return gather(x, 0, ids(3)); });
  refuses<IndexError>("gather", [&] { return gather(x, 0, ids(-4)); });
  refuses<IndexError>("gather", [&] { return gather(x, 0, ids(1000000000000)); });
  refuses<ShapeError>("gather", [&] { return gather(x, 1, ids(0)); });
  refuses<ShapeError>("gather", [&] { return gather(x, 0, Tensor::zeros({2}, DType::i64)); });
  refuses<ShapeError>("gather", [&] { return gather(x, 5, ids(0)); });
  refuses<DTypeError>("gather", [&] { return gather(x, 0, Tensor::zeros({1, 2})); });
  refuses<UsageError>("gather", [&] { return gather(x, 0, Tensor()); });
}

}  // namespace
}  // namespace hearth::test::index_test
