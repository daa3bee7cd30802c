// SPDX-License-Identifier: Apache-2.0
// First convolutions, of images of up to 4 channels, in bf16 with f32 sums. The values that a row of a filter reads,
// s * c of them, lie side by side in the image, so that the processor's bf16 instruction, which adds the products of
// two neighbours, needs no channels to pair. Rows of the image are copied once, with zeros for their padding.
//
//   forward: 6 pixels by 64 outputs at a time. Filters are packed in pairs of a row's values, [r, s c / 2, 64], an odd
//   last one beside a zero; pairs of the image are read where they are, at even and odd values.
//   backward_weights: 6 values of a filter by 64 outputs at a time. Pairs are of two pixels side by side, so dy is
//   copied to pairs of pixels, and a row of the image to a pair for each value: itself and what the next pixel reads
//   in its place. At most 64 pairs of dy stay in the innermost cache for all values of the filter. The images are cut
//   into at most 32 parts, whose sums are added in order.
//
// Reference: conv2d_cpu.cpp. A value of x that is not finite may also make NaN of sums that read its neighbour.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/half.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/pack.h"
#include "ops/scratch.h"

#if HEARTH_BF16_VECTORS
#include <immintrin.h>
#endif

namespace hearth::kernels {

#if HEARTH_BF16_VECTORS

namespace {

constexpr std::int64_t lanes = 16, max_vectors = 4, max_rows = 6;  // of a tile of sums

// The outputs in tiles of like size.
struct Outputs {
  std::int64_t vectors, tiles;  // of a tile, and how many

  explicit Outputs(std::int64_t k) {
    const std::int64_t all = (k + lanes - 1) / lanes;
    tiles = (all + max_vectors - 1) / max_vectors;
    vectors = (all + tiles - 1) / tiles;
  }
  std::int64_t width() const { return vectors * lanes; }
};

// Pixels of one row of the result by one tile of outputs.
struct Pixels {
  const bf16* x;             // what the first pixel reads
  std::int64_t x_row, step;  // values between rows of a filter, and between pixels
  const std::uint32_t* w;    // [rows, pairs, outputs]
  std::int64_t rows, pairs;  // of the filter
  const float* bias;         // or null
  bf16* y;
  std::int64_t k, outputs;  // values between pixels of y, and how many to write of each
};

// Pairs of pixels of some rows of dy and of x.
struct PixelPairs {
  const std::uint32_t *dy, *x;
  std::int64_t rows, pairs;  // pairs of a row
  std::int64_t x_row, step;  // elements between rows and between pairs of x; dy is dense
};

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

inline __m512bh broadcast(const void* pair) {
  int bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

template <std::int64_t pixels, std::int64_t vectors>
void sum_pixels(const Pixels& p) {
  __m512 sums[pixels][vectors];
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < vectors; ++v) {
    const __m512 first = p.bias ? _mm512_loadu_ps(p.bias + v * lanes) : _mm512_setzero_ps();
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < pixels; ++i) sums[i][v] = first;
  }
  const std::uint32_t* w = p.w;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const bf16* x = p.x + row * p.x_row;
    for (std::int64_t pair = 0; pair < p.pairs; ++pair, x += 2, w += vectors * lanes) {
      __m512bh filters[vectors];
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < vectors; ++v)
        filters[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + v * lanes));
#pragma GCC unroll 6
      for (std::int64_t i = 0; i < pixels; ++i) {
        const __m512bh values = broadcast(x + i * p.step);
#pragma GCC unroll 4
        for (std::int64_t v = 0; v < vectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], filters[v], values);
      }
    }
  }
#pragma GCC unroll 2
  for (std::int64_t v = 0; v < vectors; v += 2) {
    const std::int64_t left =
        std::clamp<std::int64_t>(p.outputs - v * lanes, 0, std::min<std::int64_t>(2, vectors - v) * lanes);
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << left) - 1);
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < pixels; ++i) {
      const __m512 high = v + 1 < vectors ? sums[i][v + 1] : _mm512_setzero_ps();
      _mm512_mask_storeu_epi16(p.y + i * p.k + v * lanes, mask,
                               reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, sums[i][v])));
    }
  }
}

// sums[taps, outputs] += the products of dy and of x from `offsets` on.
template <std::int64_t taps, std::int64_t vectors>
void sum_taps(const PixelPairs& p, const std::int64_t* offsets, float* to) {
  __m512 sums[taps][vectors];
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < taps; ++i)
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < vectors; ++v) sums[i][v] = _mm512_loadu_ps(to + (i * vectors + v) * lanes);
  const std::uint32_t* dy = p.dy;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::uint32_t* x[taps];
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < taps; ++i) x[i] = p.x + row * p.x_row + offsets[i];
    std::int64_t at = 0;
    for (std::int64_t pair = 0; pair < p.pairs; ++pair, at += p.step, dy += vectors * lanes) {
      __m512bh outputs[vectors];
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < vectors; ++v)
        outputs[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(dy + v * lanes));
#pragma GCC unroll 6
      for (std::int64_t i = 0; i < taps; ++i) {
        const __m512bh values = broadcast(x[i] + at);
#pragma GCC unroll 4
        for (std::int64_t v = 0; v < vectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], outputs[v], values);
      }
    }
  }
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < taps; ++i)
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < vectors; ++v) _mm512_storeu_ps(to + (i * vectors + v) * lanes, sums[i][v]);
}

// to[i] = the pair of low[i] and high[i], or zero (a null `high`), of `count` values and zeros up to `room`, a multiple
// of 16.
void pair_values(const bf16* low, const bf16* high, std::int64_t count, std::uint32_t* to, std::int64_t room) {
  alignas(64) std::uint16_t first_half[32];
  for (int i = 0; i < 32; ++i) first_half[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 32);
  const __m512i first = _mm512_load_si512(first_half), second = _mm512_add_epi16(first, _mm512_set1_epi16(lanes));
  for (std::int64_t i = 0; i < room; i += 2 * lanes) {
    const std::int64_t here = std::clamp<std::int64_t>(count - i, 0, 32);
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << here) - 1);
    const __m512i a = _mm512_maskz_loadu_epi16(mask, low + i);
    const __m512i b = high ? _mm512_maskz_loadu_epi16(mask, high + i) : _mm512_setzero_si512();
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(a, first, b));
    if (i + lanes < room) _mm512_storeu_si512(to + i + lanes, _mm512_permutex2var_epi16(a, second, b));
  }
}

// The first of the parts, `stride` elements apart, becomes the sum of all; `width` is a multiple of 16.
void add_parts(float* parts, std::int64_t count, std::int64_t stride, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += lanes) {
    __m512 sum = _mm512_loadu_ps(parts + i);
    for (std::int64_t part = 1; part < count; ++part)
      sum = _mm512_add_ps(sum, _mm512_loadu_ps(parts + part * stride + i));
    _mm512_storeu_ps(parts + i, sum);
  }
}

#pragma GCC pop_options

// The kernels for 1 to 6 rows of 1 to 4 vectors.
template <std::size_t... i>
constexpr auto pixel_kernels(std::index_sequence<i...>) {
  return std::array{&sum_pixels<i % max_rows + 1, i / max_rows + 1>...};
}
template <std::size_t... i>
constexpr auto tap_kernels(std::index_sequence<i...>) {
  return std::array{&sum_taps<i % max_rows + 1, i / max_rows + 1>...};
}
using Tiles = std::make_index_sequence<max_rows * max_vectors>;

std::size_t kernel_of(std::int64_t rows, std::int64_t vectors) {
  return static_cast<std::size_t>((vectors - 1) * max_rows + rows - 1);
}

void sum_row(Pixels p, std::int64_t q, std::int64_t vectors) {
  static constexpr auto kernels = pixel_kernels(Tiles{});
  for (std::int64_t j = 0; j < q; j += max_rows, p.x += max_rows * p.step, p.y += max_rows * p.k)
    kernels[kernel_of(std::min(max_rows, q - j), vectors)](p);
}

// What is read next: some of it is fetched into the core's cache at a time. Without, 1.2 times the time.
struct Ahead {
  const bf16 *data, *end;
  std::int64_t values;  // at a time

  void fetch() {
    for (const bf16* const to = data + std::min<std::int64_t>(values, end - data); data < to; data += 32)
      __builtin_prefetch(data, 0, 2);
  }
};

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Rows of the images as they are read: with zeros before and after them.
class PaddedRows {
 public:
  PaddedRows(const ConvShape& s, const bf16* x) : s_(s), x_(x) {
    // The last pixel has a partner if it is alone, and a row's last value a neighbour.
    length_ = rounded_up(((rounded_up(s.q, 2) - 1) * s.stride_w + s.s) * s.c + 1, lanes);
  }
  std::int64_t length() const { return length_; }
  // Whether the row lies in the image.
  bool is_inside(std::int64_t y) const { return y >= 0 && y < s_.h; }
  const bf16* at(std::int64_t image, std::int64_t y) const { return x_ + (image * s_.h + y) * s_.w * s_.c; }
  void copy(std::int64_t image, std::int64_t y, bf16* to) const {
    if (!is_inside(y)) return zero(to, length_);
    const std::int64_t before = std::min(s_.pad_w * s_.c, length_), values = std::min(s_.w * s_.c, length_ - before);
    zero(to, before);
    std::copy_n(at(image, y), values, to + before);
    zero(to + before + values, length_ - before - values);
  }

 private:
  static void zero(bf16* to, std::int64_t count) { std::fill_n(to, count, bf16()); }

  const ConvShape& s_;
  const bf16* x_;
  std::int64_t length_;
};

std::int64_t pairs_of_row(const ConvShape& s) { return (s.s * s.c + 1) / 2; }

cpu::dnn::FilterBlocks layout_of_filters(const ConvShape& s, const Outputs& outputs) {
  cpu::dnn::FilterBlocks b{.k = s.k, .r = s.r, .c = s.s * s.c};
  b.unit = cpu::dnn::FilterBlocks::Unit::pair_of_c;
  b.k_runs_fastest = true;
  b.block_k = outputs.width(), b.block_c = 2;
  b.stride_c = 2 * outputs.width(), b.stride_r = pairs_of_row(s) * b.stride_c, b.stride_k = s.r * b.stride_r;
  return b;
}

void run_forward(const ConvProblem& problem, const Conv2dOperands& o) {
  constexpr std::int64_t rows = 8;  // of a task
  const ConvShape& s = problem.shape;
  const Outputs outputs(s.k);
  const PaddedRows images(s, o.x.data<bf16>());
  const std::int64_t width = outputs.width(), row_of_filters = pairs_of_row(s) * width;
  cpu::Scratch scratch;
  auto* const filters = scratch.take<std::uint32_t>(outputs.tiles * s.r * row_of_filters);
  cpu::dnn::pack_filters(layout_of_filters(s, outputs), o.w.bytes(), problem.weights, filters);
  float* bias = nullptr;
  if (o.b.defined()) {
    bias = scratch.take<float>(outputs.tiles * width);
    std::fill(std::copy_n(o.b.data<float>(), s.k, bias), bias + outputs.tiles * width, 0.0f);
  }
  const std::int64_t pieces = (s.p + rows - 1) / rows;
  cpu::parallel_chunks(s.n * pieces, [&](std::int64_t task) {
    const std::int64_t image = task / pieces, begin = task % pieces * rows, end = std::min(s.p, begin + rows);
    const std::int64_t top = begin * s.stride_h - s.pad_h, bottom = (end - 1) * s.stride_h - s.pad_h + s.r;
    cpu::Scratch own;
    auto* const copy = own.take<bf16>((bottom - top) * images.length());
    for (std::int64_t y = top; y < bottom; ++y)
      if (images.is_inside(y)) images.copy(image, y, copy + (y - top) * images.length());
    for (std::int64_t i = begin; i < end; ++i) {
      // The rows of filters that fall inside.
      const std::int64_t first = i * s.stride_h - s.pad_h;
      const std::int64_t from = std::clamp<std::int64_t>(-first, 0, s.r), to = std::clamp(s.h - first, from, s.r);
      for (std::int64_t tile = 0; tile < outputs.tiles; ++tile)
        sum_row({.x = copy + (first + from - top) * images.length(),
                 .x_row = images.length(),
                 .step = s.stride_w * s.c,
                 .w = filters + (tile * s.r + from) * row_of_filters,
                 .rows = to - from,
                 .pairs = pairs_of_row(s),
                 .bias = bias ? bias + tile * width : nullptr,
                 .y = o.y.data<bf16>() + ((image * s.p + i) * s.q) * s.k + tile * width,
                 .k = s.k,
                 .outputs = s.k - tile * width},
                s.q, outputs.vectors);
    }
  });
}

// The filter gradient of parts of the images: [tiles, taps, outputs of a tile], where taps are all values of a filter.
class FilterSums {
 public:
  FilterSums(const ConvShape& s, const Conv2dOperands& o)
      : s_(s), outputs_(s.k), images_(s, o.x.data<bf16>()), dy_(o.y.data<bf16>()), end_(dy_ + s.n * s.p * s.q * s.k) {
    constexpr std::int64_t max_rows_of_segment = 32, max_parts = 32, min_pixels = 512;
    segments_ = (s.p + max_rows_of_segment - 1) / max_rows_of_segment;
    rows_of_segment_ = (s.p + segments_ - 1) / segments_;
    segments_ = (s.p + rows_of_segment_ - 1) / rows_of_segment_;
    const std::int64_t all = s.n * segments_, pixels = rows_of_segment_ * s.q;
    of_part_ = std::max((all + max_parts - 1) / max_parts, (min_pixels + pixels - 1) / pixels);
    parts_ = (all + of_part_ - 1) / of_part_;
    pairs_ = (s.q + 1) / 2;
    const std::int64_t blocks = (pairs_ + max_pairs - 1) / max_pairs;
    of_block_ = (pairs_ + blocks - 1) / blocks;
    row_ = rounded_up(((2 * pairs_ - 2) * s.stride_w + s.s) * s.c, lanes);
  }

  std::int64_t parts() const { return parts_; }
  std::int64_t taps() const { return s_.r * s_.s * s_.c; }
  std::int64_t tiles() const { return outputs_.tiles; }
  std::int64_t width() const { return outputs_.width(); }

  void sum_part(std::int64_t part, float* sums) const {
    cpu::Scratch scratch;
    auto* const offsets = scratch.take<std::int64_t>(taps());
    for (std::int64_t tap = 0; tap < taps(); ++tap) offsets[tap] = tap / (s_.s * s_.c) * row_ + tap % (s_.s * s_.c);
    auto* const x = scratch.take<std::uint32_t>(((rows_of_segment_ - 1) * s_.stride_h + s_.r) * row_);
    auto* const dy = scratch.take<std::uint32_t>(rows_of_block * of_block_ * width());
    std::fill_n(sums, tiles() * taps() * width(), 0.0f);
    const std::int64_t end = std::min(s_.n * segments_, (part + 1) * of_part_);
    for (std::int64_t segment = part * of_part_; segment < end; ++segment)
      sum_segment(segment / segments_, segment % segments_ * rows_of_segment_, {x, dy, offsets, sums});
  }

 private:
  static constexpr std::int64_t rows_of_block = 4, max_pairs = 16;

  struct Memory {
    std::uint32_t *x, *dy;
    const std::int64_t* offsets;
    float* sums;
  };

  // Rows of one image from `begin` on.
  void sum_segment(std::int64_t image, std::int64_t begin, const Memory& m) const {
    const std::int64_t end = std::min(s_.p, begin + rows_of_segment_), top = begin * s_.stride_h - s_.pad_h;
    std::int64_t copied = 0;  // rows of x
    for (std::int64_t i = begin; i < end; i += rows_of_block) {
      const std::int64_t rows = std::min(rows_of_block, end - i);
      const std::int64_t bottom = (i + rows - 1 - begin) * s_.stride_h + s_.r;
      for (; copied < bottom; ++copied) pair_images(image, top + copied, m.x + copied * row_);
      const std::int64_t pixel = (image * s_.p + i) * s_.q;
      Ahead x = ahead(images_.at(image, std::clamp<std::int64_t>(top + copied, 0, s_.h)), images_.at(s_.n, 0),
                      s_.stride_h * s_.w * s_.c);
      Ahead dy = ahead(dy_ + (pixel + rows * s_.q) * s_.k, end_, s_.q * s_.k);
      for (std::int64_t tile = 0; tile < tiles(); ++tile)
        for (std::int64_t pair = 0; pair < pairs_; pair += of_block_) {
          const std::int64_t pairs = std::min(of_block_, pairs_ - pair);
          for (std::int64_t row = 0; row < rows; ++row)
            pair_dy(pixel + row * s_.q, pair, pairs, tile * width(), m.dy + row * pairs * width());
          const PixelPairs block{.dy = m.dy,
                                 .x = m.x + (i - begin) * s_.stride_h * row_ + pair * 2 * s_.stride_w * s_.c,
                                 .rows = rows,
                                 .pairs = pairs,
                                 .x_row = s_.stride_h * row_,
                                 .step = 2 * s_.stride_w * s_.c};
          add_block(block, m.offsets, m.sums + tile * taps() * width(), x, dy);
        }
    }
  }

  void add_block(const PixelPairs& block, const std::int64_t* offsets, float* sums, Ahead& x, Ahead& dy) const {
    static constexpr auto kernels = tap_kernels(Tiles{});
    for (std::int64_t tap = 0; tap < taps(); tap += max_rows) {
      x.fetch();
      dy.fetch();
      kernels[kernel_of(std::min(max_rows, taps() - tap), outputs_.vectors)](block, offsets + tap,
                                                                             sums + tap * width());
    }
  }

  // What the next rows read, `row` values each, to be fetched while these are summed.
  Ahead ahead(const bf16* from, const bf16* end, std::int64_t row) const {
    const std::int64_t values = rows_of_block * row, blocks = (pairs_ + of_block_ - 1) / of_block_;
    return {from, std::min(from + values, end), values / (tiles() * blocks * (taps() / max_rows + 1)) + 32};
  }

  void pair_images(std::int64_t image, std::int64_t y, std::uint32_t* to) const {
    cpu::Scratch scratch;
    const std::int64_t next = s_.stride_w * s_.c;
    auto* const row = scratch.take<bf16>(images_.length());
    images_.copy(image, y, row);
    pair_values(row, row + next, images_.length() - next, to, row_);
  }

  // Pairs of a row of dy.
  void pair_dy(std::int64_t row, std::int64_t begin, std::int64_t count, std::int64_t k, std::uint32_t* to) const {
    for (std::int64_t pair = begin; pair < begin + count; ++pair, to += width()) {
      const bf16* const low = dy_ + (row + 2 * pair) * s_.k + k;
      pair_values(low, 2 * pair + 1 < s_.q ? low + s_.k : nullptr, s_.k - k, to, width());
    }
  }

  const ConvShape& s_;
  Outputs outputs_;
  PaddedRows images_;
  const bf16 *dy_, *end_;
  std::int64_t segments_, rows_of_segment_;  // of an image
  std::int64_t of_part_, parts_;             // segments of a part, and parts
  std::int64_t pairs_, of_block_;            // of pixels of a row of dy
  std::int64_t row_;                         // elements of a row of pairs of x
};

template <class W>
void sum_filters(const ConvShape& s, const Conv2dOperands& o, W* dw) {
  const FilterSums filters(s, o);
  const std::int64_t width = filters.width(), values = filters.tiles() * filters.taps() * width;
  cpu::Scratch scratch;
  auto* const parts = scratch.take<float>(filters.parts() * values);
  cpu::parallel_chunks(filters.parts(), [&](std::int64_t part) { filters.sum_part(part, parts + part * values); });
  // All outputs of some taps of a tile.
  cpu::parallel_for(filters.tiles() * filters.taps(), 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* const sums = parts + i * width;
      add_parts(sums, filters.parts(), values, width);
      const std::int64_t first = i / filters.taps() * width, tap = i % filters.taps();
      for (std::int64_t k = first; k < std::min(s.k, first + width); ++k)
        dw[k * filters.taps() + tap] = W(sums[k - first]);
    }
  });
}

void run_gradient(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  problem.weights == DType::f32 ? sum_filters(s, o, o.w.data<float>()) : sum_filters(s, o, o.w.data<bf16>());
  if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), DType::bf16, s.n * s.p * s.q, s.k, o.b.data<float>());
}

void run_stem_bf16(const ConvProblem& problem, const Conv2dOperands& o) {
  problem.pass == Pass::forward ? run_forward(problem, o) : run_gradient(problem, o);
}

std::string stem_bf16_unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.pass == Pass::backward_data) return "a data gradient";
  if (problem.activations != DType::bf16) return join_text("images of ", problem.activations, ", not bf16");
  if (s.groups != 1) return join_text(s.groups, " groups");
  if (s.c > 4) return join_text(s.c, " channels, more than 4");
  if (s.dilation_h != 1 || s.dilation_w != 1) return join_text("dilation ", s.dilation_h, "x", s.dilation_w);
  if (s.stride_h > s.r || s.stride_w > s.s)
    return join_text("stride ", s.stride_h, "x", s.stride_w, ", beyond filters of ", s.r, "x", s.s);
  return cpu::amx::bf16_vectors_unsupported();
}

// Measured for batches of 1 to 128, filters of 3x3 to 16x16 and images of 8x8 to 512x512: 0.4 to 0.95 of the library's
// time but for these.
std::string stem_bf16_why_slower(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (cpu::amx::unsupported().empty()) return "matrix tiles are many times as fast";
  if (problem.pass == Pass::backward_weights) return s.k < lanes ? "fewer than 16 filters" : "";
  const bool large = s.n * s.p * s.q * s.k > (std::int64_t{16} << 20);
  return large && s.r * s.s * s.c < 64 ? "a result beyond the caches of few products" : "";
}

}  // namespace

const Conv2dCandidate conv2d_stem_bf16{"stem_bf16", stem_bf16_unsupported, run_stem_bf16, nullptr,
                                       stem_bf16_why_slower};

#else

const Conv2dCandidate conv2d_stem_bf16{
    "stem_bf16", [](const ConvProblem&) { return std::string("this build is not by GCC for x86-64"); },
    [](const ConvProblem&, const Conv2dOperands&) {}};

#endif

}  // namespace hearth::kernels
