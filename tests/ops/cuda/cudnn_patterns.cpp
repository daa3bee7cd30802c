// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cudnn_patterns.h"

#include <array>
#include <memory>

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

/// The tensors and operations of a graph while it is put together. Ids are given in order.
class Graph {
 public:
  const Descriptor* add(Descriptor part) {
    parts_.push_back(std::make_unique<Descriptor>(std::move(part)));
    return parts_.back().get();
  }
  const Descriptor* images(cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                           Stored stored = Stored::yes) {
    return add(dnn::images(++last_id_, type, n, c, h, w, stored));
  }
  const Descriptor* tensor(cudnnDataType_t type, const std::array<std::int64_t, 4>& extents,
                           const std::array<std::int64_t, 4>& strides) {
    return add(dnn::tensor(++last_id_, type, extents, strides));
  }
  void pointwise(cudnnPointwiseMode_t mode, const Descriptor* x, const Descriptor* b, const Descriptor* y) {
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("pointwise");
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *add(std::move(kind)));
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
    if (b != nullptr) operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
    end(std::move(operation), "pointwise operation");
  }
  void end(Descriptor operation, const char* what) {
    operation.finalize(what);
    operations.push_back(std::move(operation));
  }

  std::vector<Descriptor> operations;

 private:
  std::int64_t last_id_ = 0;
  std::vector<std::unique_ptr<Descriptor>> parts_;
};

/// What a convolution of the graph reads and how.
struct ConvParts {
  const Descriptor *x, *w, *options;
};

ConvParts conv_parts(Graph& graph, const Conv2d& problem) {
  const cpu::dnn::Conv2dShape& s = problem.shape;
  const cudnnDataType_t type = type_of(problem.activations);
  const Descriptor* const x = graph.images(type, s.n, s.c, s.h, s.w);
  const Descriptor* const w = graph.images(type, s.k, s.c / s.groups, s.r, s.s);
  return {x, w, graph.add(convolution(s))};
}

/// [batch, heads, tokens, channels], one of the `parts` that a projection writes side by side.
const Descriptor* heads_of(Graph& graph, const Attention& a, std::int64_t parts) {
  const std::int64_t row = parts * a.heads * a.channels;
  return graph.tensor(type_of(a.dtype), {a.batch, a.heads, a.tokens, a.channels}, {a.tokens * row, a.channels, row, 1});
}

const Descriptor* row_statistics(Graph& graph, const Attention& a) {
  return graph.tensor(CUDNN_DATA_FLOAT, {a.batch, a.heads, a.tokens, 1}, {a.heads * a.tokens, a.tokens, 1, 1});
}

const Descriptor* scale(Graph& graph) {
  Descriptor value(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::array<std::int64_t, 4> ones{1, 1, 1, 1};
  value.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  value.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(ones));
  value.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const std::int64_t>(ones));
  value.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::int64_t{1000});
  value.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  value.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
  value.finalize("scale");
  return graph.add(std::move(value));
}

/// The library's first suggestion, whose plan is not made.
Probe first_suggestion(const Target& target, const Graph& graph) {
  const Descriptor asked = graph_of(target, graph.operations);
  const std::vector<Suggestion> list = suggestions(CUDNN_HEUR_MODE_A, target, asked);
  if (list.empty()) return {"cuDNN suggests no engine", -1, 0};
  const auto number = list[0].engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
  return {"", number.empty() ? -1 : number[0], 0};
}

}  // namespace

Probe conv_bias_relu(const Target& target, const Conv2d& problem) {
  Graph graph;
  const cpu::dnn::Conv2dShape& s = problem.shape;
  const ConvParts conv = conv_parts(graph, problem);
  const Descriptor* const product = graph.images(CUDNN_DATA_FLOAT, s.n, s.k, s.p, s.q, Stored::no);
  const Descriptor* const bias = graph.images(type_of(problem.activations), 1, s.k, 1, 1);
  const Descriptor* const sum = graph.images(CUDNN_DATA_FLOAT, s.n, s.k, s.p, s.q, Stored::no);
  const Descriptor* const y = graph.images(type_of(problem.activations), s.n, s.k, s.p, s.q);
  graph.operations.push_back(convolution_pass(Pass::forward, *conv.options, *conv.x, *conv.w, *product));
  graph.pointwise(CUDNN_POINTWISE_ADD, product, bias, sum);
  graph.pointwise(CUDNN_POINTWISE_RELU_FWD, sum, nullptr, y);
  return plan_of(target, problem.activations == DType::f32, {}, std::move(graph.operations)).info;
}

Probe conv_statistics(const Target& target, const Conv2d& problem) {
  Graph graph;
  const cpu::dnn::Conv2dShape& s = problem.shape;
  const ConvParts conv = conv_parts(graph, problem);
  const Descriptor* const y = graph.images(type_of(problem.activations), s.n, s.k, s.p, s.q);
  const Descriptor* const sum = graph.images(CUDNN_DATA_FLOAT, 1, s.k, 1, 1);
  const Descriptor* const squares = graph.images(CUDNN_DATA_FLOAT, 1, s.k, 1, 1);
  graph.operations.push_back(convolution_pass(Pass::forward, *conv.options, *conv.x, *conv.w, *y));
  Descriptor statistics(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  statistics.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, *y);
  statistics.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, *sum);
  statistics.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, *squares);
  graph.end(std::move(statistics), "statistics");
  return plan_of(target, problem.activations == DType::f32, {}, std::move(graph.operations)).info;
}

Probe attention_forward(const Target& target, const Attention& problem) {
#if CUDNN_VERSION >= 91700
  Graph graph;
  Descriptor attention(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, *heads_of(graph, problem, 1));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, *row_statistics(graph, problem));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, *scale(graph));
  graph.end(std::move(attention), "attention");
  return first_suggestion(target, graph);
#else
  (void)target, (void)problem;
  return {"this build's cudnn.h is older than 9.17", -1, 0};
#endif
}

Probe attention_backward(const Target& target, const Attention& problem) {
#if CUDNN_VERSION >= 91700
  Graph graph;
  Descriptor attention(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, *heads_of(graph, problem, 1));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, *heads_of(graph, problem, 1));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, *row_statistics(graph, problem));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, *scale(graph));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, *heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, *heads_of(graph, problem, 3));
  graph.end(std::move(attention), "attention's gradient");
  return first_suggestion(target, graph);
#else
  (void)target, (void)problem;
  return {"this build's cudnn.h is older than 9.17", -1, 0};
#endif
}

}  // namespace hearth::cuda::dnn

#endif
