// SPDX-License-Identifier: Apache-2.0
#include "ops/cublaslt/library.h"

#if __has_include(<cublasLt.h>)
#include <map>
#include <mutex>

#include "core/cuda/runtime.h"
#include "core/error.h"
#include "ops/cublaslt/functions.h"

namespace hearth::cuda::blas {

// Leaked, as the library's own state outlives static objects.
Functions& lt() {
  static Functions& loaded = *new Functions;
  return loaded;
}

void check(cublasStatus_t status, const char* call) {
  HEARTH_CHECK(DeviceError, status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", call, ": ", lt().text(status));
}

LibraryInfo about() {
  const Functions& f = lt();
  return f.file.about(f.file.is_open() ? f.version() : 0);
}

std::string why_absent() { return why_not_run(lt().file); }

// Leaked, like the library.
cublasLtHandle_t handle_of(Device device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device.index];
  if (handle == nullptr) {
    (void)state_of(device);
    check(lt().create(&handle), "cublasLtCreate");
  }
  return handle;
}

}  // namespace hearth::cuda::blas

#else

namespace hearth::cuda::blas {

LibraryInfo about() { return {"", "", why_absent()}; }
std::string why_absent() {
  return "this build was made without the header cublasLt.h; install cuBLAS's development files and build again";
}

}  // namespace hearth::cuda::blas

#endif
