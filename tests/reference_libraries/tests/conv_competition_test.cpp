// SPDX-License-Identifier: Apache-2.0
// Which library runs a convolution with 1x1 filters where both are there: the faster, if both were timed.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cpu/parallel.h"
#include "ops/conv/conv2d.h"
#include "ops/cublaslt/library.h"
#include "ops/cudnn/library.h"
#include "ops/dispatch/candidates.h"
#include "ops/dispatch/plan_choice.h"
#include "tests/reference_libraries/cublaslt/controls.h"
// Both name the symbol alike; it is looked up in each library.
#define hearth_runs_on_the_emulated_gpu hearth_reference_dnn_controls
#include "tests/reference_libraries/cudnn/controls.h"
#undef hearth_runs_on_the_emulated_gpu
#include "tests/support/temp_dir.h"
#include "tests/support/variable_scope.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

template <class Controls>
Controls& controls_of(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const symbol = library == nullptr ? nullptr : ::dlsym(library, "hearth_runs_on_the_emulated_gpu");
  if (symbol == nullptr) throw std::runtime_error("the library opened is not the reference: " + path);
  return *reinterpret_cast<Controls* (*)()>(symbol)();
}

/// Choices are kept as long as the process, so each test has sizes of its own.
class CudaConvCompetition : public testing::Test {
 protected:
  CudaConvCompetition() { forget_plan_file(); }
  ~CudaConvCompetition() override {
    blas_ = {};
    dnn_ = {};
    forget_plan_file();
  }

  void make_slow(bool product, bool convolution) {
    blas_.cost.fill(product ? 2000 : 300);
    dnn_.cost.fill(convolution ? 2000 : 300);
  }
  /// What ran forward, data and weights of images of so many rows.
  static std::string runs_of(std::int64_t rows, DType weights) {
    const Tensor x = requires_grad(Tensor::full({1, rows, 4, 16}, 1, DType::bf16, gpu)),
                 w = requires_grad(Tensor::full({8, 1, 1, 16}, 1, weights, gpu));
    std::string ran[3];
    const ChoiceLog log;
    backward(conv2d(x, w), Tensor::full({1, rows, 4, 8}, 1, DType::bf16, gpu));
    for (const auto& [run, count] : log.runs())
      ran[run.second.starts_with("forward")         ? 0
          : run.second.starts_with("backward_data") ? 1
                                                    : 2] += run.first.substr(run.first.find(':') + 1);
    return ran[0] + " " + ran[1] + " " + ran[2];
  }

  TempDir folder_;
  VariableScope cache_{"HEARTH_CACHE_DIR", folder_.path().string()};
  VariableScope timing_{"HEARTH_PLAN_TIMING", "on"};
  reference_blas::Controls& blas_ = controls_of<reference_blas::Controls>(cuda::blas::about().path);
  reference_dnn::Controls& dnn_ = controls_of<reference_dnn::Controls>(cuda::dnn::about().path);
};

TEST_F(CudaConvCompetition, TheFasterLibraryRuns) {
  make_slow(false, true);
  EXPECT_EQ(runs_of(5, DType::f32), "cublaslt cublaslt cublaslt");
  make_slow(true, false);
  EXPECT_EQ(runs_of(6, DType::f32), "cudnn cudnn cudnn");
}

TEST_F(CudaConvCompetition, WithoutTimesTheOrderIsFixed) {
  {
    const VariableScope off("HEARTH_PLAN_TIMING", "off");
    make_slow(false, true);
    EXPECT_EQ(runs_of(7, DType::f32), "cudnn cudnn cublaslt");
    EXPECT_EQ(runs_of(7, DType::bf16), "cudnn cudnn cudnn");
  }
  cpu::set_deterministic(true);
  EXPECT_EQ(runs_of(8, DType::f32), "cudnn cudnn cublaslt");
  cpu::set_deterministic(false);
}

}  // namespace
}  // namespace hearth::test
