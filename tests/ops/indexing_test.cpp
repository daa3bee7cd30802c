// SPDX-License-Identifier: Apache-2.0
// x[{0, all, Slice(1, 4)}] and the members of a tensor.
#include "ops/shape/indexing.h"

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/creation.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test::indexing_test {
namespace {

using Values = std::vector<double>;

OP_TEST(Indexing) {
  const auto part = [&](std::initializer_list<Index> indices) {
    check([&](Draw& draw) { return draw.normal({4, 3, 5})[indices]; });
  };
  part({});
  part({0});
  part({-1, all, Slice(1, 4)});
  part({all, 2, Slice(0, Slice::to_end, 2)});
  part({Slice(-3, -1), Slice(1), 4});
  part({Slice(2, 2)});
  part({3, 2, 1});
  check([](Draw& draw) { return transpose(draw.normal({4, 3}), {1, 0})[1]; });
  check([](Draw& draw) {
    const Tensor x = draw.normal({5, 6});
    return mul(x[{all, Slice(0, 4)}], x[{all, Slice(2, 6)}]);
  });
}

TEST(Indexing, NamesElementsAsPythonDoes) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  EXPECT_EQ(x[1].shape(), (Shape{3, 4}));
  EXPECT_EQ((x[{1, 2, 3}].item()), 23);
  EXPECT_EQ((x[{all, -1, 0}].to_doubles()), (Values{8, 20}));
  EXPECT_EQ((x[{0, Slice(0, 2), Slice(1, 100, 2)}].to_doubles()), (Values{1, 3, 5, 7}));
  EXPECT_EQ((x[{0, 0, Slice(3, 1)}].size()), 0);
  EXPECT_EQ((x[{0, 0, Slice(-2)}].to_doubles()), (Values{2, 3}));
  EXPECT_EQ(x[0][1][-1].item<float>(), 7);
}

TEST(Indexing, IsAViewToWriteThrough) {
  const Tensor x = Tensor::zeros({2, 3});
  x[{all, 1}].fill_(5);
  x[{1, Slice(2)}].copy_from(tensor({7}));
  EXPECT_EQ(x.to_doubles(), (Values{0, 5, 0, 0, 5, 7}));
}

TEST(Indexing, RefusesWhatIsNotThere) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)x[2]; }), "position 2 on axis 0 of shape [2, 3]");
  EXPECT_THROW((void)x[-3], ShapeError);
  EXPECT_THROW((void)(x[{0, 3}]), ShapeError);
  EXPECT_THROW((void)(x[{0, 0, 0}]), ShapeError);
  EXPECT_THROW((void)(x[{Slice(0, 2, 0)}]), ShapeError);
  EXPECT_THROW((void)(x[{Slice(0, 2, -1)}]), ShapeError);
  EXPECT_THROW((void)Tensor()[0], UsageError);
}

TEST(TensorMembers, AreTheFunctionsOfTheirNames) {
  const Tensor x = tensor({{1, 2}, {3, 4}}), y = tensor({{2, 0.5}, {1, 4}});
  const auto equal = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.shape(), b.shape());
    EXPECT_EQ(a.to_doubles(), b.to_doubles());
  };
  equal(x.add(y), x + y);
  equal(x.sub(y), x - y);
  equal(x.mul(y), x * y);
  equal(x.div(y), x / y);
  equal(x.add(2), x + 2);
  equal(x.sub(2), x - 2);
  equal(x.mul(2), x * 2);
  equal(x.div(2), x / 2);
  equal(x.matmul(y), matmul(x, y));
  equal(x.sum(), sum(x));
  equal(x.mean({0}, true), mean(x, {0}, true));
  equal(x.max({1}), max(x, {1}));
  equal(x.min({1}), min(x, {1}));
  equal(x.argmax(-1), argmax(x, -1));
  equal(x.abs(), abs(x));
  equal(x.exp(), exp(x));
  equal(x.log(), log(x));
  equal(x.sqrt(), sqrt(x));
  equal(x.relu(), relu(x));
  equal(x.sigmoid(), sigmoid(x));
  equal(x.tanh(), tanh(x));
  equal(x.reshape({4, -1}), reshape(x, {4, 1}));
  equal(x.flatten(0), flatten(x, 0));
  equal(x.permute({1, 0}), transpose(x, {1, 0}));
  equal(x.transpose(0, -1), transpose(x, {1, 0}));
  equal(x.expand({3, 2, 2}), expand(x, {3, 2, 2}));
  equal(x.slice(1, 0, 1), slice(x, 1, 0, 1));
  EXPECT_THROW((void)x.transpose(0, 2), ShapeError);
}

TEST(TensorMembers, DifferentiateAndReadTheGradient) {
  const Tensor x = requires_grad(tensor({1, 2, 3}));
  x.mul(x)[{Slice(0, 2)}].sum().backward();
  EXPECT_EQ(x.grad().to_doubles(), (Values{2, 4, 0}));
}

TEST(InPlace, AResultThatNeedsAGradientIsNotWritten) {
  const Tensor w = requires_grad(tensor({1, 2})), h = w * 2;
  const auto remedy = "which the tape does not record; make a new tensor";
  EXPECT_PRED2(contains, error_message<UsageError>([&] { h.fill_(5); }), "fill_: writes into f32 [2] in place");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { h.fill_(5); }), remedy);
  EXPECT_PRED2(contains, error_message<UsageError>([&] {
                 h.copy_from(tensor({3, 4}));
               }),
               "copy_from: writes into f32 [2] in place");
  EXPECT_THROW(w[0].fill_(5), UsageError) << "a view of a leaf is a result";
  EXPECT_EQ(h.to_doubles(), (Values{2, 4})) << "nothing is written";
  h.sum().backward();
  EXPECT_EQ(w.grad().to_doubles(), (Values{2, 2}));
  const NoGrad no_grad;
  EXPECT_NO_THROW(h.fill_(5));
  EXPECT_NO_THROW(h.copy_from(w * 3));
}

TEST(InPlace, ASourceThatNeedsAGradientIsNotCopied) {
  const Tensor w = requires_grad(tensor({1, 2})), c = Tensor::zeros({2});
  EXPECT_PRED2(contains, error_message<UsageError>([&] { c.copy_from(w * 3); }), "copy_from: ");
  EXPECT_PRED2(contains, error_message<UsageError>([&] { c.copy_from(w * 3); }), "detach()");
  EXPECT_EQ(c.to_doubles(), (Values{0, 0}));
  c.copy_from((w * 3).detach());
  EXPECT_EQ(c.to_doubles(), (Values{3, 6}));
  EXPECT_EQ((w * 3).clone().to(DType::f64).to_doubles(), (Values{3, 6})) << "copies of their own stay as they were";
}

TEST(InPlace, LeavesAreWritten) {
  const Tensor w = requires_grad(tensor({1, 2}));
  w.fill_(5);
  EXPECT_EQ(w.to_doubles(), (Values{5, 5}));
  w.copy_from(tensor({3, 4}));
  EXPECT_EQ(w.to_doubles(), (Values{3, 4}));
  const Tensor other = requires_grad(tensor({0, 0}));
  other.copy_from(w);
  EXPECT_EQ(other.to_doubles(), (Values{3, 4})) << "as weights are handed to another model";
  other.copy_from(w * 2);
  EXPECT_EQ(other.to_doubles(), (Values{6, 8}));
  const Tensor plain = tensor({1, 2}) * 2;
  plain.fill_(5);
  EXPECT_EQ(plain.to_doubles(), (Values{5, 5}));
}

TEST(InPlace, AnOperandThatIsLargerIsRefused) {
  const Tensor x = tensor({1, 2, 3}), larger = ones({2, 3});
  const std::string message = error_message<ShapeError>([&] { x += larger; });
  EXPECT_PRED2(contains, message, "a += b: values of shape [2, 3] do not fit into f32 [3], which keeps its shape");
  EXPECT_PRED2(contains, message, "make a new tensor");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { x[{Slice(0, 2)}] = x; }), "x[i] = y: values of shape [3]");
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { x[0] = x; }), "x[i] = y: values of shape [3]");
  x += ones({1});
  EXPECT_EQ(x.to_doubles(), (Values{2, 3, 4}));
}

}  // namespace
}  // namespace hearth::test::indexing_test
