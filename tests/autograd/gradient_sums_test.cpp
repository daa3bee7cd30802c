// SPDX-License-Identifier: Apache-2.0
// Contributions to one gradient: handed over, added in place, seen and replaced by hooks.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/parameters.h"
#include "autograd/recompute.h"
#include "autograd/record.h"
#include "tests/autograd/plain_ops.h"
#include "tests/support/error_message.h"

namespace hearth::gradient_sums_test {
namespace {

using test::AddInPlace;
using test::leaf;
using test::map2;
using test::multiply;
using test::total;

TEST(GradientSums, HooksFireOnceAfterTheLastContribution) {
  const Tensor a = leaf({2}), b = leaf({3}), unused = leaf({1});
  std::vector<double> seen;
  on_grad_ready(a, [&] { seen.push_back(grad_of(a).item()); });
  on_grad_ready(unused, [&] { seen.push_back(-1); });
  backward(total(multiply(multiply(a, b), a)));
  EXPECT_EQ(seen, (std::vector<double>{12}));
}

/// y = a + b, both of whose gradients are dy itself.
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

TEST(GradientSums, OneGradientHandedToATensorTwiceCountsTwice) {
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

/// a + b, with a gradient for a alone.
struct OfTheFirst {
  static constexpr OpInfo info{.name = "of_the_first"};
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return test::map2(a, b, [](double x, double y) { return x + y; });
  }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {std::move(dy), Tensor()}; }
};

TEST(GradientSums, ALeafWithHooksGetsItsGradientWhereAnotherPathEnds) {
  const Tensor w = leaf({3, 4}), x = Tensor::of<double>({2}, {1.0, 2.0});
  int hooks = 0, ready = 0;
  register_hook(w, [&](const Tensor& dw) {
    ++hooks;
    EXPECT_EQ(dw.to_doubles(), (std::vector<double>{1, 2}));
    return Tensor();
  });
  on_grad_ready(w, [&] { ++ready; });
  backward(total(record(OfTheFirst{}, multiply(w, x), multiply(w, w))));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{1, 2}));
  EXPECT_EQ(hooks, 1);
  EXPECT_EQ(ready, 1);
}

TEST(GradientSums, LeavesThatNobodyHoldsAreAliveUntilThePassIsOver) {
  std::vector<std::vector<std::uint64_t>> blocks;
  Tensor loss;
  int ready = 0;
  {
    const Tensor a = leaf({2}), b = leaf({3}), c = leaf({5});
    const Tensor h = multiply(a, b);
    // What takes the memory of a leaf that was freed.
    register_hook(h, [&](const Tensor&) {
      for (int i = 0; i < 64; ++i) blocks.emplace_back(sizeof(GradState) / 8, ~std::uint64_t{0});
      return Tensor();
    });
    on_grad_ready(a, [&] { ++ready; });
    on_grad_ready(c, [&] { ++ready; });
    loss = total(multiply(h, c));
  }
  backward(loss);
  EXPECT_EQ(ready, 2);
}

/// The sum of all inputs [1], whose gradients are added to what is there.
struct AddAll {
  static constexpr OpInfo info{.name = "add_all"};
  struct Saved {};
  Tensor forward(Saved&, std::span<const Tensor> inputs) const {
    Tensor y = inputs[0].clone();
    for (const Tensor& x : inputs.subspan(1)) *y.data<double>() += *x.data<const double>();
    return y;
  }
  std::vector<Tensor> backward(const Saved&, Tensor dy, const NeedsGrad& needs) const {
    std::vector<Tensor> gradients(needs.size());
    for (std::size_t i = 0; i < needs.size(); ++i) {
      gradients[i] = needs.sum_so_far(i, dy.shape(), dy.dtype());
      if (gradients[i].defined())
        *gradients[i].data<double>() += *dy.data<const double>();
      else
        gradients[i] = dy.clone();
    }
    return gradients;
  }
};

TEST(GradientSums, OfManyInputsNoneIsAddedTwice) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 70; ++i) leaves.push_back(leaf({1}));
  const auto sum = [&] { return record_list(AddAll{}, leaves); };
  backward(total(multiply(sum(), sum())));
  for (const Tensor& x : leaves) EXPECT_EQ(grad_of(x).item(), 2 * 70);
}

TEST(GradientSums, HooksComputeInTheTypesOfTheirArguments) {
  const Tensor a = leaf({2});
  const AutocastScope low(DType::bf16);
  std::optional<DType> seen = DType::f16;
  register_hook(a, [&](const Tensor&) {
    seen = autocast_dtype();
    return Tensor();
  });
  backward(total(multiply(a, leaf({3}))));
  EXPECT_EQ(seen, std::nullopt);
  EXPECT_EQ(autocast_dtype(), DType::bf16);
}

TEST(GradientSums, AHookMayRegisterHooks) {
  const Tensor w = leaf({1, 2}), y = multiply(w, w);
  int calls = 0;
  const auto more = [&](const Tensor& of, int depth) {
    for (int i = 0; i < 50; ++i)
      register_hook(of, [&calls, depth](const Tensor&) {
        calls += depth;
        return Tensor();
      });
  };
  for (const Tensor& of : {w, y})
    register_hook(of, [&, of](const Tensor&) {
      ++calls;
      more(of, 1000);
      return Tensor();
    });
  on_grad_ready(w, [&] {
    for (int i = 0; i < 50; ++i) on_grad_ready(w, [&] { calls += 1000; });
  });
  backward(total(y));
  EXPECT_EQ(calls, 2) << "those that are registered meanwhile run from the next pass on";
  backward(total(w));
  EXPECT_EQ(calls, 3 + 50 * 1000 + 50 * 1000);
}

TEST(GradientSums, AHookMayWriteToItsGradient) {
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

TEST(GradientSums, HooksSeeAndReplaceTheWholeGradientOfAPass) {
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

TEST(GradientSums, HooksOfLeavesReachFlatGradientsAndRecomputedParts) {
  Tensor w = leaf({2, 3});
  register_hook(w, [](const Tensor& dw) { return map2(dw, dw, [](double x, double) { return -x; }); });
  FlatParameters parameters({{"w", &w}});
  const auto f = [&](const Tensor& x) { return multiply(multiply(x, w), w); };
  backward(total(recompute(f, leaf({1, 1}), {w})));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{-4, -6}));
  backward(total(f(leaf({1, 1}))));
  EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{-8, -12}));
}

TEST(GradientSums, AHookThatDoesNotFitOrThrowsLeavesNothing) {
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

TEST(GradientSums, AnOpMayAddToALeafsGradient) {
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

TEST(GradientSums, AnOpMayAddToTheGradientOfAResult) {
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

}  // namespace
}  // namespace hearth::gradient_sums_test
