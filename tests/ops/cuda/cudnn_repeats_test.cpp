// SPDX-License-Identifier: Apache-2.0
// cuDNN's plans that are taken as repeatable give the same bits each time. Only a device shows it.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/cuda/emulation.h"
#include "core/cuda/runtime.h"
#include "core/random.h"
#include "core/tensor.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "tests/support/op_test.h"

namespace hearth::cudnn_repeats_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

struct Kind {
  const char* name;
  Pass pass;
  bool accumulate;
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
  if (cuda::device_count() == 0 || cuda::is_emulated() || !cuda::dnn::why_absent().empty())
    GTEST_SKIP() << "needs a GPU and cuDNN";
  const Kind& kind = GetParam();
  int compared = 0;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const ConvShape& s :
         {shape_of(16, 8, 8, 8, 3), shape_of(16, 56, 64, 256, 1), shape_of(16, 56, 64, 64, 3),
          shape_of(16, 28, 128, 128, 3), shape_of(16, 14, 1024, 256, 1), shape_of(16, 7, 512, 512, 3)}) {
      ConvProblem problem{.shape = s, .pass = kind.pass, .activations = dtype, .weights = dtype};
      problem.accumulate = kind.accumulate;
      if (!cuda::dnn::unsupported(problem).empty()) continue;
      ++compared;
      SCOPED_TRACE(testing::Message() << dtype << ", " << s.h << "x" << s.w << "x" << s.c << ", " << s.k
                                      << " filters of " << s.r);
      const Tensor x = noise({s.n, s.h, s.w, s.c}, 1, dtype), w = noise({s.k, s.r, s.s, s.c}, 2, dtype),
                   y = noise({s.n, s.p, s.q, s.k}, 3, dtype);
      const auto run = [&] {
        const Tensor dx = x.clone(), dw = w.clone(), made = y.clone();
        EXPECT_TRUE(
            cuda::dnn::try_conv2d(cuda::stream_of(gpu), problem, {dx.bytes(), dw.bytes(), made.bytes(), nullptr}));
        return (kind.pass == Pass::forward ? made : kind.pass == Pass::backward_data ? dx : dw).to(Device{});
      };
      const Tensor result = run();
      for (int time = 0; time < 8; ++time) {
        const Tensor again = run();
        ASSERT_EQ(std::memcmp(again.bytes(), result.bytes(), result.byte_size()), 0) << "at time " << time;
      }
    }
  if (compared == 0) GTEST_SKIP() << "cuDNN has no such plan";
}

INSTANTIATE_TEST_SUITE_P(Passes, CudaDnnRepeats,
                         testing::Values(Kind{"forward", Pass::forward, false},
                                         Kind{"data", Pass::backward_data, false},
                                         Kind{"data_added", Pass::backward_data, true},
                                         Kind{"weights", Pass::backward_weights, false}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace hearth::cudnn_repeats_test
