// SPDX-License-Identifier: Apache-2.0
// Convolutions of small images in bf16 with f32 sums. The library multiplies the padding too, which of images of 2x2
// is 5 of 9 products; here one pixel of eight images is summed at a time over the taps that fall inside, so that
// nothing else is multiplied. Both operands are first copied, so that the sum over the channels of a tap, two
// neighbours at a time as the processor's bf16 instruction has it, runs through dense memory:
//
//   images: [n / 8, h, w, channels / 2, 8] and filters: [outputs / 32, taps, channels / 2, 32], each element two bf16,
//
// where channels are those summed over and outputs those of the result: c and k forward, k and c for the data gradient.
// Reference: conv2d_cpu.cpp.
#include <algorithm>
#include <vector>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/half.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/onednn/pack.h"
#include "ops/scratch.h"

#if HEARTH_BF16_VECTORS
#include <immintrin.h>
#endif

namespace hearth::kernels {

#if HEARTH_BF16_VECTORS

namespace {

constexpr std::int64_t tile_images = 8, tile_outputs = 32;

// Where one tap of one pixel begins in the copies of filters and images, in elements of them.
struct Segment {
  std::int64_t filters, images;
};

// Where the results of a tile go: 32 outputs of each of `images` images.
struct Result {
  bf16* data;
  std::int64_t stride, images;
};

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

// One pixel of eight images by 32 outputs: 16 sums of 16 lanes in registers, over all segments of `length` elements.
void sum_segments(const std::uint32_t* filters, const std::uint32_t* images, const Segment* segments,
                  std::int64_t count, std::int64_t length, const float* bias, const Result& result) {
  __m512 sums[tile_images][2];
  for (std::int64_t half = 0; half < 2; ++half) {
    const __m512 first = bias ? _mm512_loadu_ps(bias + 16 * half) : _mm512_setzero_ps();
    for (std::int64_t image = 0; image < tile_images; ++image) sums[image][half] = first;
  }
  for (std::int64_t segment = 0; segment < count; ++segment) {
    const std::uint32_t* w = filters + segments[segment].filters;
    const std::uint32_t* x = images + segments[segment].images;
    for (std::int64_t i = 0; i < length; ++i, w += tile_outputs, x += tile_images) {
      const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w));
      const auto high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + 16));
#pragma GCC unroll 8
      for (std::int64_t image = 0; image < tile_images; ++image) {
        const auto one = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x[image])));
        sums[image][0] = _mm512_dpbf16_ps(sums[image][0], low, one);
        sums[image][1] = _mm512_dpbf16_ps(sums[image][1], high, one);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t image = 0; image < tile_images; ++image) {
    if (image >= result.images) return;
    const auto narrow = _mm512_cvtne2ps_pbh(sums[image][1], sums[image][0]);
    _mm512_storeu_si512(result.data + image * result.stride, reinterpret_cast<__m512i>(narrow));
  }
}

#pragma GCC pop_options

// A convolution as the kernel sees it, in either direction.
struct Sides {
  std::int64_t in_h, in_w, channels;   // what is summed over
  std::int64_t out_h, out_w, outputs;  // the result
};

Sides sides_of(const ConvShape& s, Pass pass) {
  if (pass == Pass::forward) return {s.h, s.w, s.c, s.p, s.q, s.k};
  return {s.p, s.q, s.k, s.h, s.w, s.c};
}

// The input position that a tap of an output position reads, or -1.
std::int64_t forward_position(std::int64_t out, std::int64_t tap, std::int64_t stride, std::int64_t pad,
                              std::int64_t dilation, std::int64_t in) {
  const std::int64_t position = out * stride - pad + tap * dilation;
  return position >= 0 && position < in ? position : -1;
}
std::int64_t backward_position(std::int64_t out, std::int64_t tap, std::int64_t stride, std::int64_t pad,
                               std::int64_t dilation, std::int64_t in) {
  const std::int64_t position = out + pad - tap * dilation;
  return position >= 0 && position % stride == 0 && position / stride < in ? position / stride : -1;
}

// The taps of one output pixel that fall inside. Room for all taps is at `segments`.
std::int64_t list_segments(const ConvShape& s, Pass pass, std::int64_t i, std::int64_t j, Segment* segments) {
  const Sides sides = sides_of(s, pass);
  const auto position = pass == Pass::forward ? forward_position : backward_position;
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < s.r; ++r) {
    const std::int64_t h = position(i, r, s.stride_h, s.pad_h, s.dilation_h, sides.in_h);
    if (h < 0) continue;
    for (std::int64_t t = 0; t < s.s; ++t) {
      const std::int64_t w = position(j, t, s.stride_w, s.pad_w, s.dilation_w, sides.in_w);
      if (w < 0) continue;
      segments[count++] = {(r * s.s + t) * sides.channels / 2 * tile_outputs,
                           (h * sides.in_w + w) * sides.channels / 2 * tile_images};
    }
  }
  return count;
}

cpu::dnn::FilterBlocks layout_of_images(const ConvShape& s, const Sides& sides) {
  cpu::dnn::FilterBlocks b{.k = s.n, .r = sides.in_h, .s = sides.in_w, .c = sides.channels};
  b.unit = cpu::dnn::FilterBlocks::Unit::pair_of_c;
  b.k_runs_fastest = true;
  b.block_k = tile_images, b.block_c = 2;
  b.stride_c = 2 * tile_images;
  b.stride_s = sides.channels * tile_images;
  b.stride_r = sides.in_w * b.stride_s;
  b.stride_k = sides.in_h * b.stride_r;
  return b;
}

cpu::dnn::FilterBlocks layout_of_filters(const ConvShape& s, Pass pass, const Sides& sides) {
  cpu::dnn::FilterBlocks b{.k = s.k, .r = s.r, .s = s.s, .c = s.c};
  b.stride_s = sides.channels * tile_outputs;
  b.stride_r = s.s * b.stride_s;
  if (pass == Pass::forward) {
    b.unit = cpu::dnn::FilterBlocks::Unit::pair_of_c;
    b.k_runs_fastest = true;
    b.block_k = tile_outputs, b.block_c = 2;
    b.stride_c = 2 * tile_outputs, b.stride_k = s.r * b.stride_r;
  } else {
    b.unit = cpu::dnn::FilterBlocks::Unit::pair_of_k;
    b.block_k = 16, b.block_c = tile_outputs;
    b.stride_k = 16 * tile_outputs, b.stride_c = s.r * b.stride_r;
  }
  return b;
}

void run_direct_bf16(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  const Pass pass = problem.pass;
  const Tensor& in = pass == Pass::forward ? o.x : o.y;
  bf16* out = (pass == Pass::forward ? o.y : o.x).data<bf16>();
  const float* bias = o.b.defined() ? o.b.data<float>() : nullptr;
  const Sides sides = sides_of(s, pass);
  const std::int64_t taps = s.r * s.s, blocks = (s.n + tile_images - 1) / tile_images;
  const std::int64_t block_size = sides.in_h * sides.in_w * sides.channels / 2 * tile_images;
  const std::int64_t filter_size = taps * sides.channels / 2 * tile_outputs;
  cpu::Scratch scratch;
  auto* images = scratch.take<std::uint32_t>(blocks * block_size);
  auto* filters = scratch.take<std::uint32_t>(sides.outputs / tile_outputs * filter_size);
  cpu::dnn::pack_filters(layout_of_images(s, sides), in.bytes(), DType::bf16, images);
  cpu::dnn::pack_filters(layout_of_filters(s, pass, sides), o.w.bytes(), problem.weights, filters);
  // A task is one row of pixels by one tile of outputs; neighbouring tasks share the filters.
  cpu::parallel_chunks(sides.outputs / tile_outputs * sides.out_h, [&](std::int64_t task) {
    cpu::Scratch own;
    auto* segments = own.take<Segment>(taps);
    const std::int64_t tile = task / sides.out_h, i = task % sides.out_h;
    for (std::int64_t j = 0; j < sides.out_w; ++j) {
      const std::int64_t count = list_segments(s, pass, i, j, segments);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * tile_images;
        const std::int64_t pixel = (first * sides.out_h + i) * sides.out_w + j;
        const Result result{out + pixel * sides.outputs + tile * tile_outputs,
                            sides.out_h * sides.out_w * sides.outputs, std::min(tile_images, s.n - first)};
        sum_segments(filters + tile * filter_size, images + block * block_size, segments, count, sides.channels / 2,
                     bias ? bias + tile * tile_outputs : nullptr, result);
      }
    }
  });
}

std::string direct_bf16_unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  const Sides sides = sides_of(s, problem.pass);
  if (problem.pass == Pass::backward_weights) return "a filter gradient";
  if (problem.activations != DType::bf16) return join_text("images of ", problem.activations, ", not bf16");
  if (s.groups != 1) return join_text(s.groups, " groups");
  if (sides.channels % 16 != 0 || sides.outputs % tile_outputs != 0)
    return join_text(sides.channels, " channels summed to ", sides.outputs, ", not multiples of 16 and ", tile_outputs);
  return cpu::amx::bf16_vectors_unsupported();
}

std::string direct_bf16_why_slower(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (cpu::amx::unsupported().empty()) return "matrix tiles are many times as fast";
  if (s.r * s.s == 1) return "filters of one pixel";
  if ((s.n + tile_images - 1) / tile_images * tile_images * 8 > s.n * 9) return "a last block of images mostly empty";
  // Measured for batches of 8 to 128: 1.1 to 3 times as fast as the library below these sizes, slower above.
  const Sides sides = sides_of(s, problem.pass);
  const std::int64_t pixels = sides.out_h * sides.out_w, filters = s.k * s.c;
  const bool small = problem.pass == Pass::forward
                         ? pixels <= 49 && filters >= 128 * 128
                         : (pixels <= 64 && filters >= 128 * 128) || (pixels <= 196 && filters >= 256 * 256);
  return small ? "" : "large images or few filters";
}

}  // namespace

const Conv2dCandidate conv2d_direct_bf16{"direct_bf16", direct_bf16_unsupported, run_direct_bf16, nullptr,
                                         direct_bf16_why_slower};

#else

const Conv2dCandidate conv2d_direct_bf16{
    "direct_bf16", [](const ConvProblem&) { return std::string("this build is not by GCC for x86-64"); },
    [](const ConvProblem&, const Conv2dOperands&) {}};

#endif

}  // namespace hearth::kernels
