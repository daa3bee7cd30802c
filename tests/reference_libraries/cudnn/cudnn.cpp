// SPDX-License-Identifier: Apache-2.0
// A cuDNN for tests: the functions of the backend API that Hearth calls, with the documented meaning, on the emulated
// GPU. It checks Hearth's calls against the documentation; of NVIDIA's library, its engines, its speed and its rounding
// it says nothing. What Hearth does not ask for is answered by CUDNN_STATUS_NOT_SUPPORTED.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/cudnn/arithmetic.h"
#include "tests/reference_libraries/cudnn/controls.h"
#include "tests/reference_libraries/cudnn/descriptors.h"

using namespace hearth::reference_dnn;

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

struct EngineFacts {
  std::int64_t workspace;
  cudnnBackendNumericalNote_t note;  ///< CUDNN_NUMERICAL_NOTE_TYPE_COUNT for none
};
constexpr EngineFacts facts[engine_count] = {
    {0, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {std::int64_t{1} << 30, CUDNN_NUMERICAL_NOTE_TYPE_COUNT},
    {0, CUDNN_NUMERICAL_NOTE_TENSOR_CORE},      {4096, CUDNN_NUMERICAL_NOTE_TYPE_COUNT},
    {0, CUDNN_NUMERICAL_NOTE_TYPE_COUNT},
};

Controls& controls() {
  static Controls all;
  return all;
}

Node& node_of(cudnnBackendDescriptor_t raw) { return *static_cast<Handle*>(raw)->node; }

/// Writes up to `requested` values, and how many there are.
template <class T>
cudnnStatus_t give(const std::vector<T>& values, std::int64_t requested, std::int64_t* count, void* into) {
  if (count == nullptr || (into == nullptr && requested > 0)) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *count = static_cast<std::int64_t>(values.size());
  for (std::size_t i = 0; i < std::min(values.size(), static_cast<std::size_t>(requested)); ++i)
    static_cast<T*>(into)[i] = values[i];
  return CUDNN_STATUS_SUCCESS;
}

/// Fills descriptors that the caller made.
void name_engine(Node& node, int engine, const NodePointer& graph) {
  node.engine = engine;
  node.graph = graph;
  node.finalized = true;
}

bool has_operation(const Node& graph, int type) {
  const auto& operations = graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).nodes;
  return std::any_of(operations.begin(), operations.end(),
                     [&](const NodePointer& operation) { return operation->type == type; });
}

bool adds_to_result(const Node& graph) {
  const auto& operations = graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).nodes;
  return std::any_of(operations.begin(), operations.end(), [](const NodePointer& operation) {
    return operation->has(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA) &&
           operation->value<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA) != 0.0f;
  });
}

cudnnStatus_t results_of(const Node& heuristic, std::int64_t requested, std::int64_t* count, void* into) {
  const NodePointer& graph = heuristic.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).nodes.at(0);
  auto** const given = static_cast<Handle**>(into);
  *count = 0;
  if (has_operation(*graph, controls().withheld) || (!controls().adds && adds_to_result(*graph)))
    return CUDNN_STATUS_SUCCESS;
  for (int engine = 0; engine < engine_count && *count < requested; ++engine) {
    if (engine == controls().unsuggested) continue;
    Node& node = *given[*count]->node;
    if (node.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
    name_engine(node, engine, graph);
    ++*count;
  }
  return CUDNN_STATUS_SUCCESS;
}

/// The knobs of a configuration.
cudnnStatus_t knobs_of(const Node& configuration, std::int64_t requested, std::int64_t* count, void* into) {
  *count = configuration.engine == knobbed && requested > 0 ? 1 : 0;
  if (*count == 0) return CUDNN_STATUS_SUCCESS;
  Node& node = *static_cast<Handle**>(into)[0]->node;
  if (node.type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
  node.knob = node.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

/// Whether the whole tensor lies in one live block of device memory.
bool is_on_device(const void* address, std::size_t bytes) {
  const auto block = hearth::cuda::emulate::block_at(address);
  if (!block || block->kind != hearth::cuda::emulate::MemoryKind::device) return false;
  const auto* begin = static_cast<const std::byte*>(address);
  return begin + bytes <= block->begin + block->bytes;
}

/// When a plan runs.
void look_at_counts(const std::map<std::int64_t, TensorFacts>& tensors, const std::map<std::int64_t, void*>& memory) {
  for (const auto& [id, tensor] : tensors) {
    if (tensor.type != CUDNN_DATA_INT32) continue;
    const auto* const counts = static_cast<const std::int32_t*>(memory.at(id));
    controls().counts_below_one += std::count_if(counts, counts + tensor.size(), [](int count) { return count < 1; });
  }
}

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

}  // namespace

extern "C" {

Controls* hearth_runs_on_the_emulated_gpu() { return &controls(); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion() { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH:
      return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    default:
      return "another status";
  }
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* raw) {
  if (raw == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  auto node = std::make_shared<Node>();
  node->type = type;
  *raw = new Handle{std::move(node)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t raw) {
  delete static_cast<Handle*>(raw);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t kind, int64_t count, const void* values) {
  return set(node_of(raw), name, kind, count, values);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t raw) {
  Node& node = node_of(raw);
  if (node.finalized) return CUDNN_STATUS_BAD_PARAM;
  if (const cudnnStatus_t status = check_complete(node); status != CUDNN_STATUS_SUCCESS) return status;
  if (node.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    if (const cudnnStatus_t status = check_graph(node); status != CUDNN_STATUS_SUCCESS) return status;
  if (node.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) ++controls().questions;
  if (node.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const Node& configuration = node.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    name_engine(node, configuration.engine, configuration.graph);
  }
  node.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t kind, int64_t requested, int64_t* count,
                                       void* values) {
  const Node& node = node_of(raw);
  if (!node.finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const auto is = [&](cudnnBackendAttributeName_t asked, cudnnBackendAttributeType_t as) {
    return name == asked && kind == as;
  };
  if (is(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR))
    return results_of(node, requested, count, values);
  if (is(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    name_engine(*static_cast<Handle**>(values)[0]->node, node.engine, node.graph);
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (is(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR))
    return knobs_of(node, requested, count, values);
  if (node.knob && is(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE))
    return give(std::vector{CUDNN_KNOB_TYPE_SPLIT_K}, requested, count, values);
  if (node.knob && is(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64))
    return give(std::vector<std::int64_t>{2}, requested, count, values);
  if (node.engine < 0) return CUDNN_STATUS_NOT_SUPPORTED;
  const EngineFacts& fact = facts[node.engine];
  if (is(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64))
    return give(std::vector<std::int64_t>{node.engine}, requested, count, values);
  if (is(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64))
    return give(std::vector<std::int64_t>{fact.workspace}, requested, count, values);
  if (is(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)) {
    const bool none = fact.note == CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
    return give(none ? std::vector<cudnnBackendNumericalNote_t>{} : std::vector{fact.note}, requested, count, values);
  }
  if (is(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE))
    return give(std::vector<cudnnBackendBehaviorNote_t>{}, requested, count, values);
  return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_raw,
                                  cudnnBackendDescriptor_t pack_raw) {
  const Node &plan = node_of(plan_raw), &pack = node_of(pack_raw);
  if (!plan.finalized || !pack.finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const EngineFacts& fact = facts[plan.engine];
  void* const workspace = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (fact.workspace > 0 && !is_on_device(workspace, static_cast<std::size_t>(fact.workspace)))
    return CUDNN_STATUS_BAD_PARAM;
  const auto ids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, void*> memory;
  for (std::size_t i = 0; i < ids.size(); ++i) memory[ids[i]] = pointers[i];
  const std::map<std::int64_t, TensorFacts> wanted = stored_tensors(*plan.graph);
  if (memory.size() != wanted.size()) return CUDNN_STATUS_BAD_PARAM;
  // Numbers of the host are read now.
  auto numbers = std::make_shared<std::map<std::int64_t, float>>();
  for (const auto& [id, tensor] : wanted) {
    const auto given = memory.find(id);
    if (given == memory.end() || given->second == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (tensor.by_value) {
      float& number = (*numbers)[id] = *static_cast<const float*>(given->second);
      given->second = &number;
    } else if (!is_aligned(given->second)) {
      return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    } else if (!is_on_device(given->second, tensor.bytes())) {
      return CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
    }
  }
  if (has_operation(*plan.graph, controls().failing)) return CUDNN_STATUS_EXECUTION_FAILED;
  ++controls().runs[static_cast<std::size_t>(plan.engine)];
  controls().added += adds_to_result(*plan.graph) ? 1 : 0;
  const std::int64_t cost = controls().cost[static_cast<std::size_t>(plan.engine)];
  if (cost > 0)
    hearth::cuda::emulate::enqueue_work(handle->stream, "wait of an engine",
                                        [cost] { std::this_thread::sleep_for(std::chrono::microseconds(cost)); });
  if (std::getenv("HEARTH_REFERENCE_IDLE") != nullptr) return CUDNN_STATUS_SUCCESS;
  hearth::cuda::emulate::enqueue_work(handle->stream, "reference cudnnBackendExecute",
                                      [graph = plan.graph, memory, numbers, wanted] {
                                        look_at_counts(wanted, memory);
                                        compute(*graph, memory);
                                      });
  return cudaPeekAtLastError() == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
