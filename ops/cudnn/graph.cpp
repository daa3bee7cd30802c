// SPDX-License-Identifier: Apache-2.0
#include "ops/cudnn/graph.h"

#include <array>
#include <iterator>
#include <map>
#include <numeric>

#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/cuda/runtime.h"
#include "core/error.h"
#include "core/memory/memory.h"
#include "ops/dispatch/plan_choice.h"
#include "ops/dispatch/plan_timing_cuda.h"

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

bool keeps_to(const EngineRules& rules, const Descriptor& engine) {
  for (const auto note : engine.get<cudnnBackendNumericalNote_t>(
           CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
    if (note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
    if (rules.repeatable && note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    if (rules.exact_f32 &&
        (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
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

/// A suggestion that may be taken, as a plan.
struct Fitting {
  Descriptor configuration, plan;
  Probe info;
  std::string text;  ///< engine and knobs, for the file of choices
};

std::string text_of(const Descriptor& configuration, std::int64_t engine) {
  constexpr std::int64_t most = CUDNN_KNOB_TYPE_COUNTS;
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < most; ++i) raw.push_back(knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).raw());
  std::int64_t count = 0;
  if (api().get(configuration.raw(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                raw.data()) != CUDNN_STATUS_SUCCESS)
    count = 0;
  std::string text = join_text("engine ", engine);
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::min(count, most)); ++i) {
    const auto type = knobs[i].get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1);
    const auto value = knobs[i].get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1);
    if (!type.empty() && !value.empty()) text += join_text(", knob ", static_cast<int>(type[0]), " ", value[0]);
  }
  return text;
}

/// Up to `most` fitting suggestions. Of engines that are compiled when they are used, which takes about a second each,
/// only one that comes first.
std::vector<Fitting> fitting_plans(cudnnBackendHeurMode_t mode, const Target& target, const EngineRules& rules,
                                   std::int64_t max_workspace, const Descriptor& graph, std::size_t most) {
  std::vector<Fitting> list;
  for (Suggestion& suggestion : suggestions(mode, target, graph)) {
    if (list.size() == most) break;
    const Descriptor& engine = suggestion.engine;
    if (!keeps_to(rules, engine)) continue;
    if (is_compiled_late(engine) && (target.handle == nullptr || !list.empty())) continue;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion.configuration);
    set_plan_target(plan, target);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
    const auto size = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
    if (size.empty() || size[0] > max_workspace) continue;
    const auto number = engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
    const Probe info{"", number.empty() ? -1 : number[0], static_cast<std::size_t>(size[0])};
    std::string text = most == 1 ? "" : text_of(suggestion.configuration, info.engine);
    list.push_back({std::move(suggestion.configuration), std::move(plan), info, std::move(text)});
  }
  return list;
}

Descriptor variant_pack(std::span<const std::int64_t> ids, std::span<void* const> pointers, void* workspace) {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("variant pack");
  return pack;
}

Fastest time_plans(const TimedProblem& problem, cudnnHandle_t handle, const std::vector<StoredTensor>& tensors,
                   const std::vector<Fitting>& list) {
  const auto whole = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  TimedWork work{.flops = problem.flops};
  std::vector<std::int64_t> ids;
  for (const StoredTensor& tensor : tensors) {
    ids.push_back(tensor.id);
    work.operands += whole(tensor.bytes);
  }
  for (const Fitting& fitting : list) work.workspace = std::max(work.workspace, fitting.info.workspace);
  check(api().set_stream(handle, stream_of(problem.device).raw()), "cudnnSetStream");
  std::vector<Descriptor> packs;
  return fastest_plan(problem.device, list.size(), work, [&](const auto& sets, std::byte* workspace) {
    for (std::byte* at : sets) {
      std::vector<void*> pointers;
      for (const StoredTensor& tensor : tensors) {
        pointers.push_back(at);
        at += whole(tensor.bytes);
      }
      packs.push_back(variant_pack(ids, pointers, work.workspace == 0 ? nullptr : workspace));
    }
    return [&](std::size_t way, std::size_t set) {
      return api().execute(handle, list[way].plan.raw(), packs[set].raw()) == CUDNN_STATUS_SUCCESS;
    };
  });
}

/// Which of several plans it is to be; `info` gets its time.
std::size_t chosen_among(std::vector<Fitting>& list, const TimedProblem& problem, cudnnHandle_t handle,
                         const std::vector<StoredTensor>& tensors) {
  std::vector<std::string> texts;
  for (const Fitting& fitting : list) texts.push_back(fitting.text);
  const ChosenPlan chosen =
      choose_plan(plan_key("cuDNN " + about().version, problem.device, problem.text), texts, problem.deterministic,
                  [&] { return time_plans(problem, handle, tensors, list); });
  list[chosen.place].info.microseconds = chosen.microseconds;
  return chosen.place;
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
  const std::int64_t element = type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 2;
  if (stored == Stored::yes) made.bytes = std::accumulate(extents.begin(), extents.end(), element, std::multiplies<>());
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

const Descriptor& Graph::keep(Descriptor part) { return parts_.emplace_back(std::move(part)); }

const Descriptor& Graph::stored(std::int64_t id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h,
                                std::int64_t w) {
  stored_.push_back({id, static_cast<std::size_t>(n * c * h * w) * (type == CUDNN_DATA_FLOAT ? 4 : 2)});
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

Plan Graph::plan(const Target& target, const EngineRules& rules, const TimedProblem* timed) {
  constexpr std::size_t most = 16;
  Descriptor graph = graph_of(target, operations_);
  std::vector<Fitting> list;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    if (list.empty()) list = fitting_plans(mode, target, rules, max_workspace_, graph, timed == nullptr ? 1 : most);
  Plan plan;
  for (const Descriptor& part : parts_) plan.bytes += part.bytes;
  if (list.empty()) {
    plan.info.unsupported =
        join_text("cuDNN has no ", rules.repeatable ? "repeatable " : "", "engine of enough precision for it");
  } else {
    Fitting& taken = list[timed == nullptr ? 0 : chosen_among(list, *timed, target.handle, stored_)];
    plan.info = taken.info;
    plan.executable = taken.plan.raw();
    plan.parts.push_back(std::move(taken.configuration));
    plan.parts.push_back(std::move(taken.plan));
  }
  std::move(parts_.begin(), parts_.end(), std::back_inserter(plan.parts));
  std::move(operations_.begin(), operations_.end(), std::back_inserter(plan.parts));
  plan.parts.push_back(std::move(graph));
  *this = Graph();
  return plan;
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
  const Descriptor pack = variant_pack(ids, pointers, workspace);
  check(api().set_stream(handle, stream.raw()), "cudnnSetStream");
  const cudnnStatus_t status = api().execute(handle, plan.executable, pack.raw());
  if (workspace != nullptr) memory.deallocate(workspace, bytes);
  if (status != CUDNN_STATUS_SUCCESS) throw_not_run(stream.device(), "cuDNN: cudnnBackendExecute", api().text(status));
  ++live_counters().library_calls;
  count_work({"cuDNN", plan.bytes});
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
