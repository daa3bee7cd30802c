// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cudnn/tests/reference.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "ops/conv/cuda/conv2d_cudnn.h"

namespace hearth::test {
namespace {

// Before anything opens a library, and for all tests of this program.
[[maybe_unused]] const bool environment_is_set = [] {
  ::setenv("HEARTH_CUDA_LIBRARIES", HEARTH_REFERENCE_LIBRARIES, 1);
  ::setenv("HEARTH_PLAN_TIMING", "off", 1);
  return true;
}();

}  // namespace

reference_dnn::Controls& controls() {
  static reference_dnn::Controls* const found = [] {
    const std::string path = cuda::dnn::about().path;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* const symbol = library == nullptr ? nullptr : ::dlsym(library, "hearth_runs_on_the_emulated_gpu");
    if (symbol == nullptr) throw std::runtime_error("the library opened is not the reference: " + path);
    return reinterpret_cast<decltype(&hearth_runs_on_the_emulated_gpu)>(symbol)();
  }();
  return *found;
}

}  // namespace hearth::test
