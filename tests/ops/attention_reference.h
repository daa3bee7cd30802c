// SPDX-License-Identifier: Apache-2.0
// Attention by its definition in double precision, and what the tests of it share.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/op_test.h"

namespace hearth::test {

/// Scores, softmax and values hold rounding errors of their own, and kept results are rounded before the gradient.
inline constexpr CheckOptions rounded{.tolerance_scale = 4.0};

struct Case {
  std::int64_t n, tq, tk, h, d;
};

inline Tensor lengths_of(Draw& draw, const std::vector<double>& values) {
  return draw.indices({static_cast<std::int64_t>(values.size())}, values, DType::i32);
}

/// The definition, in plain loops over row-major values.
struct Naive {
  Case c;
  bool causal = false;
  std::int64_t offset = 0;
  double scale = 0.0;
  std::vector<double> lengths = {};
  std::vector<double> bias = {};        ///< [H, Tq, Tk]
  std::vector<std::int64_t> cuts = {};  ///< where segments begin, but for the first

  std::vector<double> operator()(const std::vector<double>& q, const std::vector<double>& k,
                                 const std::vector<double>& v) const {
    std::vector<double> y(q.size(), 0.0);
    const auto at = [&](const std::vector<double>& x, std::int64_t t, std::int64_t n, std::int64_t i, std::int64_t h,
                        std::int64_t e) { return x[static_cast<std::size_t>(((n * t + i) * c.h + h) * c.d + e)]; };
    for (std::int64_t n = 0; n < c.n; ++n)
      for (std::int64_t h = 0; h < c.h; ++h)
        for (std::int64_t i = 0; i < c.tq; ++i) {
          std::int64_t keys = c.tk;
          if (!lengths.empty())
            keys = std::clamp<std::int64_t>(std::llround(lengths[static_cast<std::size_t>(n)]), 0, keys);
          if (causal) keys = std::min(keys, offset + i + 1);
          const auto [begin, end] = segment_of(i);
          keys = std::max(begin, std::min(keys, end));
          std::vector<double> weight(static_cast<std::size_t>(keys));
          double sum = 0;
          for (std::int64_t j = begin; j < keys; ++j) {
            double score = 0;
            for (std::int64_t e = 0; e < c.d; ++e) score += at(q, c.tq, n, i, h, e) * at(k, c.tk, n, j, h, e);
            score *= scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(c.d));
            if (!bias.empty()) score += bias[static_cast<std::size_t>((h * c.tq + i) * c.tk + j)];
            sum += weight[static_cast<std::size_t>(j)] = std::exp(score);
          }
          for (std::int64_t e = 0; e < c.d; ++e) {
            double value = 0;
            for (std::int64_t j = begin; j < keys; ++j)
              value += weight[static_cast<std::size_t>(j)] / sum * at(v, c.tk, n, j, h, e);
            y[static_cast<std::size_t>(((n * c.tq + i) * c.h + h) * c.d + e)] = keys > begin ? value : 0.0;
          }
        }
    return y;
  }

  std::pair<std::int64_t, std::int64_t> segment_of(std::int64_t i) const {
    std::pair<std::int64_t, std::int64_t> segment{0, c.tk};
    for (const std::int64_t cut : cuts) {
      if (cut <= i) segment.first = cut;
      if (cut > i) return {segment.first, cut};
    }
    return segment;
  }
};

/// [N, T, 2] of sequences that are cut alike.
inline Tensor segments_of(Draw& draw, const Naive& naive) {
  std::vector<double> values;
  for (std::int64_t n = 0; n < naive.c.n; ++n)
    for (std::int64_t i = 0; i < naive.c.tq; ++i) {
      const auto [begin, end] = naive.segment_of(i);
      values.insert(values.end(), {static_cast<double>(begin), static_cast<double>(end)});
    }
  return draw.indices({naive.c.n, naive.c.tq, 2}, values, DType::i32);
}

}  // namespace hearth::test
