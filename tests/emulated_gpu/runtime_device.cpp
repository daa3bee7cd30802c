// SPDX-License-Identifier: Apache-2.0
// The C functions for devices, errors and kernel attributes. The device described is an H200 (SXM, 141 GB) but for its
// memory, which is what the settings say.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "tests/emulated_gpu/device_state.h"

using namespace hearth::cuda::emulate;
using hearth::join_text;

namespace {

constexpr int multiprocessors = 132;
constexpr int kernels_for = 90;  // the compute capability, which later devices can do too
constexpr int threads_of_block = 1024;
constexpr int threads_of_multiprocessor = 2048;
constexpr int blocks_of_multiprocessor = 32;
constexpr int registers = 65536;
constexpr int kib = 1024;
constexpr int shared_static = 48 * kib;
constexpr int shared_of_multiprocessor = 228 * kib;
constexpr int shared_reserved = 1 * kib;
constexpr int l2_bytes = 50 * kib * kib;
constexpr int max_blocks_x = 2147483647, max_blocks_yz = 65535;

struct ErrorText {
  cudaError_t status;
  const char* name;
  const char* text;
};
#define HEARTH_ERROR_TEXT(status, text) \
  ErrorText { status, #status, text }
constexpr ErrorText error_messages[] = {
    HEARTH_ERROR_TEXT(cudaSuccess, "no error"),
    HEARTH_ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    HEARTH_ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    HEARTH_ERROR_TEXT(cudaErrorInitializationError, "initialization error"),
    HEARTH_ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    HEARTH_ERROR_TEXT(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    HEARTH_ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    HEARTH_ERROR_TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    HEARTH_ERROR_TEXT(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    HEARTH_ERROR_TEXT(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    HEARTH_ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    HEARTH_ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    HEARTH_ERROR_TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    HEARTH_ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    HEARTH_ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    HEARTH_ERROR_TEXT(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory range is already registered"),
    HEARTH_ERROR_TEXT(cudaErrorHostMemoryNotRegistered, "the memory range is not registered"),
    HEARTH_ERROR_TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    HEARTH_ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    HEARTH_ERROR_TEXT(cudaErrorNotPermitted, "operation not permitted"),
    HEARTH_ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureImplicit,
                      "operation would make the legacy stream depend on a capturing blocking stream"),
    HEARTH_ERROR_TEXT(cudaErrorCapturedEvent,
                      "operation not permitted on an event last recorded in a capturing stream"),
    HEARTH_ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
                      "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef HEARTH_ERROR_TEXT

const ErrorText* text_of(cudaError_t status) {
  const auto* found = std::find_if(std::begin(error_messages), std::end(error_messages),
                                   [status](const ErrorText& entry_of) { return entry_of.status == status; });
  return found == std::end(error_messages) ? nullptr : found;
}

cudaError_t no_device(DeviceSide& side, const char* call, int device) {
  return side.refuse(cudaErrorInvalidDevice,
                     join_text(call, ": device ", device, " of ", side.settings.devices, " emulated devices"));
}

/// f(side) for a device that exists.
template <class F>
cudaError_t with_device(const char* call, int device, F&& f) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    return device < 0 || device >= side.settings.devices ? no_device(side, call, device) : f(side);
  });
}

cudaDeviceProp describe_device(const DeviceSide& side, int device) {
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "NVIDIA H200 (emulated)");
  p.uuid.bytes[15] = static_cast<char>(device);
  p.totalGlobalMem = side.settings.memory_bytes;
  p.sharedMemPerBlock = shared_static;
  p.sharedMemPerBlockOptin = static_cast<std::size_t>(shared_opt_in());
  p.sharedMemPerMultiprocessor = shared_of_multiprocessor;
  p.reservedSharedMemPerBlock = shared_reserved;
  p.regsPerBlock = p.regsPerMultiprocessor = registers;
  p.warpSize = 32;
  p.memPitch = max_blocks_x;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = threads_of_block;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = max_blocks_x;
  p.maxGridSize[1] = p.maxGridSize[2] = max_blocks_yz;
  p.totalConstMem = 64 * kib;
  p.major = side.settings.capability / 10;
  p.minor = side.settings.capability % 10;
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.multiProcessorCount = multiprocessors;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = 1;
  p.pciBusID = 1 + device;
  p.asyncEngineCount = 3;
  p.memoryBusWidth = 6144;
  p.l2CacheSize = l2_bytes;
  p.persistingL2CacheMaxSize = l2_bytes * 5 / 8;
  p.maxThreadsPerMultiProcessor = threads_of_multiprocessor;
  p.maxBlocksPerMultiProcessor = blocks_of_multiprocessor;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.canUseHostPointerForRegisteredMem = p.hostRegisterSupported = p.memoryPoolsSupported = 1;
  return p;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    // A driver does for every runtime of its own major version.
    if (side.settings.driver / 1000 < CUDART_VERSION / 1000)
      return side.refuse(cudaErrorInsufficientDriver, join_text("HEARTH_EMULATE_DRIVER is ", side.settings.driver,
                                                                ", the runtime ", CUDART_VERSION));
    *count = side.settings.devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return with_device("cudaSetDevice", device, [&](DeviceSide&) {
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return entry(Reports::own_errors, [&](DeviceSide&) {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return with_device("cudaGetDeviceProperties", device, [&](DeviceSide& side) {
    *properties = describe_device(side, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return with_device("cudaDeviceGetAttribute", device, [&](DeviceSide& side) {
    const cudaDeviceProp p = describe_device(side, device);
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
      case cudaDevAttrMaxBlockDimX:
        *value = p.maxThreadsDim[0];
        break;
      case cudaDevAttrMaxBlockDimY:
        *value = p.maxThreadsDim[1];
        break;
      case cudaDevAttrMaxBlockDimZ:
        *value = p.maxThreadsDim[2];
        break;
      case cudaDevAttrMaxGridDimX:
        *value = p.maxGridSize[0];
        break;
      case cudaDevAttrMaxGridDimY:
        *value = p.maxGridSize[1];
        break;
      case cudaDevAttrMaxGridDimZ:
        *value = p.maxGridSize[2];
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = shared_static;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_opt_in();
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = shared_of_multiprocessor;
        break;
      case cudaDevAttrReservedSharedMemoryPerBlock:
        *value = shared_reserved;
        break;
      case cudaDevAttrTotalConstantMemory:
        *value = 64 * kib;
        break;
      case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
      case cudaDevAttrMaxRegistersPerBlock:
      case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = registers;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = threads_of_multiprocessor;
        break;
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = blocks_of_multiprocessor;
        break;
      case cudaDevAttrL2CacheSize:
        *value = l2_bytes;
        break;
      case cudaDevAttrGlobalMemoryBusWidth:
        *value = p.memoryBusWidth;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
      case cudaDevAttrClockRate:
        *value = 1980000;
        break;
      case cudaDevAttrMemoryClockRate:
        *value = 3201000;
        break;
      case cudaDevAttrMemoryPoolsSupported:
      case cudaDevAttrStreamPrioritiesSupported:
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrConcurrentKernels:
        *value = 1;
        break;
      case cudaDevAttrCooperativeLaunch:
      case cudaDevAttrClusterLaunch:
      case cudaDevAttrManagedMemory:
      case cudaDevAttrPageableMemoryAccess:
      case cudaDevAttrIntegrated:
        *value = 0;
        break;
      default:
        return side.refuse(cudaErrorInvalidValue, join_text("cudaDeviceGetAttribute: attribute ",
                                                            static_cast<int>(attribute), " is not emulated"));
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return with_device("cudaDeviceGetPCIBusId", device, [&](DeviceSide&) {
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", 1 + device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return entry(Reports::own_errors, [&](DeviceSide&) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_device("cudaDeviceCanAccessPeer", device, [&](DeviceSide& side) {
    if (peer < 0 || peer >= side.settings.devices) return no_device(side, "cudaDeviceCanAccessPeer", peer);
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
  return with_device("cudaDeviceEnablePeerAccess", peer, [&](DeviceSide& side) {
    return peer != current_device() ? cudaSuccess : no_device(side, "cudaDeviceEnablePeerAccess", peer);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    *version = side.settings.driver;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    const cudaError_t status = side.allow_in_any_capture("cudaDeviceSynchronize", cudaErrorStreamCaptureUnsupported);
    if (status == cudaSuccess) side.finish_device(current_device());
    return status;
  });
}

cudaError_t cudaGetLastError() {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  const cudaError_t failure = side.take_failure();
  const cudaError_t own = std::exchange(last_error(), cudaSuccess);
  return own != cudaSuccess ? own : failure;
}

cudaError_t cudaPeekAtLastError() {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  return last_error() != cudaSuccess ? last_error() : side.failure();
}

const char* cudaGetErrorName(cudaError_t status) {
  const ErrorText* known = text_of(status);
  return known == nullptr ? "unrecognized error code" : known->name;
}

const char* cudaGetErrorString(cudaError_t status) {
  const ErrorText* known = text_of(status);
  return known == nullptr ? "unrecognized error code" : known->text;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (kernel == nullptr) return side.refuse(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute: no kernel");
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > shared_opt_in())
      return side.refuse(cudaErrorInvalidValue,
                         join_text("cudaFuncSetAttribute: attribute ", static_cast<int>(attribute), " = ", value,
                                   "; at most ", shared_opt_in(), " bytes of dynamic shared memory are possible"));
    side.shared_limits[{current_device(), kernel}] = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (kernel == nullptr) return side.refuse(cudaErrorInvalidDeviceFunction, "cudaFuncGetAttributes: no kernel");
    if (side.settings.capability < kernels_for)
      return side.refuse(cudaErrorNoKernelImageForDevice,
                         join_text("HEARTH_EMULATE_CAPABILITY is ", side.settings.capability));
    *attributes = {};
    attributes->maxThreadsPerBlock = threads_of_block;
    attributes->numRegs = registers / threads_of_multiprocessor;
    attributes->ptxVersion = attributes->binaryVersion = kernels_for;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit(kernel));
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t shared_bytes, unsigned int) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (kernel == nullptr || threads <= 0)
      return side.refuse(cudaErrorInvalidValue,
                         "cudaOccupancyMaxActiveBlocksPerMultiprocessor: no kernel or no threads");
    const int whole_warps = (threads + 31) / 32 * 32;
    const bool fits = threads <= threads_of_block && shared_bytes <= dynamic_shared_limit(kernel);
    const int by_shared = static_cast<int>(shared_of_multiprocessor / (shared_bytes + shared_reserved));
    *blocks = fits ? std::min({blocks_of_multiprocessor, threads_of_multiprocessor / whole_warps, by_shared}) : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared_bytes, 0);
}

}  // extern "C"
