// SPDX-License-Identifier: Apache-2.0
// The filter gradient on tiles: dw[k, tap, c] = sum over the pixels t of dy[t, k] x[t + offset of the tap, c], where
// images are streams of pixels as in conv_streams.cpp, dy with zeros between its rows. A tile multiplies pairs of
// values that are summed, so both are copied as pairs of pixels:
//
//   dy: [filters / 32][images][pixels / 32] pairs of tiles of 16 filters by 32 pixels,
//   x:  [phases][2][channels / 16][images][pixels / 2][16][2], pairs that begin with an even pixel, and with an odd
//   one,
//
// so that the tile of any tap is 16 successive rows of one of the two copies of x. A batch goes in chunks whose copies
// stay near 3 MB. Reference: conv2d_cpu.cpp; a pixel of x that is not finite makes taps NaN that do not read it.
#include <algorithm>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "ops/conv/cpu/conv_streams.h"
#include "ops/matmul/cpu/amx_copies.h"
#include "ops/scratch.h"

namespace hearth::kernels {
namespace {

namespace amx = cpu::amx;
using std::int64_t;

/// Streams of one chunk of images and their copies.
struct Chunk {
  StreamImages images;
  ConvShape shape;       ///< as the streams see it
  int64_t pitch = 0;     ///< pixels from row to row, in dy and in each phase of x
  int64_t dy_steps = 0;  ///< of 32 pixels, of an image
  int64_t x_blocks = 0;  ///< likewise, of a phase
  const bf16* dy = nullptr;
  bf16 *x_pairs = nullptr, *dy_tiles = nullptr;
  const bool* is_read = nullptr;  ///< of the copies of x
  int64_t room = 1;               ///< images at most
  int64_t first = 0, count = 0;

  int64_t taps() const { return shape.r * shape.s; }
  int64_t phases() const { return shape.stride_h * shape.stride_w; }
  /// Values of 16 channels of x in one phase, beginning with an even or an odd pixel.
  int64_t x_group() const { return room * x_blocks * amx::tile_values; }
  int64_t x_values() const { return phases() * 2 * shape.c / 16 * x_group(); }
  /// Values of 32 filters of dy.
  int64_t dy_group() const { return room * dy_steps * 2 * amx::tile_values; }
  int64_t dy_values() const { return (shape.k + 31) / 32 * dy_group(); }
};

/// What a tap reads: the copies of a phase that begin with pixels of its parity, from a pixel on.
struct Tap {
  int64_t copy, pixel;
};

Tap tap_of(const Chunk& s, int64_t tap) {
  const int64_t h = tap / s.shape.s * s.shape.dilation_h, w = tap % s.shape.s * s.shape.dilation_w;
  const int64_t phase = h % s.shape.stride_h * s.shape.stride_w + w % s.shape.stride_w;
  const int64_t pixel = h / s.shape.stride_h * s.pitch + w / s.shape.stride_w;
  return {phase * 2 + pixel % 2, pixel};
}

Chunk plan(const StreamImages& images) {
  constexpr int64_t bytes = 3 << 20;
  const ConvShape& shape = images.shape();
  Chunk s{images, shape};
  s.pitch = shape.q + (shape.s - 1) * shape.dilation_w / shape.stride_w;
  s.dy_steps = (shape.p * s.pitch + 31) / 32;
  const int64_t farthest = (shape.r - 1) * shape.dilation_h / shape.stride_h * s.pitch + s.pitch;
  s.x_blocks = s.dy_steps + farthest / 32 + 1;
  const int64_t of_image = 2 * (s.x_values() + s.dy_values());
  const int64_t most = std::clamp<int64_t>(bytes / of_image, 1, shape.n), chunks = (shape.n + most - 1) / most;
  s.room = (shape.n + chunks - 1) / chunks;
  return s;
}

/// Sets the rows of 32 channels of successive pixels; null stands for zeros.
template <class Pixel>
void copy_block(const Pixel& pixel, int64_t first, int64_t channels, int64_t channel, bf16* tiles) {
  const bf16* rows[32];
  for (int64_t i = 0; i < 32; ++i) {
    const bf16* const at = pixel(first + i);
    rows[i] = at == nullptr ? nullptr : at + channel;
  }
  amx::copy_pairs(rows, std::min<int64_t>(32, channels - channel), {tiles, 1, 0});
}

void copy_dy(const Chunk& s, int64_t image, int64_t step) {
  const ConvShape& shape = s.shape;
  const bf16* const from = s.dy + (s.first + image) * shape.p * shape.q * shape.k;
  const auto pixel = [&](int64_t t) {
    const int64_t i = t / s.pitch, j = t % s.pitch;
    return i < shape.p && j < shape.q ? from + (i * shape.q + j) * shape.k : nullptr;
  };
  for (int64_t k = 0; k < shape.k; k += 32) {
    bf16* const tiles = s.dy_tiles + k / 32 * s.dy_group() + (image * s.dy_steps + step) * 2 * amx::tile_values;
    copy_block(pixel, step * 32, shape.k, k, tiles);
    amx::copies().transpose(tiles);
    amx::copies().transpose(tiles + amx::tile_values);
  }
}

void copy_x(const Chunk& s, int64_t image, int64_t copy, int64_t block) {
  const ConvShape& shape = s.shape;
  const int64_t first = block * 32 + copy % 2;
  cpu::Scratch scratch;
  bf16* const folded = s.images.is_folded() ? scratch.take<bf16>(32 * shape.c) : nullptr;
  const auto pixel = [&](int64_t t) -> const bf16* {
    const int64_t y = t / s.pitch * shape.stride_h + copy / 2 / shape.stride_w - shape.pad_h;
    const int64_t x = t % s.pitch * shape.stride_w + copy / 2 % shape.stride_w - shape.pad_w;
    return folded == nullptr ? s.images.at(s.first + image, y, x) : folded + (t - first) * shape.c;
  };
  if (folded != nullptr)
    for (int64_t t = first; t < first + 32; ++t)
      s.images.copy(s.first + image, t / s.pitch * shape.stride_h + copy / 2 - shape.pad_h, t % s.pitch,
                    folded + (t - first) * shape.c);
  alignas(64) bf16 tiles[2 * amx::tile_values];
  for (int64_t c = 0; c < shape.c; c += 32) {
    copy_block(pixel, first, shape.c, c, tiles);
    bf16* const to =
        s.x_pairs + (copy * shape.c / 16 + c / 16) * s.x_group() + (image * s.x_blocks + block) * amx::tile_values;
    std::copy_n(tiles, amx::tile_values, to);
    std::copy_n(tiles + amx::tile_values, amx::tile_values, to + s.x_group());
  }
}

void copy_chunk(const Chunk& s) {
  const int64_t of_dy = s.count * s.dy_steps, of_x = s.count * s.x_blocks;
  cpu::parallel_chunks(of_dy + s.phases() * 2 * of_x, [&](int64_t task) {
    if (task < of_dy) return copy_dy(s, task / s.dy_steps, task % s.dy_steps);
    const int64_t copy = (task - of_dy) / of_x, block = (task - of_dy) % of_x;
    if (s.is_read[copy]) copy_x(s, block / s.x_blocks, copy, block % s.x_blocks);
  });
}

/// Adds the chunk's share of 32 filters, 32 channels and a tap to four tiles of sums.
template <class TileUnit>
void sum_square(const Chunk& s, int64_t k, int64_t c, int64_t tap, bool add, float* sums) {
  amx::Square<TileUnit> square;
  add ? square.load(sums) : square.clear();
  const Tap reads = tap_of(s, tap);
  const bf16* const x = s.x_pairs + (reads.copy * s.shape.c / 16 + c / 16) * s.x_group();
  const bf16* dy = s.dy_tiles + k / 32 * s.dy_group();
  for (int64_t image = 0; image < s.count; ++image) {
    const bf16* from = x + image * s.x_blocks * amx::tile_values + reads.pixel / 2 * 32;
    for (int64_t step = 0; step < s.dy_steps; ++step, dy += 2 * amx::tile_values, from += amx::tile_values) {
      square.load_a(dy);
      square.load_b(from, from + s.x_group());
      square.multiply();
    }
  }
  square.store(sums);
}

}  // namespace

template <class W>
void filter_gradient_on_tiles(const ConvShape& stored, const bf16* x, const bf16* dy, W* dw) {
  Chunk s = plan(StreamImages(stored, x));
  s.dy = dy;
  const ConvShape& shape = s.shape;
  const int64_t depth = s.images.depth();
  cpu::Scratch scratch;
  s.x_pairs = scratch.take<bf16>(s.x_values());
  s.dy_tiles = scratch.take<bf16>(s.dy_values());
  bool* const is_read = scratch.take<bool>(2 * s.phases());
  std::fill_n(is_read, 2 * s.phases(), false);
  for (int64_t tap = 0; tap < s.taps(); ++tap) is_read[tap_of(s, tap).copy] = true;
  s.is_read = is_read;
  const int64_t squares = (shape.k + 31) / 32 * (shape.c / 32) * s.taps();
  float* const kept = s.room < shape.n ? scratch.take<float>(squares * 1024) : nullptr;
  for (s.first = 0; s.first < shape.n; s.first += s.room) {
    s.count = std::min(s.room, shape.n - s.first);
    copy_chunk(s);
    const bool is_last = s.first + s.count == shape.n;
    cpu::parallel_chunks(squares, [&](int64_t task) {
      const int64_t tap = task % s.taps(), c = task / s.taps() % (shape.c / 32) * 32,
                    k = task / s.taps() / (shape.c / 32) * 32;
      alignas(64) float own[1024];
      float* const sums = kept != nullptr ? kept + task * 1024 : own;
      (amx::emulated() ? sum_square<amx::EmulatedTiles> : sum_square<amx::Tiles>)(s, k, c, tap, s.first > 0, sums);
      if (!is_last) return;
      W* rows[32];
      for (int64_t i = 0; i < 32; ++i)
        rows[i] = k + i < shape.k ? dw + ((k + i) * s.taps() + tap) * depth + c : nullptr;
      amx::store_square(sums, nullptr, std::min<int64_t>(32, depth - c), rows);
    });
  }
}

template void filter_gradient_on_tiles<float>(const ConvShape&, const bf16*, const bf16*, float*);
template void filter_gradient_on_tiles<bf16>(const ConvShape&, const bf16*, const bf16*, bf16*);

}  // namespace hearth::kernels
