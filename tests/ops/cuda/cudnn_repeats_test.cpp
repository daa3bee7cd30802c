// SPDX-License-Identifier: Apache-2.0
// cuDNN's plans that are taken as repeatable give the same bits each time. Only a device shows it: engines whose sums
// depend on the order of blocks have been seen without the library's note that says so.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/build.h"
#include "core/cuda/runtime.h"
#include "core/random.h"
#include "core/tensor.h"
#include "ops/conv/conv2d_cudnn.h"
#include "tests/support/op_test.h"

namespace hearth {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

struct Kind {
  const char* name;
  Pass pass;
  bool norm, moments, accumulate;
};

ConvShape shape_of(std::int64_t n, std::int64_t size, std::int64_t c, std::int64_t k, std::int64_t taps) {
  ConvShape s{.n = n, .h = size, .w = size, .c = c, .k = k, .r = taps, .s = taps, .p = size, .q = size};
  s.pad_h = s.pad_w = taps / 2;
  return s;
}

Tensor noise(const Shape& shape, std::uint64_t stream, DType dtype) {
  Random random(29, stream);
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::of<float>(shape, values).to(dtype).to(gpu);
}

class CudaDnnRepeats : public testing::TestWithParam<Kind> {};

TEST_P(CudaDnnRepeats, WithTheSameBits) {
  if (cuda::device_count() == 0 || HEARTH_CUDA_EMULATED || !cuda::dnn::why_absent().empty())
    GTEST_SKIP() << "needs a GPU and cuDNN";
  const Kind& kind = GetParam();
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const ConvShape& s :
         {shape_of(16, 8, 8, 8, 3), shape_of(16, 56, 64, 256, 1), shape_of(16, 56, 64, 64, 3),
          shape_of(16, 28, 128, 128, 3), shape_of(16, 14, 1024, 256, 1), shape_of(16, 7, 512, 512, 3)}) {
      ConvProblem problem{.shape = s, .pass = kind.pass, .activations = dtype, .weights = dtype};
      problem.norm = kind.norm, problem.moments = kind.moments, problem.accumulate = kind.accumulate;
      if (!cuda::dnn::unsupported(problem).empty()) continue;
      SCOPED_TRACE(testing::Message() << dtype << ", " << s.h << "x" << s.w << "x" << s.c << ", " << s.k
                                      << " filters of " << s.r);
      const Tensor x = noise({s.n, s.h, s.w, s.c}, 1, dtype), w = noise({s.k, s.r, s.s, s.c}, 2, dtype),
                   y = noise({s.n, s.p, s.q, s.k}, 3, dtype), folded = noise({2, s.c}, 4, DType::f16);
      const auto run = [&] {
        const Tensor dx = x.clone(), dw = w.clone(), made = y.clone(), sums = Tensor::zeros({2, s.k}, DType::f32, gpu);
        std::byte* const scale = folded.bytes();
        EXPECT_TRUE(cuda::dnn::try_conv2d(
            cuda::stream_of(gpu), problem,
            {dx.bytes(), dw.bytes(), made.bytes(), nullptr, scale, scale + static_cast<std::size_t>(s.c) * 2,
             sums.bytes(), sums.bytes() + static_cast<std::size_t>(s.k) * sizeof(float)}));
        const Tensor& result = kind.pass == Pass::forward ? made : kind.pass == Pass::backward_data ? dx : dw;
        return std::pair(result.to(Device{}), sums.to(Device{}));
      };
      const auto differ = [](const Tensor& a, const Tensor& b) {
        return std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.size()) * size_of(a.dtype())) != 0;
      };
      const auto [result, sums] = run();
      for (int time = 0; time < 8; ++time) {
        const auto [again, sums_again] = run();
        ASSERT_FALSE(differ(again, result)) << "in its result, at time " << time;
        ASSERT_FALSE(differ(sums_again, sums)) << "in its sums, at time " << time;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Passes, CudaDnnRepeats,
                         testing::Values(Kind{"forward", Pass::forward, false, false, false},
                                         Kind{"forward_sums", Pass::forward, false, true, false},
                                         Kind{"forward_norm_sums", Pass::forward, true, true, false},
                                         Kind{"data", Pass::backward_data, false, false, false},
                                         Kind{"data_added", Pass::backward_data, false, false, true},
                                         Kind{"weights", Pass::backward_weights, false, false, false},
                                         Kind{"weights_norm", Pass::backward_weights, true, false, false}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace hearth
