// SPDX-License-Identifier: Apache-2.0
#include "ops/shape/split.h"

#include "core/creation.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test::split_test {
namespace {

using Values = std::vector<double>;

OP_TEST(Stack) {
  for (const int axis : {0, 1, 2, -1, -3})
    check([&](Draw& draw) { return stack({draw.normal({3, 5}), draw.normal({3, 5}), draw.normal({3, 5})}, axis); });
  check([](Draw& draw) { return stack({draw.normal({})}); });
  check([](Draw& draw) {
    const Tensor x = draw.normal({4});
    return stack({x, x}, 1);
  });
}

OP_TEST(Split) {
  check([](Draw& draw) {
    const std::vector<Tensor> parts = split(draw.normal({5, 3}), 2);
    return concat({mul(parts[0], parts[1]), parts[2]}, 0);
  });
  check([](Draw& draw) { return split(draw.normal({2, 7, 3}), std::vector<std::int64_t>{1, 0, 4, 2}, -2)[2]; });
  check([](Draw& draw) { return chunk(draw.normal({2, 7}), 3, 1)[2]; });
}

OP_TEST(Squeeze) {
  check([](Draw& draw) { return squeeze(draw.normal({1, 3, 1, 5, 1})); });
  check([](Draw& draw) { return squeeze(draw.normal({1, 3, 1, 5}), -2); });
  check([](Draw& draw) { return unsqueeze(draw.normal({3, 5}), 1); });
  check([](Draw& draw) { return unsqueeze(transpose(draw.normal({3, 5}), {1, 0}), -1); });
}

OP_TEST(Flip) {
  check([](Draw& draw) { return flip(draw.normal({3, 5}), {0}); });
  check([](Draw& draw) { return flip(draw.normal({2, 3, 5}), {-1, 0}); });
  check([](Draw& draw) { return flip(draw.normal({4}), {}); });
}

TEST(Split, GivesWhatPyTorchGives) {
  const Tensor x = arange(10).reshape({2, 5});
  const auto extents = [](const std::vector<Tensor>& parts) {
    std::vector<std::int64_t> all;
    for (const Tensor& part : parts) all.push_back(part.dim(1));
    return all;
  };
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(extents(split(x, 2, 1)), (Extents{2, 2, 1}));
  EXPECT_EQ(extents(split(x, 7, -1)), (Extents{5}));
  EXPECT_EQ(extents(chunk(x, 2, 1)), (Extents{3, 2}));
  EXPECT_EQ(extents(chunk(x, 4, 1)), (Extents{2, 2, 1})) << "fewer than asked for, as in PyTorch";
  EXPECT_EQ(extents(chunk(Tensor::zeros({2, 0}), 3, 1)), (Extents{0, 0, 0}));
  EXPECT_EQ(extents(split(Tensor::zeros({2, 0}), 3, 1)), (Extents{0}));
  EXPECT_EQ((split(x, 2, 1)[1].to_doubles()), (Values{2, 3, 7, 8}));
  EXPECT_EQ(stack({x, x}, -1).shape(), (Shape{2, 5, 2}));
  EXPECT_EQ(stack({x[0], x[1]}, 1).to_doubles(), (Values{0, 5, 1, 6, 2, 7, 3, 8, 4, 9}));
  EXPECT_EQ(flip(x, {1}).to_doubles(), (Values{4, 3, 2, 1, 0, 9, 8, 7, 6, 5}));
  EXPECT_EQ(flip(x, {0, 1}).to_doubles(), (Values{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(squeeze(x, 0).shape(), x.shape()) << "an axis of another extent stays";
  EXPECT_EQ(squeeze(x.reshape({2, 1, 5}), 1).shape(), x.shape());
  EXPECT_TRUE(unsqueeze(x, 0).same_storage(x));
  EXPECT_TRUE(split(x, 2, 1)[0].same_storage(x));
}

TEST(Split, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 5});
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)stack({}); }), "there are no tensors");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)stack({x, x[0]}); }), "all tensors have one shape");
  EXPECT_THROW((void)stack({x, x}, 3), ShapeError);
  EXPECT_THROW((void)stack({x, x}, -4), ShapeError);
  EXPECT_THROW((void)stack({x, Tensor::zeros({2, 5}, DType::f64)}), DTypeError);
  EXPECT_THROW((void)split(x, 0), ShapeError);
  EXPECT_THROW((void)split(x, -2), ShapeError);
  EXPECT_THROW((void)split(x, 2, 2), ShapeError);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] {
                 (void)split(x, std::vector<std::int64_t>{2, 2}, 1);
               }),
               "the parts have 4 of the 5 elements");
  EXPECT_THROW((void)split(x, std::vector<std::int64_t>{4, 2}, 1), ShapeError);
  EXPECT_THROW((void)split(x, std::vector<std::int64_t>{6, -1}, 1), ShapeError);
  EXPECT_THROW((void)chunk(x, 0), ShapeError);
  EXPECT_THROW((void)chunk(x, -1), ShapeError);
  EXPECT_THROW((void)chunk(x, 2, -3), ShapeError);
  EXPECT_THROW((void)chunk(x, 2, 2), ShapeError);
  EXPECT_THROW((void)chunk(Tensor(), 2), UsageError);
  EXPECT_THROW((void)squeeze(x, 2), ShapeError);
  EXPECT_THROW((void)squeeze(x, -3), ShapeError);
  const Tensor number = Tensor::zeros({});
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)squeeze(number, 0); }), "it has no axes");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)flip(number, {0}); }), "it has no axes");
  EXPECT_THROW((void)squeeze(Tensor(), 0), UsageError);
  EXPECT_THROW((void)squeeze(Tensor()), UsageError);
  EXPECT_THROW((void)unsqueeze(x, 3), ShapeError);
  EXPECT_THROW((void)unsqueeze(x, -4), ShapeError);
  EXPECT_THROW((void)unsqueeze(Tensor::zeros({}), 1), ShapeError);
  EXPECT_THROW((void)unsqueeze(Tensor::zeros({}), -2), ShapeError);
  EXPECT_THROW((void)unsqueeze(Tensor(), 0), UsageError);
  EXPECT_THROW((void)flip(x, {2}), ShapeError);
  EXPECT_THROW((void)flip(x, {-3}), ShapeError);
  EXPECT_THROW((void)flip(x, {0, 0}), ShapeError);
  EXPECT_THROW((void)flip(Tensor(), {0}), UsageError);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)flip(x, {1, -1}); }), "named twice");
  // The elements would fit into no memory.
  EXPECT_THROW((void)flip(ones({1}).expand({std::int64_t{1} << 48}), {0}), OutOfMemory);
  EXPECT_THROW((void)ones({1}).expand({std::int64_t{1} << 48}).split(1), ShapeError);
  EXPECT_THROW((void)zeros({0}).chunk(std::int64_t{1} << 48), ShapeError);
}

}  // namespace
}  // namespace hearth::test::split_test
