// SPDX-License-Identifier: Apache-2.0
#if __has_include(<cublasLt.h>)
#include "ops/matmul/cuda/matmul_cublaslt_plan.h"

#include <array>

#include "core/error.h"

namespace hearth::cuda::blas {
namespace {

constexpr std::size_t max_workspace = std::size_t{32} << 20;
constexpr int max_algorithms = 16;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/// A stored row-major matrix, which the library sees as its transpose: `width` rows and `height` columns.
Owned<cublasLtMatrixLayout_t> layout_of(DType dtype, std::int64_t width, std::int64_t height, std::int64_t pitch,
                                        std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t raw = nullptr;
  check(lt().layout_create(&raw, type_of(dtype), static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(height),
                           pitch > 0 ? pitch : width),
        "cublasLtMatrixLayoutCreate");
  Owned<cublasLtMatrixLayout_t> layout(raw, lt().layout_destroy);
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t step = stride >= 0 ? stride : width * height;
  check(lt().layout_set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "batch count");
  check(lt().layout_set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)), "batch stride");
  return layout;
}

cublasLtEpilogue_t epilogue_of(const MatmulProblem& p) {
  if (p.slope == Activation::gelu_tanh) return CUBLASLT_EPILOGUE_DGELU;
  switch (p.activation) {
    case Activation::relu:
      return p.has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::gelu_tanh:
      if (p.keeps_pre) return p.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return p.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      break;
  }
  return p.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const T& value) {
  check(lt().desc_set(desc, name, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
}

bool has_beside(const MatmulProblem& p) { return p.keeps_pre || p.slope != Activation::none; }

/// `beside` is what is kept, or where the slope is taken.
void set_pointers(cublasLtMatmulDesc_t desc, const MatmulProblem& p, const void* bias, const void* beside) {
  if (p.has_bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (has_beside(p)) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, beside);
}

Owned<cublasLtMatmulDesc_t> desc_of(const MatmulProblem& p) {
  const bool f64 = p.a == DType::f64;
  cublasLtMatmulDesc_t raw = nullptr;
  const cublasComputeType_t f32 = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(lt().desc_create(&raw, f64 ? CUBLAS_COMPUTE_64F : f32, f64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  Owned<cublasLtMatmulDesc_t> desc(raw, lt().desc_destroy);
  // The row-major product is the column-major one of the transposes, in the other order: C^T = op(B)^T op(A)^T.
  set(raw, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(raw, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.has_bias) set(raw, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.c));
  if (has_beside(p)) set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  // The heuristic reads the alignment off the addresses.
  const auto* const aligned = reinterpret_cast<const void*>(std::uintptr_t{min_alignment});
  set_pointers(raw, p, aligned, aligned);
  return desc;
}

/// How parts of a long sum may be added. From the workspace they are in a fixed order, as f32, or in the type of C,
/// which for 16 bits would round each part; adding them in place is not repeatable.
std::uint32_t reductions_of(const MatmulProblem& p) {
  if (!p.repeatable) return CUBLASLT_REDUCTION_SCHEME_MASK;
  const std::uint32_t in_type_of_c = size_of(p.c) == 2 ? 0 : CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | in_type_of_c;
}

Owned<cublasLtMatmulPreference_t> ask_for(const MatmulProblem& p) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(lt().preference_create(&raw), "cublasLtMatmulPreferenceCreate");
  Owned<cublasLtMatmulPreference_t> preference(raw, lt().preference_destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(lt().preference_set(raw, name, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, max_workspace);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_of(p));
  for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(name, std::uint32_t{min_alignment});
  return preference;
}

}  // namespace

Plan describe_product(const MatmulProblem& p, cublasLtHandle_t handle) {
  Plan plan;
  plan.problem = p;
  plan.handle = handle;
  plan.desc = desc_of(p);
  plan.left = layout_of(p.b, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.batch, p.batch_stride_b);
  plan.right = layout_of(p.a, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.batch, p.batch_stride_a);
  plan.result = layout_of(p.c, p.n, p.m, p.ldc, p.batch, p.batch_stride_c);
  return plan;
}

std::vector<Algorithm> offered_algorithms(Plan& plan) {
  const auto preference = ask_for(plan.problem);
  std::array<cublasLtMatmulHeuristicResult_t, max_algorithms> found{};
  int count = 0;
  const cublasStatus_t status =
      lt().heuristic(plan.handle, plan.desc.get(), plan.left.get(), plan.right.get(), plan.result.get(),
                     plan.result.get(), preference.get(), max_algorithms, found.data(), &count);
  std::vector<Algorithm> offered;
  if (status == CUBLAS_STATUS_SUCCESS)
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) && i < found.size(); ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) offered.push_back({found[i].algo, found[i].workspaceSize});
  if (offered.empty())
    plan.unsupported = join_text("cuBLASLt has no ", plan.problem.repeatable ? "repeatable " : "", "algorithm for this",
                                 status == CUBLAS_STATUS_SUCCESS ? "" : ": ",
                                 status == CUBLAS_STATUS_SUCCESS ? "" : lt().text(status));
  return offered;
}

cublasStatus_t enqueue_product(const Plan& plan, const Algorithm& algorithm, const Operands& o, void* workspace,
                               cudaStream_t stream) {
  const MatmulProblem& p = plan.problem;
  set_pointers(plan.desc.get(), p, o.bias, p.keeps_pre ? o.pre : o.slope_at);
  const double one = 1, none = 0;
  const float one_f32 = 1, none_f32 = 0;
  const bool f64 = p.a == DType::f64;
  const void* const alpha = f64 ? static_cast<const void*>(&one) : &one_f32;
  const void* const drop = f64 ? static_cast<const void*>(&none) : &none_f32;
  return lt().matmul(plan.handle, plan.desc.get(), alpha, o.b, plan.left.get(), o.a, plan.right.get(),
                     p.accumulate ? alpha : drop, o.c, plan.result.get(), o.c, plan.result.get(), &algorithm.blob,
                     workspace, algorithm.workspace, stream);
}

}  // namespace hearth::cuda::blas
#endif
