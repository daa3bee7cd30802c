// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/cuda/attention_cudnn.h"

#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ops/attention/cuda/attention_graph.h"
#include "ops/dispatch/plan_cache.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

enum Operand : std::int64_t {
  operand_q = 1,
  operand_k,
  operand_v,
  operand_bias,
  operand_query_lengths,
  operand_key_lengths,
  operand_y,
  operand_lse,
  operand_scale,
  operand_hidden,  ///< -infinity, where there is no such key
  operand_later,   ///< -infinity, where it comes later
  operand_dy,
  operand_delta,
  operand_one,
  operand_dq,
  operand_dk,
  operand_dv,
};

/// The first version whose engines have no fault that is known: earlier ones read beyond keys that do not fill a tile,
/// or want other graphs.
constexpr std::size_t first_version = 91501;
/// Of the scores that a gradient's engine keeps in 16 bits; half of what its plan may have as workspace.
constexpr std::int64_t max_score_bytes = std::int64_t{256} << 20;

using Four = std::array<std::int64_t, 4>;

/// The graph with the tensors that attention is made of. Their order is [batch, heads, rows, columns]. What engines
/// take is a fixed succession of operations, with intermediate results in f32, and in 16 bits before a product.
class AttentionGraph : public Graph {
 public:
  explicit AttentionGraph(const Attention& problem) : p_(problem), type_(type_of(problem.dtype)) {
    if (!p_.lengths) return;
    for (const auto& [id, into] :
         {std::pair(operand_query_lengths, &query_lengths_), {operand_key_lengths, &key_lengths_}})
      *into = &keep(tensor(id, CUDNN_DATA_INT32, Four{p_.batch, 1, 1, 1}, Four{1, 1, 1, 1}));
  }

  /// [batch, heads, tokens, channels], or with the last two exchanged.
  const Descriptor& matrices(Operand id, std::int64_t tokens, const HeadSteps& steps, bool transposed = false) {
    const auto [extents, strides] = layout(tokens, steps, transposed);
    return keep(tensor(id, type_, extents, strides));
  }
  const Descriptor& queries(Operand id, const HeadSteps& steps) { return matrices(id, p_.queries, steps); }
  const Descriptor& keys(Operand id, const HeadSteps& steps, bool transposed = false) {
    return matrices(id, p_.keys, steps, transposed);
  }
  /// A number a query, in memory.
  const Descriptor& row_numbers(Operand id) { return keep(tensor(id, CUDNN_DATA_FLOAT, row_extents(), row_strides())); }

  /// A number a query and key, and others between two operations.
  const Descriptor& scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between(type, {p_.batch, p_.heads, p_.queries, p_.keys});
  }
  const Descriptor& rows() { return between(CUDNN_DATA_FLOAT, row_extents()); }
  const Descriptor& between(cudnnDataType_t type, const Four& e) {
    return passing(type, e, Four{e[1] * e[2] * e[3], e[2] * e[3], e[3], 1});
  }

  /// mode(x) or mode(x, b) as scores.
  const Descriptor& each(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b = nullptr,
                         cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const Descriptor& y = scores(type);
    pointwise(mode, x, b, y);
    return y;
  }
  void over_columns(cudnnReduceTensorOp_t how, const Descriptor& x, const Descriptor& y) {
    Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("reduction");
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(kind)));
    add(std::move(operation), "reduction");
  }

  /// What the rows and columns of a product, and what is summed over, are counted by.
  enum class Count : std::uint8_t { queries, keys, channels };
  void product(const Descriptor& a, const Descriptor& b, const Descriptor& c, Count rows, Count columns, Count sum) {
    Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("product");
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(kind)));
    for (const auto& [name, count] : {std::pair(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, rows),
                                      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, columns},
                                      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, sum}}) {
      if (!p_.lengths || count == Count::channels) continue;
      operation.set_descriptor(name, count == Count::queries ? *query_lengths_ : *key_lengths_);
    }
    add(std::move(operation), "product");
  }

  /// q k^T times the scale, with the bias, and -infinity where there is no query or no key.
  const Descriptor& scaled_scores(const Descriptor& q, const Descriptor& k_transposed, const Descriptor& scale) {
    const Descriptor& plain = scores();
    product(q, k_transposed, plain, Count::queries, Count::keys, Count::channels);
    const Descriptor* x = &each(CUDNN_POINTWISE_MUL, plain, &scale);
    if (p_.bias_heads > 0) {
      const std::int64_t matrix = p_.queries * p_.keys;
      x = &each(CUDNN_POINTWISE_ADD, *x,
                &keep(tensor(operand_bias, CUDNN_DATA_FLOAT, Four{1, p_.bias_heads, p_.queries, p_.keys},
                             Four{p_.bias_heads * matrix, matrix, p_.keys, 1})));
    }
    if (!p_.lengths) return *x;
    const Descriptor& row = compared(CUDNN_POINTWISE_CMP_LT, index_along(*x, 2, CUDNN_DATA_INT32), *query_lengths_);
    const Descriptor& column = compared(CUDNN_POINTWISE_CMP_LT, index_along(*x, 3, CUDNN_DATA_INT32), *key_lengths_);
    return chosen(*x, operand_hidden, compared(CUDNN_POINTWISE_LOGICAL_AND, row, column));
  }
  /// -infinity for keys behind the query, where the problem is causal.
  const Descriptor& without_later(const Descriptor& x) {
    if (!p_.causal) return x;
    const Descriptor& row = index_along(x, 2, CUDNN_DATA_FLOAT);
    return chosen(x, operand_later, compared(CUDNN_POINTWISE_CMP_GE, row, index_along(x, 3, CUDNN_DATA_FLOAT)));
  }

  /// Scores with queries and keys exchanged, in 16 bits.
  const Descriptor& transposed(const Descriptor& matrix) {
    const std::int64_t size = p_.queries * p_.keys;
    return as(matrix,
              passing(type_, Four{p_.batch, p_.heads, p_.keys, p_.queries}, Four{p_.heads * size, size, 1, p_.keys}));
  }
  /// Keys that were given transposed.
  const Descriptor& upright(const Descriptor& k_transposed, const HeadSteps& steps) {
    const auto [extents, strides] = layout(p_.keys, steps, false);
    return as(k_transposed, passing(type_, extents, strides));
  }

 private:
  std::pair<Four, Four> layout(std::int64_t tokens, const HeadSteps& steps, bool transposed) const {
    if (transposed) return {{p_.batch, p_.heads, p_.width, tokens}, {steps.sample, steps.head, 1, steps.token}};
    return {{p_.batch, p_.heads, tokens, p_.width}, {steps.sample, steps.head, steps.token, 1}};
  }
  Four row_extents() const { return {p_.batch, p_.heads, p_.queries, 1}; }
  Four row_strides() const { return {p_.heads * p_.queries, p_.queries, 1, 1}; }

  const Descriptor& as(const Descriptor& x, const Descriptor& y) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(std::move(operation), "transposition");
    return y;
  }
  /// Each score's place on an axis.
  const Descriptor& index_along(const Descriptor& like, std::int64_t axis, cudnnDataType_t math) {
    const Descriptor& y = scores(CUDNN_DATA_INT32);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, like, nullptr, y, {.math = math, .axis = axis});
    return y;
  }
  const Descriptor& compared(cudnnPointwiseMode_t mode, const Descriptor& a, const Descriptor& b) {
    const Descriptor& y = scores(CUDNN_DATA_BOOLEAN);
    pointwise(mode, a, &b, y, {.math = CUDNN_DATA_BOOLEAN});
    return y;
  }
  /// x where `which`, else a number.
  const Descriptor& chosen(const Descriptor& x, Operand otherwise, const Descriptor& which) {
    const Descriptor& y = scores();
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, &number(otherwise), y, {.which = &which});
    return y;
  }

  const Attention p_;
  const cudnnDataType_t type_;
  const Descriptor *query_lengths_ = nullptr, *key_lengths_ = nullptr;
};

using Count = AttentionGraph::Count;

const Attention& attention_of(const Attention& problem) { return problem; }
const Attention& attention_of(const AttentionGrad& problem) { return problem.forward; }

/// Under the mutex. Leaked, like the library.
template <class Problem>
const Plan& plan_for(int device, const Problem& problem) {
  static auto& plans = *new PlanCache<std::pair<int, Problem>, Plan>;
  return plans.get({device, problem}, [&] {
    return plan_or_reason(device, [&](const Target& target) {
      return graph_of(problem).plan(target, {.repeatable = attention_of(problem).repeatable});
    });
  });
}

/// Why the problem is unsupported, as far as that needs no plan; or empty.
std::string refused(const Attention& p) {
  if (p.dtype != DType::f16 && p.dtype != DType::bf16) return "cuDNN's attention takes f16 and bf16";
  if (p.width % 8 != 0) return "heads of " + std::to_string(p.width) + " channels, not a multiple of 8";
  if (std::min({p.batch, p.heads, p.queries, p.keys}) < 1) return "there is nothing to attend to";
  for (const std::int64_t size : {p.batch * p.heads, p.queries, p.keys, p.width})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size of 2^31 or more";
  if (api().version() < first_version) return "cuDNN is older than 9.15.1, the first without known faults in attention";
  return "";
}
std::string refused(const AttentionGrad& p) { return refused(attention_of(p)); }

/// As many samples as a plan takes at once.
Attention share_of(const Attention& p) { return p; }
AttentionGrad share_of(const AttentionGrad& p) {
  const auto whole_tiles = [](std::int64_t tokens) { return (tokens + 63) / 64 * 64; };
  const Attention& all = p.forward;
  const std::int64_t bytes = 2 * all.heads * whole_tiles(all.queries) * whole_tiles(all.keys);
  AttentionGrad share = p;
  if (all.batch * bytes <= max_score_bytes) return share;
  // Multiples of 4 keep the memory of each share aligned.
  for (std::int64_t batch = 4; batch < all.batch; batch += 4)
    if (all.batch % batch == 0 && (batch == 4 || batch * bytes <= max_score_bytes)) share.forward.batch = batch;
  return share;
}

template <class Problem>
std::string reason_against(Device device, const Problem& problem) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex());
  return plan_for(device.index, share_of(problem)).info.unsupported;
}

/// The tensors of a plan and where they are, beginning with a sample.
class Memory {
 public:
  Memory(const Attention& p, const AttentionMemory& m, std::int64_t first) : first_(first) {
    give_heads(operand_q, m.q, p.q);
    give_heads(operand_k, m.k, p.k);
    give_heads(operand_v, m.v, p.v);
    give_heads(operand_y, m.y, p.y);
    give(operand_lse, m.lse, p.heads * p.queries * 4);
    give(operand_scale, &scale_, 0);
    scale_ = m.scale;
    if (p.bias_heads > 0) give(operand_bias, m.bias, 0);
    if (p.causal) give(operand_later, &hidden_, 0);
    if (!p.lengths) return;
    give(operand_query_lengths, m.query_lengths, 4);
    give(operand_key_lengths, m.key_lengths, 4);
    give(operand_hidden, &hidden_, 0);
  }
  Memory(const Memory&) = delete;

  void give_heads(Operand id, void* memory, const HeadSteps& steps) { give(id, memory, 2 * steps.sample); }
  void give_one() { give(operand_one, &one_, 0); }
  /// `step` bytes from a sample to the next.
  void give(Operand id, void* memory, std::int64_t step) {
    ids_.push_back(id);
    pointers_.push_back(static_cast<std::byte*>(memory) + first_ * step);
  }
  void run(Stream& stream, const Plan& plan) const { execute(stream, plan, ids_, pointers_); }

 private:
  std::int64_t first_;
  float scale_ = 1, one_ = 1, hidden_ = -std::numeric_limits<float>::infinity();
  std::vector<std::int64_t> ids_;
  std::vector<void*> pointers_;
};

void check_given(const Attention& p, const AttentionMemory& m) {
  const auto agree = [](bool in_plan, const void* memory, const char* what) {
    HEARTH_CHECK(UsageError, in_plan == (memory != nullptr), "attention: the plan has ", in_plan ? "" : "no ", what,
                 ", but there ", in_plan ? "are none" : "are some");
  };
  agree(p.bias_heads > 0, m.bias, "values of a bias");
  agree(p.lengths, m.query_lengths, "numbers of queries");
  agree(p.lengths, m.key_lengths, "numbers of keys");
}

/// The plan of a share, under the mutex.
template <class Problem>
const Plan& usable_plan(const Stream& stream, const Problem& share) {
  const Plan& plan = plan_for(stream.device().index, share);
  HEARTH_CHECK(UsageError, plan.info.unsupported.empty(), "attention: ", plan.info.unsupported);
  return plan;
}

template <class Problem>
void check_usable(const Problem& problem) {
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("attention: " + reason);
  if (const std::string reason = refused(problem); !reason.empty()) throw UsageError("attention: " + reason);
}

}  // namespace

// Vaswani et al. (2017), equation 1, with the softmax shifted by each row's largest score.
Graph graph_of(const Attention& p) {
  AttentionGraph graph(p);
  const Descriptor& q = graph.queries(operand_q, p.q);
  const Descriptor& x =
      graph.without_later(graph.scaled_scores(q, graph.keys(operand_k, p.k, true), graph.number(operand_scale)));
  const Descriptor& most = graph.rows();
  graph.over_columns(CUDNN_REDUCE_TENSOR_MAX, x, most);
  const Descriptor& e = graph.each(CUDNN_POINTWISE_EXP, graph.each(CUDNN_POINTWISE_SUB, x, &most));
  const Descriptor& sum = graph.rows();
  graph.over_columns(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const Descriptor& logarithm = graph.rows();
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, logarithm);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, &logarithm, graph.row_numbers(operand_lse));
  const Descriptor& weights = graph.each(CUDNN_POINTWISE_DIV, e, &sum, type_of(p.dtype));
  graph.product(weights, graph.keys(operand_v, p.v), graph.queries(operand_y, p.y), Count::queries, Count::channels,
                Count::keys);
  return graph;
}

// Dao et al. (2022), algorithm 4. dq is the result of a product itself, and not read from an f32 sum that blocks add to
// in the order of their arrival, as is possible too: so the bits are the same each time.
Graph graph_of(const AttentionGrad& problem) {
  const Attention& p = problem.forward;
  AttentionGraph graph(p);
  graph.allow_workspace(2 * max_score_bytes);
  const Descriptor& q = graph.queries(operand_q, p.q);
  const Descriptor& k_transposed = graph.keys(operand_k, p.k, true);
  const Descriptor& dy = graph.queries(operand_dy, p.y);
  const Descriptor& products = graph.between(CUDNN_DATA_FLOAT, {p.batch, p.heads, p.queries, p.width});
  graph.pointwise(CUDNN_POINTWISE_MUL, dy, &graph.queries(operand_y, p.y), products);
  const Descriptor& share = graph.rows();
  graph.over_columns(CUDNN_REDUCE_TENSOR_ADD, products, share);
  // Where there were dropout, what is kept of it.
  const Descriptor& delta = graph.row_numbers(operand_delta);
  graph.pointwise(CUDNN_POINTWISE_MUL, share, &graph.number(operand_one), delta);

  const Descriptor& scale = graph.number(operand_scale);
  const Descriptor& scores = graph.scaled_scores(q, k_transposed, scale);
  const Descriptor& shifted = graph.each(CUDNN_POINTWISE_SUB, scores, &graph.row_numbers(operand_lse));
  const Descriptor& weights = graph.each(CUDNN_POINTWISE_EXP, graph.without_later(shifted));
  graph.product(graph.transposed(weights), dy, graph.keys(operand_dv, problem.dv), Count::keys, Count::channels,
                Count::queries);

  const Descriptor& d_weights = graph.scores();
  graph.product(dy, graph.keys(operand_v, p.v, true), d_weights, Count::queries, Count::keys, Count::channels);
  const Descriptor& slope =
      graph.each(CUDNN_POINTWISE_MUL, graph.each(CUDNN_POINTWISE_SUB, d_weights, &delta), &weights);
  const Descriptor& d_scores = graph.each(CUDNN_POINTWISE_MUL, slope, &scale);
  graph.product(graph.transposed(d_scores), q, graph.keys(operand_dk, problem.dk), Count::keys, Count::channels,
                Count::queries);
  graph.product(d_scores, graph.upright(k_transposed, p.k), graph.queries(operand_dq, problem.dq), Count::queries,
                Count::channels, Count::keys);
  return graph;
}

std::string unsupported(Device device, const Attention& problem) { return reason_against(device, problem); }
std::string unsupported(Device device, const AttentionGrad& problem) { return reason_against(device, problem); }

void attention(Stream& stream, const Attention& problem, const AttentionMemory& m) {
  check_usable(problem);
  check_given(problem, m);
  const std::lock_guard lock(library_mutex());
  Memory(problem, m, 0).run(stream, usable_plan(stream, problem));
}

std::int64_t calls_of(const AttentionGrad& problem) { return problem.forward.batch / share_of(problem).forward.batch; }

void attention_grad(Stream& stream, const AttentionGrad& problem, const AttentionGradMemory& m) {
  check_usable(problem);
  const Attention& p = problem.forward;
  check_given(p, m.forward);
  const AttentionGrad share = share_of(problem);
  const std::lock_guard lock(library_mutex());
  const Plan& plan = usable_plan(stream, share);
  for (std::int64_t first = 0; first < p.batch; first += share.forward.batch) {
    Memory memory(p, m.forward, first);
    memory.give_heads(operand_dy, m.dy, p.y);
    memory.give(operand_delta, m.delta, p.heads * p.queries * 4);
    memory.give_one();
    memory.give_heads(operand_dq, m.dq, problem.dq);
    memory.give_heads(operand_dk, m.dk, problem.dk);
    memory.give_heads(operand_dv, m.dv, problem.dv);
    memory.run(stream, plan);
  }
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

std::string unsupported(Device, const Attention&) { return why_absent(); }
std::string unsupported(Device, const AttentionGrad&) { return why_absent(); }
void attention(Stream&, const Attention&, const AttentionMemory&) { throw DeviceError("attention: " + why_absent()); }
void attention_grad(Stream&, const AttentionGrad&, const AttentionGradMemory&) {
  throw DeviceError("attention: " + why_absent());
}
std::int64_t calls_of(const AttentionGrad&) { return 1; }

}  // namespace hearth::cuda::dnn

#endif
