// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cuda/dnn.h"

#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hearth/core/cuda/counters.h"
#include "hearth/core/cuda/library.h"
#include "hearth/core/cuda/runtime.h"
#include "hearth/core/error.h"
#include "hearth/core/memory.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>

namespace hearth::cuda::dnn {
namespace {

struct Functions {
  Library file{"cuDNN", {"libcudnn.so.9"}};
  decltype(cudnnCreate)* create = nullptr;
  decltype(cudnnSetStream)* set_stream = nullptr;
  decltype(cudnnGetVersion)* version = nullptr;
  decltype(cudnnGetErrorString)* text = nullptr;
  decltype(cudnnBackendCreateDescriptor)* make = nullptr;
  decltype(cudnnBackendDestroyDescriptor)* destroy = nullptr;
  decltype(cudnnBackendSetAttribute)* set = nullptr;
  decltype(cudnnBackendGetAttribute)* get = nullptr;
  decltype(cudnnBackendFinalize)* finalize = nullptr;
  decltype(cudnnBackendExecute)* execute = nullptr;

  Functions() {
    file.find("cudnnCreate", create);
    file.find("cudnnSetStream", set_stream);
    file.find("cudnnGetVersion", version);
    file.find("cudnnGetErrorString", text);
    file.find("cudnnBackendCreateDescriptor", make);
    file.find("cudnnBackendDestroyDescriptor", destroy);
    file.find("cudnnBackendSetAttribute", set);
    file.find("cudnnBackendGetAttribute", get);
    file.find("cudnnBackendFinalize", finalize);
    file.find("cudnnBackendExecute", execute);
  }
};

// Leaked, as the library's own state outlives static objects.
Functions& api() {
  static Functions& loaded = *new Functions;
  return loaded;
}

void check(cudnnStatus_t status, const char* call) {
  HEARTH_CHECK(DeviceError, status == CUDNN_STATUS_SUCCESS, "cuDNN: ", call, ": ", api().text(status));
}

/// One descriptor of the backend API.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) { check(api().make(type, &raw_), "creating a descriptor"); }
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (raw_ != nullptr) api().destroy(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const T> values) {
    check(api().set(raw_, name, type, static_cast<std::int64_t>(values.size()), values.data()), "setting an attribute");
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, std::span<const T>(&value, 1));
  }
  void set_descriptor(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw_);
  }
  /// Up to `most` values; none where the library gives none.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most) const {
    std::vector<T> values(static_cast<std::size_t>(most));
    std::int64_t count = 0;
    if (api().get(raw_, name, type, most, &count, values.data()) != CUDNN_STATUS_SUCCESS) return {};
    values.resize(static_cast<std::size_t>(std::min(count, most)));
    return values;
  }
  cudnnStatus_t try_finalize() { return api().finalize(raw_); }
  void finalize(const char* what) { check(try_finalize(), what); }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

enum Operand : std::int64_t { operand_x = 1, operand_w, operand_y };

/// A dense tensor of the library's logical order [N, C, H, W], stored with channels innermost.
Descriptor tensor_of(Operand id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::array<std::int64_t, 4> extents{n, c, h, w}, strides{h * w * c, 1, w * c, c};
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(extents));
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const std::int64_t>(strides));
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, static_cast<std::int64_t>(id));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  tensor.finalize("tensor");
  return tensor;
}

Descriptor options_of(const cpu::dnn::Conv2dShape& s) {
  Descriptor conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, std::int64_t h, std::int64_t w) {
    const std::array<std::int64_t, 2> values{h, w};
    conv.set(name, CUDNN_TYPE_INT64, std::span<const std::int64_t>(values));
  };
  conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
  set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, s.pad_h, s.pad_w);
  set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, s.pad_h, s.pad_w);
  set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, s.stride_h, s.stride_w);
  set(CUDNN_ATTR_CONVOLUTION_DILATIONS, s.dilation_h, s.dilation_w);
  conv.finalize("convolution");
  return conv;
}

/// The names that the library has for the parts of one pass.
struct PassNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
};

PassNames names_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case Pass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
  }
}

/// The device that a plan is for: this one's handle, or a description of another.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* description = nullptr;
};

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

/// An executable plan with all that it was made of; or the reason why there is none.
struct Plan {
  std::vector<Descriptor> parts;
  cudnnBackendDescriptor_t executable = nullptr;  ///< one of the parts
  Probe info;
};

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

/// Turns the first fitting configuration of this heuristic into a plan.
bool plan_by(cudnnBackendHeurMode_t mode, const Target& target, bool f32, const Descriptor& graph, Plan& into) {
  constexpr std::int64_t most_configurations = 64, most_workspace = std::int64_t{256} << 20;
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set_descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.handle == nullptr) heuristic.set_descriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.description);
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return false;
  std::vector<Descriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < most_configurations; ++i)
    raw.push_back(configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  std::int64_t count = 0;
  check(api().get(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most_configurations,
                  &count, raw.data()),
        "asking the heuristics");
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::min(count, most_configurations)); ++i) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t engine_raw = engine.raw();
    std::int64_t engines = 0;
    if (api().get(raw[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engines, &engine_raw) !=
            CUDNN_STATUS_SUCCESS ||
        !is_exact(engine, f32))
      continue;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configurations[i]);
    set_plan_target(plan, target);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
    const auto size = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
    if (size.empty() || size[0] > most_workspace) continue;
    const auto number = engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
    into.info = {"", number.empty() ? -1 : number[0], static_cast<std::size_t>(size[0])};
    into.parts.push_back(std::move(configurations[i]));
    into.executable = plan.raw();
    into.parts.push_back(std::move(plan));
    return true;
  }
  return false;
}

Plan make_plan(const Target& target, const Conv2d& problem, Pass pass) {
  const cpu::dnn::Conv2dShape& s = problem.shape;
  const bool f32 = problem.activations == DType::f32;
  const cudnnDataType_t type = f32                                  ? CUDNN_DATA_FLOAT
                               : problem.activations == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                                                    : CUDNN_DATA_HALF;
  Plan plan;
  std::vector<Descriptor>& parts = plan.parts;
  parts.push_back(tensor_of(operand_x, type, s.n, s.c, s.h, s.w));
  parts.push_back(tensor_of(operand_w, type, s.k, s.c / s.groups, s.r, s.s));
  parts.push_back(tensor_of(operand_y, type, s.n, s.k, s.p, s.q));
  parts.push_back(options_of(s));
  const PassNames names = names_of(pass);
  Descriptor operation(names.type);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0f);
  operation.set_descriptor(names.x, parts[0]);
  operation.set_descriptor(names.w, parts[1]);
  operation.set_descriptor(names.y, parts[2]);
  operation.set_descriptor(names.conv, parts[3]);
  operation.finalize("operation");
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set_descriptor(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  set_graph_target(graph, target);
  graph.finalize("operation graph");
  if (!plan_by(CUDNN_HEUR_MODE_A, target, f32, graph, plan) &&
      !plan_by(CUDNN_HEUR_MODE_FALLBACK, target, f32, graph, plan))
    plan.info.declines = "cuDNN has no repeatable engine of enough precision for it";
  parts.push_back(std::move(operation));
  parts.push_back(std::move(graph));
  return plan;
}

struct Key {
  int device;
  Conv2d problem;
  Pass pass;
  auto operator<=>(const Key&) const = default;
};

struct DeviceLibrary {
  cudnnHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
};

std::mutex library_mutex;

/// Of a device, under the mutex. Leaked, like the library.
DeviceLibrary& library_of(int device) {
  static std::map<int, DeviceLibrary>& all = *new std::map<int, DeviceLibrary>;
  DeviceLibrary& mine = all[device];
  if (mine.handle == nullptr) {
    (void)state_of(Device{DeviceType::cuda, device});
    check(api().create(&mine.handle), "cudnnCreate");
  }
  return mine;
}

Plan& plan_of(DeviceLibrary& mine, const Key& key) {
  auto found = mine.plans.find(key);
  if (found == mine.plans.end())
    found = mine.plans.emplace(key, make_plan({mine.handle, nullptr}, key.problem, key.pass)).first;
  return found->second;
}

/// What needs no plan to be declined; or empty.
std::string refused(const Conv2d& problem, Pass pass) {
  if (!api().file.is_open()) return api().file.why_absent();
  if (problem.activations == DType::f64) return "f64 is left to the own kernel";
  if (pass == Pass::backward_weights && problem.weights != problem.activations)
    return "cuDNN rounds filter gradients to the type of the images";
  const cpu::dnn::Conv2dShape& s = problem.shape;
  for (const std::int64_t size : {s.n, s.h, s.w, s.c, s.k, s.r, s.s, s.p, s.q, s.stride_h, s.stride_w, s.pad_h, s.pad_w,
                                  s.dilation_h, s.dilation_w})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size or option of 2^31 or more";
  return "";
}

}  // namespace

std::string library() {
  if (!api().file.is_open()) return api().file.why_absent();
  const std::size_t v = api().version();
  return join_text("cuDNN ", v / 10000, '.', v / 100 % 100, '.', v % 100);
}

std::string declines(Device device, const Conv2d& problem, Pass pass) {
  if (std::string reason = refused(problem, pass); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex);
  return plan_of(library_of(device.index), {device.index, problem, pass}).info.declines;
}

void conv2d(Stream& stream, const Conv2d& problem, Pass pass, void* x, void* w, void* y) {
  if (const std::string reason = refused(problem, pass); !reason.empty()) throw UsageError("conv2d: " + reason);
  const std::lock_guard lock(library_mutex);
  DeviceLibrary& mine = library_of(stream.device().index);
  const Plan& plan = plan_of(mine, {stream.device().index, problem, pass});
  HEARTH_CHECK(UsageError, plan.info.declines.empty(), "conv2d: ", plan.info.declines);
  // The stream's own order keeps the workspace until the convolution is done.
  MemoryResource& memory = memory_of(stream.device());
  const std::size_t bytes = plan.info.workspace;
  void* const workspace = bytes == 0 ? nullptr : memory.allocate(bytes);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const std::array<std::int64_t, 3> ids{operand_x, operand_w, operand_y};
  const std::array<void*, 3> pointers{x, w, y};
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("variant pack");
  check(api().set_stream(mine.handle, stream.raw()), "cudnnSetStream");
  const cudnnStatus_t status = api().execute(mine.handle, plan.executable, pack.raw());
  if (workspace != nullptr) memory.deallocate(workspace, bytes);
  check(status, "cudnnBackendExecute");
  ++live_counters().library_calls;
}

Probe probe(const Conv2d& problem, Pass pass, const std::string& device_json) {
  if (std::string reason = refused(problem, pass); !reason.empty()) return {std::move(reason), -1, 0};
  Descriptor description(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  description.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(device_json));
  description.finalize("description of the device");
  return make_plan({nullptr, &description}, problem, pass).info;
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

std::string library() { return "this build was made without cuDNN's header"; }
std::string declines(Device, const Conv2d&, Pass) { return library(); }
void conv2d(Stream&, const Conv2d&, Pass, void*, void*, void*) { throw UsageError("conv2d: " + library()); }
Probe probe(const Conv2d&, Pass, const std::string&) { return {library(), -1, 0}; }

}  // namespace hearth::cuda::dnn

#endif
