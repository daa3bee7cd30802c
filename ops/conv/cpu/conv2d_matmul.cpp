// SPDX-License-Identifier: Apache-2.0
// A convolution with 1x1 filters is a matrix product of the pixels by the filters as they are stored: no copy of the
// filters into a blocked layout, which costs as much as the arithmetic where images are small. With strides the
// pixels that matter are gathered first.
#include <cstring>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/matmul/cpu/matmul_cpu.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/onednn.h"
#include "ops/scratch.h"

namespace hearth::kernels {
namespace {

MatmulProblem pixel_product(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  const std::int64_t pixels = s.n * s.p * s.q;
  MatmulProblem m;
  m.deterministic = problem.deterministic;
  m.has_bias = problem.pass == Pass::forward && problem.bias.has_value();
  switch (problem.pass) {
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
  cpu::parallel_for(s.n * s.p, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / s.p * s.h + i % s.p * s.stride_h;
      for (std::int64_t q = 0; q < s.q; ++q)
        std::memcpy(kept + static_cast<std::size_t>(i * s.q + q) * pixel_bytes,
                    x + static_cast<std::size_t>(row * s.w + q * s.stride_w) * pixel_bytes, pixel_bytes);
    }
  });
}

// The inverse: pixels that y has not become zero, or stay.
void scatter(const ConvShape& s, std::size_t pixel_bytes, const std::byte* kept, std::byte* x, bool stay) {
  cpu::parallel_for(s.n * s.h, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / s.h, row = i % s.h, p = row / s.stride_h;
      std::byte* to = x + static_cast<std::size_t>(i * s.w) * pixel_bytes;
      const bool kept_row = row % s.stride_h == 0 && p < s.p;
      for (std::int64_t w = 0; w < s.w; ++w, to += pixel_bytes) {
        const std::int64_t q = w / s.stride_w;
        if (kept_row && w % s.stride_w == 0 && q < s.q)
          std::memcpy(to, kept + static_cast<std::size_t>((image * s.p + p) * s.q + q) * pixel_bytes, pixel_bytes);
        else if (!stay)
          std::memset(to, 0, pixel_bytes);
      }
    }
  });
}

std::size_t pixel_bytes(const ConvProblem& problem) {
  return static_cast<std::size_t>(problem.shape.c) * size_of(problem.activations);
}

// Memory for the pixels of x that y has.
void* take_pixels(const ConvProblem& problem, cpu::Scratch& scratch) {
  const ConvShape& s = problem.shape;
  return scratch.take_bytes(static_cast<std::size_t>(s.n * s.p * s.q) * pixel_bytes(problem));
}

const void* pixels_of(const ConvProblem& problem, const Tensor& x, cpu::Scratch& scratch) {
  if (is_dense(problem.shape)) return x.bytes();
  void* kept = take_pixels(problem, scratch);
  gather(problem.shape, pixel_bytes(problem), x.bytes(), static_cast<std::byte*>(kept));
  return kept;
}

std::string matmul_unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (s.r != 1 || s.s != 1) return join_text("filters of ", s.r, "x", s.s, ", not of one pixel");
  if (s.groups != 1) return join_text(s.groups, " groups");
  if (s.pad_h != 0 || s.pad_w != 0 || (s.p - 1) * s.stride_h >= s.h || (s.q - 1) * s.stride_w >= s.w)
    return "pixels of padding";
  return "";
}

// Nearly always the faster way; the f32 product with transposed filters of many channels is the one that the library
// does slower than a convolution.
std::string matmul_why_slower(const ConvProblem& problem) {
  if (!cpu::dnn::available()) return "";
  if (cpu::is_left_to_gemm(pixel_product(problem))) return "a product that the library does not take";
  const ConvShape& s = problem.shape;
  const bool strided = s.stride_h > 1 || s.stride_w > 1;
  if (problem.pass != Pass::forward || problem.activations != DType::f32 || strided) return "";
  return s.c <= 256 || s.n * s.p * s.q <= 256 ? "" : "many pixels of many f32 channels";
}

void run_matmul(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  MatmulProblem product = pixel_product(problem);
  product.accumulate = o.accumulate;
  cpu::Scratch scratch;
  switch (problem.pass) {
    case Pass::forward:
      return cpu::matmul(product, pixels_of(problem, o.x, scratch), o.w.bytes(),
                         o.b.defined() ? o.b.data<float>() : nullptr, o.y.bytes());
    case Pass::backward_data: {
      if (is_dense(s)) return cpu::matmul(product, o.y.bytes(), o.w.bytes(), nullptr, o.x.bytes());
      auto* const kept = static_cast<std::byte*>(take_pixels(problem, scratch));
      if (o.accumulate) gather(s, pixel_bytes(problem), o.x.bytes(), kept);
      cpu::matmul(product, o.y.bytes(), o.w.bytes(), nullptr, kept);
      return scatter(s, pixel_bytes(problem), kept, o.x.bytes(), o.accumulate);
    }
    case Pass::backward_weights:
      cpu::matmul(product, o.y.bytes(), pixels_of(problem, o.x, scratch), nullptr, o.w.bytes());
      if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), problem.activations, s.n * s.p * s.q, s.k, o.b.data<float>());
  }
}

}  // namespace

const Conv2dCandidate conv2d_matmul{"matmul", matmul_unsupported, run_matmul, nullptr, matmul_why_slower};

}  // namespace hearth::kernels
