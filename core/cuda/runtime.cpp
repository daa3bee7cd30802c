// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/runtime.h"

#include <array>
#include <mutex>

#include "core/cuda/arrivals.h"
#include "core/cuda/counters.h"
#include "core/cuda/emulation.h"
#include "core/cuda/error.h"
#include "core/cuda/graph.h"
#include "core/cuda/nvml/bus_address.h"

namespace hearth::cuda {
namespace {

constexpr int max_devices = 64;

struct Found {
  int count = 0;
  std::string why_none;
};

std::string version_text(int number) { return join_text(number / 1000, '.', number / 10 % 100); }

/// Why the runtime of this build cannot use the driver.
std::string why_insufficient() {
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  const std::string needed = version_text(CUDART_VERSION);
  if (driver == 0)
    return "there is no NVIDIA driver; install one for CUDA " + needed +
           " or newer (in a container: start it with the GPU)";
  return join_text("the NVIDIA driver is too old: it can do CUDA ", version_text(driver), ", this build needs ", needed,
                   "; install a newer driver, or build Hearth with the toolkit of CUDA ", version_text(driver));
}

Found find_devices() {
  int count = 0;
  switch (const cudaError_t status = cudaGetDeviceCount(&count)) {
    case cudaSuccess:
      return {count, count > 0 ? "" : "the driver knows no GPU"};
    case cudaErrorInsufficientDriver:
      return {0, why_insufficient()};
    case cudaErrorNoDevice:
      return {0, "the driver knows no GPU; is CUDA_VISIBLE_DEVICES set?"};
    default:
      return {0, join_text("the driver does not start: ", cudaGetErrorString(status))};
  }
}

const Found& found() {
  static const Found result = find_devices();
  return result;
}

/// In the form of RFC 9562, as NVML has it.
std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const unsigned byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

std::string capability_text(const cudaDeviceProp& of) { return join_text(of.major, '.', of.minor); }

/// Why this build cannot compute on the current device, with the remedy; empty if it can.
std::string why_unsupported(const cudaDeviceProp& of) {
  if (of.major < 8)
    return join_text("its compute capability ", capability_text(of),
                     " is not supported; Hearth needs 8.0 or newer (A100, RTX 30 and what came after)");
  cudaFuncAttributes ignored{};
  const cudaError_t status = cudaFuncGetAttributes(&ignored, any_kernel());
  if (status == cudaSuccess) return "";
  (void)cudaGetLastError();
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction)
    return join_text("Hearth was built for ", kernel_architectures(), ", and this device is ", capability_text(of),
                     "; configure with -DCMAKE_CUDA_ARCHITECTURES=", of.major, of.minor, " and build again");
  return join_text("its kernels cannot be loaded: ", cudaGetErrorString(status));
}

/// Both with the device as the thread's current one.
struct Looked {
  cudaDeviceProp properties{};
  std::string unsupported;  ///< as why_unsupported()
};
Looked look_at(Device device) {
  Looked found;
  HEARTH_TRY(cudaSetDevice(device.index));
  HEARTH_TRY(cudaGetDeviceProperties(&found.properties, device.index));
  found.unsupported = why_unsupported(found.properties);
  return found;
}

DeviceState* make_state(Device device) {
  const auto [properties, unsupported] = look_at(device);
  HEARTH_CHECK(DeviceError, unsupported.empty(), "device ", device, " (", properties.name, "): ", unsupported,
               "; or use the device cpu");
  cudaStream_t raw = nullptr;
  // Not ordered with the default stream, which nothing here uses.
  HEARTH_TRY(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking));
  void* step = nullptr;
  HEARTH_TRY(cudaMalloc(&step, sizeof(std::uint64_t)));
  void* arrivals = nullptr;
  HEARTH_TRY(cudaMalloc(&arrivals, arrival_counters_there * sizeof(unsigned)));
  HEARTH_TRY(cudaMemsetAsync(arrivals, 0, arrival_counters_there * sizeof(unsigned), raw));
  void* slot = nullptr;
  HEARTH_TRY(cudaHostAlloc(&slot, sizeof(FaultSlot), cudaHostAllocDefault));
  return new DeviceState{device,
                         properties,
                         Stream(device, raw),
                         new (slot) FaultSlot,
                         StagingRing(),
                         static_cast<std::uint64_t*>(step),
                         static_cast<unsigned*>(arrivals)};
}

}  // namespace

int device_count() { return found().count; }
std::string why_no_device() { return found().why_none; }

namespace {

/// Index of the device that is the thread's current one, or -1 if that is not known.
thread_local int current = -1;

void require_there(Device device) {
  HEARTH_CHECK(DeviceError, device.is_cuda(), "device ", device, " asked for as a CUDA device");
  const Found& devices = found();
  HEARTH_CHECK(DeviceError, devices.count > 0, "device ", device, ": ", devices.why_none, "; or use the device cpu");
  HEARTH_CHECK(DeviceError, device.index >= 0 && device.index < devices.count && device.index < max_devices, "device ",
               device, ": this machine has ", devices.count, " CUDA device", devices.count == 1 ? "" : "s",
               "; use cuda:0",
               devices.count == 1 ? "" : " to cuda:", devices.count == 1 ? "" : std::to_string(devices.count - 1),
               ", or the device cpu");
}

}  // namespace

DeviceState& state_of(Device device) {
  require_there(device);
  static std::mutex mutex;
  static std::array<DeviceState*, max_devices> states{};
  const std::lock_guard lock(mutex);
  DeviceState*& state = states[static_cast<std::size_t>(device.index)];
  if (state == nullptr) {
    current = -1;
    state = make_state(device);
    current = device.index;
  }
  if (current != device.index) {
    HEARTH_TRY(cudaSetDevice(device.index));
    current = device.index;
  }
  return *state;
}

Stream& stream_of(Device device) { return state_of(device).compute; }

void Stream::wait() const {
  refuse_while_recording(device_, "a wait for the device");
  count_wait();
  HEARTH_TRY(cudaStreamSynchronize(raw_));
  throw_fault(*state_of(device_).faults);
}

DeviceInfo device_info(Device device) {
  require_there(device);
  current = -1;
  const auto [found, unsupported] = look_at(device);
  int driver = 0, runtime = 0;
  HEARTH_TRY(cudaDriverGetVersion(&driver));
  HEARTH_TRY(cudaRuntimeGetVersion(&runtime));
  return {found.name,
          capability_text(found),
          found.multiProcessorCount,
          static_cast<std::int64_t>(found.totalGlobalMem),
          version_text(driver),
          version_text(runtime),
          unsupported,
          uuid_text(found.uuid)};
}

std::string bus_address(Device device) {
  require_there(device);
  std::array<char, 32> text{};
  HEARTH_TRY(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device.index));
  std::string address = text.data();
  for (char& digit : address)
    if (digit >= 'A' && digit <= 'F') digit = static_cast<char>(digit - 'A' + 'a');
  return address;
}

unsigned* arrival_counters(Stream& stream) { return state_of(stream.device()).arrivals; }

FaultSlot* fault_slot(Stream& stream) { return state_of(stream.device()).faults; }

void throw_fault(FaultSlot& slot) {
  if (slot.kind == 0) return;
  const FaultSlot noted = slot;
  slot = FaultSlot{};
  const auto kind = static_cast<FaultKind>(noted.kind);
  HEARTH_CHECK(IndexError, kind != FaultKind::capacity, noted.value, " elements in a list for ", noted.bound,
               ", found on the device; ask for a larger capacity");
  const bool label = kind == FaultKind::label;
  throw IndexError(join_text(label ? "cross_entropy: label " : "index ", noted.value, " is outside [0, ", noted.bound,
                             "), found on the device; check the ",
                             label ? "dataset's labels and the number of classes" : "indices"));
}

void throw_status(cudaError_t status, const char* call) {
  // Clears the runtime's memory of an error that is not sticky.
  (void)cudaGetLastError();
  const std::string text =
      join_text(call, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")", fault_details());
  if (status == cudaErrorMemoryAllocation)
    throw OutOfMemory(join_text("out of device memory: ", text, "; use a smaller batch, or a lower precision"));
  throw DeviceError(join_text(text,
                              "; a failed kernel leaves the process unable to use the device: start it again, with "
                              "CUDA_LAUNCH_BLOCKING=1 to find the kernel"));
}

}  // namespace hearth::cuda
