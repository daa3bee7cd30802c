// SPDX-License-Identifier: Apache-2.0
// dw[k, r, s, c] = sum over images and pixels of dy[n, p, q, k] x[n, p + r, q + s, c], in bf16 with f32 sums. The
// processor's bf16 instruction adds the products of two neighbours, so what is summed over must come in pairs: here
// pairs of images, because every tap shifts both alike. x and dy are first copied to
//
//   x: [c / 32, h, w, pairs, 32] and dy: [k / 8, p, q, pairs, 8], each element two bf16 values,
//
// so that for one tap and one row of pixels a tile of 8 filters by 32 channels reads both without a jump, and the
// pixels that a tap sees of the padding are never multiplied: 5 of 9 for images of 2x2. Traffic: x and dy are read
// once and their copies written and read in caches; a large batch goes in chunks whose copy of x stays near 3 MB.
#include <algorithm>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/half.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/onednn/convert.h"
#include "ops/scratch.h"

#if HEARTH_BF16_VECTORS
#include <immintrin.h>
#endif

namespace hearth::kernels {

#if HEARTH_BF16_VECTORS

namespace {

constexpr std::int64_t tile_c = 32, tile_k = 8;
// Elements between tiles beyond their size. Without it tiles lie powers of two apart, so that copying a pixel into all
// its tiles evicts its own cache lines.
constexpr std::int64_t tile_gap = 48;

// A tensor of pixels [n, pixels, channels] and its paired copy of one chunk.
struct Pixels {
  const bf16* data;
  std::int64_t pixels, channels, tile;
  std::uint32_t* paired;
};

struct Chunk {
  std::int64_t first_image, pairs, images;  // images: of the whole batch
};

std::int64_t tile_stride(const Pixels& t, std::int64_t pairs) { return t.pixels * pairs * t.tile + tile_gap; }

// The pixels that one tap multiplies: `rows` of x and dy; a row is `pieces` runs of `length` pairs; dy is dense in a
// row, x jumps `x_jump` elements from piece to piece.
struct Walk {
  std::int64_t rows = 0, pieces = 0, length = 0;
  std::int64_t x_row = 0, dy_row = 0, x_jump = 0;
  std::int64_t x_begin = 0, dy_begin = 0;  // elements
};

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

inline __m256i widened(const bf16* from) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// `high` may be null: zeros.
template <std::int64_t tile>
void pair_tile(const bf16* low, const bf16* high, std::uint32_t* to) {
  for (std::int64_t i = 0; i < tile; i += 8) {
    const __m256i second = high ? _mm256_slli_epi32(widened(high + i), 16) : _mm256_setzero_si256();
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_or_si256(widened(low + i), second));
  }
}

// Copies pixels [begin, end) of all images of the chunk; the partner of an odd last image is zero.
template <std::int64_t tile>
void pair_pixels(const Pixels& t, const Chunk& chunk, std::int64_t begin, std::int64_t end) {
  const std::int64_t stride = tile_stride(t, chunk.pairs);
  for (std::int64_t pixel = begin; pixel < end; ++pixel)
    for (std::int64_t pair = 0; pair < chunk.pairs; ++pair) {
      const std::int64_t image = chunk.first_image + 2 * pair;
      const bf16* low = t.data + (image * t.pixels + pixel) * t.channels;
      const bf16* high = image + 1 < chunk.images ? low + t.pixels * t.channels : nullptr;
      std::uint32_t* to = t.paired + (pixel * chunk.pairs + pair) * tile;
      for (std::int64_t c = 0; c < t.channels; c += tile, to += stride)
        pair_tile<tile>(low + c, high ? high + c : nullptr, to);
    }
}

// One tap of one tile: 16 sums of 16 lanes in registers over all pixels of the chunk. The rows of dw lie `stride`
// elements apart.
void sum_tile(const std::uint32_t* x, const std::uint32_t* dy, const Walk& walk, bool add, float* dw,
              std::int64_t stride) {
  __m512 sums[tile_k][2];
  for (std::int64_t k = 0; k < tile_k; ++k)
    for (std::int64_t half = 0; half < 2; ++half)
      sums[k][half] = add ? _mm512_loadu_ps(dw + k * stride + 16 * half) : _mm512_setzero_ps();
  for (std::int64_t row = 0; row < walk.rows; ++row) {
    const std::uint32_t* from_x = x + walk.x_begin + row * walk.x_row;
    const std::uint32_t* from_dy = dy + walk.dy_begin + row * walk.dy_row;
    for (std::int64_t piece = 0; piece < walk.pieces; ++piece, from_x += walk.x_jump)
      for (std::int64_t i = 0; i < walk.length; ++i, from_x += tile_c, from_dy += tile_k) {
        const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(from_x));
        const auto high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(from_x + 16));
#pragma GCC unroll 8
        for (std::int64_t k = 0; k < tile_k; ++k) {
          const auto one = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(from_dy[k])));
          sums[k][0] = _mm512_dpbf16_ps(sums[k][0], low, one);
          sums[k][1] = _mm512_dpbf16_ps(sums[k][1], high, one);
        }
      }
  }
  for (std::int64_t k = 0; k < tile_k; ++k)
    for (std::int64_t half = 0; half < 2; ++half) _mm512_storeu_ps(dw + k * stride + 16 * half, sums[k][half]);
}

#pragma GCC pop_options

void pair_chunk(const Pixels& x, const Pixels& dy, const Chunk& chunk) {
  constexpr std::int64_t elements = 16384;  // of a task
  const auto grain = [&](const Pixels& t) { return std::max<std::int64_t>(1, elements / (t.channels * chunk.pairs)); };
  const auto tasks = [&](const Pixels& t) { return (t.pixels + grain(t) - 1) / grain(t); };
  const std::int64_t tasks_x = tasks(x);
  cpu::parallel_chunks(tasks_x + tasks(dy), [&](std::int64_t i) {
    if (i < tasks_x)
      pair_pixels<tile_c>(x, chunk, i * grain(x), std::min(x.pixels, (i + 1) * grain(x)));
    else
      pair_pixels<tile_k>(dy, chunk, (i - tasks_x) * grain(dy), std::min(dy.pixels, (i - tasks_x + 1) * grain(dy)));
  });
}

// Output positions [begin, end) whose input position, output * stride + offset, lies in [0, in).
struct Range {
  std::int64_t begin, end;
};

Range inside(std::int64_t offset, std::int64_t stride, std::int64_t in, std::int64_t out) {
  const std::int64_t begin = offset < 0 ? (stride - 1 - offset) / stride : 0;
  const std::int64_t end = offset < in ? std::min(out, (in - 1 - offset) / stride + 1) : 0;
  return {begin, std::max(begin, end)};
}

Walk walk_of(const ConvShape& s, std::int64_t tap, std::int64_t pairs) {
  const std::int64_t down = tap / s.s * s.dilation_h - s.pad_h, right = tap % s.s * s.dilation_w - s.pad_w;
  const Range p = inside(down, s.stride_h, s.h, s.p), q = inside(right, s.stride_w, s.w, s.q);
  Walk walk;
  if (p.begin == p.end || q.begin == q.end) return walk;
  walk.rows = p.end - p.begin;
  walk.pieces = s.stride_w == 1 ? 1 : q.end - q.begin;
  walk.length = s.stride_w == 1 ? (q.end - q.begin) * pairs : pairs;
  walk.x_row = s.stride_h * s.w * pairs * tile_c;
  walk.dy_row = s.q * pairs * tile_k;
  walk.x_jump = (s.stride_w - 1) * pairs * tile_c;
  walk.x_begin = ((p.begin * s.stride_h + down) * s.w + q.begin * s.stride_w + right) * pairs * tile_c;
  walk.dy_begin = (p.begin * s.q + q.begin) * pairs * tile_k;
  return walk;
}

// Pairs of images of a chunk: as many as keep the copy of x near 3 MB, in chunks of like size.
std::int64_t pairs_of_chunk(const ConvShape& s) {
  constexpr std::int64_t bytes = 3 << 20;
  const std::int64_t pairs = (s.n + 1) / 2;
  const std::int64_t most = std::max<std::int64_t>(1, bytes / (s.h * s.w * s.c * 4));
  const std::int64_t chunks = (pairs + most - 1) / most;
  return (pairs + chunks - 1) / chunks;
}

void sum_chunk(const ConvShape& s, const Pixels& x, const Pixels& dy, const Chunk& chunk, float* dw) {
  const std::int64_t taps = s.r * s.s, tiles_k = s.k / tile_k, tiles_c = s.c / tile_c;
  // Neighbouring tasks share their tile of x, the larger of the two.
  cpu::parallel_chunks(tiles_c * tiles_k, [&](std::int64_t i) {
    const std::int64_t c = i / tiles_k, k = i % tiles_k;
    const std::uint32_t* tile_of_x = x.paired + c * tile_stride(x, chunk.pairs);
    const std::uint32_t* tile_of_dy = dy.paired + k * tile_stride(dy, chunk.pairs);
    for (std::int64_t tap = 0; tap < taps; ++tap)
      sum_tile(tile_of_x, tile_of_dy, walk_of(s, tap, chunk.pairs), chunk.first_image > 0,
               dw + (k * tile_k * taps + tap) * s.c + c * tile_c, taps * s.c);
  });
}

std::string paired_bf16_unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.pass != Pass::backward_weights) return "not a filter gradient";
  if (problem.activations != DType::bf16) return join_text("images of ", problem.activations, ", not bf16");
  if (s.groups != 1) return join_text(s.groups, " groups");
  if (s.c % tile_c != 0 || s.k % tile_k != 0)
    return join_text(s.c, " channels and ", s.k, " filters, not multiples of ", tile_c, " and ", tile_k);
  return cpu::amx::bf16_vectors_unsupported();
}

// Measured for batches of 2 to 128. 1x1 filters use what is copied once, and are no faster than the library's
// products; nor are large filters of few pixels, where writing dw is all.
std::string paired_bf16_why_slower(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (cpu::amx::unsupported().empty()) return "matrix tiles are many times as fast";
  if (s.n == 1) return "a single image";
  if (s.r * s.s == 1) return "filters of one pixel";
  return s.n * s.p * s.q >= 64 || s.k * s.r * s.s * s.c <= (1 << 20) ? "" : "large filters of few pixels";
}

void run_paired_bf16(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  const std::int64_t pairs = pairs_of_chunk(s), filters = s.k * s.r * s.s * s.c;
  cpu::Scratch scratch;
  Pixels of_x{o.x.data<bf16>(), s.h * s.w, s.c, tile_c, nullptr};
  Pixels of_dy{o.y.data<bf16>(), s.p * s.q, s.k, tile_k, nullptr};
  for (Pixels* t : {&of_x, &of_dy})
    t->paired = scratch.take<std::uint32_t>(tile_stride(*t, pairs) * (t->channels / t->tile));
  float* sums = problem.weights == DType::f32 ? o.w.data<float>() : scratch.take<float>(filters);
  for (std::int64_t first = 0; first < s.n; first += 2 * pairs) {
    const Chunk chunk{first, std::min(pairs, (s.n - first + 1) / 2), s.n};
    pair_chunk(of_x, of_dy, chunk);
    sum_chunk(s, of_x, of_dy, chunk, sums);
  }
  if (problem.weights != DType::f32) cpu::dnn::convert(sums, DType::f32, o.w.bytes(), problem.weights, filters);
  if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), DType::bf16, s.n * s.p * s.q, s.k, o.b.data<float>());
}

}  // namespace

const Conv2dCandidate conv2d_paired_bf16{"paired_bf16", paired_bf16_unsupported, run_paired_bf16, nullptr,
                                         paired_bf16_why_slower};

#else

const Conv2dCandidate conv2d_paired_bf16{
    "paired_bf16", [](const ConvProblem&) { return std::string("this build is not by GCC for x86-64"); },
    [](const ConvProblem&, const Conv2dOperands&) {}};

#endif

}  // namespace hearth::kernels
