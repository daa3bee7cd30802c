// SPDX-License-Identifier: Apache-2.0
// The tape itself, with two small ops of the test's own.
#include <gtest/gtest.h>

#include "autograd/accumulate.h"
#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/parameters.h"
#include "autograd/recompute.h"
#include "autograd/record.h"
#include "core/run_on.h"
#include "tests/support/error_message.h"

namespace hearth {
namespace {

Tensor map2(const Tensor& a, const Tensor& b, double (*f)(double, double)) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  std::vector<double> z(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) z[i] = f(x[i], y[i]);
  return Tensor::of<double>(a.shape(), z).to(a.dtype());
}

struct Multiply {
  static constexpr OpInfo info{.name = "multiply"};
  struct Saved {
    SavedTensor a, b;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.a = a;
    saved.b = b;
    return map2(a, b, [](double x, double y) { return x * y; });
  }
  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 2> gradients;
    const auto product = [](double x, double y) { return x * y; };
    if (needs[0]) gradients[0] = map2(dy, saved.b.get(), product);
    if (needs[1]) {
      gradients[1] = needs.make(1, saved.b.get().shape(), dy.dtype());
      gradients[1].copy_from(map2(dy, saved.a.get(), product));
    }
    return gradients;
  }
};
Tensor multiply(const Tensor& a, const Tensor& b) { return record(Multiply{}, a, b); }

struct Sum {
  static constexpr OpInfo info{.name = "sum"};
  struct Saved {
    Shape shape;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    double total = 0;
    for (const double value : x.to_doubles()) total += value;
    return Tensor::full({}, total, x.dtype());
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    return {Tensor::full(saved.shape, dy.item(), dy.dtype())};
  }
};
Tensor total(const Tensor& x) { return record(Sum{}, x); }

Tensor leaf(std::initializer_list<double> values) {
  return requires_grad(Tensor::of<double>({static_cast<std::int64_t>(values.size())}, values));
}

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

TEST(Tape, HooksFireOnceAfterTheLastContribution) {
  const Tensor a = leaf({2}), b = leaf({3}), unused = leaf({1});
  std::vector<double> seen;
  on_grad_ready(a, [&] { seen.push_back(grad_of(a).item()); });
  on_grad_ready(unused, [&] { seen.push_back(-1); });
  backward(total(multiply(multiply(a, b), a)));
  EXPECT_EQ(seen, (std::vector<double>{12}));
}

/// y = a + b, whose gradients are added in place where they can be.
struct AddInPlace {
  static constexpr OpInfo info{.name = "add_in_place"};
  struct Saved {};
  int* in_place;
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return map2(a, b, [](double x, double y) { return x + y; });
  }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 2> gradients;
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensor sum = needs.sum_so_far(i, dy.shape(), dy.dtype());
      gradients[i] = sum.defined() ? sum : needs.make(i, dy.shape(), dy.dtype());
      gradients[i].copy_from(sum.defined() ? map2(sum, dy, [](double x, double y) { return x + y; }) : dy);
      *in_place += sum.defined();
    }
    return gradients;
  }
};

/// The same, both of whose gradients are dy itself.
struct AddShared {
  static constexpr OpInfo info{.name = "add_shared"};
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return map2(a, b, [](double x, double y) { return x + y; });
  }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {dy, dy}; }
};

/// y = a + the transpose of b, [n, n]; the gradient of b is dy seen from the side.
struct AddTransposed {
  static constexpr OpInfo info{.name = "add_transposed"};
  struct Saved {};
  static Tensor turned(const Tensor& x) {
    return Tensor::view(x.storage(), x.shape(), {1, x.dim(0)}, 0, x.dtype(), x.device());
  }
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return map2(a, turned(b).contiguous(), [](double x, double y) { return x + y; });
  }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {dy, turned(dy)}; }
};

TEST(Tape, OneGradientHandedToATensorTwiceCountsTwice) {
  const auto sum = [](const Tensor& a, const Tensor& b) { return record(AddShared{}, a, b); };
  const Tensor one = Tensor::of<double>({2}, {1.0, 1.0});
  const auto gradient_of = [&](const auto& f) {
    const Tensor w = leaf({1, 2});
    backward(total(f(multiply(w, one))));
    return grad_of(w).to_doubles();
  };
  EXPECT_EQ(gradient_of([&](const Tensor& h) { return sum(h, h); }), (std::vector<double>{2, 2}));
  EXPECT_EQ(gradient_of([&](const Tensor& h) { return sum(sum(h, h), h); }), (std::vector<double>{3, 3}));
  EXPECT_EQ(gradient_of([&](const Tensor& h) { return sum(sum(h, h), sum(h, h)); }), (std::vector<double>{4, 4}));
  EXPECT_EQ(gradient_of([&](const Tensor& h) {
              return sum(sum(h, leaf({1, 1})), sum(h, leaf({1, 1})));
            }),
            (std::vector<double>{2, 2}));
  int in_place = 0;
  EXPECT_EQ(gradient_of([&](const Tensor& h) {
              const Tensor first = record(AddInPlace{&in_place}, h, one);
              return sum(first, sum(h, h));
            }),
            (std::vector<double>{3, 3}));
  EXPECT_EQ(in_place, 1) << "the sum of two was no longer anybody else's";

  const Tensor square = Tensor::of<double>({2, 2}, {1, 2, 3, 4}), w = requires_grad(square.clone());
  const Tensor h = multiply(w, Tensor::full({2, 2}, 1.0, DType::f64));
  backward(total(multiply(record(AddTransposed{}, h, h), square)));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{2, 5, 5, 8}));

  const Tensor hooked = leaf({1, 2});
  register_hook(hooked, [](const Tensor&) { return Tensor(); });
  backward(total(sum(hooked, hooked)));
  EXPECT_EQ(grad_of(hooked).to_doubles(), (std::vector<double>{2, 2}));
  backward(sum(hooked, one), grad_of(hooked));
  EXPECT_EQ(grad_of(hooked).to_doubles(), (std::vector<double>{4, 4})) << "its own gradient as dy";
  const Tensor plain = leaf({1, 2});
  backward(total(sum(plain, one)));
  backward(sum(plain, one), grad_of(plain));
  EXPECT_EQ(grad_of(plain).to_doubles(), (std::vector<double>{2, 2})) << "its own gradient as dy";
}

TEST(Tape, AHookMayWriteToItsGradient) {
  const Tensor w = leaf({1, 2});
  const Tensor one = Tensor::of<double>({2}, {1.0, 1.0}), h = multiply(w, one), k = multiply(w, one);
  const Tensor kept = Tensor::of<double>({2}, {7.0, 7.0});
  register_hook(k, [](const Tensor& dy) {
    dy.fill_(100);
    return Tensor();
  });
  backward(total(record(AddShared{}, h, k)));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{101, 101})) << "h has the same dy, and keeps it";
  const Tensor v = leaf({1, 2}), from_v = multiply(v, one);
  register_hook(from_v, [&](const Tensor&) { return kept; });
  backward(total(record(AddShared{}, from_v, from_v)));
  EXPECT_EQ(grad_of(v).to_doubles(), (std::vector<double>{7, 7}));
  EXPECT_EQ(kept.to_doubles(), (std::vector<double>{7, 7}));
}

TEST(Tape, HooksSeeAndReplaceTheWholeGradientOfAPass) {
  const Tensor a = leaf({2, 3}), b = leaf({5, 7});
  const Tensor square = multiply(a, a);
  std::vector<double> seen;
  int calls = 0;
  register_hook(square, [&](const Tensor& dy) {
    seen = dy.to_doubles();
    return Tensor();
  });
  register_hook(a, [&](const Tensor& da) {
    EXPECT_FALSE(grad_enabled());
    ++calls;
    return map2(da, da, [](double x, double) { return 10 * x; });
  });
  register_hook(a, [](const Tensor& da) { return map2(da, da, [](double x, double) { return x + 1; }); });
  backward(total(multiply(square, b)));
  EXPECT_EQ(seen, (std::vector<double>{5, 7})) << "of a result, before its op's gradient";
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{201, 421})) << "2 a b, both contributions, once, in order";
  EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{4, 9}));
  backward(total(a));
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{212, 432})) << "what was there before is left alone";
  int in_place = 0;
  backward(total(record(AddInPlace{&in_place}, a, leaf({1, 1}))));
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{223, 443})) << "the hook does not see what was there";
  EXPECT_EQ(in_place, 0);
  EXPECT_EQ(calls, 3);
}

TEST(Tape, HooksOfLeavesReachFlatGradientsAndRecomputedParts) {
  Tensor w = leaf({2, 3});
  register_hook(w, [](const Tensor& dw) { return map2(dw, dw, [](double x, double) { return -x; }); });
  FlatParameters parameters({{"w", &w}});
  const auto f = [&](const Tensor& x) { return multiply(multiply(x, w), w); };
  backward(total(recompute(f, leaf({1, 1}), {w})));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{-4, -6}));
  backward(total(f(leaf({1, 1}))));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{-8, -12}));
}

TEST(Tape, AHookThatDoesNotFitOrThrowsLeavesNothing) {
  const Tensor a = leaf({2, 3});
  bool bad = true;
  register_hook(a, [&](const Tensor& da) { return bad ? Tensor::zeros({3}, DType::f64) : da; });
  EXPECT_PRED2(test::contains, test::error_message<ShapeError>([&] { backward(total(multiply(a, a))); }),
               "a hook returned f64 [3] for the gradient of a tensor of shape [2]");
  bad = false;
  backward(total(a));
  EXPECT_EQ(grad_of(a).to_doubles(), (std::vector<double>{1, 1}));
  const Tensor b = leaf({2}), c = leaf({3});
  register_hook(c, [](const Tensor&) -> Tensor { throw UsageError("mine"); });
  register_hook(b, [](const Tensor& db) { return db; });
  EXPECT_THROW(backward(total(multiply(multiply(c, b), b))), UsageError);
  backward(total(b));
  EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{1})) << "not what the failed pass had summed";
  register_hook(b, [](const Tensor& db) { return db.to(DType::f32); });
  EXPECT_THROW(backward(total(b)), DTypeError);
  EXPECT_THROW(register_hook(Tensor::zeros({2}), [](const Tensor& d) { return d; }), UsageError);
  EXPECT_THROW(register_hook(b, nullptr), UsageError);
}

TEST(Tape, AnOpMayAddToALeafsGradient) {
  int in_place = 0;
  const Tensor a = leaf({2}), b = leaf({5});
  const auto run = [&](const Tensor& x, const Tensor& y) {
    backward(total(record(AddInPlace{.in_place = &in_place}, x, y)), 3.0);
  };
  run(a, b);
  EXPECT_EQ(in_place, 0) << "there was nothing to add to";
  run(a, b);
  EXPECT_EQ(in_place, 2);
  EXPECT_EQ(grad_of(a).item(), 6);
  EXPECT_EQ(grad_of(b).item(), 6);
  run(a, a);
  EXPECT_EQ(in_place, 2) << "an input used twice by one op has no gradient of its own to add to";
  EXPECT_EQ(grad_of(a).item(), 12);
  zero_grad(a);
  run(a, b);
  EXPECT_EQ(in_place, 3);
  EXPECT_EQ(grad_of(a).item(), 3);
  run(multiply(a, b), b);
  EXPECT_EQ(in_place, 4) << "a result's first contribution has nothing to be added to";
}

TEST(Tape, AnOpMayAddToTheGradientOfAResult) {
  int in_place = 0;
  const Tensor a = leaf({2}), b = leaf({5}), product = multiply(a, b);
  const Tensor sum = record(AddInPlace{.in_place = &in_place}, product, b);
  backward(total(multiply(sum, product)));
  EXPECT_EQ(in_place, 1) << "the later reader's contribution is there when the op gets to it";
  EXPECT_EQ(grad_of(a).item(), 125);
  EXPECT_EQ(grad_of(b).item(), 60);

  // Not to what another tensor's gradient is too.
  const Tensor c = leaf({2}), one = leaf({1}), square = multiply(c, c), same = multiply(c, one);
  const Tensor first = record(AddInPlace{.in_place = &in_place}, square, one);
  backward(total(record(AddShared{}, first, record(AddShared{}, square, same))));
  EXPECT_EQ(in_place, 1);
  EXPECT_EQ(grad_of(c).item(), 9);
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
}  // namespace hearth
