// SPDX-License-Identifier: Apache-2.0
// PowerSGD: gradients of matrices as products of two thin ones.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/strategy/strategy.h"

namespace hearth::dist {

struct PowerSgdOptions {
  std::int64_t rank = 2;       ///< columns of the thin matrices, 1 to 64
  std::uint64_t seed = 0;      ///< of the matrices that it begins with
  bool error_feedback = true;  ///< off, as tests of it need: what a product leaves out is lost
};

/// A parameter [rows, ...] is a matrix m [rows, columns]. With q [columns, rank] of the step before: p = sum of m q
/// over the ranks, made orthonormal; q = sum of m^T p; the sum of gradients is p q^T. Each rank adds what the product
/// with its own part of q leaves out to its next gradient. Parameters that this makes less than half as large, and
/// those of rank 0 and 1, are summed as they are, along with p. Source: Vogels et al. 2019 (arXiv:1905.13727).
class PowerSgd final : public Strategy {
 public:
  /// ConfigError for a rank outside of 1 to 64; see parts_of().
  PowerSgd(const StrategyContext& context, const PowerSgdOptions& options);

  const char* name() const override { return "powersgd"; }
  std::vector<std::pair<std::string, std::string>> settings() const override;
  Work begin(std::size_t bucket, const Tensor& grads) override;
  int further() const override { return 1; }
  Work next(std::size_t bucket, const Tensor& grads) override;
  void end(std::size_t bucket, const Tensor& grads) override;
  bool is_stateful() const override { return true; }
  void commit() override;
  void set_scale(double scale) override { coming_scale_ = scale; }
  void register_state(State& state) override;
  std::vector<Transfer> transfers(std::size_t bucket) const override {
    return {{.is_sum = true, .count = layouts_[bucket].p.size(), .type = DType::f32},
            {.is_sum = true, .count = layouts_[bucket].q.size(), .type = DType::f32}};
  }
  std::int64_t payload() const override { return payload_; }

 private:
  struct Matrix {
    std::int64_t begin;  ///< first element within the bucket
    std::int64_t rows, columns;
    std::int64_t p_at, q_at;  ///< first element of p [rank, rows] and q [rank, columns] among the bucket's
  };
  struct Whole {
    std::int64_t begin, size, at;  ///< within the bucket, and in `p`
  };
  /// Rows or columns of a matrix that a thread takes at once.
  struct Piece {
    std::size_t matrix;
    std::int64_t begin, end;
  };
  struct Layout {
    std::int64_t begin = 0, q_begin = 0;  ///< among all gradients, and among all q
    std::vector<Matrix> matrices;
    std::vector<Whole> wholes;
    std::vector<Piece> rows, columns;
    Tensor p, q, sum_of_q;
  };

  void lay_out(Layout& layout, const std::vector<BucketPart>& parts);
  float* residual(const Layout& layout, const Matrix& matrix) const {
    return residual_.next() + layout.begin + matrix.begin;
  }
  void take_basis(const Layout& layout, const Matrix& matrix);

  Collective& group_;
  PowerSgdOptions options_;
  std::vector<Layout> layouts_;
  RankState residual_;
  Tensor basis_, next_basis_;  ///< q of all buckets, columns of length 1
  double scale_ = 1, coming_scale_ = 1;
  std::int64_t payload_ = 0;
};

/// Makes the rows of p [rank, n], one after the other, orthonormal (Gram-Schmidt, twice), with sums in f64. What
/// depends on rows before it becomes zeros.
void make_orthonormal(float* p, std::int64_t rank, std::int64_t n);

}  // namespace hearth::dist
