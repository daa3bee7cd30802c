// SPDX-License-Identifier: Apache-2.0
// The library facade against plain loops in double, over odd shapes, types and exact mode.
#include "ops/onednn/onednn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/cpu/parallel.h"
#include "core/random.h"

namespace hearth::cpu {
namespace {

constexpr Pass all_passes[] = {Pass::forward, Pass::backward_data, Pass::backward_weights};

// Values held in the type under test and, exactly the same, in double.
struct Values {
  DType dtype;
  std::vector<std::byte> bytes;

  Values(DType type, std::int64_t size) : dtype(type), bytes(static_cast<std::size_t>(size) * size_of(type)) {}
  static Values random(DType type, std::int64_t size, std::uint64_t seed) {
    Values v(type, size);
    Random random(seed, 0);
    for (std::int64_t i = 0; i < size; ++i) v.set(i, static_cast<float>(random.uniform(-1.0, 1.0)));
    return v;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
  void* data() { return bytes.data(); }
  const void* data() const { return bytes.data(); }
  const float* f32() const { return reinterpret_cast<const float*>(bytes.data()); }
  float* f32() { return reinterpret_cast<float*>(bytes.data()); }
  void set(std::int64_t i, float value) {
    if (dtype == DType::bf16)
      reinterpret_cast<bf16*>(bytes.data())[i] = bf16(value);
    else
      reinterpret_cast<float*>(bytes.data())[i] = value;
  }
  double get(std::int64_t i) const {
    if (dtype == DType::bf16) return static_cast<float>(reinterpret_cast<const bf16*>(bytes.data())[i]);
    return reinterpret_cast<const float*>(bytes.data())[i];
  }
};

// Calls f(index of x, of w, of y) for every product of the convolution.
template <class F>
void each_product(const ConvShape& s, const F& f) {
  const std::int64_t kg = s.k / s.groups, cg = s.c / s.groups;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t p = 0; p < s.p; ++p)
      for (std::int64_t q = 0; q < s.q; ++q)
        for (std::int64_t r = 0; r < s.r; ++r)
          for (std::int64_t t = 0; t < s.s; ++t) {
            const std::int64_t h = p * s.stride_h - s.pad_h + r * s.dilation_h;
            const std::int64_t w = q * s.stride_w - s.pad_w + t * s.dilation_w;
            if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
            for (std::int64_t k = 0; k < s.k; ++k)
              for (std::int64_t c = 0; c < cg; ++c)
                f(((n * s.h + h) * s.w + w) * s.c + k / kg * cg + c, ((k * s.r + r) * s.s + t) * cg + c,
                  ((n * s.p + p) * s.q + q) * s.k + k);
          }
}

ConvShape shape(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, std::int64_t k, std::int64_t r,
                std::int64_t s, std::int64_t stride, std::int64_t pad, std::int64_t dilation = 1,
                std::int64_t groups = 1) {
  ConvShape result{.n = n, .h = h, .w = w, .c = c, .k = k, .r = r, .s = s};
  result.stride_h = result.stride_w = stride;
  result.pad_h = result.pad_w = pad;
  result.dilation_h = result.dilation_w = dilation;
  result.groups = groups;
  result.p = (h + 2 * pad - (r - 1) * dilation - 1) / stride + 1;
  result.q = (w + 2 * pad - (s - 1) * dilation - 1) / stride + 1;
  return result;
}

std::vector<ConvShape> odd_shapes() {
  return {shape(2, 9, 7, 3, 5, 3, 3, 1, 1),
          shape(1, 8, 8, 1, 4, 5, 5, 1, 2),
          shape(3, 11, 13, 16, 32, 3, 3, 2, 1),
          shape(2, 14, 14, 32, 17, 1, 1, 1, 0),
          shape(2, 15, 15, 24, 40, 1, 1, 2, 0),
          shape(2, 12, 10, 6, 9, 3, 3, 1, 1, 1, 3),
          shape(4, 10, 10, 16, 16, 3, 3, 1, 1, 1, 16),
          shape(5, 13, 13, 8, 16, 3, 3, 1, 2, 2),
          shape(1, 32, 32, 3, 64, 7, 7, 2, 3),
          shape(11, 4, 4, 64, 64, 3, 3, 1, 1),
          shape(2, 5, 9, 16, 16, 1, 5, 1, 0),
          shape(9, 1, 1, 10, 7, 1, 1, 1, 0),
          shape(7, 2, 2, 128, 130, 3, 3, 1, 1),
          shape(5, 5, 4, 130, 128, 3, 2, 2, 1),
          shape(3, 6, 6, 128, 128, 3, 3, 1, 2, 2)};
}

struct Tensors {
  Values x, w, y;
};

Tensors make_tensors(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  return {Values::random(problem.activations, s.n * s.h * s.w * s.c, 1),
          Values::random(problem.weights, s.k * s.r * s.s * (s.c / s.groups), 2),
          Values::random(problem.activations, s.n * s.p * s.q * s.k, 3)};
}

// What the arithmetic sees of the filters.
double inside(const ConvProblem& problem, double w) {
  return problem.activations == DType::bf16 ? static_cast<float>(bf16(static_cast<float>(w))) : w;
}

void expect_near(const Values& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), static_cast<std::int64_t>(expected.size())) << what;
  double largest = 1.0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  const double allowed = largest * (found.dtype == DType::bf16 ? 6e-3 : 2e-5);
  for (std::int64_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found.get(i), expected[static_cast<std::size_t>(i)], allowed) << what << " at " << i;
}

std::vector<double> zeros(const Values& like) { return std::vector<double>(static_cast<std::size_t>(like.size())); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void check_conv(const ConvProblem& problem, int number) {
  const Tensors t = make_tensors(problem);
  const std::string what = "shape " + std::to_string(number) + " " + name_of(problem.activations) + "/" +
                           name_of(problem.weights) + (problem.deterministic ? " exact" : "");
  const Values b = Values::random(DType::f32, problem.shape.k, 4);
  if (problem.activations == DType::f32 || dnn::has_hardware_bf16()) {
    for (const Pass pass : all_passes) EXPECT_EQ(dnn::declines(problem, pass), "") << what;
  }
  if (dnn::declines(problem, Pass::forward).empty()) {
    auto expected = zeros(t.y);
    for (std::int64_t i = 0; i < t.y.size(); ++i) expected[at(i)] = b.get(i % problem.shape.k);
    each_product(problem.shape,
                 [&](auto x, auto w, auto y) { expected[at(y)] += t.x.get(x) * inside(problem, t.w.get(w)); });
    Values y(problem.activations, t.y.size());
    dnn::conv2d_forward(problem, t.x.data(), t.w.data(), b.f32(), y.data());
    expect_near(y, expected, what + " forward");
    for (std::int64_t i = 0; i < t.y.size(); ++i) expected[at(i)] -= b.get(i % problem.shape.k);
    dnn::conv2d_forward(problem, t.x.data(), t.w.data(), nullptr, y.data());
    expect_near(y, expected, what + " forward without bias");
  }
  if (dnn::declines(problem, Pass::backward_data).empty()) {
    auto expected = zeros(t.x);
    each_product(problem.shape,
                 [&](auto x, auto w, auto y) { expected[at(x)] += t.y.get(y) * inside(problem, t.w.get(w)); });
    Values dx(problem.activations, t.x.size());
    dnn::conv2d_backward_data(problem, t.y.data(), t.w.data(), dx.data());
    expect_near(dx, expected, what + " backward data");
  }
  if (dnn::declines(problem, Pass::backward_weights).empty()) {
    auto expected = zeros(t.w);
    each_product(problem.shape, [&](auto x, auto w, auto y) { expected[at(w)] += t.y.get(y) * t.x.get(x); });
    std::vector<double> expected_bias(at(problem.shape.k));
    for (std::int64_t i = 0; i < t.y.size(); ++i) expected_bias[at(i % problem.shape.k)] += t.y.get(i);
    Values dw(problem.weights, t.w.size()), db(DType::f32, problem.shape.k);
    dnn::conv2d_backward_weights(problem, t.x.data(), t.y.data(), dw.data(), db.f32());
    expect_near(dw, expected, what + " backward weights");
    expect_near(db, expected_bias, what + " backward bias");
    dnn::conv2d_backward_weights(problem, t.x.data(), t.y.data(), dw.data(), nullptr);
    expect_near(dw, expected, what + " backward weights without bias");
  }
}

struct TeamGuard {
  int before = threads();
  ~TeamGuard() { set_threads(before); }
};

class DnnConv2d : public testing::Test {
 protected:
  void SetUp() override {
    if (!dnn::available()) GTEST_SKIP() << "built without oneDNN";
  }
  TeamGuard guard_;
};

TEST_F(DnnConv2d, F32MatchesPlainLoops) {
  int number = 0;
  for (const ConvShape& s : odd_shapes()) check_conv({.shape = s}, number++);
}

TEST_F(DnnConv2d, Bf16MatchesPlainLoops) {
  int number = 0;
  for (const ConvShape& s : odd_shapes())
    check_conv({.shape = s, .activations = DType::bf16, .weights = DType::bf16}, number++);
}

TEST_F(DnnConv2d, NarrowActivationsWithWideWeightsMatchPlainLoops) {
  int number = 0;
  for (const ConvShape& s : odd_shapes())
    check_conv({.shape = s, .activations = DType::bf16, .weights = DType::f32}, number++);
}

TEST_F(DnnConv2d, ExactModeMatchesPlainLoops) {
  int number = 0;
  for (const ConvShape& s : odd_shapes()) {
    check_conv({.shape = s, .deterministic = true}, number);
    check_conv({.shape = s, .activations = DType::bf16, .deterministic = true}, number);
    check_conv({.shape = s, .activations = DType::bf16, .weights = DType::bf16, .deterministic = true}, number++);
  }
}

TEST_F(DnnConv2d, WorksForAnyTeamSize) {
  const ConvShape s = shape(3, 12, 12, 16, 24, 3, 3, 1, 1);
  for (const int team : {1, 2, 3}) {
    set_threads(team);
    check_conv({.shape = s}, team);
    parallel_chunks(2, [&](std::int64_t i) { check_conv({.shape = s}, static_cast<int>(10 + i)); });
  }
}

// The bits of all results of the three passes.
std::vector<std::byte> bits_of_passes(const ConvProblem& problem) {
  const Tensors t = make_tensors(problem);
  Values y(problem.activations, t.y.size()), dx(problem.activations, t.x.size()), dw(problem.weights, t.w.size());
  Values db(DType::f32, problem.shape.k);
  dnn::conv2d_forward(problem, t.x.data(), t.w.data(), nullptr, y.data());
  dnn::conv2d_backward_data(problem, t.y.data(), t.w.data(), dx.data());
  dnn::conv2d_backward_weights(problem, t.x.data(), t.y.data(), dw.data(), db.f32());
  std::vector<std::byte> all;
  for (const Values* v : {&y, &dx, &dw, &db}) all.insert(all.end(), v->bytes.begin(), v->bytes.end());
  return all;
}

TEST_F(DnnConv2d, ExactModeGivesTheSameBitsForEveryTeamSize) {
  for (const ConvShape& s : {shape(10, 14, 14, 64, 32, 3, 3, 1, 1), shape(16, 28, 28, 32, 64, 1, 1, 1, 0),
                             shape(7, 16, 16, 3, 64, 7, 7, 2, 3), shape(1, 16, 16, 16, 16, 3, 3, 2, 1),
                             shape(8, 2, 2, 128, 256, 3, 3, 1, 1)})
    for (const DType activations : {DType::f32, DType::bf16}) {
      const ConvProblem problem{.shape = s, .activations = activations, .deterministic = true};
      bool taken = true;
      for (const Pass pass : all_passes) taken = taken && dnn::declines(problem, pass).empty();
      if (!taken) continue;
      set_threads(1);
      const auto expected = bits_of_passes(problem);
      for (const int team : {2, 3}) {
        set_threads(team);
        EXPECT_TRUE(bits_of_passes(problem) == expected) << team << " threads, " << name_of(activations);
      }
    }
}

// Every distinct convolution of ResNet-18 and -50 for square images.
std::vector<ConvShape> resnet_shapes(std::int64_t n, std::int64_t pixels) {
  std::vector<ConvShape> all{shape(n, pixels, pixels, 3, 64, 7, 7, 2, 3)};
  std::int64_t size = pixels / 4, in18 = 64, in50 = 64;
  for (std::int64_t width = 64; width <= 512; width *= 2) {
    const std::int64_t stride = width == 64 ? 1 : 2, out = size / stride, wide = width * 4;
    all.push_back(shape(n, size, size, in18, width, 3, 3, stride, 1));
    all.push_back(shape(n, out, out, width, width, 3, 3, 1, 1));
    if (stride == 2) all.push_back(shape(n, size, size, in18, width, 1, 1, 2, 0));
    all.push_back(shape(n, size, size, in50, width, 1, 1, 1, 0));
    all.push_back(shape(n, size, size, width, width, 3, 3, stride, 1));
    all.push_back(shape(n, out, out, width, wide, 1, 1, 1, 0));
    all.push_back(shape(n, size, size, in50, wide, 1, 1, stride, 0));
    all.push_back(shape(n, out, out, wide, width, 1, 1, 1, 0));
    in18 = width;
    in50 = wide;
    size = out;
  }
  return all;
}

TEST_F(DnnConv2d, NoResNetLayerRunsReferenceCode) {
  for (const std::int64_t pixels : {64, 224})
    for (const ConvShape& s : resnet_shapes(2, pixels))
      for (const Pass pass : all_passes)
        for (const bool deterministic : {false, true}) {
          const ConvProblem wide{.shape = s, .deterministic = deterministic};
          EXPECT_EQ(dnn::declines(wide, pass), "") << s.h << "x" << s.c << "->" << s.k << " f32";
          if (!dnn::has_hardware_bf16()) continue;
          const ConvProblem narrow{.shape = s, .activations = DType::bf16, .deterministic = deterministic};
          EXPECT_EQ(dnn::declines(narrow, pass), "") << s.h << "x" << s.c << "->" << s.k << " bf16";
        }
  for (const dnn::PlanInfo& plan : dnn::plans()) EXPECT_FALSE(plan.implementation.empty()) << plan.problem;
}

TEST_F(DnnConv2d, SaysWhyItDeclines) {
  const ConvShape s = shape(2, 8, 8, 8, 8, 3, 3, 1, 1);
  const ConvProblem f64{.shape = s, .activations = DType::f64, .weights = DType::f64};
  EXPECT_NE(dnn::declines(f64, Pass::forward).find("f64"), std::string::npos);
  EXPECT_EQ(dnn::implementation(f64, Pass::forward), "");
  EXPECT_NE(dnn::declines({.shape = s, .weights = DType::bf16}, Pass::forward), "");
  ConvShape wrong = s;
  wrong.groups = 3;
  EXPECT_THROW(dnn::declines({.shape = wrong}, Pass::forward), ShapeError);
  wrong = s;
  wrong.n = 0;
  EXPECT_THROW(dnn::declines({.shape = wrong}, Pass::forward), ShapeError);
}

TEST(DnnFacade, AbsentLibraryDeclinesWithARemedy) {
  if (dnn::available()) {
    EXPECT_NE(dnn::library().find("oneDNN"), std::string::npos);
    return;
  }
  EXPECT_EQ(dnn::library(), "none");
  EXPECT_TRUE(dnn::plans().empty());
}

}  // namespace
}  // namespace hearth::cpu
