// SPDX-License-Identifier: Apache-2.0
// The arithmetic of Winograd's convolution, each function on the calling thread; winograd.cpp spreads the work.
//
// With images d (patches of 6x6), filters g (3x3) and results y (tiles of 4x4), or patches of 9x9 and tiles of 7x7,
// each of one channel:
//   y = A^T [(G g G^T) * (B^T d B)] A,  summed over channels before A,       * being the product of elements
//   dg = G^T [(A dy A^T) * (B^T d B)] G,  summed over tiles before G,
// so that the sums are 36 matrix products, or 81.
// The sums and what is transformed are f32; images, results and filters are f32 or bf16 (T, W).
#pragma once

#include <cstdint>

#include "core/half.h"

namespace hearth::kernels::winograd {

constexpr int taps = 9;
/// Outputs in a piece of transformed filters; two vectors of every ISA level divide it.
constexpr std::int64_t chunk = 32;

inline std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }
inline std::int64_t round_up(std::int64_t x, std::int64_t y) { return ceil_div(x, y) * y; }

struct Range {
  std::int64_t begin, end;

  std::int64_t size() const { return end - begin; }
};

/// What is transformed, [planes][rows][columns]; rows are squares or filters. Neither rows nor planes lie a power of
/// two apart, which would crowd a few sets of the caches.
struct Planes {
  float* data;
  std::int64_t row, plane;

  static std::int64_t row_of(std::int64_t columns) { return round_up(columns, chunk) + 16; }
  static std::int64_t plane_of(std::int64_t elements) { return round_up(elements, 1024) + 16; }
  float* at(std::int64_t i) const { return data + i * plane; }
  Planes from_row(std::int64_t first) const { return {data + first * row, row, plane}; }
};

/// Transformed filters of `chunk` outputs, of a row of planes or of all: [planes][panels][terms][two vectors].
struct FilterPanels {
  float* data;
  std::int64_t terms;

  static std::int64_t plane_of(std::int64_t terms) { return Planes::plane_of(chunk * terms); }
};

/// Images [n, h, w, channels] cut into squares of `tile` results a side, or less at their end: the last rows of squares
/// have a row of results less each where whole ones would leave the image, columns likewise. What is short needs no
/// plane of the last index. So the squares of a group of images are sorted: tall and narrow, tall and wide, short and
/// wide, short and narrow.
struct Squares {
  int tile;
  std::int64_t n, h, w, channels, pad_h, pad_w;
  std::int64_t down, across;              ///< squares of an image
  std::int64_t short_down, short_across;  ///< the last of them have a row, a column less
  std::int64_t group;                     ///< images

  struct Corner {
    std::int64_t image, h, w;  ///< the pixel where a patch begins
    std::int64_t rows, columns;
  };
  Corner corner(std::int64_t index) const;
  /// Those of the squares, all of one group, that have results in a plane.
  Range in_plane(std::int64_t plane, Range which) const;
  /// Elements before a pixel.
  std::int64_t pixel(std::int64_t image, std::int64_t i, std::int64_t j) const {
    return ((image * h + i) * w + j) * channels;
  }
  int patch() const { return tile + 2; }
  std::int64_t planes() const { return patch() * patch(); }
  std::int64_t of_image() const { return down * across; }
  std::int64_t count() const { return n * of_image(); }
};

/// Filters by what they are summed over and what they make: tap t of term i and output o lies at
/// data[i * term + o * output + t * tap].
template <class W>
struct Filters {
  const W* data;
  std::int64_t term, output, tap;
  std::int64_t terms, outputs;
};

/// B^T d B of some squares, from the first row of `to` on; zeros behind the last channel, up to whole vectors.
/// `outside` is a pixel of zeros.
template <class T>
void transform_images(const Squares& squares, const T* images, const T* outside, Range which, const Planes& to);
/// A dy A^T of some channels.
template <class T>
void transform_gradients(const Squares& squares, const T* gradients, const T* outside, Range channels, Range which,
                         const Planes& to);
/// Filters of `chunk` outputs from `first` on side by side, [9][terms][chunk]; zeros where there are none.
template <class T, class W>
void gather_filters(const Filters<W>& filters, std::int64_t first, T* gathered);
/// A row of the planes of G g G^T.
template <class T>
void transform_filters(int tile, int row, const T* gathered, const FilterPanels& to);

/// sums [which, chunk] = images [which, terms] filters, in a row of planes.
void multiply_filters(const Squares& squares, Range which, int row, const Planes& images, const FilterPanels& filters,
                      const Planes& sums);
/// sums [m, n] = or += gradients [which, m]^T images [which, n], in all planes.
void multiply_squares(std::int64_t m, std::int64_t n, const Squares& squares, Range which, const Planes& gradients,
                      const Planes& images, const Planes& sums, bool accumulate);

/// What follows the sums of a result.
struct Finish {
  const float* bias = nullptr;  ///< [channels], added unless null
  bool relu = false;
  bool accumulate = false;  ///< to the results that are there
};
/// Some channels of some squares of the results: A^T sums A, finished.
template <class T>
void store_results(const Squares& squares, Range which, Range channels, const Planes& sums, const Finish& finish,
                   T* results);
/// Sums that are in parts, so many rows or elements apart.
struct Parts {
  std::int64_t count, apart;
};
/// Of `rows` filters: dw [rows, 3, 3, channels] = G^T sums G, the parts of the sums being added in order.
template <class W>
void store_filters(int tile, std::int64_t rows, std::int64_t channels, const Planes& sums, const Parts& parts, W* dw);
/// dw [size] = the sum of parts of it, so many elements apart.
template <class W>
void add_filters(const float* first, const Parts& parts, std::int64_t size, W* dw);

}  // namespace hearth::kernels::winograd
