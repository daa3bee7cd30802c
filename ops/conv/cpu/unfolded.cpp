// SPDX-License-Identifier: Apache-2.0
// A convolution with few output pixels and many channels is bound by its filters, not by its arithmetic: copying them
// into the library's layout takes longer than using them. There the few pixels are unfolded instead (each output
// pixel's taps side by side, zeros where they fall outside), and the filters are read once, as they are stored, by a
// matrix product.
// Reference: conv2d_cpu.cpp.
#include <algorithm>
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

std::int64_t output_pixels(const ConvShape& s) { return s.n * s.p * s.q; }
std::int64_t taps_of(const ConvShape& s) { return s.r * s.s; }

MatmulProblem unfolded_product(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  const std::int64_t unfolded = taps_of(s) * s.c;
  MatmulProblem m;
  m.deterministic = problem.deterministic;
  m.has_bias = problem.pass == Pass::forward && problem.bias.has_value();
  switch (problem.pass) {
    case Pass::forward:  // y[pixels, k] = x[pixels, taps c] w[k, taps c]^T
      m.m = output_pixels(s), m.n = s.k, m.k = unfolded, m.transpose_b = true;
      m.a = m.c = problem.activations, m.b = problem.weights;
      break;
    case Pass::backward_data:  // dx[pixels, taps c] = dy[pixels, k] w[k, taps c], kept in f32 until the taps are added
      m.m = output_pixels(s), m.n = unfolded, m.k = s.k;
      m.a = problem.activations, m.b = problem.weights, m.c = DType::f32;
      break;
    case Pass::backward_weights:  // dw[k, taps c] = dy[pixels, k]^T x[pixels, taps c]
      m.m = s.k, m.n = unfolded, m.k = output_pixels(s), m.transpose_a = true;
      m.a = m.b = problem.activations, m.c = problem.weights;
      break;
  }
  return m;
}

// x as [n p q, r s, c]: one task an output row.
const void* unfold(const ConvProblem& problem, const std::byte* x, cpu::Scratch& scratch) {
  const ConvShape& s = problem.shape;
  const std::size_t bytes = static_cast<std::size_t>(s.c) * size_of(problem.activations);
  auto* unfolded =
      static_cast<std::byte*>(scratch.take_bytes(static_cast<std::size_t>(output_pixels(s) * taps_of(s)) * bytes));
  cpu::parallel_for(s.n * s.p, 1, [&](std::int64_t begin, std::int64_t end) {
    std::byte* to = unfolded + static_cast<std::size_t>(begin * s.q * taps_of(s)) * bytes;
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t q = 0; q < s.q; ++q)
        for (std::int64_t tap = 0; tap < taps_of(s); ++tap, to += bytes) {
          const std::int64_t h = i % s.p * s.stride_h - s.pad_h + tap / s.s * s.dilation_h;
          const std::int64_t w = q * s.stride_w - s.pad_w + tap % s.s * s.dilation_w;
          if (h < 0 || h >= s.h || w < 0 || w >= s.w)
            std::memset(to, 0, bytes);
          else
            std::memcpy(to, x + static_cast<std::size_t>((i / s.p * s.h + h) * s.w + w) * bytes, bytes);
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
void fold(const ConvProblem& problem, const float* unfolded, std::byte* dx) {
  const ConvShape& s = problem.shape;
  cpu::parallel_for(s.n * s.h, 1, [&](std::int64_t begin, std::int64_t end) {
    cpu::Scratch scratch;
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
      cpu::dnn::convert(sums, DType::f32, dx + static_cast<std::size_t>(row) * size_of(problem.activations),
                        problem.activations, s.w * s.c);
    }
  });
}

std::string unfolded_unsupported(const ConvProblem& problem) {
  return problem.shape.groups == 1 ? "" : join_text(problem.shape.groups, " groups");
}

// Measured: f32 gains in every pass; in bf16 the data gradient does not, and the filter gradient does longer.
std::string unfolded_why_slower(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  const bool narrow = problem.activations != DType::f32;
  if (narrow && problem.pass == Pass::backward_data) return "a data gradient in bf16";
  const std::int64_t pixels = narrow && problem.pass == Pass::backward_weights ? 512 : 128;
  if (output_pixels(s) > pixels) return join_text(output_pixels(s), " pixels, more than ", pixels);
  if (s.k * s.c < 128 * 128 || taps_of(s) > 25) return "few filters or many taps";
  const bool left = cpu::dnn::available() && cpu::is_left_to_gemm(unfolded_product(problem));
  return left ? "a product that the library does not take" : "";
}

void run_unfolded(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  const MatmulProblem product = unfolded_product(problem);
  cpu::Scratch scratch;
  switch (problem.pass) {
    case Pass::forward:
      return cpu::matmul(product, unfold(problem, o.x.bytes(), scratch), o.w.bytes(),
                         o.b.defined() ? o.b.data<float>() : nullptr, o.y.bytes());
    case Pass::backward_data: {
      float* unfolded = scratch.take<float>(output_pixels(s) * taps_of(s) * s.c);
      cpu::matmul(product, o.y.bytes(), o.w.bytes(), nullptr, unfolded);
      return fold(problem, unfolded, o.x.bytes());
    }
    case Pass::backward_weights:
      cpu::matmul(product, o.y.bytes(), unfold(problem, o.x.bytes(), scratch), nullptr, o.w.bytes());
      if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), problem.activations, output_pixels(s), s.k, o.b.data<float>());
  }
}

}  // namespace

const Conv2dCandidate conv2d_unfolded{"unfolded", unfolded_unsupported, run_unfolded, nullptr, unfolded_why_slower};

}  // namespace hearth::kernels
