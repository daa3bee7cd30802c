// SPDX-License-Identifier: Apache-2.0
// Copies of operands and register tiles of products in bf16 by AVX512_BF16. For matmul_avx512_bf16.cpp.
#pragma once

#include <cstdint>

#include "core/cpu/amx.h"
#include "core/half.h"

#if HEARTH_BF16_VECTORS

namespace hearth::cpu::bf16_tiles {

/// Columns of a panel, or rows of a copied A, and the most rows of a register tile.
constexpr std::int64_t panel = 32, max_rows = 12;

inline std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }
inline std::int64_t round_up(std::int64_t x, std::int64_t step) { return ceil_div(x, step) * step; }

/// Lines are the rows of A or the columns of B, terms what is summed over: element (line, term) lies at data[line *
/// outer
/// + term * inner]. One of the steps is 1.
struct Operand {
  const void* data;
  bool is_f32;
  std::int64_t outer, inner;

  bool along() const { return inner == 1; }
  Operand shifted(std::int64_t line, std::int64_t term) const {
    const std::int64_t at = line * outer + term * inner;
    return {static_cast<const char*>(data) + at * (is_f32 ? 4 : 2), is_f32, outer, inner};
  }
};

/// Where the sums of a register tile go.
struct Results {
  const float* before;  ///< what they are added to: those of earlier chunks, or null
  std::int64_t before_step;
  void* to;
  std::int64_t step;
  bool is_f32;
  bool accumulates;   ///< to what `to` holds
  const float* bias;  ///< of the first column, or null
  std::int64_t columns;

  Results shifted(std::int64_t row, std::int64_t column) const {
    Results moved = *this;
    if (before != nullptr) moved.before = before + row * before_step + column;
    moved.to = static_cast<char*>(to) + (row * step + column) * (is_f32 ? 4 : 2);
    if (bias != nullptr) moved.bias = bias + column;
    moved.columns = columns - column;
    return moved;
  }
};

/// Rows of A, `row_step` values apart.
struct Rows {
  const bf16* data;
  std::int64_t row_step;
};

/// Panels of B, `step` words apart.
struct Panels {
  const std::uint32_t* data;
  std::int64_t step, columns;
};

/// Words of a panel.
inline std::int64_t panel_step(std::int64_t terms) { return (terms + 1) / 2 * panel; }

/// The next pairs of terms to copy into panels, of all panels of a pair before the next pair.
struct Copying {
  const char *from = nullptr, *end = nullptr;  ///< in the first row of a pair, and its end
  char* to = nullptr;
  std::int64_t row = 0, ahead = 0;  ///< bytes from a row to the next, and to one that will be copied soon
  std::int64_t panel_bytes = 0;     ///< from a panel to the next
  std::int64_t skip = 0, back = 0;  ///< bytes that `from` and `to` go at the end of a row
  std::int64_t left = 0;            ///< copies of 32 values of two rows that are left to do
  std::int64_t every = 1;           ///< pairs of terms that are multiplied for each
};

/// The operands of the next chunk, copied into panels by the tiles of this one, in the shadow of their arithmetic: with
/// some of the pairs of terms that it multiplies a tile copies 32 values of two stored rows. What cannot be copied so
/// (f32, rows that run along, columns behind the last whole panel) is copied by finish().
class NextChunk {
 public:
  /// An operand as pack_panels() takes it.
  void add(const Operand& x, std::int64_t lines, std::int64_t terms, std::uint32_t* to, std::int64_t step);
  /// Spreads the copies evenly over so many pairs of terms, of all tiles: memory is slower than they are.
  void spread(std::int64_t pairs);
  /// What the next tile copies.
  Copying& current() {
    if (now_.left == 0 && waiting_ > 0) now_ = copies_[--waiting_];
    return now_;
  }
  /// Copies what is left.
  void finish();

 private:
  struct Rest {
    Operand x;
    std::int64_t lines, terms;
    std::uint32_t* to;
    std::int64_t step;
  };
  Copying now_, copies_[2];
  Rest rests_[2];
  int waiting_ = 0, rest_count_ = 0;
};

/// Terms of lines become panels [pairs of terms][32 lines] of `step` words, zeros behind the last line and term.
void pack_panels(const Operand& x, std::int64_t lines, std::int64_t terms, std::uint32_t* to, std::int64_t step);

/// Adds the sums of the lines of a panel, at most 32, over so many pairs of terms.
void add_line_sums(const std::uint32_t* panel_of, std::int64_t pairs, std::int64_t lines, double* sums);

/// Lines that run along become rows of bf16, `step` elements apart, a multiple of 32; zeros follow.
void pack_rows(const Operand& x, std::int64_t lines, std::int64_t terms, bf16* to, std::int64_t step);

/// Rows by panels, in tiles of like heights; `first` says that the rows have not been read before. Dense: at most 32
/// rows that lie in a panel like B's, and only they make `copies`.
template <bool dense>
void multiply_rows(Rows a, std::int64_t rows, const Panels& b, std::int64_t pairs, bool first, const Results& results,
                   NextChunk* copies = nullptr);

}  // namespace hearth::cpu::bf16_tiles

#endif
