// SPDX-License-Identifier: Apache-2.0
// The instructions of ops/device/mma.h against plain loops: products of small whole numbers are exact, whatever the
// order of the sums. The same on a real and on the emulated GPU.
#include "ops/device/mma.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace {

using namespace hearth;
using namespace hearth::cuda;

const Device gpu{DeviceType::cuda, 0};

template <class T>
__device__ unsigned word_of(T low, T high) {
  return low.bits | static_cast<unsigned>(high.bits) << 16;
}

// Fragments by the layout that mma.h documents.
template <class T>
__global__ void product_by_hand(const T* a, const T* b, float* d) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  unsigned fa[4], fb[2];
  for (int word = 0; word < 4; ++word) {
    const T* from = a + (g + word % 2 * 8) * 16 + 2 * t + word / 2 * 8;
    fa[word] = word_of(from[0], from[1]);
  }
  for (int word = 0; word < 2; ++word) {
    const T* from = b + (2 * t + 8 * word) * 8 + g;
    fb[word] = word_of(from[0], from[8]);
  }
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  mma_m16n8k16<T>(sum, fa, fb);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

// The same fragments by ldmatrix.
template <class T>
__global__ void product_by_ldmatrix(const T* a, const T* b, float* d) {
  HEARTH_SHARED(T, tile_a, [16][24]);
  HEARTH_SHARED(T, tile_b, [16][8]);
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) tile_a[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) tile_b[i / 8][i % 8] = b[i];
  __syncwarp();
  unsigned fa[4], fb[2];
  ldmatrix(fa, &tile_a[lane % 16][lane / 16 * 8]);
  ldmatrix_transposed(fb, &tile_b[lane % 16][0]);
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  mma_m16n8k16<T>(sum, fa, fb);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

template <class T>
void check_product(void (*kernel)(const T*, const T*, float*)) {
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
  std::vector<T> a, b;
  std::vector<float> d;
  std::vector<double> expected;
  for (int i = 0; i < 256; ++i) a.push_back(T(static_cast<float>(i * 7 % 17 - 8)));
  for (int i = 0; i < 128; ++i) b.push_back(T(static_cast<float>(i * 5 % 13 - 6)));
  for (int i = 0; i < 128; ++i) d.push_back(static_cast<float>(i));
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      float sum = d[static_cast<std::size_t>(row * 8 + col)];
      for (int k = 0; k < 16; ++k)
        sum += static_cast<float>(a[static_cast<std::size_t>(row * 16 + k)]) *
               static_cast<float>(b[static_cast<std::size_t>(k * 8 + col)]);
      expected.push_back(sum);
    }
  }
  const Tensor device_a = Tensor::of({16, 16}, a).to(gpu), device_b = Tensor::of({16, 8}, b).to(gpu);
  const Tensor device_d = Tensor::of({16, 8}, d).to(gpu);
  launch(stream_of(gpu), "product", {1, 32}, kernel, device_a.data<T>(), device_b.data<T>(), device_d.data<float>());
  EXPECT_EQ(device_d.to_doubles(), expected);
}

TEST(CudaMma, ProductBf16) { check_product<bf16>(product_by_hand<bf16>); }
TEST(CudaMma, ProductF16) { check_product<f16>(product_by_hand<f16>); }
TEST(CudaMma, LdmatrixBf16) { check_product<bf16>(product_by_ldmatrix<bf16>); }
TEST(CudaMma, LdmatrixF16) { check_product<f16>(product_by_ldmatrix<f16>); }

// Each lane asks for one row; words of all forms of the load, one after the other.
__global__ void matrix_words(const std::uint16_t* x, unsigned* y) {
  HEARTH_SHARED(std::uint16_t, tile, [32][8]);
  const int lane = lane_id();
  for (int i = 0; i < 8; ++i) tile[lane][i] = x[lane * 8 + i];
  __syncwarp();
  unsigned one[1], two[2], four[4], turned[4];
  ldmatrix(one, tile[lane]);
  ldmatrix(two, tile[lane]);
  ldmatrix(four, tile[lane]);
  ldmatrix_transposed(turned, tile[lane]);
  y[lane] = one[0];
  for (int m = 0; m < 2; ++m) y[(1 + m) * 32 + lane] = two[m];
  for (int m = 0; m < 4; ++m) y[(3 + m) * 32 + lane] = four[m];
  for (int m = 0; m < 4; ++m) y[(7 + m) * 32 + lane] = turned[m];
}

TEST(CudaMma, LdmatrixWords) {
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
  std::vector<std::int32_t> packed;  // two elements of 16 bits each: 2i and 2i + 1
  for (int i = 0; i < 128; ++i) packed.push_back((2 * i + 1) << 16 | 2 * i);
  const Tensor x = Tensor::of({128}, packed).to(gpu), y = Tensor::zeros({11, 32}, DType::i32, gpu);
  launch(stream_of(gpu), "matrix_words", {1, 32}, matrix_words,
         reinterpret_cast<const std::uint16_t*>(x.data<std::int32_t>()),
         reinterpret_cast<unsigned*>(y.data<std::int32_t>()));
  const std::vector<double> words = y.to_doubles();
  const auto element = [](int matrix, int row, int col) { return matrix * 64 + row * 8 + col; };
  for (int lane = 0; lane < 32; ++lane) {
    const int outer = lane / 4, inner = 2 * (lane % 4);
    const auto word = [&](int row) { return static_cast<int>(words[static_cast<std::size_t>(row * 32 + lane)]); };
    const auto plain = [&](int m) { return element(m, outer, inner) | element(m, outer, inner + 1) << 16; };
    ASSERT_EQ(word(0), plain(0));
    for (int m = 0; m < 2; ++m) ASSERT_EQ(word(1 + m), plain(m));
    for (int m = 0; m < 4; ++m) ASSERT_EQ(word(3 + m), plain(m));
    for (int m = 0; m < 4; ++m) ASSERT_EQ(word(7 + m), element(m, inner, outer) | element(m, inner + 1, outer) << 16);
  }
}

// A pipeline of two stages: while one tile of 128 floats is added up, the next is on its way. Tiles that lie outside
// are zeros.
__global__ void add_tiles(const float* x, float* y, int n, int tiles) {
  HEARTH_SHARED(float, stages, [2][128]);
  const int thread = static_cast<int>(threadIdx.x);
  const auto fetch = [&](int tile) {
    const int at = tile * 128 + thread * 4;
    cp_async(&stages[tile % 2][thread * 4], x + (at < n ? at : 0), at < n);
    cp_async_commit();
  };
  fetch(0);
  float sum[4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      fetch(tile + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    for (int i = 0; i < 4; ++i) sum[i] += stages[tile % 2][(thread * 4 + i + 64) % 128];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) y[(thread * 4 + i + 64) % 128] = sum[i];
}

TEST(CudaMma, AsynchronousCopies) {
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
  std::vector<float> x;
  std::vector<double> expected(128);
  for (int i = 0; i < 520; ++i) {
    x.push_back(static_cast<float>(i % 29));
    expected[static_cast<std::size_t>(i % 128)] += static_cast<float>(i % 29);
  }
  const Tensor from = Tensor::of({520}, x).to(gpu), y = Tensor::zeros({128}, DType::f32, gpu);
  launch(stream_of(gpu), "add_tiles", {1, 32}, add_tiles, from.data<float>(), y.data<float>(), 520, 5);
  EXPECT_EQ(y.to_doubles(), expected);
}

}  // namespace
