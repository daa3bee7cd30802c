// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/powersgd.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/isa.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/random.h"
#include "dist/strategy/powersgd_kernels.h"

namespace hearth::dist {
namespace {

// Elements of a matrix that a thread takes at once, about.
constexpr std::int64_t piece_elements = 1 << 16;
constexpr std::int64_t piece_columns = 1024;
constexpr std::int64_t largest_rank = 64;
// Of a row, as part of its length before the rows before it were taken out of it: rounding alone.
constexpr double dependent = 1e-6;

double length_of(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(sum);
}

}  // namespace

void make_orthonormal(float* p, std::int64_t rank, std::int64_t n) {
  for (std::int64_t k = 0; k < rank; ++k) {
    float* const row = p + k * n;
    const double before = length_of(row, n);
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t j = 0; j < k; ++j) {
        const float* const other = p + j * n;
        double dot = 0;
        for (std::int64_t i = 0; i < n; ++i) dot += static_cast<double>(row[i]) * static_cast<double>(other[i]);
        for (std::int64_t i = 0; i < n; ++i)
          row[i] = static_cast<float>(static_cast<double>(row[i]) - dot * static_cast<double>(other[i]));
      }
    const double length = length_of(row, n);
    // Not so where the length is NaN, which has to reach the gradients.
    const bool depends = length <= dependent * before;
    for (std::int64_t i = 0; i < n; ++i)
      row[i] = depends ? 0.0F : static_cast<float>(static_cast<double>(row[i]) / length);
  }
}

PowerSgd::PowerSgd(const StrategyContext& context, const PowerSgdOptions& options)
    : group_(context.group), options_(options), residual_(context.group, context.parameters.grads().size()) {
  HEARTH_CHECK(ConfigError, options.rank >= 1 && options.rank <= largest_rank, "compress powersgd: rank ", options.rank,
               "; it is from 1 to ", largest_rank);
  const std::vector<std::vector<BucketPart>> parts = parts_of(context, name());
  std::int64_t q_total = 0;
  for (std::size_t i = 0; i < context.buckets.size(); ++i) {
    Layout& layout = layouts_.emplace_back();
    layout.begin = context.buckets[i].begin;
    layout.q_begin = q_total;
    lay_out(layout, parts[i]);
    q_total += layout.q.size();
    payload_ += 4 * (layout.p.size() + layout.q.size());
  }
  basis_ = Tensor::zeros({q_total});
  next_basis_ = Tensor::zeros({q_total});
  Random random(options.seed, 0x9057E25D);
  float* const q = basis_.data<float>();
  for (std::int64_t i = 0; i < q_total; ++i) q[i] = static_cast<float>(random.normal());
}

void PowerSgd::lay_out(Layout& layout, const std::vector<BucketPart>& parts) {
  const std::int64_t rank = options_.rank;
  std::int64_t p_size = 0, q_size = 0;
  for (const BucketPart& part : parts) {
    const std::int64_t rows = part.rows, columns = rows > 0 ? part.size / rows : 0;
    if (rows == 0 || 2 * rank * (rows + columns) > part.size) {
      layout.wholes.push_back({part.begin, part.size, p_size});
      p_size += part.size;
      continue;
    }
    const std::size_t number = layout.matrices.size();
    layout.matrices.push_back({part.begin, rows, columns, p_size, q_size});
    p_size += rank * rows;
    q_size += rank * columns;
    const std::int64_t some = std::max<std::int64_t>(1, piece_elements / columns);
    for (std::int64_t at = 0; at < rows; at += some) layout.rows.push_back({number, at, std::min(rows, at + some)});
    for (std::int64_t at = 0; at < columns; at += piece_columns)
      layout.columns.push_back({number, at, std::min(columns, at + piece_columns)});
  }
  layout.p = Tensor::zeros({p_size});
  layout.q = Tensor::zeros({q_size});
  layout.sum_of_q = Tensor::zeros({q_size});
}

std::vector<std::pair<std::string, std::string>> PowerSgd::settings() const {
  // Each rank multiplies p by q itself, and vectors of other widths round otherwise.
  return {{"rank", join_text(options_.rank)},
          {"seed", join_text(options_.seed)},
          {"instruction set", cpu::name_of(cpu::isa())}};
}

Work PowerSgd::begin(std::size_t bucket, const Tensor& grads) {
  const Layout& layout = layouts_[bucket];
  const float* const g = grads.data<const float>();
  const float* const basis = basis_.data<const float>();
  float* const p = layout.p.data<float>();
  const auto ratio = static_cast<float>(coming_scale_ / scale_);
  for (const Whole& whole : layout.wholes) std::copy_n(g + whole.begin, whole.size, p + whole.at);
  cpu::parallel_chunks(static_cast<std::int64_t>(layout.rows.size()), [&](std::int64_t i) {
    const Piece& piece = layout.rows[static_cast<std::size_t>(i)];
    const Matrix& matrix = layout.matrices[piece.matrix];
    const std::int64_t at = piece.begin * matrix.columns, n = (piece.end - piece.begin) * matrix.columns;
    float* const m = residual(layout, matrix) + at;
    kernels::add_residual(g + matrix.begin + at, residual_.now() + layout.begin + matrix.begin + at, ratio, m, n);
    const float* const q = basis + layout.q_begin + matrix.q_at;
    for (std::int64_t row = piece.begin; row < piece.end; ++row)
      for (std::int64_t k = 0; k < options_.rank; ++k)
        p[matrix.p_at + k * matrix.rows + row] =
            kernels::dot(m + (row - piece.begin) * matrix.columns, q + k * matrix.columns, matrix.columns);
  });
  return group_.all_reduce(layout.p);
}

Work PowerSgd::next(std::size_t bucket, const Tensor&) {
  const Layout& layout = layouts_[bucket];
  float* const p = layout.p.data<float>();
  float* const q = layout.q.data<float>();
  cpu::parallel_chunks(static_cast<std::int64_t>(layout.matrices.size()), [&](std::int64_t i) {
    const Matrix& matrix = layout.matrices[static_cast<std::size_t>(i)];
    make_orthonormal(p + matrix.p_at, options_.rank, matrix.rows);
  });
  cpu::parallel_chunks(static_cast<std::int64_t>(layout.columns.size()), [&](std::int64_t i) {
    const Piece& piece = layout.columns[static_cast<std::size_t>(i)];
    const Matrix& matrix = layout.matrices[piece.matrix];
    const std::int64_t n = piece.end - piece.begin;
    for (std::int64_t k = 0; k < options_.rank; ++k)
      std::fill_n(q + matrix.q_at + k * matrix.columns + piece.begin, n, 0.0F);
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      const float* const m = residual(layout, matrix) + row * matrix.columns + piece.begin;
      for (std::int64_t k = 0; k < options_.rank; ++k)
        kernels::add_multiple(q + matrix.q_at + k * matrix.columns + piece.begin, m,
                              p[matrix.p_at + k * matrix.rows + row], n);
    }
  });
  layout.sum_of_q.copy_from(layout.q);
  return group_.all_reduce(layout.sum_of_q);
}

void PowerSgd::end(std::size_t bucket, const Tensor& grads) {
  const Layout& layout = layouts_[bucket];
  auto* const y = grads.data<float>();
  const float* const p = layout.p.data<const float>();
  const float* const q = layout.q.data<const float>();
  const float* const sums = layout.sum_of_q.data<const float>();
  for (const Whole& whole : layout.wholes) std::copy_n(p + whole.at, whole.size, y + whole.begin);
  cpu::parallel_chunks(static_cast<std::int64_t>(layout.rows.size()), [&](std::int64_t i) {
    const Piece& piece = layout.rows[static_cast<std::size_t>(i)];
    const Matrix& matrix = layout.matrices[piece.matrix];
    for (std::int64_t row = piece.begin; row < piece.end; ++row) {
      float* const sum = y + matrix.begin + row * matrix.columns;
      float* const left = residual(layout, matrix) + row * matrix.columns;
      std::fill_n(sum, matrix.columns, 0.0F);
      for (std::int64_t k = 0; k < options_.rank; ++k) {
        const float factor = p[matrix.p_at + k * matrix.rows + row];
        const std::int64_t at = matrix.q_at + k * matrix.columns;
        kernels::add_multiple(sum, sums + at, factor, matrix.columns);
        kernels::add_multiple(left, q + at, -factor, matrix.columns);
      }
      if (!options_.error_feedback) std::fill_n(left, matrix.columns, 0.0F);
    }
  });
  for (const Matrix& matrix : layout.matrices) take_basis(layout, matrix);
}

void PowerSgd::take_basis(const Layout& layout, const Matrix& matrix) {
  for (std::int64_t k = 0; k < options_.rank; ++k) {
    const std::int64_t at = matrix.q_at + k * matrix.columns, n = matrix.columns;
    const float* const q = layout.sum_of_q.data<const float>() + at;
    const float* const before = basis_.data<const float>() + layout.q_begin + at;
    float* const next = next_basis_.data<float>() + layout.q_begin + at;
    const double length = length_of(q, n);
    // A column that found nothing would find nothing ever after.
    for (std::int64_t j = 0; j < n; ++j)
      next[j] = length > 0 ? static_cast<float>(static_cast<double>(q[j]) / length) : before[j];
  }
}

void PowerSgd::commit() {
  residual_.commit();
  std::swap(basis_, next_basis_);
  scale_ = coming_scale_;
}

void PowerSgd::register_state(State& state) {
  state.add("compress.scale", &scale_);
  state.add("compress.basis", &basis_);
  residual_.add_to(state, "compress.residual");
}

}  // namespace hearth::dist
