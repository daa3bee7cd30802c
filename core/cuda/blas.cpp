// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cuda/blas.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "hearth/core/cuda/counters.h"
#include "hearth/core/cuda/library.h"
#include "hearth/core/cuda/runtime.h"
#include "hearth/core/error.h"
#include "hearth/core/memory.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace hearth::cuda::blas {
namespace {

/// What is used of the library.
struct Functions {
  Library file{"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}};
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtGetVersion)* version = nullptr;
  decltype(cublasLtGetStatusString)* text = nullptr;
  decltype(cublasLtMatmulDescCreate)* desc_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = nullptr;
  decltype(cublasLtMatmul)* matmul = nullptr;

  Functions() {
    file.find("cublasLtCreate", create);
    file.find("cublasLtGetVersion", version);
    file.find("cublasLtGetStatusString", text);
    file.find("cublasLtMatmulDescCreate", desc_create);
    file.find("cublasLtMatmulDescDestroy", desc_destroy);
    file.find("cublasLtMatmulDescSetAttribute", desc_set);
    file.find("cublasLtMatrixLayoutCreate", layout_create);
    file.find("cublasLtMatrixLayoutDestroy", layout_destroy);
    file.find("cublasLtMatrixLayoutSetAttribute", layout_set);
    file.find("cublasLtMatmulPreferenceCreate", preference_create);
    file.find("cublasLtMatmulPreferenceDestroy", preference_destroy);
    file.find("cublasLtMatmulPreferenceSetAttribute", preference_set);
    file.find("cublasLtMatmulAlgoGetHeuristic", heuristic);
    file.find("cublasLtMatmul", matmul);
  }
};

// Leaked, as the library's own state outlives static objects.
Functions& lt() {
  static Functions& loaded = *new Functions;
  return loaded;
}

void check(cublasStatus_t status, const char* call) {
  HEARTH_CHECK(DeviceError, status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", call, ": ", lt().text(status));
}

/// A descriptor that is destroyed with its owner.
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

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

/// What a plan depends on. Alignments are the largest powers of two up to 256 that divide the addresses.
struct Key {
  int device;
  Matmul problem;
  bool bias;
  std::array<std::uint32_t, 3> alignment;
  auto operator<=>(const Key&) const = default;
};

struct Plan {
  cublasLtHandle_t handle = nullptr;
  Owned<cublasLtMatmulDesc_t> desc{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> left{nullptr, nullptr}, right{nullptr, nullptr}, result{nullptr, nullptr};
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
  std::string declines;
};

/// Under the mutex of the plans.
cublasLtHandle_t handle_of(int device) {
  static std::map<int, cublasLtHandle_t>& handles = *new std::map<int, cublasLtHandle_t>;
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) {
    (void)state_of(Device{DeviceType::cuda, device});
    check(lt().create(&handle), "cublasLtCreate");
  }
  return handle;
}

Owned<cublasLtMatmulDesc_t> desc_of(const Matmul& p, bool bias) {
  const bool f64 = p.a == DType::f64;
  cublasLtMatmulDesc_t raw = nullptr;
  check(lt().desc_create(&raw, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, f64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  Owned<cublasLtMatmulDesc_t> desc(raw, lt().desc_destroy);
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(lt().desc_set(raw, name, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  };
  // The row-major product is the column-major one of the transposes, in the other order: C^T = op(B)^T op(A)^T.
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.c));
  }
  return desc;
}

Plan make_plan(const Key& key) {
  const Matmul& p = key.problem;
  Plan plan;
  plan.handle = handle_of(key.device);
  plan.desc = desc_of(p, key.bias);
  plan.left = layout_of(p.b, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.batch, p.batch_stride_b);
  plan.right = layout_of(p.a, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.batch, p.batch_stride_a);
  plan.result = layout_of(p.c, p.n, p.m, p.ldc, p.batch, p.batch_stride_c);
  cublasLtMatmulPreference_t raw = nullptr;
  check(lt().preference_create(&raw), "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t> preference(raw, lt().preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(lt().preference_set(raw, name, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::size_t{32} << 20);
  // Parts are added from the workspace in a fixed order; adding them in place is not repeatable.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[1]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[0]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[2]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[2]);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = lt().heuristic(plan.handle, plan.desc.get(), plan.left.get(), plan.right.get(),
                                               plan.result.get(), plan.result.get(), raw, 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    plan.declines = join_text("cuBLASLt has no algorithm: ", lt().text(status));
    return plan;
  }
  plan.algorithm = found.algo;
  plan.workspace = found.workspaceSize;
  return plan;
}

const Plan& plan_of(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, Plan>& plans = *new std::map<Key, Plan>;
  const std::lock_guard lock(mutex);
  auto found = plans.find(key);
  if (found == plans.end()) found = plans.emplace(key, make_plan(key)).first;
  return found->second;
}

std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p) | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

}  // namespace

LibraryInfo about() {
  const Functions& f = lt();
  return f.file.about(f.file.is_open() ? f.version() : 0);
}

std::string why_absent() { return *why_no_library_runs() != '\0' ? why_no_library_runs() : lt().file.why_absent(); }

std::string declines(Device device, const Matmul& p) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (p.a != p.b) return join_text("a is ", p.a, " and b ", p.b, "; cuBLASLt takes one type");
  if (p.c != p.a && p.c != DType::f32) return join_text("c is ", p.c, " beside operands of ", p.a);
  if (p.batch > 65535) return "a batch of more than 65535";
  // Memory of the pool is aligned to 256; what else comes is planned for when it comes.
  return plan_of({device.index, p, false, {16, 16, 16}}).declines;
}

void matmul(Stream& stream, const Matmul& p, const void* a, const void* b, const void* bias, void* c) {
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("matmul: " + reason);
  const Key key{stream.device().index, p, bias != nullptr, {alignment_of(a), alignment_of(b), alignment_of(c)}};
  const Plan& plan = plan_of(key);
  HEARTH_CHECK(UsageError, plan.declines.empty(), "matmul: ", plan.declines);
  if (bias != nullptr)
    check(lt().desc_set(plan.desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), "bias");
  const double one = 1, none = 0;
  const float one_f32 = 1, none_f32 = 0;
  const bool f64 = p.a == DType::f64;
  const void* const alpha = f64 ? static_cast<const void*>(&one) : &one_f32;
  const void* const keep = f64 ? static_cast<const void*>(&one) : &one_f32;
  const void* const drop = f64 ? static_cast<const void*>(&none) : &none_f32;
  // The stream's own order keeps the workspace until the product is done.
  MemoryResource& memory = memory_of(stream.device());
  void* const workspace = plan.workspace == 0 ? nullptr : memory.allocate(plan.workspace);
  const cublasStatus_t status = lt().matmul(
      plan.handle, plan.desc.get(), alpha, b, plan.left.get(), a, plan.right.get(), p.accumulate ? keep : drop, c,
      plan.result.get(), c, plan.result.get(), &plan.algorithm, workspace, plan.workspace, stream.raw());
  if (workspace != nullptr) memory.deallocate(workspace, plan.workspace);
  check(status, "cublasLtMatmul");
  ++live_counters().library_calls;
}

}  // namespace hearth::cuda::blas

#else

namespace hearth::cuda::blas {

LibraryInfo about() { return {"", "", why_absent()}; }
std::string why_absent() {
  return "this build was made without the header cublasLt.h; install cuBLAS's development files and build again";
}
std::string declines(Device, const Matmul&) { return why_absent(); }
void matmul(Stream&, const Matmul&, const void*, const void*, const void*, void*) {
  throw DeviceError("matmul: " + why_absent());
}

}  // namespace hearth::cuda::blas

#endif
