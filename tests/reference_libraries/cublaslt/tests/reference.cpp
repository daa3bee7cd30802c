// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cublaslt/tests/reference.h"

#include <dlfcn.h>

#include "ops/cublaslt/library.h"
#include "ops/matmul/cuda/matmul_cublaslt.h"

namespace hearth::test {
namespace {

// Before anything opens a library, and for all tests of this program. What is timed depends on the machine, so ops take
// the heuristic's first unless a test says otherwise.
[[maybe_unused]] const bool environment_is_set = [] {
  ::setenv("HEARTH_CUDA_LIBRARIES", HEARTH_REFERENCE_LIBRARIES, 1);
  ::setenv("HEARTH_PLAN_TIMING", "off", 1);
  return true;
}();

}  // namespace

reference_blas::Controls& controls() {
  static reference_blas::Controls* const found = [] {
    const std::string path = cuda::blas::about().path;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* const symbol = library == nullptr ? nullptr : ::dlsym(library, "hearth_runs_on_the_emulated_gpu");
    if (symbol == nullptr) throw std::runtime_error("the library opened is not the reference: " + path);
    return reinterpret_cast<decltype(&hearth_runs_on_the_emulated_gpu)>(symbol)();
  }();
  return *found;
}

CudaReferenceBlas::CudaReferenceBlas() {
  cuda::blas::clear_plans();
  forget_plan_file();
  controls() = {};
}
CudaReferenceBlas::~CudaReferenceBlas() {
  cuda::blas::clear_plans();
  forget_plan_file();
  controls() = {};
}

}  // namespace hearth::test
