// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cuda/matmul_cublaslt.h"

#include "core/error.h"
#include "ops/cublaslt/library.h"

#if __has_include(<cublasLt.h>)
#include <array>
#include <cstring>

#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"
#include "core/memory/memory.h"
#include "ops/dispatch/plan_cache.h"
#include "ops/dispatch/plan_timing_cuda.h"
#include "ops/matmul/cuda/matmul_cublaslt_plan.h"
#include "ops/matmul/cuda/matmul_cublaslt_timing.h"

namespace hearth::cuda::blas {
namespace {

using Plans = PlanCache<MatmulProblem, Plan>;

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

Device device_of(const MatmulProblem& problem) { return {DeviceType::cuda, problem.device}; }

Plan make_plan(const MatmulProblem& problem) {
  const Device device = device_of(problem);
  refuse_while_recording(device, "choosing cuBLASLt's plan for a new matrix product");
  Plan plan = describe_product(problem, handle_of(device));
  const auto offered = offered_algorithms(plan);
  if (offered.empty()) return plan;
  std::vector<std::string> texts;
  for (const Algorithm& algorithm : offered) texts.push_back(text_of(algorithm));
  const ChosenPlan chosen =
      choose_plan(plan_key("cuBLASLt " + about().version, device, join_text(problem)), texts, problem.deterministic,
                  [&] { return fastest_algorithm(device, plan, offered); });
  plan.algorithm = offered[chosen.place];
  plan.info = {join_text(problem), chosen.choice, offered.size(), chosen.place, chosen.microseconds, chosen.why};
  return plan;
}

const Plan& plan_of(const MatmulProblem& problem) {
  return all_plans().get(problem, [&] { return make_plan(problem); });
}

/// Why the problem is unsupported, as far as that needs no plan; or empty.
std::string refused(const MatmulProblem& p) {
  if (p.activation == Activation::gelu)
    return "cuBLASLt's GELU is the approximation by tanh (gelu_tanh); this one is by erf";
  if (p.activation == Activation::silu) return "cuBLASLt has no SiLU";
  if (p.a != p.b) return join_text("a is ", p.a, " and b ", p.b, "; cuBLASLt takes one type");
  if (p.c != p.a && p.c != DType::f32) return join_text("c is ", p.c, " beside operands of ", p.a);
  if (p.batch > 65535) return "a batch of more than 65535";
  if (p.a == DType::f64 && (p.activation == Activation::gelu_tanh || p.slope == Activation::gelu_tanh))
    return "cuBLASLt's GELU in f64 is exact to 1e-10 only (13.1, on an H200)";
  if (p.keeps_pre && p.activation != Activation::gelu_tanh)
    return "cuBLASLt keeps what went into an activation for GELU only";
  if (p.slope != Activation::none && p.slope != Activation::gelu_tanh)
    return join_text("cuBLASLt multiplies by the slope of gelu_tanh; this one is of ", name_of(p.slope));
  if (p.slope != Activation::none && (p.c != p.a || p.batch != 1 || p.n % 8 != 0))
    return join_text("a slope beside ", p.batch, " products with rows of ", p.n, ' ', p.c,
                     "; cuBLASLt takes one product of its operands' type, in multiples of 8");
  if (p.keeps_pre && p.n % 8 != 0)
    return join_text("rows of ", p.n, " values; cuBLASLt keeps what went into GELU for multiples of 8");
  if (p.keeps_pre && p.batch != 1) return "cuBLASLt keeps nothing beside the products of a batch";
  // On an H200 that takes 1.4 to 3 times as long as Hearth's, and is less exact in f32.
  if (p.sums_a) return "cuBLASLt sums an operand by a kernel of its own";
  return "";
}

/// What the product reads and writes.
std::int64_t bytes_of(const MatmulProblem& p) {
  const auto matrices = [&](std::int64_t stride, std::int64_t elements, DType type) {
    return (stride == 0 ? 1 : p.batch) * elements * static_cast<std::int64_t>(size_of(type));
  };
  std::int64_t bytes = matrices(p.batch_stride_a, p.m * p.k, p.a) + matrices(p.batch_stride_b, p.k * p.n, p.b);
  bytes += (1 + (p.accumulate ? 1 : 0) + (p.keeps_pre ? 1 : 0)) * matrices(-1, p.m * p.n, p.c);
  if (p.has_bias) bytes += p.n * static_cast<std::int64_t>(size_of(p.c));
  return bytes;
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
  count_work({"cuBLASLt", bytes_of(problem)});
}

std::vector<PlanInfo> plans() {
  std::vector<PlanInfo> list;
  all_plans().each([&](const MatmulProblem&, const Plan& plan) {
    if (plan.unsupported.empty()) list.push_back(plan.info);
  });
  return list;
}

void clear_plans() { all_plans().clear(); }

double microseconds(const MatmulProblem& problem) {
  return unsupported(problem).empty() ? plan_of(problem).info.microseconds : 0;
}

}  // namespace hearth::cuda::blas

#else

namespace hearth::cuda::blas {

std::string unsupported(const MatmulProblem&) { return why_absent(); }
void matmul(Stream&, const MatmulProblem&, const Operands&) { throw DeviceError("matmul: " + why_absent()); }
std::vector<PlanInfo> plans() { return {}; }
void clear_plans() {}
double microseconds(const MatmulProblem&) { return 0; }

}  // namespace hearth::cuda::blas

#endif
