// SPDX-License-Identifier: Apache-2.0
// What the tests see of the reference cuBLASLt beyond its C functions: what it was asked, and how long its algorithms
// pretend to take.
#pragma once

#include <array>
#include <cstdint>

namespace hearth::reference_blas {

/// The algorithms that the heuristic offers, in its order, where they are allowed.
enum Algorithm : int {
  plain,      ///< sums in order of k
  halves,     ///< two halves of k, added by way of a workspace of 4 KiB
  wide,       ///< needs addresses at multiples of 256
  spacious,   ///< needs a workspace of 64 MiB
  in_place,   ///< adds parts in place, so that bits do not repeat
  unaligned,  ///< for any address
  narrow,     ///< as halves, each rounded to the type of the result
  algorithm_count
};

/// With HEARTH_REFERENCE_IDLE in the environment products are run and not computed.
struct Controls {
  /// Microseconds that each algorithm waits before it computes.
  std::array<std::int64_t, algorithm_count> cost{};
  // Since the start, or since somebody set them to zero.
  std::array<std::int64_t, algorithm_count> runs{};  ///< products done
  std::int64_t questions = 0;                        ///< calls of the heuristic
  int epilogue = 0;                                  ///< of the latest product, a cublasLtEpilogue_t
  float beta = 0;                                    ///< of the latest product
  /// An algorithm that the heuristic does not offer; -1 for none.
  int withheld = -1;
  bool fails = false;  ///< products are refused
};

}  // namespace hearth::reference_blas

/// The controls of the library that was opened. By this symbol Hearth knows that the library runs on the emulated GPU.
extern "C" hearth::reference_blas::Controls* hearth_runs_on_the_emulated_gpu();
