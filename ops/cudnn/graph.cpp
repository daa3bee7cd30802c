// SPDX-License-Identifier: Apache-2.0
#include "ops/cudnn/graph.h"

#include <array>
#include <iterator>
#include <map>

#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"
#include "core/error.h"
#include "core/memory/memory.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

#pragma GCC diagnostic push
// The handle attributes are marked as superseded by 9.19's header, but libraries before it know no others.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void set_graph_target(Descriptor& graph, const Target& target) {
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
}
void set_plan_target(Descriptor& plan, const Target& target) {
  if (target.handle != nullptr)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  else
    plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.description);
}
#pragma GCC diagnostic pop

/// Whether results are the same each time and, for f32, no operand is rounded to fewer bits.
bool is_exact(const Descriptor& engine, bool f32) {
  for (const auto note : engine.get<cudnnBackendNumericalNote_t>(
           CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      return false;
    if (f32 && (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
      return false;
  }
  return true;
}

/// Whether the library compiles the engine when it is used, for which it needs a driver.
bool is_compiled_late(const Descriptor& engine) {
  for (const auto note : engine.get<cudnnBackendBehaviorNote_t>(
           CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT))
    if (note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return true;
  return false;
}

/// Turns the first fitting suggestion into a plan.
bool plan_by(cudnnBackendHeurMode_t mode, const Target& target, bool exact_f32, std::int64_t max_workspace,
             const Descriptor& graph, Plan& into) {
  for (Suggestion& suggestion : suggestions(mode, target, graph)) {
    const Descriptor& engine = suggestion.engine;
    if (!is_exact(engine, exact_f32) || (target.handle == nullptr && is_compiled_late(engine))) continue;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion.configuration);
    set_plan_target(plan, target);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
    const auto size = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
    if (size.empty() || size[0] > max_workspace) continue;
    const auto number = engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
    into.info = {"", number.empty() ? -1 : number[0], static_cast<std::size_t>(size[0])};
    into.parts.push_back(std::move(suggestion.configuration));
    into.executable = plan.raw();
    into.parts.push_back(std::move(plan));
    return true;
  }
  return false;
}

}  // namespace

// Leaked, as the library's own state outlives static objects.
Functions& api() {
  static Functions& loaded = *new Functions;
  return loaded;
}

LibraryInfo about() {
  const Functions& f = api();
  return f.file.about(f.file.is_open() ? f.version() : 0);
}

std::string why_absent() { return why_not_run(api().file); }

void check(cudnnStatus_t status, const char* call) {
  HEARTH_CHECK(DeviceError, status == CUDNN_STATUS_SUCCESS, "cuDNN: ", call, ": ", api().text(status));
}

Descriptor tensor(std::int64_t id, cudnnDataType_t type, std::span<const std::int64_t> extents,
                  std::span<const std::int64_t> strides, Stored stored) {
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents);
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  if (stored == Stored::no) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  made.finalize("tensor");
  return made;
}

Descriptor images(std::int64_t id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                  Stored stored) {
  const std::array<std::int64_t, 4> extents{n, c, h, w}, strides{h * w * c, 1, w * c, c};
  return tensor(id, type, extents, strides, stored);
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::f32 ? CUDNN_DATA_FLOAT : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

Descriptor described_device(const std::string& json) {
  Descriptor description(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  description.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(json));
  description.finalize("description of the device");
  return description;
}

Descriptor graph_of(const Target& target, const std::vector<Descriptor>& operations) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& operation : operations) raw.push_back(operation.raw());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::span<const cudnnBackendDescriptor_t>(raw));
  set_graph_target(graph, target);
  graph.finalize("operation graph");
  return graph;
}

std::vector<Suggestion> suggestions(cudnnBackendHeurMode_t mode, const Target& target, const Descriptor& graph) {
  constexpr std::int64_t most = 64;
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set_descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.handle == nullptr) heuristic.set_descriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.description);
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<Descriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < most; ++i)
    raw.push_back(configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  std::int64_t count = 0;
  check(api().get(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                  raw.data()),
        "asking the heuristics");
  std::vector<Suggestion> list;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::min(count, most)); ++i) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t engine_raw = engine.raw();
    std::int64_t engines = 0;
    if (api().get(raw[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engines, &engine_raw) ==
        CUDNN_STATUS_SUCCESS)
      list.push_back({std::move(configurations[i]), std::move(engine)});
  }
  return list;
}

Plan plan_of(const Target& target, bool exact_f32, std::int64_t max_workspace, std::vector<Descriptor> parts,
             std::vector<Descriptor> operations) {
  Plan plan;
  plan.parts = std::move(parts);
  Descriptor graph = graph_of(target, operations);
  if (!plan_by(CUDNN_HEUR_MODE_A, target, exact_f32, max_workspace, graph, plan) &&
      !plan_by(CUDNN_HEUR_MODE_FALLBACK, target, exact_f32, max_workspace, graph, plan))
    plan.info.unsupported = "cuDNN has no repeatable engine of enough precision for it";
  for (Descriptor& operation : operations) plan.parts.push_back(std::move(operation));
  plan.parts.push_back(std::move(graph));
  return plan;
}

const Descriptor& Graph::keep(Descriptor part) { return parts_.emplace_back(std::move(part)); }

const Descriptor& Graph::stored(std::int64_t id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h,
                                std::int64_t w) {
  return keep(images(id, type, n, c, h, w));
}

const Descriptor& Graph::passing(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return keep(images(++last_passing_, CUDNN_DATA_FLOAT, n, c, h, w, Stored::no));
}

const Descriptor& Graph::passing(cudnnDataType_t type, std::span<const std::int64_t> extents,
                                 std::span<const std::int64_t> strides) {
  return keep(tensor(++last_passing_, type, extents, strides, Stored::no));
}

const Descriptor& Graph::number(std::int64_t id) {
  const std::array<std::int64_t, 4> ones{1, 1, 1, 1};
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(ones));
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const std::int64_t>(ones));
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
  made.finalize("number");
  return keep(std::move(made));
}

void Graph::add(Descriptor operation, const char* what) {
  operation.finalize(what);
  operations_.push_back(std::move(operation));
}

void Graph::pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b, const Descriptor& y,
                      const PointwiseOptions& options) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, options.math);
  if (options.axis) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *options.axis);
  kind.finalize("pointwise");
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
  operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (options.which != nullptr) operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *options.which);
  operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add(std::move(operation), "pointwise operation");
}

void Graph::channel_sums(const Descriptor& y, const Descriptor& sum, const Descriptor& squares) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  operation.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
  operation.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
  operation.set_descriptor(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
  add(std::move(operation), "statistics");
}

Plan Graph::plan(const Target& target, bool exact_f32) {
  std::vector<Descriptor> parts(std::make_move_iterator(parts_.begin()), std::make_move_iterator(parts_.end()));
  parts_.clear();
  return plan_of(target, exact_f32, max_workspace_, std::move(parts), std::exchange(operations_, {}));
}

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Leaked, like the library.
cudnnHandle_t handle_of(int device) {
  static std::map<int, cudnnHandle_t>& all = *new std::map<int, cudnnHandle_t>;
  cudnnHandle_t& mine = all[device];
  if (mine == nullptr) {
    (void)state_of(Device{DeviceType::cuda, device});
    check(api().create(&mine), "cudnnCreate");
  }
  return mine;
}

void execute(Stream& stream, const Plan& plan, std::span<const std::int64_t> ids, std::span<void* const> pointers) {
  cudnnHandle_t const handle = handle_of(stream.device().index);
  // The stream's own order keeps the workspace until the plan is done.
  MemoryResource& memory = memory_of(stream.device());
  const std::size_t bytes = plan.info.workspace;
  void* const workspace = bytes == 0 ? nullptr : memory.allocate(bytes);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("variant pack");
  check(api().set_stream(handle, stream.raw()), "cudnnSetStream");
  const cudnnStatus_t status = api().execute(handle, plan.executable, pack.raw());
  if (workspace != nullptr) memory.deallocate(workspace, bytes);
  if (status != CUDNN_STATUS_SUCCESS) throw_not_run(stream.device(), "cuDNN: cudnnBackendExecute", api().text(status));
  ++live_counters().library_calls;
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

LibraryInfo about() { return {"", "", why_absent()}; }
std::string why_absent() {
  return "this build was made without the header cudnn.h; install cuDNN's development files and build again";
}

}  // namespace hearth::cuda::dnn

#endif
