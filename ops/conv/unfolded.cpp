// SPDX-License-Identifier: Apache-2.0
// A convolution with few output pixels and many channels is bound by its filters, not by its arithmetic: copying them
// into the library's layout takes longer than using them. There the few pixels are unfolded instead (each output
// pixel's taps side by side, zeros where they fall outside), and the filters are read once, as they are stored, by a
// matrix product.
#include "ops/onednn/library.h"

#if HEARTH_HAS_DNNL

#include <cstring>

#include "core/cpu/scratch.h"
#include "ops/matmul/matmul_onednn.h"
#include "ops/onednn/convert.h"

namespace hearth::cpu::dnn {
namespace {

std::int64_t pixels_of(const ConvShape& s) { return s.n * s.p * s.q; }
std::int64_t taps_of(const ConvShape& s) { return s.r * s.s; }

MatmulProblem product_of(const ConvProblem& problem, Pass pass) {
  const ConvShape& s = problem.shape;
  const std::int64_t unfolded = taps_of(s) * s.c;
  MatmulProblem m;
  m.deterministic = problem.deterministic;
  switch (pass) {
    case Pass::forward:  // y[pixels, k] = x[pixels, taps c] w[k, taps c]^T
      m.m = pixels_of(s), m.n = s.k, m.k = unfolded, m.transpose_b = true;
      m.a = m.c = problem.activations, m.b = problem.weights;
      break;
    case Pass::backward_data:  // dx[pixels, taps c] = dy[pixels, k] w[k, taps c], kept in f32 until the taps are added
      m.m = pixels_of(s), m.n = unfolded, m.k = s.k;
      m.a = problem.activations, m.b = problem.weights, m.c = DType::f32;
      break;
    case Pass::backward_weights:  // dw[k, taps c] = dy[pixels, k]^T x[pixels, taps c]
      m.m = s.k, m.n = unfolded, m.k = pixels_of(s), m.transpose_a = true;
      m.a = m.b = problem.activations, m.c = problem.weights;
      break;
  }
  return m;
}

// x as [n p q, r s, c]: one task an output row.
const void* unfold(const ConvProblem& problem, const void* x, Scratch& scratch) {
  const ConvShape& s = problem.shape;
  const std::size_t bytes = static_cast<std::size_t>(s.c) * size_of(problem.activations);
  auto* unfolded =
      static_cast<std::byte*>(scratch.take_bytes(static_cast<std::size_t>(pixels_of(s) * taps_of(s)) * bytes));
  const auto* pixels = static_cast<const std::byte*>(x);
  parallel_for(s.n * s.p, 1, [&](std::int64_t begin, std::int64_t end) {
    std::byte* to = unfolded + static_cast<std::size_t>(begin * s.q * taps_of(s)) * bytes;
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t q = 0; q < s.q; ++q)
        for (std::int64_t tap = 0; tap < taps_of(s); ++tap, to += bytes) {
          const std::int64_t h = i % s.p * s.stride_h - s.pad_h + tap / s.s * s.dilation_h;
          const std::int64_t w = q * s.stride_w - s.pad_w + tap % s.s * s.dilation_w;
          if (h < 0 || h >= s.h || w < 0 || w >= s.w)
            std::memset(to, 0, bytes);
          else
            std::memcpy(to, pixels + static_cast<std::size_t>((i / s.p * s.h + h) * s.w + w) * bytes, bytes);
        }
  });
  return unfolded;
}

// The output position that sees input position `at` through `tap`, or -1.
std::int64_t position(std::int64_t at, std::int64_t tap, std::int64_t pad, std::int64_t stride, std::int64_t dilation,
                      std::int64_t extent) {
  const std::int64_t from = at + pad - tap * dilation;
  return from >= 0 && from % stride == 0 && from / stride < extent ? from / stride : -1;
}

// The taps of every input pixel, added in their order.
void fold(const ConvProblem& problem, const float* unfolded, void* dx) {
  const ConvShape& s = problem.shape;
  parallel_for(s.n * s.h, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch;
    float* sums = scratch.take<float>(s.w * s.c);
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill(sums, sums + s.w * s.c, 0.0f);
      for (std::int64_t w = 0; w < s.w; ++w)
        for (std::int64_t tap = 0; tap < taps_of(s); ++tap) {
          const std::int64_t p = position(i % s.h, tap / s.s, s.pad_h, s.stride_h, s.dilation_h, s.p);
          const std::int64_t q = position(w, tap % s.s, s.pad_w, s.stride_w, s.dilation_w, s.q);
          if (p < 0 || q < 0) continue;
          const float* from = unfolded + (((i / s.h * s.p + p) * s.q + q) * taps_of(s) + tap) * s.c;
          float* sum = sums + w * s.c;
          for (std::int64_t c = 0; c < s.c; ++c) sum[c] += from[c];
        }
      const std::int64_t row = i * s.w * s.c;
      convert(sums, DType::f32,
              static_cast<std::byte*>(dx) + static_cast<std::size_t>(row) * size_of(problem.activations),
              problem.activations, s.w * s.c);
    }
  });
}

}  // namespace

// Measured: f32 gains in every pass; in bf16 the data gradient does not, and the filter gradient does longer.
bool is_unfoldable(const ConvProblem& problem, Pass pass) {
  const ConvShape& s = problem.shape;
  const bool narrow = problem.activations != DType::f32;
  if (narrow && pass == Pass::backward_data) return false;
  const std::int64_t pixels = narrow && pass == Pass::backward_weights ? 512 : 128;
  return s.groups == 1 && pixels_of(s) <= pixels && s.k * s.c >= 128 * 128 && taps_of(s) <= 25;
}

std::string unfolded_implementation(const ConvProblem& problem, Pass pass) {
  const std::string name = implementation(product_of(problem, pass));
  return name.empty() ? name : "unfold:" + name;
}

void unfolded_forward(const ConvProblem& problem, const void* x, const void* w, const float* b, void* y) {
  Scratch scratch;
  matmul(product_of(problem, Pass::forward), unfold(problem, x, scratch), w, b, y);
}

void unfolded_backward_data(const ConvProblem& problem, const void* dy, const void* w, void* dx) {
  const ConvShape& s = problem.shape;
  Scratch scratch;
  float* unfolded = scratch.take<float>(pixels_of(s) * taps_of(s) * s.c);
  matmul(product_of(problem, Pass::backward_data), dy, w, nullptr, unfolded);
  fold(problem, unfolded, dx);
}

void unfolded_backward_weights(const ConvProblem& problem, const void* x, const void* dy, void* dw, float* db) {
  const ConvShape& s = problem.shape;
  Scratch scratch;
  matmul(product_of(problem, Pass::backward_weights), dy, unfold(problem, x, scratch), nullptr, dw);
  if (db) sum_rows(dy, problem.activations, pixels_of(s), s.k, db);
}

}  // namespace hearth::cpu::dnn

#endif
