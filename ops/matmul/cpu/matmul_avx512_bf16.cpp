// SPDX-License-Identifier: Apache-2.0
// Products of matrices in bf16 by the instruction that adds to each of 16 f32 sums the products of two pairs of bf16
// values.
// Reference: gemm.cpp, with operands rounded to bf16 where one of them is.
//
// B is copied into panels of 32 columns, [pairs of k][32][2], once for all tasks where there are several and NextChunk
// cannot; an A that is stored transposed likewise, by 32 rows. Other rows of A are read where they are, a pair for all
// columns at a time; those of f32 are copied first. A task is a block of C: for each chunk of k, register tiles of up
// to 12 rows by 32 columns. While they multiply a chunk, the tiles of a transposed A copy the operands of the next one,
// so that memory is never waited for; what is copied of A is also what its rows are summed from. Chunks and shares of
// the sum depend on the shape alone, so the bits do not depend on the number of threads.
#include "ops/matmul/cpu/matmul_avx512_bf16.h"

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "ops/matmul/cpu/bf16_tiles.h"
#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/onednn/convert.h"
#include "ops/scratch.h"

namespace hearth::cpu {

#if HEARTH_BF16_VECTORS

namespace {

using namespace bf16_tiles;

/// How a product is cut.
class Product {
 public:
  Product(const MatmulProblem& p, const void* a, const void* b, const float* bias, void* c, float* a_sums)
      : p_(p),
        a_{a, p.a == DType::f32, p.transpose_a ? 1 : p.lda, p.transpose_a ? p.lda : 1},
        b_{b, p.b == DType::f32, p.transpose_b ? p.ldb : 1, p.transpose_b ? 1 : p.ldb},
        bias_(bias),
        c_(c),
        a_sums_(a_sums),
        turns_a_(p.transpose_a),
        packs_a_(!turns_a_ && (p.a == DType::f32 || p.k % 2 != 0)) {
    cut();
  }

  void run() const {
    Scratch scratch;
    const std::uint32_t* panels = packs_b_once_ ? pack_b(scratch) : nullptr;
    float* parts = shares_ > 1 ? scratch.take<float>(shares_ * p_.m * p_.n) : nullptr;
    double* const sums = a_sums_ != nullptr ? scratch.take<double>(shares_ * p_.m) : nullptr;
    if (sums != nullptr) std::fill_n(sums, shares_ * p_.m, 0.0);
    const std::int64_t tiles = down_ * across_;
    parallel_chunks(p_.batch * shares_ * tiles, [&](std::int64_t task) {
      // A thread has neighbouring tasks. Those of one column of blocks share B; where A is copied, those of a row do A.
      const std::int64_t row = (turns_a_ ? task / across_ : task) % down_ * rows_;
      const std::int64_t column = (turns_a_ ? task : task / down_) % across_ * columns_;
      const std::int64_t share = task / tiles % shares_, batch = task / tiles / shares_;
      Results results{nullptr, 0, c_, p_.ldc, p_.c == DType::f32, p_.accumulate, bias_, p_.n};
      if (parts != nullptr)
        results = {nullptr, 0, parts + share * p_.m * p_.n, p_.n, true, false, nullptr, p_.n};
      else
        results.to = static_cast<char*>(c_) + batch * p_.batch_stride_c * (results.is_f32 ? 4 : 2);
      const Operand a = shifted(a_, batch * p_.batch_stride_a), b = shifted(b_, batch * p_.batch_stride_b);
      run_block(a.shifted(row, 0), b.shifted(column, 0), panels, {row, std::min(rows_, p_.m - row)},
                {column, std::min(columns_, p_.n - column)}, {share * terms_, std::min(terms_, p_.k - share * terms_)},
                results.shifted(row, column), sums != nullptr && column == 0 ? sums + share * p_.m + row : nullptr);
    });
    for (std::int64_t i = 0; sums != nullptr && i < p_.m; ++i) {
      for (std::int64_t share = 1; share < shares_; ++share) sums[i] += sums[share * p_.m + i];
      a_sums_[i] = static_cast<float>(sums[i]);
    }
    if (parts != nullptr) dnn::sum_shares(parts, shares_, p_.m, p_.n, bias_, p_.accumulate, c_, p_.c, p_.ldc);
  }

 private:
  struct Range {
    std::int64_t begin, size;
  };

  /// Panels of this chunk and of the next.
  struct TwoCopies {
    std::uint32_t *now, *next;
  };

  static Operand shifted(Operand x, std::int64_t elements) {
    x.data = static_cast<const char*>(x.data) + elements * (x.is_f32 ? 4 : 2);
    return x;
  }

  void cut() {
    constexpr std::int64_t wanted = 8, least_columns = 2 * panel;  // wanted: tasks
    // Limits of blocks are multiples of the step, so that no block is larger.
    const std::int64_t step = turns_a_ ? panel : max_rows, least_rows = 64 / step * step;
    const auto even = [](std::int64_t size, std::int64_t most, std::int64_t of) {
      return std::min(size, round_up(ceil_div(size, ceil_div(size, most)), of));
    };
    // A block's part of A, and of B where the sum is long, stays in L2; where A is copied, two chunks of both.
    const std::int64_t most_chunk = turns_a_ ? 384 : 4096;
    std::int64_t most_m =
        std::clamp<std::int64_t>((1 << 18) / std::min(p_.k, most_chunk), least_rows, 256) / step * step;
    std::int64_t most_n = turns_a_ ? 512 : 1536;
    // Of C: one block more where the last would be much smaller.
    const auto like = [&](std::int64_t size, std::int64_t most, std::int64_t of) {
      const std::int64_t few = even(size, most, of), more = even(size, ceil_div(size, ceil_div(size, few) + 1), of);
      const bool is_alike = (round_up(size, few) - size) * 16 <= size;
      return is_alike || round_up(size, more) >= round_up(size, few) ? few : more;
    };
    const auto count = [&] {
      rows_ = like(p_.m, most_m, step);
      columns_ = like(p_.n, most_n, panel);
      down_ = ceil_div(p_.m, rows_);
      across_ = ceil_div(p_.n, columns_);
      return p_.batch * down_ * across_;
    };
    // A small C under a long sum, as in the gradient of a filter: shares of the sum side by side.
    constexpr std::int64_t least_terms = 1024;
    const bool is_small = p_.batch == 1 && p_.m * p_.n <= 1 << 17;
    const std::int64_t most_shares = is_small ? std::max<std::int64_t>(1, p_.k / least_terms) : 1;
    const auto shrink = [&](std::int64_t shares, const auto& is_enough) {
      while (!is_enough(count() * shares) && (rows_ > least_rows || columns_ > least_columns)) {
        if (rows_ > least_rows && (rows_ >= columns_ || columns_ <= least_columns))
          most_m = std::max(least_rows, rows_ / 2 / step * step);
        else
          most_n = std::max(least_columns, columns_ / 2 / panel * panel);
      }
    };
    shrink(most_shares, [](std::int64_t tasks) { return tasks >= wanted; });
    shares_ = std::clamp<std::int64_t>(ceil_div(wanted, count()), 1, most_shares);
    // So many that no thread waits long for the last.
    shrink(shares_,
           [](std::int64_t tasks) { return tasks >= 4 * threads() && round_up(tasks, threads()) * 32 <= tasks * 33; });
    terms_ = round_up(ceil_div(p_.k, shares_), 32);
    shares_ = ceil_div(p_.k, terms_);
    chunk_ = even(terms_, most_chunk, 32);
    // Beside a copied A each task copies what it needs of B too, all but the first chunk while it multiplies.
    const bool copies_beside = turns_a_ && !b_.along() && !b_.is_f32 && chunk_ < terms_;
    packs_b_once_ = p_.batch == 1 && down_ > 1 && !copies_beside;
  }

  /// All panels: chunk by chunk of each share, [panels][pairs][32].
  const std::uint32_t* pack_b(Scratch& scratch) const {
    const std::int64_t panels = ceil_div(p_.n, panel), chunks = ceil_div(terms_, chunk_);
    auto* const to = scratch.take<std::uint32_t>(panels * panel_step(p_.k));
    // A piece is a panel, or where stored rows run across them some terms of all.
    constexpr std::int64_t run = 64;
    const std::int64_t pieces = b_.along() ? panels : ceil_div(chunk_, run);
    parallel_chunks(shares_ * chunks * pieces, [&](std::int64_t i) {
      const std::int64_t piece = i % pieces, k = i / pieces / chunks * terms_ + i / pieces % chunks * chunk_;
      const std::int64_t terms = terms_of_chunk(k);
      std::uint32_t* const chunk = to + panels * panel_step(k);
      if (b_.along())
        pack_panels(b_.shifted(piece * panel, k), std::min(panel, p_.n - piece * panel), terms,
                    chunk + piece * panel_step(terms), panel_step(terms));
      else if (piece * run < terms)
        pack_panels(b_.shifted(0, k + piece * run), p_.n, std::min(run, terms - piece * run),
                    chunk + panel_step(piece * run), panel_step(terms));
    });
    return to;
  }

  /// Of the chunk that begins with term k.
  std::int64_t terms_of_chunk(std::int64_t k) const {
    return std::max<std::int64_t>(0, std::min({chunk_, terms_ - k % terms_, p_.k - k}));
  }

  void run_block(const Operand& a, const Operand& b, const std::uint32_t* all_panels, Range rows, Range columns,
                 Range sum, const Results& results, double* a_sums) const {
    Scratch scratch;
    const std::int64_t most = std::min(chunk_, sum.size), a_step = round_up(most, 32) + 32;
    const bool has_more = sum.size > most;
    bf16* const a_rows = packs_a_ ? scratch.take<bf16>(rows.size * a_step) : nullptr;
    const auto take_panels = [&](bool wanted, std::int64_t lines) -> TwoCopies {
      const std::int64_t words = ceil_div(lines, panel) * panel_step(most);
      if (!wanted) return {nullptr, nullptr};
      std::uint32_t* const now = scratch.take<std::uint32_t>(words);
      return {now, has_more ? scratch.take<std::uint32_t>(words) : nullptr};
    };
    TwoCopies a_panels = take_panels(turns_a_, rows.size), own = take_panels(all_panels == nullptr, columns.size);
    if (turns_a_) pack_panels(a.shifted(0, sum.begin), rows.size, most, a_panels.now, panel_step(most));
    if (own.now != nullptr) pack_panels(b.shifted(0, sum.begin), columns.size, most, own.now, panel_step(most));
    const bool keeps_sums = has_more && !results.is_f32;
    float* const sums = keeps_sums ? scratch.take<float>(rows.size * columns.size) : nullptr;
    for (std::int64_t k = sum.begin; k < sum.begin + sum.size; k += chunk_) {
      const std::int64_t terms = terms_of_chunk(k);
      const bool is_first = k == sum.begin, is_last = k + terms == sum.begin + sum.size;
      if (packs_a_) pack_rows(a.shifted(0, k), rows.size, terms, a_rows, a_step);
      NextChunk next;
      if (!is_last) {
        const std::int64_t coming = terms_of_chunk(k + terms), step = panel_step(coming);
        if (turns_a_) next.add(a.shifted(0, k + terms), rows.size, coming, a_panels.next, step);
        if (own.now != nullptr) next.add(b.shifted(0, k + terms), columns.size, coming, own.next, step);
        const std::int64_t down = rows.size / panel * ceil_div(panel, max_rows) + ceil_div(rows.size % panel, max_rows);
        next.spread(down * ceil_div(columns.size, panel) * ((terms + 1) / 2));
      }
      const std::uint32_t* b_panel = own.now != nullptr ? own.now
                                                        : all_panels + ceil_div(p_.n, panel) * panel_step(k) +
                                                              columns.begin / panel * panel_step(terms);
      Results to = results;
      to.columns = columns.size;
      if (!is_first && results.is_f32) to.accumulates = true;
      if (!is_last) to.bias = nullptr;
      if (keeps_sums && !is_last)
        to = {is_first ? nullptr : sums, columns.size, sums, columns.size, true, false, nullptr, columns.size};
      if (keeps_sums && is_last) to.before = sums, to.before_step = columns.size;
      const auto* const in_place = static_cast<const bf16*>(a.shifted(0, k).data);
      const std::int64_t step = panel_step(terms), pairs = (terms + 1) / 2;
      for (std::int64_t i = 0; a_sums != nullptr && i < rows.size; i += panel)
        add_line_sums(a_panels.now + i / panel * step, pairs, std::min(panel, rows.size - i), a_sums + i);
      // Rows in place pass by one panel at a time, which stays in L1; those of a copy by as many as stay in L2.
      constexpr std::int64_t words_of_l2 = 1 << 17;
      const std::int64_t width = !turns_a_ ? panel : std::max<std::int64_t>(1, words_of_l2 / step) * panel;
      for (std::int64_t j = 0; j < columns.size; j += width, b_panel += width / panel * step) {
        const Panels panels_of{b_panel, step, std::min(width, columns.size - j)};
        const Results of_panels = to.shifted(0, j);
        if (!turns_a_)
          multiply_rows<false>(packs_a_ ? Rows{a_rows, a_step} : Rows{in_place, a.outer}, rows.size, panels_of, pairs,
                               j == 0, of_panels);
        for (std::int64_t i = 0; turns_a_ && i < rows.size; i += panel)
          multiply_rows<true>({reinterpret_cast<const bf16*>(a_panels.now + i / panel * step), 2},
                              std::min(panel, rows.size - i), panels_of, pairs, false, of_panels.shifted(i, 0), &next);
      }
      next.finish();
      std::swap(a_panels.now, a_panels.next);
      std::swap(own.now, own.next);
    }
  }

  const MatmulProblem& p_;
  Operand a_, b_;
  const float* bias_;
  void* c_;
  float* a_sums_;
  bool turns_a_, packs_a_, packs_b_once_ = false;                ///< what is copied, and how
  std::int64_t rows_ = 0, columns_ = 0, down_ = 1, across_ = 1;  ///< of blocks of C, and how many there are
  std::int64_t shares_ = 1, terms_ = 0, chunk_ = 0;              ///< of the sum; terms of a share and of a chunk
};

}  // namespace

std::string avx512_bf16_unsupported(const MatmulProblem& p) {
  for (const DType type : {p.a, p.b, p.c})
    if (type != DType::bf16 && type != DType::f32) return join_text("an operand of ", type);
  if (p.a == DType::f32 && p.b == DType::f32) return "both operands f32";
  return amx::bf16_vectors_unsupported();
}

std::string avx512_bf16_slower(const MatmulProblem&) {
  return amx::unsupported().empty() ? "matrix tiles are many times as fast" : "";
}

namespace {

void multiply_pairs(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c,
                    float* a_sums) {
  const MatmulProblem p = complete(problem);
  HEARTH_CHECK(UsageError, avx512_bf16_unsupported(p).empty(), "matmul by avx512_bf16: ", avx512_bf16_unsupported(p));
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  if (p.k == 0) return matmul_by_gemm(p, a, b, bias, c);
  Product(p, a, b, static_cast<const float*>(bias), c, a_sums).run();
}

}  // namespace

void matmul_by_avx512_bf16(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  multiply_pairs(problem, a, b, bias, c, nullptr);
}

void matmul_with_sums_by_avx512_bf16(const MatmulProblem& p, const void* a, const void* b, const void* bias, void* c,
                                     float* a_sums) {
  HEARTH_CHECK(UsageError, p.transpose_a && p.batch == 1 && p.n > 0 && p.k > 0,
               "matmul by avx512_bf16: only a transposed A of one matrix can be summed, found ", p);
  multiply_pairs(p, a, b, bias, c, a_sums);
}

#else

std::string avx512_bf16_unsupported(const MatmulProblem&) { return "this build is not by GCC for x86-64"; }
std::string avx512_bf16_slower(const MatmulProblem&) { return {}; }
void matmul_by_avx512_bf16(const MatmulProblem& p, const void*, const void*, const void*, void*) {
  throw UsageError("matmul by avx512_bf16: " + avx512_bf16_unsupported(p));
}
void matmul_with_sums_by_avx512_bf16(const MatmulProblem& p, const void* a, const void* b, const void* bias, void* c,
                                     float*) {
  matmul_by_avx512_bf16(p, a, b, bias, c);
}

#endif

}  // namespace hearth::cpu
