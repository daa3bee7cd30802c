// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cudnn_patterns.h"

#include <array>

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

/// A graph whose tensors are never given memory, so that their numbers do not matter.
class Asked : public Graph {
 public:
  std::int64_t next_id() { return ++last_id_; }
  const Descriptor& with(cudnnDataType_t type, const std::array<std::int64_t, 4>& extents,
                         const std::array<std::int64_t, 4>& strides) {
    return keep(tensor(next_id(), type, extents, strides));
  }

 private:
  std::int64_t last_id_ = 0;
};

/// [batch, heads, tokens, channels], one of the `parts` that a projection writes side by side.
const Descriptor& heads_of(Asked& graph, const Attention& a, std::int64_t parts) {
  const std::int64_t row = parts * a.heads * a.channels;
  return graph.with(type_of(a.dtype), {a.batch, a.heads, a.tokens, a.channels}, {a.tokens * row, a.channels, row, 1});
}

const Descriptor& row_statistics(Asked& graph, const Attention& a) {
  return graph.with(CUDNN_DATA_FLOAT, {a.batch, a.heads, a.tokens, 1}, {a.heads * a.tokens, a.tokens, 1, 1});
}

/// The library's first suggestion, whose plan is not made.
Probe first_suggestion(const Target& target, const Graph& graph) {
  const Descriptor asked = graph_of(target, graph.operations());
  const std::vector<Suggestion> list = suggestions(CUDNN_HEUR_MODE_A, target, asked);
  if (list.empty()) return {"cuDNN suggests no engine", -1, 0};
  const auto number = list[0].engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
  return {"", number.empty() ? -1 : number[0], 0};
}

}  // namespace

Probe attention_forward(const Target& target, const Attention& problem) {
#if CUDNN_VERSION >= 91700
  Asked graph;
  Descriptor attention(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, heads_of(graph, problem, 1));
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
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, heads_of(graph, problem, 1));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, heads_of(graph, problem, 1));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, row_statistics(graph, problem));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, graph.number(graph.next_id()));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, heads_of(graph, problem, 3));
  attention.set_descriptor(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, heads_of(graph, problem, 3));
  graph.add(std::move(attention), "attention's gradient");
  return first_suggestion(target, graph);
#else
  (void)target, (void)problem;
  return {"this build's cudnn.h is older than 9.17", -1, 0};
#endif
}

}  // namespace hearth::cuda::dnn

#endif
