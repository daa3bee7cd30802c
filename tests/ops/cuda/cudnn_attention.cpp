// SPDX-License-Identifier: Apache-2.0
// Attention as a graph of products, a softmax and their gradients, which cuDNN takes with masks and backward, unlike
// the single operation of its header.
#include <array>

#include "ops/cuda/cudnn_patterns.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

/// The graph with the tensors that attention is made of: [batch, heads, ...], tokens before channels.
class AttentionGraph : public Asked {
 public:
  explicit AttentionGraph(const Attention& problem) : a_(problem), type_(type_of(problem.dtype)) {}

  /// One of the `parts` that a projection writes side by side; as a matrix [tokens, channels], or transposed.
  const Descriptor& heads(std::int64_t parts, bool transposed = false) {
    const std::int64_t row = parts * a_.heads * a_.channels;
    if (transposed)
      return with(type_, {a_.batch, a_.heads, a_.channels, a_.tokens}, {a_.tokens * row, a_.channels, 1, row});
    return with(type_, {a_.batch, a_.heads, a_.tokens, a_.channels}, {a_.tokens * row, a_.channels, row, 1});
  }
  /// A matrix [tokens, columns] a head, between two operations.
  const Descriptor& between(std::int64_t columns, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const std::int64_t matrix = a_.tokens * columns;
    return keep(tensor(next_id(), type, std::array{a_.batch, a_.heads, a_.tokens, columns},
                       std::array{a_.heads * matrix, matrix, columns, std::int64_t{1}}, Stored::no));
  }
  const Descriptor& scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) { return between(a_.tokens, type); }
  /// f32, of each row, in memory.
  const Descriptor& row_numbers() {
    return with(CUDNN_DATA_FLOAT, {a_.batch, a_.heads, a_.tokens, 1}, {a_.heads * a_.tokens, a_.tokens, 1, 1});
  }

  void product(const Descriptor& a, const Descriptor& b, const Descriptor& c) {
    Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("product");
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(kind)));
    add(std::move(operation), "product");
  }
  const Descriptor& over_rows(cudnnReduceTensorOp_t how, const Descriptor& x) {
    Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("reduction");
    const Descriptor& y = between(1);
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(kind)));
    add(std::move(operation), "reduction");
    return y;
  }
  const Descriptor& transposed(const Descriptor& matrix) {
    const std::int64_t t = a_.tokens;
    const Descriptor& y = keep(tensor(next_id(), CUDNN_DATA_FLOAT, std::array{a_.batch, a_.heads, t, t},
                                      std::array{a_.heads * t * t, t * t, std::int64_t{1}, t}, Stored::no));
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, matrix);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(std::move(operation), "transposition");
    return y;
  }
  /// mode(x) or mode(x, b) as scores.
  const Descriptor& each(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b = nullptr,
                         cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const Descriptor& y = scores(type);
    pointwise(mode, x, b, y);
    return y;
  }

  /// q k^T times a scale, behind the mask.
  const Descriptor& masked_scores(const Descriptor& q, const Descriptor& k_transposed) {
    const Descriptor& plain = scores();
    product(q, k_transposed, plain);
    const Descriptor& scaled = each(CUDNN_POINTWISE_MUL, plain, &number(next_id()));
    if (a_.mask == Mask::none) return scaled;
    if (a_.mask == Mask::padding) {
      // 0 or minus infinity for each token that is looked at.
      const Descriptor& row = with(CUDNN_DATA_FLOAT, {a_.batch, 1, 1, a_.tokens}, {a_.tokens, a_.tokens, a_.tokens, 1});
      return each(CUDNN_POINTWISE_ADD, scaled, &row);
    }
    const Descriptor& rows = index_along(scaled, 2);
    const Descriptor& columns = index_along(scaled, 3);
    const Descriptor& seen = scores(CUDNN_DATA_BOOLEAN);
    pointwise(CUDNN_POINTWISE_CMP_GE, rows, &columns, seen);
    return chosen(scaled, number(next_id()), seen);
  }

 private:
  const Descriptor& index_along(const Descriptor& like, std::int64_t axis) {
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    kind.finalize("index");
    const Descriptor& y = scores();
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(std::move(operation), "index");
    return y;
  }
  /// x where `which`, else `otherwise`.
  const Descriptor& chosen(const Descriptor& x, const Descriptor& otherwise, const Descriptor& which) {
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_BINARY_SELECT);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("choice");
    const Descriptor& y = scores();
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, otherwise);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, which);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(std::move(operation), "choice");
    return y;
  }

  const Attention a_;
  const cudnnDataType_t type_;
};

}  // namespace

Probe attention_graph_forward(const Target& target, const Attention& problem) {
  AttentionGraph graph(problem);
  const Descriptor& x = graph.masked_scores(graph.heads(3), graph.heads(3, true));
  const Descriptor& most = graph.over_rows(CUDNN_REDUCE_TENSOR_MAX, x);
  const Descriptor& e = graph.each(CUDNN_POINTWISE_EXP, graph.each(CUDNN_POINTWISE_SUB, x, &most));
  const Descriptor& sum = graph.over_rows(CUDNN_REDUCE_TENSOR_ADD, e);
  const Descriptor& logarithm = graph.between(1);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, logarithm);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, &logarithm, graph.row_numbers());
  const Descriptor& p = graph.each(CUDNN_POINTWISE_DIV, e, &sum, type_of(problem.dtype));
  graph.product(p, graph.heads(3), graph.heads(1));
  return first_suggestion(target, graph);
}

Probe attention_graph_backward(const Target& target, const Attention& problem) {
  AttentionGraph graph(problem);
  const Descriptor& q = graph.heads(3);
  const Descriptor& d_o = graph.heads(1);
  const Descriptor& product = graph.between(problem.channels);
  graph.pointwise(CUDNN_POINTWISE_MUL, d_o, &graph.heads(1), product);
  const Descriptor& share = graph.over_rows(CUDNN_REDUCE_TENSOR_ADD, product);
  const Descriptor& x = graph.masked_scores(q, graph.heads(3, true));
  const Descriptor& p = graph.each(CUDNN_POINTWISE_EXP, graph.each(CUDNN_POINTWISE_SUB, x, &graph.row_numbers()));
  graph.product(graph.transposed(p), d_o, graph.heads(3));
  const Descriptor& d_p = graph.scores();
  graph.product(d_o, graph.heads(3, true), d_p);
  const Descriptor& d_x = graph.each(CUDNN_POINTWISE_MUL, graph.each(CUDNN_POINTWISE_SUB, d_p, &share), &p);
  const Descriptor& scaled =
      graph.each(CUDNN_POINTWISE_MUL, d_x, &graph.number(graph.next_id()), type_of(problem.dtype));
  graph.product(scaled, graph.heads(3), graph.heads(3));
  graph.product(graph.transposed(scaled), q, graph.heads(3));
  return first_suggestion(target, graph);
}

}  // namespace hearth::cuda::dnn

#endif
