// SPDX-License-Identifier: Apache-2.0
// A convolution with 1x1 filters is a matrix product of the pixels by the filters as they are stored: no copy of the
// filters into a blocked layout, which costs as much as the arithmetic where images are small. With strides the
// pixels that matter are gathered first.
#include "ops/onednn/library.h"

#if HEARTH_HAS_DNNL

#include <cstring>

#include "core/cpu/scratch.h"
#include "ops/matmul/matmul_onednn.h"
#include "ops/onednn/convert.h"

namespace hearth::cpu::dnn {
namespace {

MatmulProblem product_of(const ConvProblem& problem, Pass pass) {
  const ConvShape& s = problem.shape;
  const std::int64_t pixels = s.n * s.p * s.q;
  MatmulProblem m;
  m.deterministic = problem.deterministic;
  switch (pass) {
    case Pass::forward:  // y[pixels, k] = x[pixels, c] w[k, c]^T
      m.m = pixels, m.n = s.k, m.k = s.c, m.transpose_b = true;
      m.a = m.c = problem.activations, m.b = problem.weights;
      break;
    case Pass::backward_data:  // dx[pixels, c] = dy[pixels, k] w[k, c]
      m.m = pixels, m.n = s.c, m.k = s.k;
      m.a = m.c = problem.activations, m.b = problem.weights;
      break;
    case Pass::backward_weights:  // dw[k, c] = dy[pixels, k]^T x[pixels, c]
      m.m = s.k, m.n = s.c, m.k = pixels, m.transpose_a = true;
      m.a = m.b = problem.activations, m.c = problem.weights;
      break;
  }
  return m;
}

bool is_dense(const ConvShape& s) { return s.stride_h == 1 && s.stride_w == 1 && s.p == s.h && s.q == s.w; }

// The pixels of x that y has, [n, p, q, c].
void gather(const ConvShape& s, std::size_t pixel_bytes, const std::byte* x, std::byte* kept) {
  parallel_for(s.n * s.p, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / s.p * s.h + i % s.p * s.stride_h;
      for (std::int64_t q = 0; q < s.q; ++q)
        std::memcpy(kept + static_cast<std::size_t>(i * s.q + q) * pixel_bytes,
                    x + static_cast<std::size_t>(row * s.w + q * s.stride_w) * pixel_bytes, pixel_bytes);
    }
  });
}

// The inverse: pixels that y has not become zero.
void scatter(const ConvShape& s, std::size_t pixel_bytes, const std::byte* kept, std::byte* x) {
  parallel_for(s.n * s.h, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / s.h, row = i % s.h, p = row / s.stride_h;
      std::byte* to = x + static_cast<std::size_t>(i * s.w) * pixel_bytes;
      const bool kept_row = row % s.stride_h == 0 && p < s.p;
      for (std::int64_t w = 0; w < s.w; ++w, to += pixel_bytes) {
        const std::int64_t q = w / s.stride_w;
        if (kept_row && w % s.stride_w == 0 && q < s.q)
          std::memcpy(to, kept + static_cast<std::size_t>((image * s.p + p) * s.q + q) * pixel_bytes, pixel_bytes);
        else
          std::memset(to, 0, pixel_bytes);
      }
    }
  });
}

std::size_t pixel_bytes(const ConvProblem& problem) {
  return static_cast<std::size_t>(problem.shape.c) * size_of(problem.activations);
}

void* take_pixels(const ConvProblem& problem, Scratch& scratch) {
  const ConvShape& s = problem.shape;
  return scratch.take_bytes(static_cast<std::size_t>(s.n * s.p * s.q) * pixel_bytes(problem));
}

const void* pixels_of(const ConvProblem& problem, const void* x, Scratch& scratch) {
  if (is_dense(problem.shape)) return x;
  void* kept = take_pixels(problem, scratch);
  gather(problem.shape, pixel_bytes(problem), static_cast<const std::byte*>(x), static_cast<std::byte*>(kept));
  return kept;
}

}  // namespace

bool is_pointwise(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  return s.r == 1 && s.s == 1 && s.groups == 1 && s.pad_h == 0 && s.pad_w == 0 && (s.p - 1) * s.stride_h < s.h &&
         (s.q - 1) * s.stride_w < s.w;
}

std::string pointwise_implementation(const ConvProblem& problem, Pass pass) {
  const std::string name = implementation(product_of(problem, pass));
  return name.empty() ? name : "matmul:" + name;
}

void pointwise_forward(const ConvProblem& problem, const void* x, const void* w, const float* b, void* y) {
  Scratch scratch;
  matmul(product_of(problem, Pass::forward), pixels_of(problem, x, scratch), w, b, y);
}

void pointwise_backward_data(const ConvProblem& problem, const void* dy, const void* w, void* dx) {
  if (is_dense(problem.shape)) {
    matmul(product_of(problem, Pass::backward_data), dy, w, nullptr, dx);
    return;
  }
  Scratch scratch;
  void* kept = take_pixels(problem, scratch);
  matmul(product_of(problem, Pass::backward_data), dy, w, nullptr, kept);
  scatter(problem.shape, pixel_bytes(problem), static_cast<const std::byte*>(kept), static_cast<std::byte*>(dx));
}

void pointwise_backward_weights(const ConvProblem& problem, const void* x, const void* dy, void* dw, float* db) {
  const ConvShape& s = problem.shape;
  Scratch scratch;
  matmul(product_of(problem, Pass::backward_weights), dy, pixels_of(problem, x, scratch), nullptr, dw);
  if (db) sum_rows(dy, problem.activations, s.n * s.p * s.q, s.k, db);
}

}  // namespace hearth::cpu::dnn

#endif
