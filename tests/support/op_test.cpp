// SPDX-License-Identifier: Apache-2.0
#include "tests/support/op_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/build.h"
#include "core/cpu/parallel.h"
#include "core/random.h"

namespace hearth::test {
namespace {

constexpr Site all_sites[] = {
    {"cpu_f64", {}, DType::f64},
    {"cpu_f32", {}, DType::f32},
    {"cpu_f16", {}, DType::f16},
    {"cpu_bf16", {}, DType::bf16},
    {"cuda_f64", {DeviceType::cuda, 0}, DType::f64},
    {"cuda_f32", {DeviceType::cuda, 0}, DType::f32},
    {"cuda_f16", {DeviceType::cuda, 0}, DType::f16},
    {"cuda_bf16", {DeviceType::cuda, 0}, DType::bf16},
};
constexpr std::size_t cpu_sites = 4;

/// Elements of all inputs up to which a check runs gradients from strided views and for single inputs too.
constexpr std::size_t max_for_further_passes = 4096;

const Site* running_site = &all_sites[1];

/// Allowed error relative to the largest magnitude of the tensor, for ops that round their result once and whose
/// gradient uses a kept result of the same type.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 2.5e-3;
    case DType::bf16:
      return 1.6e-2;
    default:
      return 0.0;
  }
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

std::optional<std::size_t> first_not_finite(const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return std::nullopt;
}

/// The same elements as a view in which neighbours along the last axis lie two apart.
Tensor spread_out(const Tensor& tensor) {
  if (tensor.rank() == 0 || tensor.size() == 0) return tensor;
  std::vector<std::int64_t> extents(tensor.shape().begin(), tensor.shape().end());
  extents.push_back(2);
  if (extents.size() > Shape::max_rank) return tensor;
  const Tensor roomy = Tensor::zeros(Shape(std::span<const std::int64_t>(extents)), tensor.dtype(), tensor.device());
  Strides strides = roomy.strides();
  const Tensor view = Tensor::view(roomy.storage(), tensor.shape(), strides, 0, tensor.dtype(), tensor.device());
  view.copy_from(tensor);
  return view;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor ca = a.to(Device{}).contiguous();
  const Tensor cb = b.to(Device{}).contiguous();
  return ca.size() == 0 || std::memcmp(ca.bytes(), cb.bytes(), ca.byte_size()) == 0;
}

/// Threads and deterministic mode as given until the end of the scope.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : threads_(cpu::threads()), exact_(cpu::deterministic()) {
    cpu::set_threads(threads);
    cpu::set_deterministic(true);
  }
  ~ThreadsScope() {
    cpu::set_threads(threads_);
    cpu::set_deterministic(exact_);
  }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int threads_;
  bool exact_;
};

TEST(OpSites, Cuda) {
  if (sites().size() == cpu_sites)
    GTEST_SKIP() << "ops were tested on the CPU only: "
                 << (HEARTH_HAS_CUDA ? "there is no CUDA device" : "this build is without CUDA");
}

class OpTest : public testing::Test {
 public:
  OpTest(const Site* site, void (*body)()) : site_(site), body_(body) {}
  void TestBody() override {
    running_site = site_;
    body_();
    running_site = &all_sites[1];
  }

 private:
  const Site* site_;
  void (*body_)();
};

}  // namespace

const Site& current_site() { return *running_site; }
DType site_dtype() { return running_site->dtype; }
std::span<const Site> sites() {
  return device_count(DeviceType::cuda) > 0 ? std::span<const Site>(all_sites)
                                            : std::span<const Site>(all_sites).first(cpu_sites);
}

bool register_op_test(const char* name, void (*body)(), const char* file, int line) {
  for (const Site& site : sites()) {
    const std::string full_name = join_text(name, '/', site.name);
    // One suite of its own, so that a test file may also have TEST(Softmax, ...).
    testing::RegisterTest("Op", full_name.c_str(), nullptr, nullptr, file, line,
                          [&site, body]() -> OpTest* { return new OpTest(&site, body); });
  }
  return true;
}

template <class Make>
Tensor Draw::floating(const Shape& shape, Width width, bool needs_grad, Make&& make) {
  if (next_ == inputs_->size()) {
    const bool narrow = size_of(site_dtype_) == 2;
    const DType dtype = width == Width::wide && narrow ? DType::f32 : site_dtype_;
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    Random random(seed_, next_);
    make(random, values);
    values = Tensor::of<double>(shape, values).to(dtype).to_doubles();
    inputs_->push_back({shape, dtype, std::move(values), true, needs_grad});
  }
  return take(shape);
}

Tensor Draw::take(const Shape& shape) {
  const DrawnInput& input = (*inputs_)[next_];
  HEARTH_CHECK(UsageError, input.shape == shape, "op test: draw ", next_, " has shape ", shape, ", but ", input.shape,
               " in an earlier run; the function under test must draw the same inputs each time");
  ++next_;
  const DType dtype = input.floating && oracle_ ? DType::f64 : input.dtype;
  Tensor tensor = Tensor::of<double>(shape, input.values).to(dtype);
  if (!oracle_) tensor = tensor.to(site_device_);
  if (strided_) tensor = spread_out(tensor);
  const bool leaf = input.needs_grad && leaves_ && only_leaf_.value_or(next_ - 1) == next_ - 1;
  if (leaf) tensor = requires_grad(tensor);
  made_.push_back(tensor);
  return tensor;
}

Tensor Draw::normal(const Shape& shape, double scale, Width width) {
  return floating(shape, width, true, [&](Random& random, std::vector<double>& values) {
    for (double& value : values) value = scale * random.normal();
  });
}

Tensor Draw::uniform(const Shape& shape, double low, double high, Width width) {
  return floating(shape, width, true, [&](Random& random, std::vector<double>& values) {
    for (double& value : values) value = random.uniform(low, high);
  });
}

Tensor Draw::away_from_zero(const Shape& shape, Width width) {
  return floating(shape, width, true, [&](Random& random, std::vector<double>& values) {
    // Slightly more than promised, so that rounding to any type keeps |x| >= 0.1.
    for (double& value : values) value = (random.below(2) ? 1 : -1) * random.uniform(0.101, 2.0);
  });
}

Tensor Draw::positive(const Shape& shape, Width width) { return uniform(shape, 0.5, 2.0, width); }

Tensor Draw::distinct(const Shape& shape, Width width) {
  return floating(shape, width, true, [&](Random& random, std::vector<double>& values) {
    const auto middle = static_cast<double>(values.size() / 2);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<double>(i) - middle) / 64.0;
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
  });
}

Tensor Draw::integers(const Shape& shape, std::int64_t bound, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  Random random(seed_, next_);
  for (double& value : values) value = static_cast<double>(random.below(static_cast<std::uint64_t>(bound)));
  return indices(shape, values, dtype);
}

Tensor Draw::constant(const Shape& shape, const std::vector<double>& values, Width width) {
  return floating(shape, width, false, [&](Random&, std::vector<double>& out) { out = values; });
}

Tensor Draw::indices(const Shape& shape, const std::vector<double>& values, DType dtype) {
  if (next_ == inputs_->size()) inputs_->push_back({shape, dtype, values, false, false});
  return take(shape);
}

/// One function at one site: runs it in every needed way and collects what disagrees.
class Checker {
 public:
  Checker(const Site& site, const OpBody& body, const CheckOptions& options)
      : site_(site), body_(body), options_(options) {}

  std::vector<std::string> run(const NaiveBody& naive) {
    const bool oracle_site = site_.dtype == DType::f64 && site_.device.is_cpu();
    for (seed_ = 1; seed_ <= (oracle_site && !options_.no_gradient ? 3u : 1u); ++seed_) {
      inputs_.clear();
      result_ = evaluate({});
      if (!sound()) return failures_;
      if (oracle_site) {
        if (naive) compare_naive(naive);
        if (differentiable()) compare_differences();
      } else {
        compare_oracle();
      }
      compare_layouts();
      if (differentiable() && seed_ == 1 && is_small()) compare_single_leaves();
      if (site_.device.is_cpu())
        compare_thread_counts();
      else
        compare_runs();
    }
    return failures_;
  }

 private:
  struct Mode {
    bool oracle = false;
    bool strided = false;
    bool gradient = true;
    std::optional<std::size_t> only_leaf = {};
  };
  struct Result {
    Tensor y;
    std::vector<Tensor> gradients;  // one an input; undefined where the input wants none
  };

  template <class... Parts>
  void fail(const Parts&... parts) {
    failures_.push_back(join_text(site_.name, ", seed ", seed_, ": ", parts...));
  }

  bool differentiable() const { return !options_.no_gradient; }

  /// Whether further passes cost little.
  bool is_small() const {
    std::size_t elements = 0;
    for (const DrawnInput& input : inputs_) elements += input.values.size();
    return elements <= max_for_further_passes;
  }

  Draw draw_for(Mode mode) {
    Draw draw(seed_, site_.dtype, site_.device, inputs_);
    draw.oracle_ = mode.oracle;
    draw.strided_ = mode.strided;
    draw.leaves_ = mode.gradient && differentiable();
    draw.only_leaf_ = mode.only_leaf;
    return draw;
  }

  Result evaluate(Mode mode) {
    // Random ops draw the same values in every run.
    const RandomScope randomness(seed_, 0);
    Draw draw = draw_for(mode);
    Result result;
    result.y = body_(draw);
    if (!mode.gradient || !differentiable()) return result;
    const Tensor dy = mode.strided ? spread_out(projection(result.y)) : projection(result.y);
    // One input alone may have no part in the result.
    if (!mode.only_leaf || needs_grad(result.y)) backward(result.y, dy);
    if (mode.strided && changed(dy, weights(dy.size())) != 0) fail("dy was overwritten");
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const bool wanted = inputs_[i].needs_grad && mode.only_leaf.value_or(i) == i;
      result.gradients.push_back(wanted ? grad_of(draw.made_[i]).clone() : Tensor());
      const double worst = wanted && !mode.oracle ? changed(draw.made_[i], inputs_[i].values) : 0.0;
      if (worst != 0.0) fail("input ", i, " was overwritten (by up to ", worst, ")");
    }
    return result;
  }

  static double changed(const Tensor& tensor, const std::vector<double>& values) {
    const std::vector<double> now = tensor.to_doubles();
    double worst = 0;
    for (std::size_t i = 0; i < now.size(); ++i) worst = std::max(worst, std::abs(now[i] - values[i]));
    return worst;
  }

  /// Fixed weights of the output, multiples of 1/8, exact in every type.
  std::vector<double> weights(std::int64_t count) const {
    std::vector<double> result(static_cast<std::size_t>(count));
    Random random(seed_, 1u << 20);
    for (double& value : result) value = (random.below(2) ? 0.125 : -0.125) * static_cast<double>(1 + random.below(8));
    return result;
  }

  Tensor projection(const Tensor& y) const {
    return Tensor::of<double>(y.shape(), weights(y.size())).to(y.dtype()).to(y.device());
  }

  bool sound() {
    if (const auto i = first_not_finite(result_.y.to_doubles())) fail("the value is not finite at element ", *i);
    bool any = false;
    for (std::size_t k = 0; k < result_.gradients.size(); ++k) {
      const Tensor& gradient = result_.gradients[k];
      if (!gradient.defined()) continue;
      any = true;
      if (gradient.shape() != inputs_[k].shape) {
        fail("the gradient of input ", k, " is ", describe(gradient), " for an input ", inputs_[k].shape);
      } else if (const auto i = first_not_finite(gradient.to_doubles())) {
        fail("the gradient of input ", k, " is not finite at element ", *i);
      }
    }
    if (differentiable() && !any) fail("no input needs a gradient; say no_gradient");
    return failures_.empty();
  }

  void compare(const std::string& what, const std::vector<double>& found, const std::vector<double>& expected,
               double tolerance) {
    if (found.size() != expected.size()) {
      fail(what, " has ", found.size(), " elements, expected ", expected.size());
      return;
    }
    const double scale = largest(expected);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::abs(found[i] - expected[i]) <= tolerance * scale) continue;
      fail(what, " at element ", i, " is ", found[i], ", expected ", expected[i], " (off by ",
           std::abs(found[i] - expected[i]), ", allowed ", tolerance * scale, ")");
      return;
    }
  }

  void compare_naive(const NaiveBody& naive) {
    Draw draw = draw_for({.gradient = false});
    compare("the value beside the naive computation", result_.y.to_doubles(), naive(draw),
            1e-12 * options_.tolerance_scale);
  }

  /// Central differences of the projected value, element by element.
  void compare_differences() {
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      if (!inputs_[k].needs_grad || inputs_[k].values.empty()) continue;
      const std::vector<double> gradient = result_.gradients[k].to_doubles();
      const double scale = largest(gradient);
      const std::size_t count = gradient.size();
      const std::size_t samples = std::min<std::size_t>(count, 20);
      Random random(seed_, (1u << 21) + k);
      const std::size_t start = random.below(count);
      for (std::size_t s = 0; s < samples; ++s) {
        const std::size_t i = (start + s * count / samples) % count;
        const double expected = difference(k, i);
        const double magnitude = std::max({std::abs(expected), std::abs(gradient[i]), 0.01 * scale});
        if (std::abs(gradient[i] - expected) <= options_.tolerance_scale * (1e-6 * magnitude + 1e-9)) continue;
        fail("the gradient of input ", k, " at element ", i, " is ", gradient[i], ", central differences give ",
             expected, " (largest gradient ", scale, ")");
        break;
      }
    }
  }

  double difference(std::size_t input, std::size_t element) {
    double& value = inputs_[input].values[element];
    const double middle = value;
    const double step = 1e-5 * std::max(1.0, std::abs(middle));
    value = middle + step;
    const double above = value;
    const std::vector<double> up = evaluate({.gradient = false}).y.to_doubles();
    value = middle - step;
    const double below = value;
    const std::vector<double> down = evaluate({.gradient = false}).y.to_doubles();
    value = middle;
    const std::vector<double> w = weights(static_cast<std::int64_t>(up.size()));
    // Differences first, then the sum: elements that do not depend on this input cancel exactly.
    double sum = 0;
    for (std::size_t i = 0; i < up.size(); ++i) sum += w[i] * (up[i] - down[i]);
    return sum / (above - below);
  }

  void compare_oracle() {
    const Result expected = evaluate({.oracle = true});
    const double tolerance = tolerance_of(site_.dtype) * options_.tolerance_scale;
    const bool exact = !is_floating(result_.y.dtype());
    if (result_.y.shape() != expected.y.shape()) {
      fail("the value is ", describe(result_.y), ", in f64 ", describe(expected.y));
      return;
    }
    compare("the value", result_.y.to_doubles(), expected.y.to_doubles(), exact ? 0.0 : tolerance);
    for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
      if (!expected.gradients[k].defined()) continue;
      compare(join_text("the gradient of input ", k), result_.gradients[k].to_doubles(),
              expected.gradients[k].to_doubles(), tolerance);
    }
  }

  void compare_layouts() {
    const bool gradient = differentiable() && is_small();
    const auto strided = [&] { return evaluate({.strided = true, .gradient = gradient}); };
    if (alike(strided(), result_)) return;
    // Outside deterministic mode the CPU may add in another order.
    const ThreadsScope exact(1);
    compare_bits(strided(), evaluate({.gradient = gradient}), "between strided and contiguous inputs and dy");
  }

  static bool alike(const Result& a, const Result& b) {
    bool same = same_bits(a.y, b.y);
    for (std::size_t k = 0; k < a.gradients.size(); ++k)
      same = same && (!a.gradients[k].defined() || same_bits(a.gradients[k], b.gradients[k]));
    return same;
  }

  void compare_single_leaves() {
    const auto wants = [](const DrawnInput& input) { return input.needs_grad; };
    if (std::count_if(inputs_.begin(), inputs_.end(), wants) < 2) return;
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      if (!inputs_[k].needs_grad) continue;
      const Result alone = evaluate({.only_leaf = k});
      compare(join_text("the gradient of input ", k, ", which alone wants one,"), alone.gradients[k].to_doubles(),
              result_.gradients[k].to_doubles(), tolerance_of(site_.dtype) * options_.tolerance_scale);
    }
  }

  void compare_thread_counts() {
    std::vector<Result> results;
    for (const int threads : {1, 3}) {
      const ThreadsScope pool(threads);
      results.push_back(evaluate({}));
    }
    compare_bits(results[0], results[1], "between one and three threads");
  }

  /// A device gives the same bits each time.
  void compare_runs() { compare_bits(evaluate({}), result_, "between two runs"); }

  void compare_bits(const Result& a, const Result& b, const char* between) {
    if (!same_bits(a.y, b.y)) fail("the value differs ", between);
    for (std::size_t k = 0; k < a.gradients.size(); ++k) {
      if (!a.gradients[k].defined()) continue;
      if (!same_bits(a.gradients[k], b.gradients[k])) fail("the gradient of input ", k, " differs ", between);
    }
  }

  const Site& site_;
  const OpBody& body_;
  CheckOptions options_;
  std::uint64_t seed_ = 1;
  std::vector<DrawnInput> inputs_;
  Result result_;
  std::vector<std::string> failures_;
};

std::vector<std::string> disagreements(const Site& site, const OpBody& body, const NaiveBody& naive,
                                       const CheckOptions& options) {
  return Checker(site, body, options).run(naive);
}

void check(const OpBody& body, const NaiveBody& naive, const CheckOptions& options) {
  for (const std::string& text : disagreements(current_site(), body, naive, options)) ADD_FAILURE() << text;
}

void check(const OpBody& body, const CheckOptions& options) { check(body, NaiveBody(), options); }

void expect_close(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> va = a.to_doubles();
  const std::vector<double> vb = b.to_doubles();
  const double allowed = tolerance * std::max(1.0, largest(vb));
  for (std::size_t i = 0; i < va.size(); ++i) {
    // Equal infinities agree; NaN fails the comparison.
    if (va[i] == vb[i] || std::abs(va[i] - vb[i]) <= allowed) continue;
    ADD_FAILURE() << "element " << i << " is " << va[i] << ", expected " << vb[i] << " within " << allowed;
    return;
  }
}

}  // namespace hearth::test
