// SPDX-License-Identifier: Apache-2.0
#include "ops/plan_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/build.h"
#include "core/error.h"

#if HEARTH_HAS_CUDA
#include "core/cuda/graph.h"
#endif

namespace hearth::detail {
namespace {

/// How far results may lie apart, as a part of the largest. A result of 16 bits is rounded by 1/256 at most; f32 may
/// have been multiplied as TF32.
double bound_of(DType dtype) { return dtype == DType::f64 ? 1e-9 : dtype == DType::f32 ? 5e-3 : 2e-2; }

/// From where on an f16 between may have become infinite.
double largest_of(DType dtype) { return dtype == DType::f16 ? 6e4 : std::numeric_limits<double>::infinity(); }

bool is_recording(const std::vector<Tensor>& results) {
#if HEARTH_HAS_CUDA
  return !results.empty() && results[0].device().is_cuda() && cuda::is_recording(results[0].device());
#else
  (void)results;
  return false;
#endif
}

/// Whether something is said of a value that a native kernel computed.
bool counts(double value, DType dtype) { return std::isfinite(value) && std::abs(value) < largest_of(dtype); }

double scale_of(const Tensor& own, DType dtype) {
  double scale = 0;
  for (const double value : own.to_doubles())
    if (counts(value, dtype)) scale = std::max(scale, std::abs(value));
  return scale;
}

/// What is wrong with `found`, or empty, if values reach to `scale`.
std::string difference(const Tensor& found, const Tensor& own, DType dtype, double scale) {
  const std::vector<double> a = found.to_doubles(), b = own.to_doubles();
  double most = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!counts(b[i], dtype)) continue;
    const double error = std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : std::numeric_limits<double>::infinity();
    if (error > most) most = error, at = i;
  }
  if (most <= bound_of(dtype) * scale) return "";
  return join_text("element ", at, " of its result ", found.shape(), " is ", a[at], " where the native kernel has ",
                   b[at], ", and values reach to ", scale);
}

}  // namespace

bool checks_plans() {
  const char* const text = std::getenv("HEARTH_CHECK_PLANS");
  const std::string_view word = text == nullptr ? "0" : text;
  HEARTH_CHECK(ConfigError, word == "0" || word == "1", "HEARTH_CHECK_PLANS is \"", word, "\"; use 0 or 1");
  return word == "1";
}

PlanCheck::PlanCheck(const std::vector<Tensor>& results, DType dtype) : dtype_(dtype) {
  if (is_recording(results)) return;
  for (const Tensor& result : results) {
    if (!result.defined()) continue;
    results_.push_back(result);
    before_.push_back(result.clone());
  }
}

std::string PlanCheck::fault(const std::function<void()>& own) {
  if (results_.empty()) return "";
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    found.push_back(results_[i].clone());
    results_[i].copy_from(before_[i]);
  }
  own();
  std::vector<double> scales;
  for (const Tensor& result : results_) scales.push_back(scale_of(result, dtype_));
  // A result that is but rounding errors beside the others is none to compare with.
  const double least = 0.01 * *std::max_element(scales.begin(), scales.end());
  std::string fault;
  for (std::size_t i = 0; i < results_.size() && fault.empty(); ++i)
    fault = difference(found[i], results_[i], dtype_, std::max(scales[i], least));
  for (std::size_t i = 0; i < results_.size(); ++i) results_[i].copy_from(fault.empty() ? found[i] : before_[i]);
  return fault;
}

}  // namespace hearth::detail
