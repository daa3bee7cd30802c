// SPDX-License-Identifier: Apache-2.0
// Matrix products through oneDNN: its sgemm for a single plain f32 product, its matmul primitive for batches, bf16 and
// bias. Mixed operands are rounded to bf16 in scratch memory first.
#include "ops/matmul/cpu/matmul_onednn.h"

#include "core/error.h"
#include "ops/onednn/library.h"
#include "ops/onednn/onednn.h"

#if HEARTH_HAS_DNNL

#include <algorithm>
#include <cstring>

#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/onednn/convert.h"
#include "ops/scratch.h"

namespace hearth::cpu::dnn {
namespace {

using Desc = dnnl::memory::desc;

struct MatmulKey {
  MatmulProblem problem;
  int pool = 1;
  auto operator<=>(const MatmulKey&) const = default;
};

struct MatmulPlan : LibraryPlan {
  bool sgemm = false;
  Desc a, b, bias, c;
};

constexpr const char* sgemm_name = "sgemm";

std::string onednn_text(const MatmulKey& key) {
  const MatmulProblem& p = key.problem;
  return join_text("matmul ", p.batch, " x ", p.m, "x", p.n, "x", p.k, " ", p.transpose_a ? "T" : "N",
                   p.transpose_b ? "T" : "N", " ", hearth::name_of(p.a), "*", hearth::name_of(p.b), "->",
                   hearth::name_of(p.c), p.accumulate ? " accumulate" : "", p.has_bias ? " bias" : "", " threads ",
                   key.pool);
}

bool is_empty(const MatmulProblem& p) { return p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0; }

bool is_plain_f32(const MatmulProblem& p) {
  return p.batch == 1 && p.a == DType::f32 && p.b == DType::f32 && p.c == DType::f32 && !p.has_bias;
}

Desc describe(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t leading,
              std::int64_t batch_stride, DType dtype) {
  const std::int64_t row_stride = transposed ? 1 : leading, column_stride = transposed ? leading : 1;
  if (batch == 1) return Desc({rows, columns}, library_type(dtype), dnnl::memory::dims{row_stride, column_stride});
  return Desc({batch_stride == 0 ? 1 : batch, rows, columns}, library_type(dtype),
              dnnl::memory::dims{std::max<std::int64_t>(batch_stride, 1), row_stride, column_stride});
}

void make_primitive(MatmulPlan& plan, const MatmulKey& key) {
  const MatmulProblem& p = key.problem;
  plan.a = describe(p.batch, p.m, p.k, p.transpose_a, p.lda, p.batch_stride_a, p.a);
  plan.b = describe(p.batch, p.k, p.n, p.transpose_b, p.ldb, p.batch_stride_b, p.b);
  plan.c = describe(p.batch, p.m, p.n, false, p.ldc, p.batch_stride_c, p.c);
  if (p.has_bias) {
    const dnnl::memory::dims dims = p.batch == 1 ? dnnl::memory::dims{1, p.n} : dnnl::memory::dims{1, 1, p.n};
    plan.bias = Desc(dims, dnnl::memory::data_type::f32,
                     p.batch == 1 ? dnnl::memory::dims{p.n, 1} : dnnl::memory::dims{p.n, p.n, 1});
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc descriptor(engine(), plan.a, plan.b, plan.bias, plan.c, attributes);
#else
  const auto operation =
      p.has_bias ? dnnl::matmul::desc(plan.a, plan.b, plan.bias, plan.c) : dnnl::matmul::desc(plan.a, plan.b, plan.c);
  const dnnl::matmul::primitive_desc descriptor(operation, attributes, engine());
#endif
  plan.take<dnnl::matmul>(descriptor);
}

std::shared_ptr<const MatmulPlan> make_onednn_plan(const MatmulKey& key) {
  auto plan = std::make_shared<MatmulPlan>();
  if (is_plain_f32(key.problem)) {
    plan->sgemm = true;
    plan->implementation = sgemm_name;
    return plan;
  }
  const ThreadsScope pool(key.pool);
  reserve_for_library("oneDNN");
  try {
    make_primitive(*plan, key);
  } catch (const dnnl::error& error) {
    plan->reason = reason_of(error);
  }
  return plan;
}

Registry<MatmulKey, MatmulPlan>& registry() {
  static auto* const instance = new Registry<MatmulKey, MatmulPlan>(onednn_text);
  return *instance;
}

std::shared_ptr<const MatmulPlan> onednn_plan(const MatmulKey& key) {
  return registry().get(key, [&] { return make_onednn_plan(key); });
}

const void* at(const void* base, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}

void call_sgemm(const MatmulProblem& p, const void* a, const void* b, void* c) {
  const SignalBlock no_signals;
  reserve_for_library("oneDNN");
  const dnnl_status_t status = dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f,
                                          static_cast<const float*>(a), p.lda, static_cast<const float*>(b), p.ldb,
                                          p.accumulate ? 1.0f : 0.0f, static_cast<float*>(c), p.ldc);
  check_status(status, "sgemm");
}

// One product on the thread pool that the calling thread has set.
void run(const MatmulKey& key, const void* a, const void* b, const float* bias, void* c) {
  const auto plan = onednn_plan(key);
  HEARTH_CHECK(UsageError, plan->reason.empty(), onednn_text(key), ": ", plan->reason, "; ask unsupported() first");
  if (plan->sgemm) {
    call_sgemm(key.problem, a, b, c);
    return;
  }
  const Argument arguments[] = {{DNNL_ARG_SRC, &plan->a, a},
                                {DNNL_ARG_WEIGHTS, &plan->b, b},
                                {DNNL_ARG_DST, &plan->c, c},
                                {DNNL_ARG_BIAS, &plan->bias, bias}};
  execute(plan->primitive, plan->scratchpad, arguments, bias ? 4 : 3);
}

// How deterministic mode cuts a product: rows, columns and matrices of each piece.
struct PackedTiling {
  std::int64_t rows, columns, matrices;
};

PackedTiling packed_tiling(const MatmulProblem& p) {
  constexpr std::int64_t pieces = 8, least = 32;
  const auto cut = [](std::int64_t size, std::int64_t parts, std::int64_t multiple) {
    const std::int64_t share = (size + parts - 1) / parts;
    return std::min(size, (share + multiple - 1) / multiple * multiple);
  };
  if (p.batch >= pieces) return {p.m, p.n, cut(p.batch, pieces, 1)};
  if (p.batch > 1) return {cut(p.m, 4, least), p.n, 1};
  if (p.m >= p.n) return {cut(p.m, pieces, least), p.n, 1};
  return {p.m, cut(p.n, pieces, least), 1};
}

MatmulProblem piece(const MatmulProblem& p, std::int64_t rows, std::int64_t columns, std::int64_t matrices) {
  MatmulProblem part = p;
  part.m = rows;
  part.n = columns;
  part.batch = matrices;
  part.deterministic = false;
  return part;
}

// Every piece is a single-threaded product over the whole of k, so no sum is ever cut.
void run_in_pieces(const MatmulProblem& p, const void* a, const void* b, const float* bias, void* c) {
  const PackedTiling tile = packed_tiling(p);
  const auto ceil_div = [](std::int64_t x, std::int64_t y) { return (x + y - 1) / y; };
  const std::int64_t row_tiles = ceil_div(p.m, tile.rows), column_tiles = ceil_div(p.n, tile.columns);
  parallel_chunks(row_tiles * column_tiles * ceil_div(p.batch, tile.matrices), [&](std::int64_t i) {
    const std::int64_t row = i % row_tiles * tile.rows;
    const std::int64_t column = i / row_tiles % column_tiles * tile.columns;
    const std::int64_t matrix = i / (row_tiles * column_tiles) * tile.matrices;
    const MatmulProblem part = piece(p, std::min(tile.rows, p.m - row), std::min(tile.columns, p.n - column),
                                     std::min(tile.matrices, p.batch - matrix));
    const ThreadsScope alone(1);
    const std::int64_t a0 = matrix * p.batch_stride_a + (p.transpose_a ? row : row * p.lda);
    const std::int64_t b0 = matrix * p.batch_stride_b + (p.transpose_b ? column * p.ldb : column);
    const std::int64_t c0 = matrix * p.batch_stride_c + row * p.ldc + column;
    run({part, 1}, at(a, a0, p.a), at(b, b0, p.b), bias ? bias + column : nullptr, const_cast<void*>(at(c, c0, p.c)));
  });
}

// A small C under a long sum, as in the gradient of a filter: too few tiles to share out, so the sum is shared.
bool has_long_sum(const MatmulProblem& p) { return p.batch == 1 && p.k >= 2048 && p.k >= 16 * std::max(p.m, p.n); }

constexpr std::int64_t sum_shares_wanted = 8;

MatmulProblem sum_share(const MatmulProblem& p, std::int64_t terms) {
  MatmulProblem part = p;
  part.k = terms;
  part.c = DType::f32;
  part.ldc = p.n;
  part.batch_stride_c = p.m * p.n;
  part.accumulate = part.deterministic = part.has_bias = false;
  return part;
}

std::int64_t terms_of_share(const MatmulProblem& p) {
  const std::int64_t terms = (p.k + sum_shares_wanted - 1) / sum_shares_wanted;
  return (terms + 63) / 64 * 64;
}

void run_in_shares(const MatmulProblem& p, const void* a, const void* b, const float* bias, void* c) {
  const std::int64_t terms = terms_of_share(p), shares = (p.k + terms - 1) / terms;
  Scratch scratch;
  float* parts = scratch.take<float>(shares * p.m * p.n);
  parallel_chunks(shares, [&](std::int64_t i) {
    const ThreadsScope alone(1);
    const std::int64_t first = i * terms;
    run({sum_share(p, std::min(terms, p.k - first)), 1}, at(a, p.transpose_a ? first * p.lda : first, p.a),
        at(b, p.transpose_b ? first : first * p.ldb, p.b), nullptr, parts + i * p.m * p.n);
  });
  sum_shares(parts, shares, p.m, p.n, bias, p.accumulate, c, p.c, p.ldc);
}

// A few rows against many: the library's own sharing of sgemm packs B once a thread.
bool has_few_rows(const MatmulProblem& p) { return is_plain_f32(p) && p.transpose_b && p.m <= 256 && p.n >= 1024; }

template <class T>
void fill_rows(const MatmulProblem& p, const float* bias, T* c) {
  for (std::int64_t matrix = 0; matrix < p.batch; ++matrix)
    for (std::int64_t row = 0; row < p.m; ++row) {
      T* out = c + matrix * p.batch_stride_c + row * p.ldc;
      for (std::int64_t j = 0; j < p.n; ++j) {
        const float before = p.accumulate ? static_cast<float>(out[j]) : 0.0f;
        out[j] = T(before + (bias ? bias[j] : 0.0f));
      }
    }
}

// The operand in bf16: itself, or a rounded copy of all its matrices in scratch memory.
const void* narrowed(const void* x, DType& dtype, std::int64_t size, Scratch& scratch) {
  if (dtype == DType::bf16) return x;
  auto* copy = scratch.take<bf16>(size);
  convert(x, dtype, copy, DType::bf16, size);
  dtype = DType::bf16;
  return copy;
}

std::string refused_types(const MatmulProblem& p) {
  const auto taken = [](DType t) { return t == DType::f32 || t == DType::bf16; };
  if (!taken(p.a) || !taken(p.b) || !taken(p.c))
    return join_text("oneDNN takes f32 and bf16, not ", hearth::name_of(p.a), " * ", hearth::name_of(p.b), " -> ",
                     hearth::name_of(p.c));
  if (p.a == DType::f32 && p.b == DType::f32 && p.c != DType::f32) return "the product of two f32 matrices is f32";
  return {};
}

// The problem as it is planned: narrow operands where either is, and in deterministic mode its first piece.
MatmulKey planned(MatmulProblem p) {
  if (p.a == DType::bf16 || p.b == DType::bf16) p.a = p.b = DType::bf16;
  if (has_long_sum(p)) return {sum_share(p, std::min(p.k, terms_of_share(p))), 1};
  if (!p.deterministic && !has_few_rows(p)) return {p, current_threads()};
  const PackedTiling tile = packed_tiling(p);
  return {piece(p, tile.rows, tile.columns, tile.matrices), 1};
}

}  // namespace

std::string unsupported(const MatmulProblem& problem) {
  const MatmulProblem p = complete(problem);
  if (std::string reason = refused_types(p); !reason.empty() || is_empty(p)) return reason;
  return onednn_plan(planned(p))->reason;
}

void matmul(const MatmulProblem& problem, const void* a, const void* b, const void* given_bias, void* c) {
  const auto* bias = static_cast<const float*>(given_bias);
  MatmulProblem p = complete(problem);
  p.has_bias = bias != nullptr;
  const std::string reason = refused_types(p);
  HEARTH_CHECK(UsageError, reason.empty(), "matmul: ", reason, "; ask unsupported() first");
  if (is_empty(p)) {
    if (p.c == DType::bf16)
      fill_rows(p, bias, static_cast<bf16*>(c));
    else
      fill_rows(p, bias, static_cast<float*>(c));
    return;
  }
  const ThreadsScope pool(current_threads());
  Scratch scratch;
  if (p.a != p.b) {
    a = narrowed(a, p.a, reach_of_a(p), scratch);
    b = narrowed(b, p.b, reach_of_b(p), scratch);
  }
  if (has_long_sum(p))
    run_in_shares(p, a, b, bias, c);
  else if (p.deterministic || has_few_rows(p))
    run_in_pieces(p, a, b, bias, c);
  else
    run({p, current_threads()}, a, b, bias, c);
}

}  // namespace hearth::cpu::dnn

#else

namespace hearth::cpu::dnn {

std::string unsupported(const MatmulProblem&) { return why_absent(); }
void matmul(const MatmulProblem&, const void*, const void*, const void*, void*) { throw UsageError(why_absent()); }

}  // namespace hearth::cpu::dnn

#endif
