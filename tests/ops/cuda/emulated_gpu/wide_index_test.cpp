// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 elements: an index that passes through 32 bits on its way misses their end. Pages that
// nothing touches cost nothing, and of each launch only blocks at both ends run. What they write behind 2^31 must be
// what the op makes of these rows alone.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "ops/attention/attention.h"
#include "ops/dispatch/candidates.h"
#include "ops/ops.h"
#include "tests/emulated_gpu/engine.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/support/op_test.h"

namespace hearth::test::wide_index_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};
constexpr DType bf16 = DType::bf16;
constexpr std::int64_t wide = std::int64_t{1} << 31;

/// What nothing has written yet is zero.
class Fresh final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes) override {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, bytes), cudaSuccess);
    return p;
  }
  void deallocate(void* p, std::size_t) noexcept override { cudaFree(p); }
  MemoryStatistics statistics() const override { return {}; }
  void reset_peak() override {}
};

class AtEndsOnly {
 public:
  explicit AtEndsOnly(std::uint64_t blocks) { cuda::emulate::set_blocks_at_ends(blocks); }
  ~AtEndsOnly() { cuda::emulate::set_blocks_at_ends(0); }
  AtEndsOnly(const AtEndsOnly&) = delete;
  AtEndsOnly& operator=(const AtEndsOnly&) = delete;
};

Tensor numbers(const Shape& shape, DType dtype, std::uint64_t stream = 1) {
  Random random(41, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = 1 + 0.25 * random.uniform();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

Tensor end_of(const Tensor& x, std::int64_t rows) { return slice(x, 0, x.dim(0) - rows, x.dim(0)); }

class CudaWideIndex : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the address sanitizer touches memory for each byte that could be";
#endif
    cuda::emulate::Settings settings = before_;
    settings.memory_bytes = std::size_t{1} << 40;
    cuda::emulate::apply(settings);
  }
  void TearDown() override { cuda::emulate::apply(before_); }

  /// f on 2^31 elements in rows of this shape and a few rows more, against f on these. Of a launch whose grid is
  /// limited some of the first blocks come to the end.
  static void check(const Shape& row, DType dtype, const std::function<Tensor(const Tensor&)>& f,
                    std::uint64_t blocks = 512) {
    const NoGrad no_grad;
    const std::int64_t more = std::max<std::int64_t>(4096 / row.size(), 2);
    const Tensor few = numbers(row.with(0, more * row.dim(0)), dtype);
    const Tensor expected = f(few);
    const Tensor x = Tensor::empty(row.with(0, (wide / row.size() + more) * row.dim(0)), dtype, gpu);
    ASSERT_GT(x.size(), wide);
    end_of(x, few.dim(0)).copy_from(few);
    Tensor y;
    {
      const AtEndsOnly ends(blocks);
      y = f(x);
    }
    const std::vector<double> found = end_of(y, expected.dim(0)).to_doubles(), wanted = expected.to_doubles();
    std::size_t written = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == 0) continue;
      ASSERT_EQ(found[i], wanted[i]) << i;
      ++written;
    }
    EXPECT_GE(written, found.size() / 16) << "of " << found.size();
  }

 private:
  cuda::emulate::Settings before_ = cuda::emulate::settings();
  Fresh memory_;
  DeviceMemoryScope scope_{gpu, memory_};
};

TEST_F(CudaWideIndex, Elements) {
  check({1, 64}, bf16, [](const Tensor& x) { return gelu(x); });
  check({1, 64}, bf16, [](const Tensor& x) { return cast(x, DType::f32); });
  check({1, 64}, bf16, [](const Tensor& x) { return add(x, x); });
  check({1, 64}, bf16, [](const Tensor& x) { return swiglu(x); });
  check({1, 64}, DType::u8, [](const Tensor& x) { return cast(x, bf16); });
}

TEST_F(CudaWideIndex, Broadcast) {
  const Tensor row = numbers({64}, bf16, 2);
  check({1, 64}, bf16, [&](const Tensor& x) { return add(x, row); });
}

TEST_F(CudaWideIndex, Rows) {
  const Tensor gamma = numbers({64}, DType::f32, 2), beta = numbers({64}, DType::f32, 3);
  check({1, 64}, bf16, [](const Tensor& x) { return softmax(x); });
  check({1, 64}, bf16, [&](const Tensor& x) { return rms_norm(x, gamma); });
  check({1, 64}, bf16, [](const Tensor& x) { return sum(x, {1}); });
  check({1, 64}, bf16, [](const Tensor& x) { return max(x, {1}); });
  // Its blocks are few, and each walks over a share of all rows.
  check(
      {1, 64}, bf16, [&](const Tensor& x) { return layer_norm(x, gamma, beta); }, 128);
}

TEST_F(CudaWideIndex, Copies) {
  check({1, 8, 8}, bf16, [](const Tensor& x) { return transpose(x, {0, 2, 1}).contiguous(); });
  check({1, 64}, bf16, [](const Tensor& x) { return concat({x, x}, 1); });
  check({1, 64}, bf16, [](const Tensor& x) { return slice(x, 1, 8, 40).contiguous(); });
}

TEST_F(CudaWideIndex, Tables) {
  const Tensor table = Tensor::empty({wide / 64 + 8, 64}, bf16, gpu), rows = numbers({8, 64}, bf16);
  end_of(table, 8).copy_from(rows);
  const std::int64_t last = table.dim(0);
  const Tensor ids = Tensor::of({3}, std::vector<std::int64_t>{last - 1, last - 8, last - 3}).to(gpu);
  const std::vector<double> found = embedding(table, ids).to_doubles(), all = rows.to_doubles();
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(found[i], all[7 * 64 + i]);
    EXPECT_EQ(found[64 + i], all[i]);
    EXPECT_EQ(found[128 + i], all[5 * 64 + i]);
  }
}

TEST_F(CudaWideIndex, Images) {
  check({1, 8, 8, 64}, bf16, [](const Tensor& x) { return max_pool2d(x, {.kernel = 2, .stride = 2}); });
  check({1, 8, 8, 64}, bf16, [](const Tensor& x) { return avg_pool2d(x, {.kernel = 2, .stride = 2}); });
  check({1, 8, 8, 64}, bf16, [](const Tensor& x) { return global_avg_pool(x); });
}

TEST_F(CudaWideIndex, Convolutions) {
  const Tensor w = numbers({8, 3, 3, 64}, bf16, 2);
  for (const char* by : {"mma", "portable"}) {
    const ForceCandidate force("conv2d", by);
    check(
        {1, 8, 8, 64}, bf16, [&](const Tensor& x) { return conv2d(x, w, {.padding = 1}); }, 8);
  }
}

TEST_F(CudaWideIndex, Products) {
  const Tensor w = numbers({64, 64}, bf16, 2);
  for (const char* by : {"mma", "portable"}) {
    const ForceCandidate force("matmul", by);
    check({1, 64}, bf16, [&](const Tensor& x) { return matmul(x, w); });
  }
}

TEST_F(CudaWideIndex, Attention) {
  for (const char* by : {"mma", "portable"}) {
    const ForceCandidate force("attention", by);
    check({1, 64, 96}, bf16, [](const Tensor& x) { return self_attention(x, 2, {.causal = true}); });
  }
}

}  // namespace
}  // namespace hearth::test::wide_index_test
