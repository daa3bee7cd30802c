// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/cuda/cudnn_patterns.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

/// [batch, heads, tokens, channels].
const Descriptor& heads_of(Asked& graph, const Attention& a, std::int64_t tokens, const HeadSteps& steps) {
  return graph.with(type_of(a.dtype), {a.batch, a.heads, tokens, a.width}, {steps.sample, steps.head, steps.token, 1});
}

const Descriptor& row_statistics(Asked& graph, const Attention& a) {
  return graph.with(CUDNN_DATA_FLOAT, {a.batch, a.heads, a.queries, 1}, {a.heads * a.queries, a.queries, 1, 1});
}

}  // namespace

Probe first_suggestion(const Target& target, const Graph& graph) {
  const Descriptor asked = graph_of(target, graph.operations());
  const std::vector<Suggestion> list = suggestions(CUDNN_HEUR_MODE_A, target, asked);
  if (list.empty()) return {"cuDNN suggests no engine", -1, 0};
  const auto number = list[0].engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
  return {"", number.empty() ? -1 : number[0], 0};
}

cudnnStatus_t compile_first(const Target& target, const Graph& graph) {
  const Descriptor asked = graph_of(target, graph.operations());
  const std::vector<Suggestion> list = suggestions(CUDNN_HEUR_MODE_A, target, asked);
  if (list.empty()) return CUDNN_STATUS_NOT_SUPPORTED;
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, list[0].configuration);
  plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.description);
  return plan.try_finalize();
}

namespace {

/// relu(x scale + bias) in the images' type, not stored.
const Descriptor& normalized_images(Asked& graph, const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  const cudnnDataType_t type = type_of(problem.activations);
  const auto of_pixels = [&]() -> const Descriptor& { return graph.passing(s.n, s.c, s.h, s.w); };
  const Descriptor& x = graph.stored(graph.next_id(), type, s.n, s.c, s.h, s.w);
  const Descriptor& scaled = of_pixels();
  const Descriptor& moved = of_pixels();
  const Descriptor& open = graph.keep(images(graph.next_id(), type, s.n, s.c, s.h, s.w, Stored::no));
  graph.pointwise(CUDNN_POINTWISE_MUL, x, &graph.channels(graph.next_id(), type, s.c), scaled);
  graph.pointwise(CUDNN_POINTWISE_ADD, scaled, &graph.channels(graph.next_id(), type, s.c), moved);
  graph.pointwise(CUDNN_POINTWISE_RELU_FWD, moved, nullptr, open);
  return open;
}

/// What the library makes of conv(x, w) with the sums of the result.
Probe statistics_of(const Target& target, Asked& graph, const ConvProblem& problem, const Descriptor& x) {
  const ConvShape& s = problem.shape;
  const cudnnDataType_t type = type_of(problem.activations);
  const Descriptor& w = graph.stored(graph.next_id(), type, s.k, s.c / s.groups, s.r, s.s);
  const Descriptor& y = graph.stored(graph.next_id(), type, s.n, s.k, s.p, s.q);
  graph.add(convolution_pass(Pass::forward, graph.keep(convolution(s)), x, w, y), "convolution's pass");
  Descriptor sums(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  sums.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
  sums.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  sums.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
  const auto table = [&]() -> const Descriptor& { return graph.channels(graph.next_id(), CUDNN_DATA_FLOAT, s.k); };
  sums.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, table());
  sums.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, table());
  graph.add(std::move(sums), "statistics");
  return graph.plan(target, {.exact_f32 = problem.activations == DType::f32}).info;
}

}  // namespace

Probe normalized_conv_weights(const Target& target, const ConvProblem& problem) {
  Asked graph;
  const ConvShape& s = problem.shape;
  const cudnnDataType_t type = type_of(problem.activations);
  const Descriptor& open = normalized_images(graph, problem);
  const Descriptor& d_w = graph.stored(graph.next_id(), type, s.k, s.c / s.groups, s.r, s.s);
  const Descriptor& d_y = graph.stored(graph.next_id(), type, s.n, s.k, s.p, s.q);
  graph.add(convolution_pass(Pass::backward_weights, graph.keep(convolution(s)), open, d_w, d_y),
            "gradient of filters");
  return graph.plan(target, {.exact_f32 = problem.activations == DType::f32}).info;
}

Probe conv_statistics(const Target& target, const ConvProblem& problem) {
  Asked graph;
  const ConvShape& s = problem.shape;
  const Descriptor& x = graph.stored(graph.next_id(), type_of(problem.activations), s.n, s.c, s.h, s.w);
  return statistics_of(target, graph, problem, x);
}

Probe normalized_conv_statistics(const Target& target, const ConvProblem& problem) {
  Asked graph;
  return statistics_of(target, graph, problem, normalized_images(graph, problem));
}

Probe attention_forward(const Target& target, const Attention& problem) {
#if CUDNN_VERSION >= 91700
  Asked graph;
  Descriptor attention(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, heads_of(graph, problem, problem.queries, problem.q));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, heads_of(graph, problem, problem.keys, problem.k));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, heads_of(graph, problem, problem.keys, problem.v));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, heads_of(graph, problem, problem.queries, problem.y));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, row_statistics(graph, problem));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, graph.number(graph.next_id()));
  graph.add(std::move(attention), "attention");
  return first_suggestion(target, graph);
#else
  (void)target, (void)problem;
  return {"this build's cudnn.h is older than 9.17", -1, 0};
#endif
}

Probe attention_backward(const Target& target, const Attention& problem) {
#if CUDNN_VERSION >= 91700
  Asked graph;
  Descriptor attention(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, heads_of(graph, problem, problem.queries, problem.q));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, heads_of(graph, problem, problem.keys, problem.k));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, heads_of(graph, problem, problem.keys, problem.v));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, heads_of(graph, problem, problem.queries, problem.y));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, heads_of(graph, problem, problem.queries, problem.y));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, row_statistics(graph, problem));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, graph.number(graph.next_id()));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, heads_of(graph, problem, problem.queries, problem.q));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, heads_of(graph, problem, problem.keys, problem.k));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, heads_of(graph, problem, problem.keys, problem.v));
  graph.add(std::move(attention), "attention's gradient");
  return first_suggestion(target, graph);
#else
  (void)target, (void)problem;
  return {"this build's cudnn.h is older than 9.17", -1, 0};
#endif
}

}  // namespace hearth::cuda::dnn

#endif
