// SPDX-License-Identifier: Apache-2.0
// A convolution by plain loops in double, and what the implementations make of the same operands.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/conv/problem.h"
#include "ops/matmul/cpu/matmul_onednn.h"

namespace hearth::test::conv {

using kernels::Conv2dCandidate;

constexpr Pass all_passes[] = {Pass::forward, Pass::backward_data, Pass::backward_weights};

inline ConvShape shape(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, std::int64_t k, std::int64_t r,
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

// A row of padding below only, and unequal strides.
inline ConvShape uneven(ConvShape s, std::int64_t rows) {
  s.pad_h = 0, s.stride_w = 1, s.q = s.w;
  s.p = rows;
  return s;
}

// The last rows and columns of x are under no filter.
inline ConvShape cut(ConvShape s, std::int64_t rows, std::int64_t columns) {
  s.p -= rows, s.q -= columns;
  return s;
}

inline std::string text_of(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  const char* const pass = problem.pass == Pass::forward         ? "forward"
                           : problem.pass == Pass::backward_data ? "backward_data"
                                                                 : "backward_weights";
  return join_text(pass, " n", s.n, " ", s.h, "x", s.w, "x", s.c, " k", s.k, " ", s.r, "x", s.s, " ",
                   problem.activations, "/", problem.weights, problem.deterministic ? " exact" : "");
}

/// The operands of a convolution, y holding dy.
struct Operands {
  Tensor x, w, b, y;

  explicit Operands(const ConvProblem& problem) {
    const ConvShape& s = problem.shape;
    x = draw({s.n, s.h, s.w, s.c}, 1, problem.activations);
    w = draw({s.k, s.r, s.s, s.c / s.groups}, 2, problem.weights);
    b = draw({s.k}, 3, DType::f32);
    y = draw({s.n, s.p, s.q, s.k}, 4, problem.activations);
  }
  static Tensor draw(const Shape& shape, std::uint64_t seed, DType dtype) {
    Random random(seed, 0);
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (double& value : values) value = random.uniform(-1.0, 1.0);
    return Tensor::of<double>(shape, values).to(dtype);
  }
  const Tensor& result(Pass pass) const { return pass == Pass::forward ? y : pass == Pass::backward_data ? x : w; }
};

// Calls f(index of x, of w, of y) for every product of the convolution.
template <class F>
inline void each_product(const ConvShape& s, const F& f) {
  const std::int64_t kg = s.k / s.groups, cg = s.c / s.groups;
  for (std::int64_t y = 0; y < s.n * s.p * s.q; ++y)
    for (std::int64_t tap = 0; tap < s.r * s.s; ++tap) {
      const std::int64_t h = y / s.q % s.p * s.stride_h - s.pad_h + tap / s.s * s.dilation_h;
      const std::int64_t w = y % s.q * s.stride_w - s.pad_w + tap % s.s * s.dilation_w;
      if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
      const std::int64_t x = ((y / s.q / s.p * s.h + h) * s.w + w) * s.c;
      for (std::int64_t k = 0; k < s.k; ++k)
        for (std::int64_t c = 0; c < cg; ++c)
          f(static_cast<std::size_t>(x + k / kg * cg + c), static_cast<std::size_t>((k * s.r * s.s + tap) * cg + c),
            static_cast<std::size_t>(y * s.k + k));
    }
}

/// What a pass makes: y, dx or dw, and db.
struct Results {
  std::vector<double> main, db;
};

inline Results plain_loops(const ConvProblem& problem, const Operands& o) {
  const bool narrow = problem.activations == DType::bf16;
  const std::vector<double> x = o.x.to_doubles(), b = o.b.to_doubles(), y = o.y.to_doubles(),
                            w = (narrow ? o.w.to(DType::bf16) : o.w).to_doubles();
  Results r{std::vector<double>(static_cast<std::size_t>(o.result(problem.pass).size())), {}};
  switch (problem.pass) {
    case Pass::forward:
      for (std::size_t i = 0; i < r.main.size(); ++i) r.main[i] = b[i % b.size()];
      each_product(problem.shape, [&](auto i, auto j, auto to) { r.main[to] += x[i] * w[j]; });
      break;
    case Pass::backward_data:
      each_product(problem.shape, [&](auto to, auto j, auto i) { r.main[to] += y[i] * w[j]; });
      break;
    case Pass::backward_weights:
      each_product(problem.shape, [&](auto j, auto to, auto i) { r.main[to] += x[j] * y[i]; });
      r.db.resize(b.size());
      for (std::size_t i = 0; i < y.size(); ++i) r.db[i % b.size()] += y[i];
      break;
  }
  return r;
}

/// What the candidate makes, written over other numbers.
struct Made {
  Tensor main, db;
};

inline Made run(const Conv2dCandidate& candidate, ConvProblem problem, const Operands& o) {
  const Tensor& like = o.result(problem.pass);
  Made made{Tensor::full(like.shape(), 9, like.dtype()), Tensor::full(o.b.shape(), 9, DType::f32)};
  const bool gradient = problem.pass == Pass::backward_weights;
  if (problem.pass != Pass::backward_data) problem.bias = DType::f32;
  const Tensor none;
  candidate.run(problem, {problem.pass == Pass::backward_data ? made.main : o.x, gradient ? made.main : o.w,
                          gradient ? made.db : (problem.pass == Pass::forward ? o.b : none),
                          problem.pass == Pass::forward ? made.main : o.y});
  return made;
}

inline void expect_near(const Tensor& found, const std::vector<double>& expected, double tolerance,
                        const std::string& what) {
  const std::vector<double> values = found.to_doubles();
  ASSERT_EQ(values.size(), expected.size()) << what;
  double largest = 1.0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  const double unit = found.dtype() == DType::bf16 ? 0.0041 : 0.0;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance * largest + unit * std::abs(expected[i])) << what << " at " << i;
}

inline std::string bits_of(const Conv2dCandidate& candidate, const ConvProblem& problem, const Operands& o) {
  const Made made = run(candidate, problem, o);
  std::string bits;
  for (const Tensor& t : {made.main, made.db})
    bits.append(reinterpret_cast<const char*>(t.bytes()), static_cast<std::size_t>(t.size()) * size_of(t.dtype()));
  return bits;
}

/// Whether the candidate is the one to take, where those before it in the list do not.
inline bool takes(const Conv2dCandidate& candidate, const ConvShape& s, Pass pass, DType activations = DType::bf16) {
  const ConvProblem problem{.shape = s, .pass = pass, .activations = activations};
  return candidate.unsupported(problem).empty() && candidate.why_slower(problem).empty();
}

inline const Conv2dCandidate* const all_candidates[] = {
    &kernels::conv2d_matmul,   &kernels::conv2d_amx,       &kernels::conv2d_direct_bf16, &kernels::conv2d_paired_bf16,
    &kernels::conv2d_winograd, &kernels::conv2d_stem_bf16, &kernels::conv2d_unfolded,    &kernels::conv2d_onednn};

/// How often each candidate ran a pass.
using Runs = std::map<std::string, std::map<Pass, int>>;

/// Every candidate that supports the problem, in both modes.
inline void check_problem(ConvProblem problem, Runs& runs) {
  const Operands operands(problem);
  const Results expected = plain_loops(problem, operands);
  // The native product does not round f32 beside bf16.
  const bool rounds = cpu::dnn::unsupported({.m = 8, .n = 8, .k = 8, .a = DType::bf16}).empty();
  const double tolerance = problem.activations != problem.weights && !rounds ? 5e-3 : 2e-5;
  for (const bool deterministic : {false, true})
    for (const Conv2dCandidate* candidate : all_candidates) {
      problem.deterministic = deterministic;
      if (!candidate->unsupported(problem).empty()) continue;
      const std::string what = join_text(candidate->name, " ", text_of(problem));
      const Made made = run(*candidate, problem, operands);
      expect_near(made.main, expected.main, tolerance, what);
      if (problem.pass == Pass::backward_weights) expect_near(made.db, expected.db, 2e-5, what + " db");
      ++runs[candidate->name][problem.pass];
    }
}

struct Types {
  DType activations, weights;
};

inline Runs check_shapes(const std::vector<ConvShape>& shapes, const Types& types) {
  Runs runs;
  for (const ConvShape& s : shapes)
    for (const Pass pass : all_passes)
      check_problem({.shape = s, .pass = pass, .activations = types.activations, .weights = types.weights}, runs);
  return runs;
}

}  // namespace hearth::test::conv
