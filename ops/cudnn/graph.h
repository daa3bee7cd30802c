// SPDX-License-Identifier: Apache-2.0
// What is used of cuDNN's backend API (docs/decisions/0012-cudnn-backend-api.md): the library itself, owners of its
// descriptors, and the choice of an engine for a graph of operations. For sources of the CUDA backend only; empty where
// the library's header is absent.
#pragma once

#if __has_include(<cudnn.h>)
#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/graph.h"
#include "core/cuda/library.h"
#include "core/cuda/stream.h"
#include "core/dtype.h"
#include "core/error.h"
#include "ops/cudnn/library.h"

namespace hearth::cuda::dnn {

/// The library's functions, found when first asked for.
struct Functions {
  Library file{"cuDNN", {"libcudnn.so.9"}};
  decltype(cudnnCreate)* create = file.find("cudnnCreate");
  decltype(cudnnSetStream)* set_stream = file.find("cudnnSetStream");
  decltype(cudnnGetVersion)* version = file.find("cudnnGetVersion");
  decltype(cudnnGetErrorString)* text = file.find("cudnnGetErrorString");
  decltype(cudnnBackendCreateDescriptor)* make = file.find("cudnnBackendCreateDescriptor");
  decltype(cudnnBackendDestroyDescriptor)* destroy = file.find("cudnnBackendDestroyDescriptor");
  decltype(cudnnBackendSetAttribute)* set = file.find("cudnnBackendSetAttribute");
  decltype(cudnnBackendGetAttribute)* get = file.find("cudnnBackendGetAttribute");
  decltype(cudnnBackendFinalize)* finalize = file.find("cudnnBackendFinalize");
  decltype(cudnnBackendExecute)* execute = file.find("cudnnBackendExecute");
};
Functions& api();

/// DeviceError with the library's own words unless `status` is success.
void check(cudnnStatus_t status, const char* call);

/// One descriptor of the backend API.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) { check(api().make(type, &raw_), "creating a descriptor"); }
  Descriptor(Descriptor&& other) noexcept : bytes(other.bytes), raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (raw_ != nullptr) api().destroy(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

  std::int64_t bytes = 0;  ///< of a tensor in memory

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

/// Whether memory holds the tensor, or it exists only between two operations of a graph.
enum class Stored : std::uint8_t { yes, no };

/// A tensor of a graph, aligned to 16. `id` is unique within the graph.
Descriptor tensor(std::int64_t id, cudnnDataType_t type, std::span<const std::int64_t> extents,
                  std::span<const std::int64_t> strides, Stored stored = Stored::yes);
/// One of the library's logical order [N, C, H, W], dense with channels innermost.
Descriptor images(std::int64_t id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                  Stored stored = Stored::yes);
/// f32, f16 or bf16 in the library's words.
cudnnDataType_t type_of(DType dtype);
/// A device that need not be here, by the library's JSON form.
Descriptor described_device(const std::string& json);

/// The device that a plan is for: this one's handle, or a description of another.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* description = nullptr;
};

/// The graph of these operations.
Descriptor graph_of(const Target& target, const std::vector<Descriptor>& operations);

/// A configuration of an engine that the library suggests.
struct Suggestion {
  Descriptor configuration, engine;
};
/// What a heuristic of the library suggests for a graph, best first; nothing where no engine takes it.
std::vector<Suggestion> suggestions(cudnnBackendHeurMode_t mode, const Target& target, const Descriptor& graph);

/// What the engine of a plan must keep to.
struct EngineRules {
  bool exact_f32 = false;  ///< no operand is rounded to fewer bits
  bool repeatable = true;  ///< the same result each time
};

/// An executable plan with all that it was made of; or the reason why there is none.
struct Plan {
  std::vector<Descriptor> parts;
  cudnnBackendDescriptor_t executable = nullptr;  ///< one of the parts
  std::int64_t bytes = 0;                         ///< of all tensors that it reads or writes
  Probe info;
};

/// A problem whose plan is chosen by timing the engines (ops/dispatch/plan_choice.h).
struct TimedProblem {
  Device device;
  std::string text;  ///< what the choice is kept as
  bool deterministic = false;
  double flops = 0;
};
/// A tensor of a graph that lies in memory.
struct StoredTensor {
  std::int64_t id;
  std::size_t bytes;
};

/// The library's handle on a device, made when first asked for. Under the mutex.
cudnnHandle_t handle_of(int device);

/// make(target) for this device, or where the library refuses the graph itself a plan that says so. Refused
/// (DeviceError) while a step is recorded, as engines are loaded, or compiled, into the device. Under the mutex.
template <class Make>
Plan plan_or_reason(int device, Make&& make) {
  refuse_while_recording({DeviceType::cuda, device}, "choosing cuDNN's plan for a new problem");
  try {
    return make(Target{handle_of(device), nullptr});
  } catch (const DeviceError& error) {
    Plan none;
    none.info.unsupported = error.what();
    return none;
  }
}

/// What a pointwise operation may be told beyond its operands.
struct PointwiseOptions {
  cudnnDataType_t math = CUDNN_DATA_FLOAT;  ///< the type it computes in
  std::optional<std::int64_t> axis = {};    ///< of an index
  const Descriptor* which = nullptr;        ///< of a choice: true where it is x, else b
};

/// A graph while it is put together.
class Graph {
 public:
  /// Keeps a part that operations refer to.
  const Descriptor& keep(Descriptor part);
  /// A tensor in memory, as `images`.
  const Descriptor& stored(std::int64_t id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h,
                           std::int64_t w);
  /// A value a channel.
  const Descriptor& channels(std::int64_t id, cudnnDataType_t type, std::int64_t c) {
    return stored(id, type, 1, c, 1, 1);
  }
  /// An f32 tensor between two operations.
  const Descriptor& passing(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w);
  /// Any tensor between two operations.
  const Descriptor& passing(cudnnDataType_t type, std::span<const std::int64_t> extents,
                            std::span<const std::int64_t> strides);
  /// One f32 number that is read from the host's memory when the plan is run.
  const Descriptor& number(std::int64_t id);

  void add(Descriptor operation, const char* what);
  /// y = mode(x) or mode(x, b).
  void pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b, const Descriptor& y,
                 const PointwiseOptions& options = {});

  const std::vector<Descriptor>& operations() const { return operations_; }
  /// Lets a plan want more than the usual 256 MiB.
  void allow_workspace(std::int64_t bytes) { max_workspace_ = bytes; }
  /// A plan whose engine keeps to the rules and adds in f32: the first that the library suggests or, for a timed
  /// problem, whose tensors were all made by stored() and channels(), the fastest of the first few. For a described
  /// device only engines that the library brings in compiled form are taken, as making the others needs a driver. The
  /// graph is empty then.
  Plan plan(const Target& target, const EngineRules& rules, const TimedProblem* timed = nullptr);

 private:
  std::int64_t max_workspace_ = std::int64_t{256} << 20;
  std::int64_t last_passing_ = std::int64_t{1} << 32;
  std::deque<Descriptor> parts_;
  std::vector<Descriptor> operations_;
  std::vector<StoredTensor> stored_;
};

/// Held while handles and plans are used.
std::mutex& library_mutex();
/// Runs a plan on memory: pointers[i] is that of tensor ids[i]. Under the mutex.
void execute(Stream& stream, const Plan& plan, std::span<const std::int64_t> ids, std::span<void* const> pointers);

}  // namespace hearth::cuda::dnn

#endif
