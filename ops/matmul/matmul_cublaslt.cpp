// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_cublaslt.h"

#include "core/error.h"
#include "ops/cublaslt/library.h"

#if __has_include(<cublasLt.h>)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"
#include "core/memory/memory.h"
#include "ops/matmul/matmul_cublaslt_plan.h"
#include "ops/matmul/matmul_cublaslt_timing.h"
#include "ops/plan_cache.h"
#include "ops/plan_file.h"

namespace hearth::cuda::blas {
namespace {

/// All plans of the process.
struct Plans : PlanCache<MatmulProblem, Plan> {
  std::mutex mutex;  ///< of what follows
  std::optional<PlanFile> kept;
  std::string why_unsaved;  ///< of a choice that was made and could not be written

  PlanFile& file() {
    if (!kept) {
      const std::filesystem::path folder = cache_folder();
      kept.emplace(folder.empty() ? folder : folder / "plans-1.jsonl");
    }
    return *kept;
  }
};

// Leaked, as the library's own state outlives static objects.
Plans& all_plans() {
  static Plans& made = *new Plans;
  return made;
}

/// An algorithm as the file keeps it: its words in hexadecimal.
std::string text_of(const Algorithm& algorithm) {
  std::string text;
  std::array<unsigned char, sizeof(algorithm.blob)> bytes;
  std::memcpy(bytes.data(), &algorithm.blob, bytes.size());
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

/// A kept text is never handed to the library: it only says which of its offers is meant.
std::optional<std::size_t> place_of(std::string_view text, const std::vector<Algorithm>& offered) {
  for (std::size_t i = 0; i < offered.size(); ++i)
    if (text_of(offered[i]) == text) return i;
  return std::nullopt;
}

Device device_of(const MatmulProblem& problem) { return {DeviceType::cuda, problem.device}; }

PlanKey kept_as(const MatmulProblem& problem) {
  const DeviceInfo info = device_info(device_of(problem));
  return {"cuBLASLt " + about().version,
          join_text(info.name, ", capability ", info.capability, ", ", info.multiprocessors, " multiprocessors"),
          join_text(problem)};
}

void take(Plan& plan, const std::vector<Algorithm>& offered, Choice choice, std::size_t place, double microseconds = 0,
          std::string why = "") {
  plan.algorithm = offered[place];
  plan.info = {join_text(plan.problem), choice, offered.size(), place, microseconds, std::move(why)};
}

/// Which of several offers it is to be. What a process chooses is what the file says from then on, so that a run that
/// is resumed meets the same choice.
void choose(Plans& all, Plan& plan, const std::vector<Algorithm>& offered) {
  if (offered.size() == 1) return take(plan, offered, Choice::only, 0);
  const auto take_first = [&](std::string why) { take(plan, offered, Choice::heuristic, 0, 0, std::move(why)); };
  if (plan.problem.deterministic) return take_first("deterministic mode");
  if (!plan_timing_is_on()) return take_first("HEARTH_PLAN_TIMING is off");
  const std::lock_guard lock(all.mutex);
  const PlanKey key = kept_as(plan.problem);
  std::string stale;
  if (const SavedPlan* kept = all.file().find(key); kept != nullptr) {
    if (const auto place = place_of(kept->plan, offered))
      return take(plan, offered, Choice::kept, *place, kept->microseconds);
    stale = kept->plan;
  }
  if (!all.why_unsaved.empty()) return take_first(all.why_unsaved);
  const Fastest fastest = fastest_algorithm(device_of(plan.problem), plan, offered);
  const bool timed = std::isfinite(fastest.microseconds);
  // Also the first, where memory did not suffice for timing: in another process it might, and that one chose otherwise.
  const SavedPlan chosen{text_of(offered[fastest.index]), timed ? fastest.microseconds : 0};
  const auto holds = all.file().keep(key, chosen, stale);
  if (!holds) {
    const auto& remarks = all.file().remarks();
    all.why_unsaved = "a choice could not be kept: " + (remarks.empty() ? std::string() : remarks.back());
    return take_first(all.why_unsaved);
  }
  const auto place = place_of(holds->plan, offered);
  if (!place) return take_first("another process keeps a plan that is not offered here");
  take(plan, offered, timed ? Choice::timed : Choice::heuristic, *place, holds->microseconds,
       timed ? "" : "too little free device memory for timing");
}

Plan make_plan(Plans& all, const MatmulProblem& problem) {
  refuse_while_recording(device_of(problem), "choosing cuBLASLt's plan for a new matrix product");
  Plan plan = describe_product(problem, handle_of(device_of(problem)));
  if (const auto offered = offered_algorithms(plan); !offered.empty()) choose(all, plan, offered);
  return plan;
}

const Plan& plan_of(const MatmulProblem& problem) {
  return all_plans().get(problem, [&] { return make_plan(all_plans(), problem); });
}

/// Why the problem is unsupported, as far as that needs no plan; or empty.
std::string refused(const MatmulProblem& p) {
  if (p.activation == Activation::gelu)
    return "cuBLASLt's GELU is the approximation by tanh (gelu_tanh); this one is by erf";
  if (p.activation == Activation::silu) return "cuBLASLt has no SiLU";
  if (p.a != p.b) return join_text("a is ", p.a, " and b ", p.b, "; cuBLASLt takes one type");
  if (p.c != p.a && p.c != DType::f32) return join_text("c is ", p.c, " beside operands of ", p.a);
  if (p.batch > 65535) return "a batch of more than 65535";
  if (p.keeps_pre && p.activation != Activation::gelu_tanh)
    return "cuBLASLt keeps what went into an activation for GELU only";
  if (p.slope != Activation::none && p.slope != Activation::gelu_tanh)
    return join_text("cuBLASLt multiplies by the slope of gelu_tanh; this one is of ", name_of(p.slope));
  if (p.slope != Activation::none && (p.c != p.a || p.batch != 1 || p.n % 8 != 0))
    return join_text("a slope beside ", p.batch, " products with rows of ", p.n, ' ', p.c,
                     "; cuBLASLt takes one product of its operands' type, in multiples of 8");
  if (p.keeps_pre && p.n % 8 != 0)
    return join_text("rows of ", p.n, " values; cuBLASLt keeps what went into GELU for multiples of 8");
  if ((p.keeps_pre || p.sums_a) && p.batch != 1) return "cuBLASLt keeps nothing beside the products of a batch";
  if (p.sums_a && (p.has_bias || p.activation != Activation::none))
    return "cuBLASLt sums an operand beside a plain product only";
  if (p.sums_a && p.sums_type != p.c)
    return join_text("sums of a are ", p.sums_type, " beside c of ", p.c, "; cuBLASLt makes one type");
  return "";
}

void check_address(const char* name, const void* address) {
  HEARTH_CHECK(UsageError, reinterpret_cast<std::uintptr_t>(address) % min_alignment == 0, "matmul: ", name, " at ",
               address, " is not at a multiple of ", min_alignment, "; copy it first");
}

}  // namespace

std::string unsupported(const MatmulProblem& problem) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem); !reason.empty()) return reason;
  return plan_of(problem).unsupported;
}

void matmul(Stream& stream, const MatmulProblem& problem, const Operands& operands) {
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("matmul: " + reason);
  check_address("a", operands.a);
  check_address("b", operands.b);
  check_address("c", operands.c);
  check_address("the bias", operands.bias);
  check_address("what is kept", operands.pre);
  check_address("where the slope is taken", operands.slope_at);
  check_address("the sums of a", operands.a_sums);
  if (const std::string reason = refused(problem); !reason.empty()) throw UsageError("matmul: " + reason);
  const Plan& plan = plan_of(problem);
  HEARTH_CHECK(UsageError, plan.unsupported.empty(), "matmul: ", plan.unsupported);
  // The stream's own order keeps the workspace until the product is done.
  MemoryResource& memory = memory_of(stream.device());
  const std::size_t bytes = plan.algorithm.workspace;
  void* const workspace = bytes == 0 ? nullptr : memory.allocate(bytes);
  const cublasStatus_t status = enqueue_product(plan, plan.algorithm, operands, workspace, stream.raw());
  if (workspace != nullptr) memory.deallocate(workspace, bytes);
  if (status != CUBLAS_STATUS_SUCCESS) throw_not_run(stream.device(), "cuBLASLt: cublasLtMatmul", lt().text(status));
  ++live_counters().library_calls;
}

std::vector<PlanInfo> plans() {
  std::vector<PlanInfo> list;
  all_plans().each([&](const MatmulProblem&, const Plan& plan) {
    if (plan.unsupported.empty()) list.push_back(plan.info);
  });
  return list;
}

void clear_plans() {
  Plans& all = all_plans();
  all.clear();
  const std::lock_guard lock(all.mutex);
  all.kept.reset();
  all.why_unsaved.clear();
}

PlanFileInfo plan_file() {
  Plans& all = all_plans();
  const std::lock_guard lock(all.mutex);
  const PlanFile& file = all.file();
  return {file.file().string(), file.plans().size(), file.remarks()};
}

}  // namespace hearth::cuda::blas

#else

namespace hearth::cuda::blas {

std::string unsupported(const MatmulProblem&) { return why_absent(); }
void matmul(Stream&, const MatmulProblem&, const Operands&) { throw DeviceError("matmul: " + why_absent()); }
std::vector<PlanInfo> plans() { return {}; }
void clear_plans() {}
PlanFileInfo plan_file() { return {}; }

}  // namespace hearth::cuda::blas

#endif
