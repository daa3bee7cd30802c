// SPDX-License-Identifier: Apache-2.0
// A recomputed part gives the bits of the part itself and keeps nothing but what goes in.
#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/record.h"
#include "core/random.h"

namespace hearth::recompute_test {
namespace {

/// y = x w, elementwise, and how often it ran.
struct Product {
  static constexpr OpInfo info{.name = "product"};
  struct Saved {
    SavedTensor x, w;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& w) const {
    saved.x = x;
    saved.w = w;
    const Tensor y = Tensor::empty_like(x);
    for (std::int64_t i = 0; i < x.size(); ++i) y.data<double>()[i] = x.data<double>()[i] * w.data<double>()[i];
    return y;
  }
  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    Saved nothing;
    return {forward(nothing, dy, saved.w.get()), forward(nothing, dy, saved.x.get())};
  }
};

Tensor product(const Tensor& x, const Tensor& w) { return record(Product{}, x, w); }

/// As dropout does: a factor that is drawn anew for each op.
Tensor times_random(const Tensor& x) {
  const RandomKey key = next_random_key();
  Random random(key.seed, key.step, key.op);
  return product(x, Tensor::full(x.shape(), 0.5 + random.uniform(), x.dtype()));
}

struct Leaves {
  Tensor x = requires_grad(Tensor::of<double>({3}, {1, -2, 3})),
         w = requires_grad(Tensor::of<double>({3}, {0.5, 4, -1})),
         v = requires_grad(Tensor::of<double>({3}, {2, 3, 5}));
  Tensor part(const Tensor& input) const { return times_random(product(times_random(product(input, w)), v)); }
  std::vector<double> gradients() const {
    std::vector<double> all;
    for (const Tensor& leaf : {x, w, v})
      for (const double g : grad_of(leaf).to_doubles()) all.push_back(g);
    return all;
  }
};

TEST(Recompute, GivesTheBitsOfThePartItself) {
  const Leaves plain, again;
  int calls = 0;
  {
    const RandomScope random(7, 1);
    // The part stands between others, and w has a second use.
    const Tensor y = plain.part(product(plain.x, plain.w));
    backward(product(y, times_random(plain.v)), Tensor::full({3}, 1.5, DType::f64));
  }
  {
    const RandomScope random(7, 1);
    const auto part = [&](const Tensor& input) {
      ++calls;
      return again.part(input);
    };
    const Tensor y = recompute(part, product(again.x, again.w), {again.w, again.v});
    EXPECT_EQ(calls, 1);
    backward(product(y, times_random(again.v)), Tensor::full({3}, 1.5, DType::f64));
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(again.gradients(), plain.gradients());
}

TEST(Recompute, GivesTheGradientOfEachInputThatNeedsOne) {
  const auto run = [](const Leaves& leaves, bool again) {
    const RandomScope random(7, 1);
    const Tensor constant = Tensor::of<double>({3}, {3, 1, 2});
    const auto part = [&](std::span<const Tensor> inputs) {
      return product(times_random(product(inputs[0], inputs[2])), product(inputs[1], leaves.v));
    };
    // Both inputs have uses of their own too.
    const Tensor first = product(leaves.x, leaves.w), second = product(leaves.w, leaves.v);
    const Tensor y = again ? recompute(part, {first, constant, second}, {leaves.v})
                           : part(std::vector<Tensor>{first, constant, second});
    backward(product(product(y, first), second), Tensor::full({3}, 1.5, DType::f64));
    return leaves.gradients();
  };
  EXPECT_EQ(run(Leaves(), true), run(Leaves(), false));
}

TEST(Recompute, ReachesParametersWhereTheInputNeedsNoGradient) {
  const Leaves plain, again;
  const Tensor images = Tensor::of<double>({3}, {1, 2, 4});
  {
    const RandomScope random(5, 2);
    backward(plain.part(images), Tensor::full({3}, 1, DType::f64));
  }
  {
    const RandomScope random(5, 2);
    const auto part = [&](const Tensor& x) { return again.part(x); };
    backward(recompute(part, images, {again.w, again.v}), Tensor::full({3}, 1, DType::f64));
  }
  EXPECT_EQ(again.gradients(), plain.gradients());
}

TEST(Recompute, MayLieWithinAnother) {
  const Leaves plain, again;
  const Tensor dy = Tensor::full({3}, 1, DType::f64);
  {
    const RandomScope random(3, 9);
    backward(plain.part(plain.part(plain.x)), dy);
  }
  {
    const RandomScope random(3, 9);
    const auto inner = [&](const Tensor& x) { return again.part(x); };
    const auto outer = [&](const Tensor& x) { return again.part(recompute(inner, x, {again.w, again.v})); };
    backward(recompute(outer, again.x, {again.w, again.v}), dy);
  }
  EXPECT_EQ(again.gradients(), plain.gradients());
}

TEST(Recompute, KeepsOnlyWhatGoesIn) {
  const Leaves leaves;
  Tensor held;
  const auto part = [&](const Tensor& x) {
    const Tensor inner = product(x, leaves.w);
    held = inner.detach();
    return product(inner, leaves.v);
  };
  const Tensor saved = part(leaves.x);
  EXPECT_GT(held.storage().use_count(), 1);  // the plain graph holds it
  const Tensor light = recompute(part, leaves.x, {leaves.w, leaves.v});
  EXPECT_EQ(held.storage().use_count(), 1);
}

TEST(Recompute, TellsAGradientReadyOnce) {
  const Leaves leaves;
  int ready = 0;
  double at_ready = 0;
  on_grad_ready(leaves.w, [&] {
    ++ready;
    at_ready = grad_of(leaves.w).to_doubles()[0];
  });
  const Tensor y =
      recompute([&](const Tensor& x) { return product(x, leaves.w); }, product(leaves.x, leaves.w), {leaves.w});
  backward(y, Tensor::full({3}, 1, DType::f64));
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(at_ready, grad_of(leaves.w).to_doubles()[0]);
  EXPECT_EQ(at_ready, 2 * 1 * 0.5);
}

TEST(Recompute, APassThatAHookBeginsWithinIsOneOfItsOwn) {
  const Leaves leaves;
  const Tensor other = requires_grad(Tensor::of<double>({1}, {3}));
  int ready = 0;
  bool recomputing = true;
  on_grad_ready(other, [&] { ++ready; });
  register_hook(other, [](const Tensor& dy) { return product(dy, Tensor::of<double>({1}, {10})); });
  const Tensor loss = product(other, other);
  const auto f = [&](std::span<const Tensor> inputs) {
    const Tensor y = product(inputs[0], leaves.w);
    if (needs_grad(y))
      register_hook(y, [&](const Tensor&) {
        recomputing = is_recomputing();
        if (grad_of(other).item() == 0) backward(loss);
        return Tensor();
      });
    return y;
  };
  backward(recompute(f, {leaves.x}, {leaves.w}), Tensor::of<double>({3}, {1, 1, 1}));
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(grad_of(other).item(), 60);
  EXPECT_FALSE(recomputing);
}

TEST(Recompute, SaysThatItRunsAgain) {
  const Leaves leaves;
  std::vector<bool> seen;
  const auto part = [&](const Tensor& x) {
    seen.push_back(is_recomputing());
    return product(x, leaves.w);
  };
  backward(recompute(part, leaves.x, {leaves.w}), Tensor::full({3}, 1, DType::f64));
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(is_recomputing());
  EXPECT_TRUE(grad_enabled());
}

TEST(Recompute, RecordsNothingWithoutGradients) {
  const Leaves leaves;
  const NoGrad no_grad;
  EXPECT_FALSE(needs_grad(recompute([&](const Tensor& x) { return leaves.part(x); }, leaves.x, {leaves.w})));
}

TEST(Recompute, RefusesWhatItCannotDo) {
  const Leaves leaves;
  const auto f = [&](const Tensor& x) { return product(x, leaves.w); };
  EXPECT_THROW(recompute(nullptr, leaves.x, {leaves.w}), UsageError);
  EXPECT_THROW(recompute(f, Tensor(), {leaves.w}), UsageError);
  const auto of_list = [&](std::span<const Tensor> inputs) { return f(inputs[0]); };
  EXPECT_THROW(recompute(of_list, std::vector<Tensor>{}, {leaves.w}), UsageError);
  EXPECT_THROW(recompute(of_list, {leaves.x, Tensor()}, {leaves.w}), UsageError);
  EXPECT_THROW(recompute(f, leaves.x, {Tensor()}), UsageError);
  EXPECT_THROW(recompute(f, leaves.x, {leaves.w.detach()}), UsageError);
  EXPECT_THROW(recompute(f, leaves.x, {product(leaves.x, leaves.w)}), UsageError);
  const Tensor y = recompute(f, leaves.x, {leaves.w});
  leaves.x.fill_(1);
  EXPECT_THROW(backward(y, Tensor::full({3}, 1, DType::f64)), UsageError);
}

}  // namespace
}  // namespace hearth::recompute_test
