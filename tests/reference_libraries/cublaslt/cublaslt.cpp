// SPDX-License-Identifier: Apache-2.0
// A cuBLASLt for tests: the functions that Hearth calls, with the documented meaning, on the emulated GPU. It checks
// Hearth's calls against the documentation; of NVIDIA's library, its speed, its choice and its rounding it says
// nothing. What Hearth does not ask for is answered by CUBLAS_STATUS_NOT_SUPPORTED.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/cublaslt/arithmetic.h"
#include "tests/reference_libraries/cublaslt/controls.h"
#include "tests/reference_libraries/cublaslt/descriptors.h"

using namespace hearth::reference_blas;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::uint64_t mark = 0x6865617274680000;

struct AlgorithmFacts {
  std::size_t workspace;
  std::uint32_t alignment;
  std::uint32_t reduction;  // 0 where nothing is added up at the end
};
constexpr AlgorithmFacts facts[algorithm_count] = {
    {0, 16, 0},
    {4096, 16, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    {0, 256, 0},
    {64 * mebibyte, 16, 0},
    {0, 16, CUBLASLT_REDUCTION_SCHEME_INPLACE},
    {0, 1, 0},
    {4096, 16, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE},
};

Controls& controls() {
  static Controls all;
  return all;
}

Layout* of(cublasLtMatrixLayout_t raw) { return reinterpret_cast<Layout*>(raw); }
Description* of(cublasLtMatmulDesc_t raw) { return reinterpret_cast<Description*>(raw); }
Preference* of(cublasLtMatmulPreference_t raw) { return reinterpret_cast<Preference*>(raw); }

bool knows(cudaDataType_t type) {
  return type == CUDA_R_64F || type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

/// The sizes of D = op(A) op(B), or why these descriptors make no product.
cublasStatus_t sizes_of(const Description& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                        Product& product) {
  product.transpose_a = desc.transposed(CUBLASLT_MATMUL_DESC_TRANSA);
  product.transpose_b = desc.transposed(CUBLASLT_MATMUL_DESC_TRANSB);
  product.m = product.transpose_a ? a.columns() : a.rows();
  product.k = product.transpose_a ? a.rows() : a.columns();
  product.n = product.transpose_b ? b.rows() : b.columns();
  const std::int64_t k_of_b = product.transpose_b ? b.columns() : b.rows();
  const bool fits = k_of_b == product.k && d.rows() == product.m && d.columns() == product.n && c.rows() == d.rows() &&
                    c.columns() == d.columns() && c.type() == d.type();
  const bool one_batch = a.batch() == d.batch() && b.batch() == d.batch() && c.batch() == d.batch();
  if (!fits || !one_batch || product.m == 0 || product.n == 0 || product.k == 0) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/// The types of the tables in cuBLASLt's documentation that Hearth uses.
bool takes_types(const Description& desc, const Layout& a, const Layout& b, const Layout& d) {
  if (a.type() != b.type()) return false;
  if (desc.compute == CUBLAS_COMPUTE_64F)
    return desc.scale == CUDA_R_64F && a.type() == CUDA_R_64F && d.type() == a.type();
  const bool tf32 = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (tf32 && a.type() != CUDA_R_32F) return false;
  if ((!tf32 && desc.compute != CUBLAS_COMPUTE_32F) || desc.scale != CUDA_R_32F || a.type() == CUDA_R_64F) return false;
  return d.type() == a.type() || d.type() == CUDA_R_32F;
}

cublasStatus_t check_epilogue(const Description& desc, const Layout& d) {
  const std::uint32_t epilogue = desc.epilogue();
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  const bool known = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU ||
                     epilogue == CUBLASLT_EPILOGUE_RELU_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU ||
                     epilogue == CUBLASLT_EPILOGUE_GELU_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
                     epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
  if (!known || desc.compute == CUBLAS_COMPUTE_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto type = desc.attributes.get<std::int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  if (uses_vector(epilogue) && type != -1 && type != static_cast<std::int32_t>(d.type()))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (uses_aux(epilogue) && (desc.aux_pitch() % 8 != 0 || desc.aux_pitch() < d.rows()))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (uses_aux(epilogue) && d.batch() > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256u;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// What an algorithm is bound to: another product than the one it was offered for does not take it.
std::uint64_t print_of(const Description& desc, const Layout& a, const Layout& b, const Layout& d) {
  std::uint64_t print = 14695981039346656037u;
  const auto mix = [&](std::int64_t value) { print = (print ^ static_cast<std::uint64_t>(value)) * 1099511628211u; };
  for (const Layout* layout : {&a, &b, &d})
    for (const std::int64_t value : {std::int64_t{layout->type()}, layout->rows(), layout->columns(), layout->pitch(),
                                     std::int64_t{layout->batch()}, layout->stride()})
      mix(value);
  for (const auto name : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB})
    mix(desc.attributes.get<std::int32_t>(name));
  mix(desc.epilogue());
  return print;
}

/// Whether the whole matrix lies in one live block of device memory.
bool is_on_device(const void* address, std::size_t bytes) {
  const auto block = hearth::cuda::emulate::block_at(address);
  if (!block || block->kind != hearth::cuda::emulate::MemoryKind::device) return false;
  const auto* begin = static_cast<const std::byte*>(address);
  return begin + bytes <= block->begin + block->bytes;
}
std::size_t bytes_of(const Layout& layout) {
  const std::int64_t last = (layout.batch() - 1) * layout.stride() + (layout.columns() - 1) * layout.pitch();
  return static_cast<std::size_t>(last + layout.rows()) * size_of(layout.type());
}

}  // namespace

extern "C" {

Controls* hearth_runs_on_the_emulated_gpu() { return &controls(); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  static int only;
  *handle = reinterpret_cast<cublasLtHandle_t>(&only);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return 130000; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "another status";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* raw, cublasComputeType_t compute, cudaDataType_t scale) {
  if (raw == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* desc = new Description{compute, scale, {}};
  Attributes& all = desc->attributes;
  all.declare<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  all.declare<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  all.declare<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  all.declare<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  all.declare<std::int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, -1);
  all.declare<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr);
  all.declare<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
  *raw = reinterpret_cast<cublasLtMatmulDesc_t>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t raw) {
  delete of(raw);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t raw, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  return of(raw)->attributes.set(name, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* raw, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t pitch) {
  if (raw == nullptr || !knows(type) || pitch < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  auto* layout = new Layout;
  Attributes& all = layout->attributes;
  all.declare<std::uint32_t>(CUBLASLT_MATRIX_LAYOUT_TYPE, type);
  all.declare<std::uint64_t>(CUBLASLT_MATRIX_LAYOUT_ROWS, rows);
  all.declare<std::uint64_t>(CUBLASLT_MATRIX_LAYOUT_COLS, columns);
  all.declare<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_LD, pitch);
  all.declare<std::int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
  all.declare<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0);
  *raw = reinterpret_cast<cublasLtMatrixLayout_t>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t raw) {
  delete of(raw);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t raw, cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  return of(raw)->attributes.set(name, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* raw) {
  if (raw == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* preference = new Preference;
  Attributes& all = preference->attributes;
  all.declare<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
  all.declare<std::uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_MASK);
  for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    all.declare<std::uint32_t>(name, 256);
  *raw = reinterpret_cast<cublasLtMatmulPreference_t>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t raw) {
  delete of(raw);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t raw,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    size_t bytes) {
  return of(raw)->attributes.set(name, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc_raw,
                                              cublasLtMatrixLayout_t a_raw, cublasLtMatrixLayout_t b_raw,
                                              cublasLtMatrixLayout_t c_raw, cublasLtMatrixLayout_t d_raw,
                                              cublasLtMatmulPreference_t preference_raw, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  ++controls().questions;
  if (requested <= 0 || count == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  const Description& desc = *of(desc_raw);
  const Layout &a = *of(a_raw), &b = *of(b_raw), &c = *of(c_raw), &d = *of(d_raw);
  Product product;
  if (const cublasStatus_t status = sizes_of(desc, a, b, c, d, product); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!takes_types(desc, a, b, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const cublasStatus_t status = check_epilogue(desc, d); status != CUBLAS_STATUS_SUCCESS) return status;
  const Attributes& wish = of(preference_raw)->attributes;
  std::uint32_t alignment = 256;
  for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    alignment = std::min(alignment, wish.get<std::uint32_t>(name));
  if (uses_vector(desc.epilogue())) alignment = std::min(alignment, alignment_of(desc.vector()));
  if (uses_aux(desc.epilogue())) alignment = std::min(alignment, alignment_of(desc.aux()));
  const auto schemes = wish.get<std::uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  for (int i = 0; i < algorithm_count && *count < requested; ++i) {
    const AlgorithmFacts& fact = facts[i];
    if (fact.workspace > wish.get<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)) continue;
    if (fact.alignment > alignment || (fact.reduction & ~schemes) != 0 || i == controls().withheld) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo.data[0] = mark + static_cast<std::uint64_t>(i);
    result.algo.data[1] = print_of(desc, a, b, d);
    result.workspaceSize = fact.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc_raw, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a_raw, const void* b_data, cublasLtMatrixLayout_t b_raw,
                              const void* beta, const void* c_data, cublasLtMatrixLayout_t c_raw, void* d_data,
                              cublasLtMatrixLayout_t d_raw, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Description& desc = *of(desc_raw);
  const Layout &a = *of(a_raw), &b = *of(b_raw), &c = *of(c_raw), &d = *of(d_raw);
  Product product;
  if (const cublasStatus_t status = sizes_of(desc, a, b, c, d, product); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!takes_types(desc, a, b, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const cublasStatus_t status = check_epilogue(desc, d); status != CUBLAS_STATUS_SUCCESS) return status;
  // Without an algorithm the real library asks its heuristic, which Hearth must not do while recording.
  if (algorithm == nullptr || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t which = algorithm->data[0] - mark;
  if (which >= algorithm_count || algorithm->data[1] != print_of(desc, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
  const AlgorithmFacts& fact = facts[which];
  if (workspace_bytes < fact.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  if (fact.workspace > 0 && (alignment_of(workspace) < 256 || !is_on_device(workspace, fact.workspace)))
    return CUBLAS_STATUS_INVALID_VALUE;
  product.epilogue = desc.epilogue();
  std::vector<const void*> addresses{a_data, b_data, c_data, d_data};
  if (uses_vector(product.epilogue)) addresses.push_back(desc.vector());
  if (uses_aux(product.epilogue)) addresses.push_back(desc.aux());
  for (const void* address : addresses)
    if (address == nullptr || alignment_of(address) < fact.alignment) return CUBLAS_STATUS_INVALID_VALUE;
  const std::size_t aux_bytes =
      static_cast<std::size_t>((product.n - 1) * desc.aux_pitch() + product.m) * size_of(d.type());
  const bool in_bounds = is_on_device(a_data, bytes_of(a)) && is_on_device(b_data, bytes_of(b)) &&
                         is_on_device(c_data, bytes_of(c)) && is_on_device(d_data, bytes_of(d)) &&
                         (!uses_vector(product.epilogue) ||
                          is_on_device(desc.vector(), static_cast<std::size_t>(product.m) * size_of(d.type()))) &&
                         (!uses_aux(product.epilogue) || is_on_device(desc.aux(), aux_bytes));
  if (!in_bounds) return CUBLAS_STATUS_INVALID_VALUE;
  product.a = {a_data, a.type(), a.pitch(), a.stride()};
  product.b = {b_data, b.type(), b.pitch(), b.stride()};
  product.c = {c_data, c.type(), c.pitch(), c.stride()};
  product.d = {d_data, d.type(), d.pitch(), d.stride()};
  product.batch = d.batch();
  product.vector = desc.vector();
  product.aux = desc.aux();
  product.aux_pitch = desc.aux_pitch();
  product.doubles = desc.compute == CUBLAS_COMPUTE_64F;
  product.tf32 = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  product.alpha = product.doubles ? *static_cast<const double*>(alpha) : double{*static_cast<const float*>(alpha)};
  product.beta = product.doubles ? *static_cast<const double*>(beta) : double{*static_cast<const float*>(beta)};
  Controls& seen = controls();
  if (seen.fails) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++seen.runs[which];
  // Added in place, parts come in any order.
  product.parts = which == in_place                    ? static_cast<int>(2 + seen.runs[which] % 3)
                  : which == halves || which == narrow ? 2
                                                       : 1;
  product.narrow_parts = which == narrow;
  seen.epilogue = static_cast<int>(product.epilogue);
  seen.beta = static_cast<float>(product.beta);
  const std::int64_t cost = seen.cost[which];
  if (cost > 0)
    hearth::cuda::emulate::enqueue_work(stream, "wait of an algorithm",
                                        [cost] { std::this_thread::sleep_for(std::chrono::microseconds(cost)); });
  if (std::getenv("HEARTH_REFERENCE_IDLE") != nullptr) return CUBLAS_STATUS_SUCCESS;
  hearth::cuda::emulate::enqueue_work(stream, "reference cublasLtMatmul", [product] { multiply(product); });
  return cudaPeekAtLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
