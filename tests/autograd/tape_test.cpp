// SPDX-License-Identifier: Apache-2.0
// The tape itself, with small ops of its own.
#include <gtest/gtest.h>

#include "autograd/accumulate.h"
#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/parameters.h"
#include "autograd/recompute.h"
#include "autograd/record.h"
#include "core/run_on.h"
#include "tests/autograd/plain_ops.h"
#include "tests/support/error_message.h"

namespace hearth::tape_test {
namespace {

using test::AddInPlace;
using test::leaf;
using test::map2;
using test::multiply;
using test::total;

TEST(Tape, ProductRuleAndReuse) {
  const Tensor a = leaf({2, 3}), b = leaf({5, 7});
  const Tensor y = multiply(multiply(a, b), a);  // a^2 b
  backward(total(y));
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{20, 42}));
  EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{4, 9}));
}

TEST(Tape, AccumulatesUntilZeroed) {
  const Tensor a = leaf({2}), b = leaf({5});
  backward(total(multiply(a, b)));
  backward(total(multiply(a, b)), 10.0);
  EXPECT_EQ(grad_of(b).item(), 22);
  zero_grad(b);
  EXPECT_EQ(grad_of(b).item(), 0);
  zero_grad(b);
  backward(total(multiply(a, b)));
  EXPECT_EQ(grad_of(b).item(), 2);
}

// The first contribution is written where the leaf's gradient is, which the same op reads.
TEST(Tape, AGradientThatIsTakenFromItsLeafStaysAsItIs) {
  const Tensor w = leaf({2, 3}), first = leaf({5, 7});
  backward(total(multiply(first, w)));
  const Tensor taken = grad_of(w);
  zero_grad(w);
  const Tensor y = multiply(taken, w);
  backward(total(multiply(y, leaf({10, 100}))));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{50, 700}));
  EXPECT_EQ(taken.to_doubles(), (std::vector<double>{5, 7}));
}

TEST(Tape, OneTensorTwiceInOneOp) {
  const Tensor a = leaf({3});
  backward(total(multiply(a, a)));
  EXPECT_EQ(grad_of(a).item(), 6);
}

TEST(Tape, NothingIsRecordedWithoutWish) {
  const Tensor a = leaf({2});
  const Tensor constant = Tensor::of<double>({1}, {4.0});
  EXPECT_FALSE(needs_grad(multiply(constant, constant)));
  const NoGrad off;
  EXPECT_FALSE(needs_grad(multiply(a, a)));
}

TEST(Tape, MisuseIsNamed) {
  const Tensor a = leaf({2, 3}), b = leaf({1, 1});
  const Tensor y = multiply(a, b);
  EXPECT_THROW(backward(y), ShapeError);
  EXPECT_THROW(backward(Tensor::zeros({})), UsageError);
  EXPECT_THROW(backward(y, Tensor::zeros({3}, DType::f64)), ShapeError);
  EXPECT_THROW(backward(y, Tensor::zeros({2}, DType::f32)), DTypeError);
  EXPECT_THROW(grad_of(y), UsageError);
  EXPECT_THROW(requires_grad(y), UsageError);
  EXPECT_THROW(requires_grad(Tensor::zeros({2}, DType::i64)), DTypeError);
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { on_grad_ready(a, nullptr); }), "on_grad_ready");
  const Tensor loss = total(y);
  backward(loss);
  EXPECT_THROW(backward(loss), UsageError);
}

TEST(Tape, AWriteThroughDataIsNoticed) {
  const Tensor a = leaf({2}), b = leaf({12});
  const Tensor loss = total(multiply(a, b));
  a.data<double>()[0] = 33;
  const std::string message = test::error_message<UsageError>([&] { backward(loss); });
  for (const char* part : {"multiply (backward)", "f64 [1]", "after backward()", "data<const T>()"})
    EXPECT_PRED2(test::contains, message, part);
}

TEST(Tape, ReadingASavedTensorIsNoWrite) {
  const Tensor a = leaf({2}), b = leaf({12});
  const Tensor loss = total(multiply(a, b));
  EXPECT_EQ(a.data<const double>()[0], 2);
  EXPECT_EQ(run_on(b.device(), [&](auto&) { return b.data<double>()[0]; }), 12) << "as kernels read";
  backward(loss);
  EXPECT_EQ(grad_of(a).item(), 12);
  EXPECT_THROW((void)a.data<const float>(), DTypeError);
}

TEST(Tape, ASavedTensorThatWasWrittenIsNoticed) {
  const Tensor a = leaf({2}), b = leaf({5});
  const Tensor loss = total(multiply(a, b));
  a.fill_(1);
  EXPECT_THROW(backward(loss), UsageError);
}

TEST(Tape, ASavedGradientThatGrewIsNoticed) {
  const Tensor a = leaf({2}), b = leaf({5});
  backward(total(multiply(a, b)));
  const Tensor of_gradient = total(multiply(a, grad_of(b)));
  backward(total(multiply(a, b)));  // adds to what the graph above kept
  EXPECT_THROW(backward(of_gradient), UsageError);
}

TEST(Tape, DepthDoesNotMeetTheStack) {
  const Tensor a = leaf({1});
  const Tensor one = Tensor::of<double>({1}, {1.0});
  Tensor y = a;
  for (int i = 0; i < 200000; ++i) y = multiply(y, one);
  Tensor unused = y;
  for (int i = 0; i < 200000; ++i) unused = multiply(unused, one);
  backward(total(y));
  EXPECT_EQ(grad_of(a).item(), 1);
  unused = {};  // a graph without a backward pass is taken apart without recursion too
}

TEST(FlatParameters, HoldValuesAndGradientsInPlace) {
  Tensor w = requires_grad(Tensor::of<double>({2}, {2.0, 3.0}));
  Tensor v = requires_grad(Tensor::of<double>({3}, {1.0, 1.0, 1.0}));
  FlatParameters flat({{"w", &w}, {"v", &v}});
  EXPECT_EQ(flat.entries()[1].begin, 8);
  EXPECT_TRUE(w.same_storage(flat.values()));
  flat.zero_grads();
  const Tensor other = leaf({5, 7});
  backward(total(multiply(other, w)));
  flat.finish_grads();
  const auto gradients = flat.grads().to_doubles();
  EXPECT_EQ(gradients[0], 5);
  EXPECT_EQ(gradients[1], 7);
  EXPECT_EQ(gradients[8], 0);
  flat.zero_grads();
  backward(total(multiply(other, w)));
  EXPECT_EQ(flat.grads().to_doubles()[1], 7) << "the first contribution replaces";
}

TEST(FlatParameters, AGradientAsAnInputIsCloned) {
  Tensor w = leaf({2, 3});
  const FlatParameters flat({{"w", &w}});
  const std::string message = test::error_message<UsageError>([&] { (void)multiply(w, grad_of(w)); });
  for (const char* part : {"multiply", "f64 [2]", "clone()"}) EXPECT_PRED2(test::contains, message, part);
  backward(total(multiply(w, grad_of(w).clone())));
  const NoGrad no_grad;
  (void)multiply(w, grad_of(w));
}

TEST(FlatParameters, RefuseParametersOfOthers) {
  Tensor w = leaf({2, 3}), v = leaf({1}), shared = w;
  {
    const FlatParameters first({{"w", &w}, {"v", &v}});
    const std::string message = test::error_message<UsageError>([&] { FlatParameters({{"again", &w}}); });
    for (const char* part : {"\"again\"", "other FlatParameters", "groups"})
      EXPECT_PRED2(test::contains, message, part);
    shared = w;
    EXPECT_THROW(FlatParameters({{"shared", &shared}}), UsageError) << "another handle of the same weights";
    EXPECT_TRUE(w.same_storage(first.values())) << "nothing was changed";
  }
  EXPECT_NO_THROW(FlatParameters({{"w", &w}}));
}

TEST(FlatParameters, RefuseToFinishWithoutAnyGradient) {
  Tensor w = leaf({2}), v = leaf({1});
  FlatParameters flat({{"w", &w}, {"v", &v}});
  flat.zero_grads();
  backward(total(multiply(w, leaf({1}))));
  flat.finish_grads();
  EXPECT_EQ(grad_of(v).item(), 0) << "a part without a gradient is no mistake";
  flat.zero_grads();
  const std::string message = test::error_message<UsageError>([&] { flat.finish_grads(); });
  for (const char* part : {"no gradient has arrived", "call backward() after zero_grads()"})
    EXPECT_PRED2(test::contains, message, part);
}

/// Gives its input whatever gradient it is told to.
struct Careless {
  static constexpr OpInfo info{.name = "careless"};
  struct Saved {};
  Tensor gradient;
  Tensor forward(Saved&, const Tensor& x) const { return x.clone(); }
  std::array<Tensor, 1> backward(const Saved&, Tensor, const NeedsGrad&) const { return {gradient}; }
};

TEST(Tape, AGradientThatDoesNotFitItsInputIsRefused) {
  Tensor flat_leaf = leaf({1, 2, 3});
  const FlatParameters flat({{"w", &flat_leaf}});
  const Tensor plain = leaf({1, 2, 3}), result = multiply(plain, leaf({1, 1, 1}));
  const Tensor of_rows = Tensor::zeros({4, 3}, DType::f64), short_one = Tensor::zeros({2}, DType::f64);
  for (const Tensor& x : {plain, flat_leaf, result}) {
    for (const Tensor& wrong : {of_rows, short_one}) {
      const std::string message = test::error_message<ShapeError>([&] { backward(total(record(Careless{wrong}, x))); });
      for (const std::string& part :
           {std::string("careless: "), std::string("[3]"), join_text(wrong.shape()), std::string("summed")})
        EXPECT_PRED2(test::contains, message, part);
    }
    const std::string message =
        test::error_message<DTypeError>([&] { backward(total(record(Careless{Tensor::zeros({3}, DType::f32)}, x))); });
    for (const char* part : {"careless: ", "f32", "f64", "to()"}) EXPECT_PRED2(test::contains, message, part);
  }
  EXPECT_EQ(grad_of(plain).to_doubles(), std::vector<double>(3, 0.0));
}

TEST(Tape, ANarrowGradientOfAWideLeafIsWidened) {
  const Tensor x = requires_grad(Tensor::full({2}, 1));
  backward(total(record(Careless{Tensor::full({2}, 3, DType::bf16)}, x)));
  EXPECT_EQ(grad_of(x).dtype(), DType::f32);
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{3, 3}));
}

/// y = x, whose gradient cannot be had.
struct Fails {
  static constexpr OpInfo info{.name = "fails"};
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return x.clone(); }
  std::array<Tensor, 1> backward(const Saved&, Tensor, const NeedsGrad&) const { throw DeviceError("fails: told to"); }
};

TEST(Tape, ABackwardPassThatFailedLeavesNothingToTheNext) {
  const Tensor a = leaf({2}), b = leaf({5}), c = leaf({3});
  const Tensor shared = multiply(a, b);
  int in_place = 0;
  // The failing op comes first in the backward pass, when the shared result has its gradient already.
  const Tensor lost = record(AddInPlace{&in_place}, shared, record(Fails{}, c));
  EXPECT_THROW(backward(total(lost)), DeviceError);
  backward(total(multiply(shared, c)));
  EXPECT_EQ(grad_of(a).item(), 15);
  EXPECT_EQ(grad_of(b).item(), 6);
}

TEST(FlatParameters, KeepTiedWeightsTied) {
  Tensor first = leaf({2, 3}), between = leaf({1}), second = first;
  Tensor again = requires_grad(first.detach());
  FlatParameters flat({{"in", &first}, {"between", &between}, {"out", &second}, {"again", &again}});
  ASSERT_EQ(flat.entries().size(), 2u);
  EXPECT_EQ(flat.entries()[0].name, "in");
  EXPECT_EQ(flat.values().size(), 16);
  flat.zero_grads();
  backward(total(multiply(first, second)));
  backward(total(multiply(again, leaf({1, 1}))));
  flat.finish_grads();
  EXPECT_EQ(flat.grads().to_doubles()[0], 2 * 2 + 1);
  flat.values().fill_(9);
  for (const Tensor& handle : {first, second, again}) EXPECT_EQ(handle.to_doubles(), (std::vector<double>{9, 9}));
}

TEST(FlatParameters, RefuseHandlesThatCannotBeTold) {
  Tensor w = leaf({1, 2, 3, 4});
  std::string message = test::error_message<UsageError>([&] { FlatParameters({{"a", &w}, {"b", &w}}); });
  for (const char* part : {"\"a\"", "\"b\"", "one handle"}) EXPECT_PRED2(test::contains, message, part);
  Tensor other = requires_grad(Tensor::full({2}, 1));
  const std::string same = test::error_message<UsageError>([&] { FlatParameters({{"a", &w}, {"a", &other}}); });
  EXPECT_PRED2(test::contains, same, "two are named \"a\"");
  Tensor square = requires_grad(w.detach().as_shape({2, 2}));
  message = test::error_message<ShapeError>([&] { FlatParameters({{"a", &w}, {"b", &square}}); });
  for (const char* part : {"\"a\" [4]", "\"b\" [2, 2]", "copy of its own"}) EXPECT_PRED2(test::contains, message, part);
  Tensor none = requires_grad(Tensor::zeros({0}, DType::f64)), also_none = none;
  EXPECT_EQ(FlatParameters({{"none", &none}, {"w", &w}, {"also", &also_none}}).entries().size(), 3u);
}

TEST(FlatParameters, RefuseMixedTypesAndNothing) {
  Tensor w = requires_grad(Tensor::zeros({2})), v = requires_grad(Tensor::zeros({2}, DType::f64));
  EXPECT_THROW(FlatParameters({{"w", &w}, {"v", &v}}), DTypeError);
  EXPECT_THROW(FlatParameters({}), UsageError);
  Tensor ids = Tensor::zeros({2}, DType::i64), absent;
  EXPECT_PRED2(test::contains, test::error_message<DTypeError>([&] {
                 FlatParameters({{"ids", &ids}});
               }),
               "\"ids\" is i64");
  for (Tensor* const none : {static_cast<Tensor*>(nullptr), &absent}) {
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] {
                   FlatParameters({{"none", none}});
                 }),
                 "\"none\" has no tensor");
    EXPECT_THROW((void)tied_to({{"w", &w}, {"none", none}}), UsageError);
  }
}

TEST(Autocast, FollowsTheOpsClass) {
  const Tensor wide = requires_grad(Tensor::of<float>({1}, {3.0f}));
  const Tensor low_precision = Tensor::of<float>({1}, {2.0f}).to(DType::bf16);
  const AutocastScope scope(DType::bf16);
  const Tensor y = multiply(wide, low_precision);  // follow: the widest wins
  EXPECT_EQ(y.dtype(), DType::f32);
  const Tensor z = detail::cast(wide, DType::bf16);
  EXPECT_EQ(z.dtype(), DType::bf16);
  backward(total(multiply(z, low_precision)));
  EXPECT_EQ(grad_of(wide).dtype(), DType::f32);
  EXPECT_EQ(grad_of(wide).item(), 2);
  EXPECT_THROW((void)AutocastScope(DType::f64), DTypeError);
}

}  // namespace
}  // namespace hearth::tape_test
