// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cuda/dnn.h"

#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "hearth/core/cuda/counters.h"
#include "hearth/core/cuda/dnn_graph.h"
#include "hearth/core/cuda/runtime.h"
#include "hearth/core/error.h"
#include "hearth/core/memory.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

enum Operand : std::int64_t { operand_x = 1, operand_w, operand_y };

Plan make_plan(const Target& target, const Conv2d& problem, Pass pass) {
  const cpu::dnn::Conv2dShape& s = problem.shape;
  const cudnnDataType_t type = type_of(problem.activations);
  std::vector<Descriptor> parts, operations;
  parts.push_back(images(operand_x, type, s.n, s.c, s.h, s.w));
  parts.push_back(images(operand_w, type, s.k, s.c / s.groups, s.r, s.s));
  parts.push_back(images(operand_y, type, s.n, s.k, s.p, s.q));
  parts.push_back(convolution(s));
  operations.push_back(convolution_pass(pass, parts[3], parts[0], parts[1], parts[2]));
  return plan_of(target, problem.activations == DType::f32, std::move(parts), std::move(operations));
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

Plan& plan_for(DeviceLibrary& mine, const Key& key) {
  auto found = mine.plans.find(key);
  if (found == mine.plans.end())
    found = mine.plans.emplace(key, make_plan({mine.handle, nullptr}, key.problem, key.pass)).first;
  return found->second;
}

/// What needs no plan to be declined; or empty.
std::string refused(const Conv2d& problem, Pass pass) {
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

LibraryInfo about() {
  const Functions& f = api();
  return f.file.about(f.file.is_open() ? f.version() : 0);
}

std::string why_absent() { return *why_no_library_runs() != '\0' ? why_no_library_runs() : api().file.why_absent(); }

std::string declines(Device device, const Conv2d& problem, Pass pass) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem, pass); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex);
  return plan_for(library_of(device.index), {device.index, problem, pass}).info.declines;
}

void conv2d(Stream& stream, const Conv2d& problem, Pass pass, void* x, void* w, void* y) {
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("conv2d: " + reason);
  if (const std::string reason = refused(problem, pass); !reason.empty()) throw UsageError("conv2d: " + reason);
  const std::lock_guard lock(library_mutex);
  DeviceLibrary& mine = library_of(stream.device().index);
  const Plan& plan = plan_for(mine, {stream.device().index, problem, pass});
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
  if (!api().file.is_open()) return {api().file.why_absent(), -1, 0};
  if (std::string reason = refused(problem, pass); !reason.empty()) return {std::move(reason), -1, 0};
  const Descriptor description = described_device(device_json);
  return make_plan({nullptr, &description}, problem, pass).info;
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

LibraryInfo about() { return {"", "", why_absent()}; }
std::string why_absent() {
  return "this build was made without the header cudnn.h; install cuDNN's development files and build again";
}
std::string declines(Device, const Conv2d&, Pass) { return why_absent(); }
void conv2d(Stream&, const Conv2d&, Pass, void*, void*, void*) { throw DeviceError("conv2d: " + why_absent()); }
Probe probe(const Conv2d&, Pass, const std::string&) { return {why_absent(), -1, 0}; }

}  // namespace hearth::cuda::dnn

#endif
