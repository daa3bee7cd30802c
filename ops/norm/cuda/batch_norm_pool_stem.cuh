// SPDX-License-Identifier: Apache-2.0
// Norm, ReLU and pooling for the windows of a residual network's stem, 3 x 3 at every second pixel, and 16-bit types. A
// thread owns eight channels, walks down a column of windows and keeps what two of them share: forward a pixel is
// normalised once or twice in place of two or three times, and for the gradient a window is read for the four pixels at
// its middle at once. For kernel sources only.
#pragma once

#include <algorithm>

#include "ops/norm/batch_norm_pool.h"
#include "ops/norm/cuda/batch_norm_rows.cuh"
#include "ops/pool/windows.cuh"

namespace hearth::kernels::batch_norm_stem {

using namespace cuda;
using namespace batch_norm_rows;
using namespace pool_windows;

constexpr int run_pixels = 32;  // that a thread sums in f32
constexpr std::int64_t pass_blocks = 1 << 20;
constexpr std::int64_t window_rows_each = 8;  // that a thread walks down at least

using Windows = Sizes<int>;

// The norm of eight channels, in the layout of UnitOfLanes without lanes.
template <class T>
struct ChannelsNorm {
  using P = acc_t<T>;
  static constexpr bool folded = sizeof(T) == 2;
  P mean[unit], scale[unit], shift[unit];

  __device__ ChannelsNorm(const P* table, int channels, int first) {
    load_unit(table + first, mean);
    load_unit(table + channels + first, scale);
    load_unit(table + 2 * channels + first, shift);
    HEARTH_UNROLL
    for (int k = 0; folded && k < unit; ++k) shift[k] -= mean[k] * scale[k];
  }
  __device__ P normal(int k, P x) const { return (folded ? x : x - mean[k]) * scale[k] + shift[k]; }
};

// Columns of windows: threads of a block stand at `columns` neighbouring ones, `parts` times side by side in an image,
// and walk down. The rows of `cut` are those of windows: of a part, then of the next, then of the next image.
struct WindowTiles {
  ColumnTiles cut;
  int parts, columns;
};

// A thread's way: window (p, q), its channels' first elements in the window and in the pixel at its middle, and how
// many windows are left. A column beyond the last one repeats that, not `inside`.
struct WindowWalk {
  int channel, p, q, left, window, pixel;
  bool inside;

  __device__ WindowWalk(const Windows& s, const WindowTiles& tiles, const TilePlace& place)
      : channel(static_cast<int>(place.unit) * unit) {
    const ColumnTiles& cut = tiles.cut;
    const int first = static_cast<int>(place.segment * cut.segment_rows), rest = static_cast<int>(cut.rows) - first,
              rows = static_cast<int>(cut.segment_rows);
    const bool works = static_cast<int>(threadIdx.x) / cut.across < tiles.columns && place.unit < cut.units;
    left = works ? rest < rows ? rest : rows : 0;
    part_ = first / s.p;
    stand(s, tiles, first - part_ * s.p);
  }
  __device__ void next(const Windows& s, const WindowTiles& tiles) {
    --left;
    if (++p < s.p) {
      window += s.q * s.c;
      pixel += 2 * s.w * s.c;
    } else {
      ++part_;
      stand(s, tiles, 0);
    }
  }

 private:
  int part_;  // counted through the images

  __device__ void stand(const Windows& s, const WindowTiles& tiles, int row) {
    const int image = part_ / tiles.parts;
    p = row;
    q = (part_ - image * tiles.parts) * tiles.columns + static_cast<int>(threadIdx.x) / tiles.cut.across;
    inside = q < s.q;
    q = inside ? q : s.q - 1;
    window = ((image * s.p + p) * s.q + q) * s.c + channel;
    pixel = ((image * s.h + 2 * p) * s.w + 2 * q) * s.c + channel;
  }
};

// The largest of some pixels of a channel behind norm and ReLU, with its tap, in an integer: the bits of the rounded
// value, then 8 - tap, so that the first of equal ones wins. Negative ones are below 0, which stands for none; NaN is
// above all.
using Key = int;

// Of row `y` of the pixels under a window, as its row 0.
template <class T>
__device__ __forceinline__ void keys_of_row(const ChannelsNorm<T>& norm, const Held<T> (&pixel)[3],
                                            const int (&code)[3], Key (&key)[unit]) {
  HEARTH_UNROLL
  for (int k = 0; k < unit; ++k) key[k] = 0;
  HEARTH_UNROLL
  for (int t = 0; t < 3; ++t) {
    HEARTH_UNROLL
    for (int k = 0; k < unit; k += 2) {
      const unsigned two = cast_down_two<T>(norm.normal(k, pixel[t][k]), norm.normal(k + 1, pixel[t][k + 1]));
      const Key even = static_cast<Key>(two << 16) | code[t], odd = static_cast<Key>(two & 0xffff0000u) | code[t];
      key[k] = key[k] > even ? key[k] : even;
      key[k + 1] = key[k + 1] > odd ? key[k + 1] : odd;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(tile_block, 3)
    batch_norm_pool_stem(PoolShape shape, const T* x, const acc_t<T>* table, T* y, std::uint8_t* taps,
                         WindowTiles tiles) {
  const Windows s(shape, unit);
  const TilePlace place(tiles.cut, blockIdx.x);
  WindowWalk at(s, tiles, place);
  if (at.left == 0) return;
  const ChannelsNorm<T> norm(table, s.c, at.channel);
  Key above[unit];
  for (bool first = true; at.left > 0; at.next(s, tiles), first = false) {
    // A tap outside the image repeats the one beside it.
    const int row = 2 * at.p, column = 2 * at.q;
    const bool has_left = column > 0, has_right = column + 1 < s.w, has_below = row + 1 < s.h;
    const int code[3] = {has_left ? 8 : 7, 7, 6};
    const int offset[3] = {has_left ? -s.c : 0, 0, has_right ? s.c : 0};
    const T* const middle = x + at.pixel;
    const auto load_row = [&](const T* from, Held<T>(&pixel)[3]) {
      HEARTH_UNROLL
      for (int t = 0; t < 3; ++t) pixel[t].template load<true>(from + offset[t], unit);
    };
    Held<T> here[3], below[3];
    load_row(middle, here);
    load_row(has_below ? middle + s.w * s.c : middle, below);
    if (first || at.p == 0) {
      Held<T> pixel[3];
      load_row(row > 0 ? middle - s.w * s.c : middle, pixel);
      keys_of_row(norm, pixel, code, above);
      HEARTH_UNROLL
      for (int k = 0; k < unit; ++k) above[k] = row > 0 ? above[k] : 0;
    }
    Key best[unit], key[unit];
    keys_of_row(norm, here, code, key);
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) best[k] = above[k] > key[k] - 3 ? above[k] : key[k] - 3;
    keys_of_row(norm, below, code, above);
    unsigned words[unit / 2];
    Pack<std::uint8_t, unit> chosen;
    HEARTH_UNROLL
    for (int k = 0; k < unit; ++k) {
      above[k] = has_below ? above[k] : 0;
      best[k] = best[k] > above[k] - 6 ? best[k] : above[k] - 6;
      // NaN gets no gradient.
      const bool open = best[k] >= 1 << 16 && best[k] < 0x7fff << 16;
      chosen.at[k] = static_cast<std::uint8_t>(open ? 8 - (best[k] & 15) : shut_tap);
      best[k] = best[k] > 0 ? best[k] : 0;
      const unsigned bits = static_cast<unsigned>(best[k]);
      words[k / 2] = k % 2 == 0 ? bits >> 16 : words[k / 2] | (bits & 0xffff0000u);
    }
    if (!at.inside) continue;
    store_words(y + at.window, words[0], words[1], words[2], words[3]);
    if (taps != nullptr) store_pack(taps + at.window, chosen);
  }
}

// A window of eight channels and the one beside it, as the gradient reads them.
template <class T>
struct TwoWindows {
  Held<T> dy[2];
  uint2 taps[2];

  __device__ __forceinline__ void load(const T* from_dy, const std::uint8_t* from_taps, int right) {
    HEARTH_UNROLL
    for (int side = 0; side < 2; ++side) {
      dy[side].template load<true>(from_dy + side * right, unit);
      taps[side] = *reinterpret_cast<const uint2*>(from_taps + side * right);
    }
  }
  // Whether the maximum of channel k is at `tap`.
  __device__ bool is_at(int side, int k, unsigned tap) const {
    return ((k < 4 ? taps[side].x : taps[side].y) & 255u << k % 4 * 8) == tap << k % 4 * 8;
  }
};

// What the gradient reads at a window: the pixel at its middle, and those right of it, below and right below, whose
// gradients come from this window, the one beside it, and the two below. What is not there repeats what is.
template <class T>
struct AroundWindow {
  Held<T> x[4];
  TwoWindows<T> here, below;

  // f(windows, side, pixel, tap) where the maximum of channel k is one of the four pixels.
  template <class F>
  __device__ __forceinline__ void each_given(int k, bool has_right, bool has_below, F&& f) const {
    const auto given = [&](const TwoWindows<T>& windows, int side, int pixel, unsigned tap, bool there) {
      if (windows.is_at(side, k, tap) && there) f(pixel, windows.dy[side][k]);
    };
    given(here, 0, 0, 4, true);
    given(here, 0, 1, 5, true);
    given(here, 1, 1, 3, has_right);
    given(here, 0, 2, 7, true);
    given(below, 0, 2, 1, has_below);
    given(here, 0, 3, 8, true);
    given(here, 1, 3, 6, has_right);
    given(below, 0, 3, 2, has_below);
    given(below, 1, 3, 0, has_right && has_below);
  }
};

// use(window, what is around it) for the windows of a thread, of which the next one's reads are under way. Ends of
// runs: pause().
template <int slots, class T, class Use, class Pause>
__device__ __forceinline__ void each_window(const Windows& s, const WindowTiles& tiles, WindowWalk ahead, const T* x,
                                            const T* dy, const std::uint8_t* taps, Use&& use, Pause&& pause) {
  AroundWindow<T> read[slots];
  const auto load = [&](AroundWindow<T>& to, bool first) {
    const int down = 2 * ahead.p + 1 < s.h ? s.w * s.c : 0, right = 2 * ahead.q + 1 < s.w ? s.c : 0;
    const T* const middle = x + ahead.pixel;
    to.x[0].template load<true>(middle, unit);
    to.x[1].template load<true>(middle + right, unit);
    to.x[2].template load<true>(middle + down, unit);
    to.x[3].template load<true>(middle + down + right, unit);
    const int beside = ahead.q + 1 < s.q ? s.c : 0, below = ahead.window + (ahead.p + 1 < s.p ? s.q * s.c : 0);
    to.below.load(dy + below, taps + below, beside);
    // Elsewhere it is what the window above had below it.
    if (first || ahead.p == 0) to.here.load(dy + ahead.window, taps + ahead.window, beside);
  };
  if (ahead.left > 0) load(read[0], true);
  for (int walked = slots; ahead.left > 0; walked += slots) {
    HEARTH_UNROLL
    for (int slot = 0; slot < slots && ahead.left > 0; ++slot) {
      AroundWindow<T>&now = read[slot], &then = read[slots - 1 - slot];
      const WindowWalk at = ahead;
      const auto load_next = [&] {
        ahead.next(s, tiles);
        if (ahead.left > 0) load(then, false);
      };
      if (slots == 2) load_next();
      if (at.inside) use(at, now);
      if (slots == 1 || ahead.p > 0) then.here = now.below;
      if (slots == 1) load_next();
    }
    if (walked % (run_pixels / 4) == 0) pause();
  }
  pause();
}

// The sums take a pixel's x as it is; the mean is taken off in the end, as f64 can.
template <class T>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_pool_stem_grad_moments(PoolShape shape, const T* x, const std::uint8_t* taps, const T* dy,
                                      WindowTiles tiles, RunSums runs, GradientSums<acc_t<T>> norm) {
  using P = acc_t<T>;
  const Windows s(shape, unit);
  LongSums<P, 2> sums;
  each_window<2>(
      s, tiles, WindowWalk(s, tiles, TilePlace(tiles.cut, blockIdx.x)), x, dy, taps,
      [&](const WindowWalk& at, const AroundWindow<T>& of) {
        const bool has_right = at.q + 1 < s.q, has_below = at.p + 1 < s.p;
        HEARTH_UNROLL
        for (int k = 0; k < unit; ++k) {
          if (!of.here.is_at(0, k, shut_tap)) sums.part[0][k] += of.here.dy[0][k];
          of.each_given(k, has_right, has_below, [&](int pixel, P g) { sums.part[1][k] += g * of.x[pixel][k]; });
        }
      },
      [&] { sums.carry(); });
  finish_sums<2>(runs, tiles.cut, norm.channels, [&](std::int64_t c, const double(&total)[2]) {
    norm.store(c, total[0], total[1] - static_cast<double>(norm.table[c]) * total[0]);
  });
}

template <class T>
__global__ void __launch_bounds__(tile_block, 2)
    batch_norm_pool_stem_grad(PoolShape shape, const T* x, const acc_t<T>* table, const std::uint8_t* taps, const T* dy,
                              const acc_t<T>* corrections, T* dx, WindowTiles tiles) {
  using P = acc_t<T>;
  const Windows s(shape, unit);
  const WindowWalk walk(s, tiles, TilePlace(tiles.cut, blockIdx.x));
  if (walk.left == 0) return;
  const GradientOfLanes<T> norm(table, corrections, s.c, walk.channel);
  each_window<1>(
      s, tiles, walk, x, dy, taps,
      [&](const WindowWalk& at, const AroundWindow<T>& of) {
        const bool has_right = at.q + 1 < s.q, has_below = at.p + 1 < s.p;
        HEARTH_UNROLL
        for (int pixel = 0; pixel < 4; ++pixel) {
          P result[unit];
          HEARTH_UNROLL
          for (int k = 0; k < unit; ++k) {
            P g = 0;
            of.each_given(k, has_right, has_below, [&](int to, P dy_k) {
              if (to == pixel) g += dy_k;
            });
            result[k] = norm.dx(k, of.x[pixel][k], g);
          }
          if ((pixel % 2 == 0 || 2 * at.q + 1 < s.w) && (pixel / 2 == 0 || 2 * at.p + 1 < s.h))
            store_eight<true>(dx + at.pixel + (pixel / 2 * s.w + pixel % 2) * s.c, unit, result);
        }
      },
      [] {});
}

inline bool is_stem(const PoolShape& s, DType dtype) {
  return size_of(dtype) == 2 && s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 2 && s.stride_w == 2 &&
         s.pad_h == 1 && s.pad_w == 1 && s.p == (s.h + 1) / 2 && s.q == (s.w + 1) / 2;
}

inline WindowTiles cut_windows(const PoolShape& s, std::int64_t blocks, std::int64_t rows_each) {
  WindowTiles tiles{cut_columns(1, s.c / unit, 1, 1), 0, 0};
  ColumnTiles& cut = tiles.cut;
  tiles.parts = static_cast<int>((s.q + cut.down - 1) / cut.down);
  tiles.columns = static_cast<int>((s.q + tiles.parts - 1) / tiles.parts);
  cut.rows = s.n * tiles.parts * s.p;
  const std::int64_t wanted = std::max<std::int64_t>(blocks / cut.tiles, 1);
  cut.segment_rows = std::max((cut.rows + wanted - 1) / wanted, rows_each);
  cut.segments = (cut.rows + cut.segment_rows - 1) / cut.segment_rows;
  return tiles;
}

}  // namespace hearth::kernels::batch_norm_stem
