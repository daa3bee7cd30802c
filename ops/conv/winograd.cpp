// SPDX-License-Identifier: Apache-2.0
// How the work of Winograd's convolution is cut: of the operands of the 36 products the smaller one is transformed as a
// whole, the other in pieces that stay in the caches while they are used. Every result is made by one piece, and its
// sums do not depend on how pieces are spread.
// Reference: conv2d_cpu.cpp.
#include "ops/conv/winograd.h"

#include <algorithm>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "ops/conv/winograd_kernels.h"
#include "ops/scratch.h"

namespace hearth::kernels::winograd {
namespace {

// Squares that are multiplied at a time. Where each task takes so many, what is transformed of 64 or 128 channels
// stays in an L2 of 1 MB, and their number is even for 8 threads; else their sums are all that is to stay.
std::int64_t block_of(std::int64_t squares, bool by_squares) {
  if (!by_squares) return ceil_div(squares, ceil_div(squares, 56));
  const std::int64_t blocks = round_up(ceil_div(squares, 28), 8);
  return std::max(ceil_div(squares, blocks), std::min<std::int64_t>(squares, 12));
}

Squares squares_of(std::int64_t h, std::int64_t w, std::int64_t channels, std::int64_t pad_h, std::int64_t pad_w,
                   std::int64_t p, std::int64_t q) {
  return {h, w, channels, pad_h, pad_w, ceil_div(p, tile), ceil_div(q, tile)};
}

Planes take_planes(std::int64_t rows, std::int64_t columns, cpu::Scratch& scratch) {
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
    std::int64_t n;
    Squares from;  ///< patches of the images
    Squares to;    ///< tiles of the results
    Filters<W> filters;
    Finish finish;
    const T* images;
    T* results;
  };

  explicit Convolution(const Operands& operands)
      : o_(operands),
        squares_(o_.n * o_.to.down * o_.to.across),
        by_squares_(squares_ > o_.filters.outputs),
        block_(block_of(squares_, by_squares_)),
        chunks_(ceil_div(o_.filters.outputs, chunk)),
        filter_size_(FilterPanels::size_of(o_.filters.terms)) {}

  void run() const {
    cpu::Scratch scratch;
    const T* outside = zeros<T>(o_.from.channels, scratch);
    if (by_squares_)
      run_by_squares(outside, scratch);
    else
      run_by_outputs(outside, scratch);
  }

 private:
  void run_by_squares(const T* outside, cpu::Scratch& scratch) const {
    float* all = scratch.take<float>(chunks_ * filter_size_);
    const auto filters = [&](std::int64_t i) { return FilterPanels{all + i * filter_size_, o_.filters.terms}; };
    cpu::parallel_chunks(chunks_, [&](std::int64_t i) { transform_filters(o_.filters, i * chunk, filters(i)); });
    cpu::parallel_for(squares_, block_, [&](std::int64_t begin, std::int64_t end) {
      cpu::Scratch own;
      const Planes images = take_planes(block_, o_.from.channels, own);
      transform_images(o_.from, o_.images, outside, {begin, end}, images);
      for (std::int64_t i = 0; i < chunks_; ++i) multiply(i, images, filters(i), {begin, end});
    });
  }

  void run_by_outputs(const T* outside, cpu::Scratch& scratch) const {
    const Planes images = take_planes(squares_, o_.from.channels, scratch);
    cpu::parallel_for(squares_, 4, [&](std::int64_t begin, std::int64_t end) {
      transform_images(o_.from, o_.images, outside, {begin, end}, images.from_row(begin));
    });
    cpu::parallel_chunks(chunks_, [&](std::int64_t i) {
      cpu::Scratch own;
      const FilterPanels filters{own.take<float>(filter_size_), o_.filters.terms};
      transform_filters(o_.filters, i * chunk, filters);
      for (std::int64_t begin = 0; begin < squares_; begin += block_)
        multiply(i, images.from_row(begin), filters, {begin, std::min(squares_, begin + block_)});
    });
  }

  // A chunk of outputs of some squares.
  void multiply(std::int64_t i, const Planes& images, const FilterPanels& filters, Range squares) const {
    cpu::Scratch own;
    const Planes sums = take_planes(block_, chunk, own);
    multiply_filters({0, planes}, squares.size(), images, filters, sums);
    const Range channels{i * chunk, std::min((i + 1) * chunk, o_.filters.outputs)};
    store_results(o_.to, squares, channels, sums, o_.finish, o_.results);
  }

  Operands o_;
  std::int64_t squares_;
  bool by_squares_;
  std::int64_t block_, chunks_, filter_size_;
};

/// The gradient of the filters.
template <class T, class W>
class FilterGradient {
 public:
  FilterGradient(const ConvShape& s, const T* x, const T* dy, W* dw)
      : s_(s),
        from_(squares_of(s.h, s.w, s.c, s.pad_h, s.pad_w, s.p, s.q)),
        to_(squares_of(s.p, s.q, s.k, 0, 0, s.p, s.q)),
        squares_(s.n * to_.down * to_.across),
        x_(x),
        dy_(dy),
        dw_(dw) {}

  void run() const {
    cpu::Scratch scratch;
    const T* outside = zeros<T>(std::max(s_.c, s_.k), scratch);
    if (squares_ > s_.k)
      run_by_squares(outside, scratch);
    else
      run_by_filters(outside, scratch);
  }

 private:
  // The sums of all filters are kept, and some squares at a time are added to them.
  void run_by_squares(const T* outside, cpu::Scratch& scratch) const {
    const std::int64_t share = std::clamp<std::int64_t>((1 << 19) / (planes * (s_.c + s_.k)), 32, 256);
    const std::int64_t most = ceil_div(squares_, ceil_div(squares_, share));
    const Planes sums = take_planes(s_.k, s_.c, scratch);
    const Planes images = take_planes(most, s_.c, scratch), gradients = take_planes(most, s_.k, scratch);
    for (std::int64_t first = 0; first < squares_; first += most) {
      const std::int64_t count = std::min(most, squares_ - first);
      cpu::parallel_for(count, 4, [&](std::int64_t begin, std::int64_t end) {
        const Range which{first + begin, first + end};
        transform_images(from_, x_, outside, which, images.from_row(begin));
        transform_gradients(to_, dy_, outside, {0, s_.k}, which, gradients.from_row(begin));
      });
      cpu::parallel_chunks(planes, [&](std::int64_t i) {
        multiply_squares({i, i + 1}, s_.k, s_.c, count, gradients, images, sums, first > 0);
      });
    }
    cpu::parallel_for(s_.k, 8, [&](std::int64_t begin, std::int64_t end) {
      store_filters(end - begin, s_.c, sums.from_row(begin), dw_ + begin * taps * s_.c);
    });
  }

  // The images of all squares are kept, and some filters at a time are finished.
  void run_by_filters(const T* outside, cpu::Scratch& scratch) const {
    constexpr std::int64_t filters = 42;
    const Planes images = take_planes(squares_, s_.c, scratch);
    cpu::parallel_for(squares_, 4, [&](std::int64_t begin, std::int64_t end) {
      transform_images(from_, x_, outside, {begin, end}, images.from_row(begin));
    });
    cpu::parallel_for(s_.k, filters, [&](std::int64_t begin, std::int64_t end) {
      cpu::Scratch own;
      const Planes gradients = take_planes(squares_, filters, own), sums = take_planes(filters, s_.c, own);
      transform_gradients(to_, dy_, outside, {begin, end}, {0, squares_}, gradients);
      multiply_squares({0, planes}, end - begin, s_.c, squares_, gradients, images, sums, false);
      store_filters(end - begin, s_.c, sums, dw_ + begin * taps * s_.c);
    });
  }

  ConvShape s_;
  Squares from_, to_;
  std::int64_t squares_;
  const T* x_;
  const T* dy_;
  W* dw_;
};

}  // namespace

template <class T, class W>
void forward(const ConvShape& s, const T* x, const W* w, const float* b, bool relu, T* y) {
  Convolution<T, W>({.n = s.n,
                     .from = squares_of(s.h, s.w, s.c, s.pad_h, s.pad_w, s.p, s.q),
                     .to = squares_of(s.p, s.q, s.k, 0, 0, s.p, s.q),
                     .filters = {w, 1, taps * s.c, s.c, s.c, s.k, std::is_same_v<T, bf16>},
                     .finish = {b, relu},
                     .images = x,
                     .results = y})
      .run();
}

// The forward pass of dy, by filters turned by half a circle.
template <class T, class W>
void backward_data(const ConvShape& s, const T* dy, const W* w, T* dx) {
  Convolution<T, W>({.n = s.n,
                     .from = squares_of(s.p, s.q, s.k, 2 - s.pad_h, 2 - s.pad_w, s.h, s.w),
                     .to = squares_of(s.h, s.w, s.c, 0, 0, s.h, s.w),
                     .filters = {w + (taps - 1) * s.c, taps * s.c, 1, -s.c, s.k, s.c, std::is_same_v<T, bf16>},
                     .finish = {},
                     .images = dy,
                     .results = dx})
      .run();
}

template <class T, class W>
void backward_weights(const ConvShape& s, const T* x, const T* dy, W* dw) {
  FilterGradient<T, W>(s, x, dy, dw).run();
}

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

}  // namespace

#define HEARTH_INSTANTIATE(T, W)                                                       \
  template void forward(const ConvShape&, const T*, const W*, const float*, bool, T*); \
  template void backward_data(const ConvShape&, const T*, const W*, T*);               \
  template void backward_weights(const ConvShape&, const T*, const T*, W*);
HEARTH_INSTANTIATE(float, float)
HEARTH_INSTANTIATE(bf16, float)
HEARTH_INSTANTIATE(bf16, bf16)
#undef HEARTH_INSTANTIATE

std::string why_slower(const ConvShape& s, Pass pass, Rival rival) {
  const bool gradient = pass == Pass::backward_weights, data = pass == Pass::backward_data;
  const std::int64_t rows = ceil_div(data ? s.h : s.p, tile), columns = ceil_div(data ? s.w : s.q, tile);
  const auto squares = static_cast<double>(s.n * rows * columns);
  // Channels are padded to whole pieces or vectors.
  const auto k = static_cast<double>(pass == Pass::forward ? round_up(s.k, chunk) : s.k);
  const auto c = static_cast<double>(pass == Pass::forward ? s.c : round_up(s.c, data ? chunk : 16));
  const double products = planes * squares * c * k / 0.88, transformed = squares * (c + k) + c * k;
  const double definition = flops_of(s) / 2;
  // A gradient that keeps its images reads them again for some filters at a time; from the L3 that takes longer.
  const bool rereads = gradient && squares <= k && planes * squares * c > 1 << 20;
  const double margin = rival == Rival::f32 || rereads ? 1.25 : 1.1;
  const bool faster =
      rival == Rival::f32
          ? definition * (gradient ? 1.33 : 1.0) > margin * (products + 300 * transformed)
          : definition * std::min(1.0, 1.07 * share_inside(s)) / 1.84 > margin * (products + 600 * transformed);
  return faster ? "" : "transforms outweigh what they save";
}

}  // namespace hearth::kernels::winograd
