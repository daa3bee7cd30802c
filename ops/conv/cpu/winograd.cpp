// SPDX-License-Identifier: Apache-2.0
// How the work of Winograd's convolution is cut: of the operands of the products the smaller one is transformed as a
// whole, the other in pieces that stay in the caches while they are used. Every result is made by one piece, and its
// sums do not depend on how pieces are spread.
// Reference: conv2d_cpu.cpp.
#include "ops/conv/cpu/winograd.h"

#include <algorithm>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "ops/conv/cpu/winograd_kernels.h"
#include "ops/scratch.h"

namespace hearth::kernels::winograd {
namespace {

// Squares of which many are multiplied at a time by all filters: what is transformed of 64 or 128 channels stays in an
// L2 of 1 MB, and their number is even for 8 threads.
std::int64_t block_of(std::int64_t squares, int tile) {
  const std::int64_t blocks = round_up(ceil_div(squares, tile == wide_tile ? 14 : 28), 8);
  return std::max(ceil_div(squares, blocks), std::min<std::int64_t>(squares, 12));
}

/// How results of one axis are cut.
struct Cut {
  std::int64_t squares, shorter;

  Cut(std::int64_t results, std::int64_t tile)
      : squares(ceil_div(results, tile)), shorter(std::min(squares, squares * tile - results)) {}
};

/// For results of p x q, of all images. Where an image has many squares shorter ones save little.
Squares squares_of(int tile, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t channels, std::int64_t pad_h,
                   std::int64_t pad_w, std::int64_t p, std::int64_t q) {
  const Cut down(p, tile), across(q, tile);
  const bool even = down.squares * across.squares > 32;
  const std::int64_t shorter_down = even ? 0 : down.shorter, shorter_across = even ? 0 : across.shorter;
  return {tile, n, h, w, channels, pad_h, pad_w, down.squares, across.squares, shorter_down, shorter_across, n};
}

/// Squares that are taken together, about so many: whole images, sorted as groups, where squares differ in size.
std::int64_t take_together(Squares& squares, std::int64_t wanted) {
  if (squares.short_down + squares.short_across == 0) return wanted;
  squares.group = std::clamp<std::int64_t>(wanted / squares.of_image(), 1, squares.n);
  return squares.group * squares.of_image();
}

Planes take_planes(std::int64_t planes, std::int64_t rows, std::int64_t columns, cpu::Scratch& scratch) {
  const std::int64_t row = Planes::row_of(columns), plane = Planes::plane_of(rows * row);
  return {scratch.take<float>(planes * plane), row, plane};
}

template <class T>
const T* zeros(std::int64_t count, cpu::Scratch& scratch) {
  T* made = scratch.take<T>(count);
  std::fill_n(made, count, T());
  return made;
}

/// A convolution as the forward pass has it, of images to results.
template <class T, class W>
class Convolution {
 public:
  struct Operands {
    Squares from;  ///< patches of the images
    Squares to;    ///< tiles of the results
    Filters<W> filters;
    Finish finish;
    const T* images;
    T* results;
  };

  explicit Convolution(const Operands& operands)
      : o_(operands),
        squares_(o_.to.count()),
        by_squares_(squares_ > o_.filters.outputs),
        block_(by_squares_ ? block_of(squares_, o_.to.tile) : squares_),
        chunks_(ceil_div(o_.filters.outputs, chunk)),
        row_size_(o_.to.patch() * FilterPanels::plane_of(o_.filters.terms)) {
    if (by_squares_) {
      block_ = take_together(o_.to, block_);
    } else {
      // Halves of the images, each with filters of its own, lie in their threads' L3 where there are several.
      if (squares_ >= 128) o_.to.group = ceil_div(o_.to.n, 2);
    }
    o_.from.group = o_.to.group;
  }

  void run() const {
    cpu::Scratch scratch;
    const T* outside = zeros<T>(o_.from.channels, scratch);
    if (by_squares_)
      run_by_squares(outside, scratch);
    else
      run_by_outputs(outside, scratch);
  }

 private:
  // All filters are transformed first.
  void run_by_squares(const T* outside, cpu::Scratch& scratch) const {
    const std::int64_t size = patch() * row_size_;
    float* all = scratch.take<float>(chunks_ * size);
    cpu::parallel_chunks(chunks_, [&](std::int64_t i) {
      cpu::Scratch own;
      const T* gathered = gather(i, own);
      for (int row = 0; row < patch(); ++row)
        transform_filters(o_.to.tile, row, gathered, panels(all + i * size + row * row_size_));
    });
    cpu::parallel_for(squares_, block_, [&](std::int64_t begin, std::int64_t end) {
      cpu::Scratch own;
      const Planes images = take(block_, o_.from.channels, own), sums = take(block_, chunk, own);
      const Range which{begin, end};
      transform_images(o_.from, o_.images, outside, which, images);
      for (std::int64_t i = 0; i < chunks_; ++i) {
        for (int row = 0; row < patch(); ++row)
          multiply_filters(o_.to, which, row, images, panels(all + i * size + row * row_size_), sums);
        store(i, which, sums);
      }
    });
  }

  // Filters are transformed as they are needed, a row of planes at a time, which stays in an L2.
  void run_by_outputs(const T* outside, cpu::Scratch& scratch) const {
    const Planes images = take(squares_, o_.from.channels, scratch);
    cpu::parallel_for(squares_, 4, [&](std::int64_t begin, std::int64_t end) {
      transform_images(o_.from, o_.images, outside, {begin, end}, images.from_row(begin));
    });
    const std::int64_t part = o_.to.group * o_.to.of_image();
    cpu::parallel_chunks(ceil_div(squares_, part) * chunks_, [&](std::int64_t i) {
      const Range which{i / chunks_ * part, std::min(squares_, (i / chunks_ + 1) * part)};
      cpu::Scratch own;
      const Planes sums = take(part, chunk, own);
      const T* gathered = gather(i % chunks_, own);
      const FilterPanels filters = panels(own.take<float>(row_size_));
      for (int row = 0; row < patch(); ++row) {
        transform_filters(o_.to.tile, row, gathered, filters);
        multiply_filters(o_.to, which, row, images.from_row(which.begin), filters, sums);
      }
      store(i % chunks_, which, sums);
    });
  }

  int patch() const { return o_.to.patch(); }
  Planes take(std::int64_t rows, std::int64_t columns, cpu::Scratch& scratch) const {
    return take_planes(o_.to.planes(), rows, columns, scratch);
  }
  FilterPanels panels(float* data) const { return {data, o_.filters.terms}; }
  const T* gather(std::int64_t i, cpu::Scratch& scratch) const {
    T* const gathered = scratch.take<T>(taps * o_.filters.terms * chunk);
    gather_filters(o_.filters, i * chunk, gathered);
    return gathered;
  }

  // A chunk of outputs of some squares.
  void store(std::int64_t i, Range squares, const Planes& sums) const {
    store_results(o_.to, squares, {i * chunk, std::min((i + 1) * chunk, o_.filters.outputs)}, sums, o_.finish,
                  o_.results);
  }

  Operands o_;
  std::int64_t squares_;
  bool by_squares_;
  std::int64_t block_, chunks_;
  std::int64_t row_size_;  // of a row of planes of filters
};

/// The gradient of the filters.
template <class T, class W>
class FilterGradient {
 public:
  FilterGradient(int tile, const ConvShape& s, const T* x, const T* dy, W* dw)
      : s_(s),
        from_(squares_of(tile, s.n, s.h, s.w, s.c, s.pad_h, s.pad_w, s.p, s.q)),
        to_(squares_of(tile, s.n, s.p, s.q, s.k, 0, 0, s.p, s.q)),
        squares_(to_.count()),
        x_(x),
        dy_(dy),
        dw_(dw) {}

  void run() const {
    cpu::Scratch scratch;
    const T* outside = zeros<T>(std::max(s_.c, s_.k), scratch);
    if (squares_ > 2 * s_.k)
      run_by_parts(outside, scratch);
    else
      run_by_filters(outside, scratch);
  }

 private:
  // Parts of the squares, and some filters, are the work of a thread, which takes some squares at a time: what it has
  // transformed and summed stays in its caches. The parts' sums are added in order.
  void run_by_parts(const T* outside, cpu::Scratch& scratch) const {
    const std::int64_t pieces = ceil_div(s_.k, 64), filters = ceil_div(s_.k, pieces);
    const std::int64_t share = std::clamp<std::int64_t>((1 << 18) / (to_.planes() * (s_.c + filters)), 64, 256);
    Squares from = from_, to = to_;
    const std::int64_t most = take_together(to, std::min(share, squares_));
    from.group = to.group;
    const std::int64_t shares = ceil_div(squares_, most), parts = std::min(ceil_div(at_once, pieces), shares);
    const Planes sums = take_planes(to_.planes(), parts * s_.k, s_.c, scratch);
    cpu::parallel_chunks(parts * pieces, [&](std::int64_t i) {
      const std::int64_t part = i / pieces, first = i % pieces * filters;
      const Range own_filters{first, std::min(first + filters, s_.k)};
      cpu::Scratch own;
      const Planes images = take_planes(to_.planes(), most, s_.c, own),
                   gradients = take_planes(to_.planes(), most, filters, own);
      const Range own_shares{part * shares / parts, (part + 1) * shares / parts};
      for (std::int64_t at = own_shares.begin; at < own_shares.end; ++at) {
        const Range which{at * most, std::min((at + 1) * most, squares_)};
        transform_images(from, x_, outside, which, images);
        transform_gradients(to, dy_, outside, own_filters, which, gradients);
        multiply_squares(own_filters.size(), s_.c, to, which, gradients, images, sums.from_row(part * s_.k + first),
                         at > own_shares.begin);
      }
    });
    cpu::parallel_for(s_.k, 8, [&](std::int64_t begin, std::int64_t end) {
      store_filters(to_.tile, end - begin, s_.c, sums.from_row(begin), {parts, s_.k}, dw_ + begin * taps * s_.c);
    });
  }

  // The images of all squares are kept, and some filters at a time are finished. Halves of the images, each summed for
  // itself, lie in their threads' L3 where there are several; the halves' gradients are added in f32.
  void run_by_filters(const T* outside, cpu::Scratch& scratch) const {
    Squares from = from_, to = to_;
    if (squares_ >= 128) from.group = to.group = ceil_div(s_.n, 2);
    const std::int64_t part = to.group * to.of_image(), parts = ceil_div(squares_, part), size = s_.k * taps * s_.c;
    const std::int64_t pieces = round_up(ceil_div(s_.k, 42), ceil_div(at_once, parts));
    const std::int64_t filters = ceil_div(s_.k, pieces);
    const Planes images = take_planes(to_.planes(), squares_, s_.c, scratch);
    float* const halves = parts > 1 ? scratch.take<float>(parts * size) : nullptr;
    cpu::parallel_for(squares_, 4, [&](std::int64_t begin, std::int64_t end) {
      transform_images(from, x_, outside, {begin, end}, images.from_row(begin));
    });
    cpu::parallel_chunks(parts * pieces, [&](std::int64_t i) {
      const std::int64_t begin = i % pieces * filters, end = std::min(begin + filters, s_.k), at = begin * taps * s_.c;
      if (begin >= end) return;
      const Range which{i / pieces * part, std::min((i / pieces + 1) * part, squares_)};
      cpu::Scratch own;
      const Planes gradients = take_planes(to_.planes(), part, filters, own),
                   sums = take_planes(to_.planes(), filters, s_.c, own);
      transform_gradients(to, dy_, outside, {begin, end}, which, gradients);
      multiply_squares(end - begin, s_.c, to, which, gradients, images.from_row(which.begin), sums, false);
      if (halves == nullptr)
        store_filters(to_.tile, end - begin, s_.c, sums, {1, 0}, dw_ + at);
      else
        store_filters(to_.tile, end - begin, s_.c, sums, {1, 0}, halves + i / pieces * size + at);
    });
    if (halves == nullptr) return;
    cpu::parallel_for(size, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      add_filters(halves + begin, {parts, size}, end - begin, dw_ + begin);
    });
  }

  // Pieces of work wanted, at least: as many as threads usually are, or a multiple.
  static constexpr std::int64_t at_once = 8;

  ConvShape s_;
  Squares from_, to_;
  std::int64_t squares_;
  const T* x_;
  const T* dy_;
  W* dw_;
};

}  // namespace

template <class T, class W>
void forward(int tile, const ConvShape& s, const T* x, const W* w, const float* b, bool relu, T* y) {
  Convolution<T, W>({.from = squares_of(tile, s.n, s.h, s.w, s.c, s.pad_h, s.pad_w, s.p, s.q),
                     .to = squares_of(tile, s.n, s.p, s.q, s.k, 0, 0, s.p, s.q),
                     .filters = {w, 1, taps * s.c, s.c, s.c, s.k},
                     .finish = {.bias = b, .relu = relu},
                     .images = x,
                     .results = y})
      .run();
}

// The forward pass of dy, by filters turned by half a circle.
template <class T, class W>
void backward_data(int tile, const ConvShape& s, const T* dy, const W* w, bool accumulate, T* dx) {
  Convolution<T, W>({.from = squares_of(tile, s.n, s.p, s.q, s.k, 2 - s.pad_h, 2 - s.pad_w, s.h, s.w),
                     .to = squares_of(tile, s.n, s.h, s.w, s.c, 0, 0, s.h, s.w),
                     .filters = {w + (taps - 1) * s.c, taps * s.c, 1, -s.c, s.k, s.c},
                     .finish = {.accumulate = accumulate},
                     .images = dy,
                     .results = dx})
      .run();
}

template <class T, class W>
void backward_weights(int tile, const ConvShape& s, const T* x, const T* dy, W* dw) {
  FilterGradient<T, W>(tile, s, x, dy, dw).run();
}

#define HEARTH_INSTANTIATE(T, W)                                                            \
  template void forward(int, const ConvShape&, const T*, const W*, const float*, bool, T*); \
  template void backward_data(int, const ConvShape&, const T*, const W*, bool, T*);         \
  template void backward_weights(int, const ConvShape&, const T*, const T*, W*);
HEARTH_INSTANTIATE(float, float)
HEARTH_INSTANTIATE(bf16, float)
HEARTH_INSTANTIATE(bf16, bf16)
#undef HEARTH_INSTANTIATE

namespace {

// The share of taps that fall on pixels.
double share_inside(const ConvShape& s) {
  const auto inside = [](std::int64_t in, std::int64_t out, std::int64_t pad) {
    std::int64_t found = 0;
    for (std::int64_t tap = -pad; tap < 3 - pad; ++tap)
      found += std::max<std::int64_t>(std::min(out, in - tap) - std::max<std::int64_t>(-tap, 0), 0);
    return static_cast<double>(found) / static_cast<double>(3 * out);
  };
  return inside(s.h, s.p, s.pad_h) * inside(s.w, s.q, s.pad_w);
}

/// In f32 multiplications and additions done in the same time beside bf16; beside f32 transforms take half as many.
struct Cost {
  double products, transforms;

  Cost(const ConvShape& s, Pass pass, int tile) {
    const bool wide = tile == wide_tile, data = pass == Pass::backward_data;
    const Squares cut = squares_of(tile, s.n, 0, 0, 0, 0, 0, data ? s.h : s.p, data ? s.w : s.q);
    const std::int64_t down = cut.patch() * cut.down - cut.short_down;
    const std::int64_t across = cut.patch() * cut.across - cut.short_across;
    // Channels are padded to whole pieces or vectors.
    const auto k = static_cast<double>(pass == Pass::forward ? round_up(s.k, chunk) : s.k);
    const auto c = static_cast<double>(pass == Pass::forward ? s.c : round_up(s.c, data ? chunk : 16));
    products = static_cast<double>(s.n * down * across) * c * k / 0.88;
    const double of_square = wide ? 1600 : 600, of_filter = wide && pass == Pass::backward_weights ? 2000 : 600;
    transforms = of_square * static_cast<double>(cut.count()) * (c + k) + of_filter * c * k;
  }
};

}  // namespace

int tile_of(const ConvShape& s, Pass pass, DType images) {
  if (images == DType::f32) return narrow_tile;
  const Cost narrow(s, pass, narrow_tile), wide(s, pass, wide_tile);
  return wide.products + wide.transforms < narrow.products + narrow.transforms ? wide_tile : narrow_tile;
}

std::string why_slower(const ConvShape& s, Pass pass, DType images, Rival rival) {
  const Cost cost(s, pass, tile_of(s, pass, images));
  const double definition = flops_of(s) / 2;
  const bool faster =
      rival == Rival::f32
          ? definition * (pass == Pass::backward_weights ? 1.33 : 1.0) > 1.25 * (cost.products + cost.transforms / 2)
          : definition * std::min(1.0, 1.07 * share_inside(s)) / 1.84 > 1.1 * (cost.products + cost.transforms);
  return faster ? "" : "transforms outweigh what they save";
}

}  // namespace hearth::kernels::winograd
