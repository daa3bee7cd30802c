// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt. Plans are made once per problem and alignment and kept. A
// plan is chosen by timing what the library offers (ops/dispatch/plan_choice.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/stream.h"
#include "ops/dispatch/plan_choice.h"
#include "ops/matmul/problem.h"

namespace hearth::cuda::blas {

/// What every address must be a multiple of.
inline constexpr std::size_t min_alignment = 16;

struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
  void* pre = nullptr;             ///< [m, n]
  const void* slope_at = nullptr;  ///< [m, n]
};

/// Empty if cuBLASLt does this product on its device; else the reason why not. The first question for a problem asks
/// the library's heuristics and times what they offer, so it is refused (DeviceError) while a step is recorded.
std::string unsupported(const MatmulProblem& problem);
/// The product, with a and b of one type, c of theirs or f32; f32 is multiplied as f32 unless the problem says TF32,
/// and 16-bit types are summed in f32. UsageError where `unsupported` gives a reason; DeviceError if the library is
/// absent, or with its own words.
void matmul(Stream& stream, const MatmulProblem& problem, const Operands& operands);

/// The time of one run of the product's plan when that was chosen by timing; 0 if it was not, or there is none.
double microseconds(const MatmulProblem& problem);

/// A plan made so far, for reports and tests.
struct PlanInfo {
  std::string problem;
  PlanChoice choice = PlanChoice::only;
  std::size_t offered = 0;  ///< by the heuristic
  std::size_t taken = 0;    ///< its position there
  double microseconds = 0;  ///< when it was timed, now or in an earlier process
  std::string why;          ///< why nothing was timed; empty otherwise
};
std::vector<PlanInfo> plans();
/// Forgets all plans. Not while another thread computes.
void clear_plans();

}  // namespace hearth::cuda::blas
