// SPDX-License-Identifier: Apache-2.0
// Reductions over the flat gradients. Each piece of fixed size has its own partial result; partial results are combined
// in order. Traffic: one read.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/parallel.h"
#include "optim/clip.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "optim/clip_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

// Sixteen running sums, whatever the vector width, so that all ISA levels add in the same order.
template <class T>
double squares(const T* x, std::int64_t n, double scale) {
  double sums[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
#pragma omp simd
    for (int lane = 0; lane < 16; ++lane) {
      const double value = static_cast<double>(x[i + lane]) * scale;
      sums[lane] += value * value;
    }
  }
  for (int lane = 0; i < n; ++i, ++lane) {
    const double value = static_cast<double>(x[i]) * scale;
    sums[lane] += value * value;
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

template <class T>
double largest(const T* x, std::int64_t n) {
  T most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const T size = std::abs(x[i]);
    most = size <= most ? most : size;  // a NaN compares false and is taken, and then never replaced by a number
    if (most != most) return static_cast<double>(most);
  }
  return static_cast<double>(most);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

namespace {

constexpr std::int64_t piece_elements = 65536, pieces_of_a_task = 4;

std::size_t pieces_of(std::int64_t n) { return static_cast<std::size_t>((n + piece_elements - 1) / piece_elements); }

}  // namespace

template <class T>
double sum_of_squares(const T* x, std::int64_t n, double scale) {
  return HEARTH_ISA_CALL(squares<T>, x, n, scale);
}
template double sum_of_squares(const float*, std::int64_t, double);
template double sum_of_squares(const double*, std::int64_t, double);

std::vector<double> squares_of_pieces(const Tensor& x, double scale, std::span<const std::int64_t> ends) {
  std::vector<double> sums(ends.size(), 0.0);
  visit_dtype("sum_of_squares", x.dtype(), FullFloats{}, [&]<class T>() {
    const T* const values = x.data<const T>();
    cpu::parallel_for(static_cast<std::int64_t>(ends.size()), pieces_of_a_task,
                      [&](std::int64_t first, std::int64_t last) {
                        for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
                          const std::int64_t begin = i == 0 ? 0 : ends[i - 1];
                          sums[i] = sum_of_squares(values + begin, ends[i] - begin, scale);
                        }
                      });
  });
  return sums;
}

double sum_of_squares(cpu::Stream&, const Tensor& x, double scale) {
  std::vector<std::int64_t> ends;
  for (std::int64_t begin = 0; begin < x.size(); begin += piece_elements)
    ends.push_back(std::min(x.size(), begin + piece_elements));
  double sum = 0;
  for (const double part : squares_of_pieces(x, scale, ends)) sum += part;
  return sum;
}

double largest_magnitude(cpu::Stream&, const Tensor& x) {
  std::vector<double> partial(pieces_of(x.size()), 0.0);
  visit_dtype("largest_magnitude", x.dtype(), FullFloats{}, [&]<class T>() {
    const T* values = x.data<const T>();
    cpu::parallel_for(x.size(), piece_elements, [&](std::int64_t begin, std::int64_t end) {
      partial[static_cast<std::size_t>(begin / piece_elements)] =
          HEARTH_ISA_CALL(largest<T>, values + begin, end - begin);
    });
  });
  double most = 0;
  for (const double part : partial) most = part <= most ? most : (most != most ? most : part);
  return most;
}

}  // namespace hearth::kernels
#endif
