// SPDX-License-Identifier: Apache-2.0
// Tensor-core products, matrix loads and asynchronous copies on the emulated GPU.
#include "tests/emulated_gpu/mma.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "core/half.h"
#include "tests/emulated_gpu/access.h"
#include "tests/emulated_gpu/rounding.h"

namespace hearth::cuda::emulate {
namespace {

// What a lane hands in to a product, and to a matrix load.
struct Product {
  float* d;
  const unsigned* a;
  const unsigned* b;
  const Place* at;
};
struct MatrixLoad {
  unsigned* to;
  const std::byte* row;
  const Place* at;
};

void need_whole_warp(unsigned arrived, const char* what, const Place& at) {
  if (arrived != ~0u) fault(std::string(what) + " needs all 32 lanes of the warp", at);
}

template <class T>
void complete_product(void* const* lanes, unsigned arrived) {
  const auto lane_of = [&](int lane) -> const Product& { return *static_cast<const Product*>(lanes[lane]); };
  for (int l = 0; l < 32; ++l)
    if ((arrived >> l & 1) != 0) need_whole_warp(arrived, "mma_m16n8k16", *lane_of(l).at);
  const auto element = [](unsigned word, int i) {
    return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(word >> 16 * i)));
  };
  const SumOrder& order = sum_order();
  const auto place = [&](int k) -> int { return order.place[static_cast<std::size_t>(k)]; };
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int word = 0; word < 4; ++word)
      for (int i = 0; i < 2; ++i) a[g + word % 2 * 8][place(2 * t + i + word / 2 * 8)] = element(lane_of(l).a[word], i);
    for (int word = 0; word < 2; ++word)
      for (int i = 0; i < 2; ++i) b[place(2 * t + i + 8 * word)][g] = element(lane_of(l).b[word], i);
  }
  for (int l = 0; l < 32; ++l) {
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + i / 2 * 8, col = 2 * (l % 4) + i % 2;
      float& d = lane_of(l).d[i];
      float sum = order.begins_with_sum ? d : 0.0f;
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
      d = order.begins_with_sum ? sum : d + sum;
    }
  }
}

template <int count, bool transposed>
void complete_load(void* const* lanes, unsigned arrived) {
  const auto lane_of = [&](int lane) -> const MatrixLoad& { return *static_cast<const MatrixLoad*>(lanes[lane]); };
  for (int l = 0; l < 32; ++l)
    if ((arrived >> l & 1) != 0) need_whole_warp(arrived, "ldmatrix", *lane_of(l).at);
  for (int m = 0; m < count; ++m) {
    std::uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) std::memcpy(matrix[r], lane_of(8 * m + r).row, sizeof(matrix[r]));
    for (int l = 0; l < 32; ++l) {
      const int outer = l / 4, inner = 2 * (l % 4);
      const unsigned low = transposed ? matrix[inner][outer] : matrix[outer][inner];
      const unsigned high = transposed ? matrix[inner + 1][outer] : matrix[outer][inner + 1];
      lane_of(l).to[m] = low | high << 16;
    }
  }
}

template <bool transposed>
Complete load_of(int count) {
  if (count == 1) return complete_load<1, transposed>;
  return count == 2 ? complete_load<2, transposed> : complete_load<4, transposed>;
}

// The copies that a thread has started. One list for each thread of the block that runs.
struct Copies {
  struct Copy {
    std::byte* shared;
    const std::byte* global;
    bool valid;
    unsigned group;
  };
  std::uint64_t block = 0;
  unsigned group = 0;  // that is open
  std::vector<Copy> copies;
};

Copies& copies_of_thread() {
  thread_local std::array<Copies, 1024> all;
  Copies& mine = all[thread_in_block()];
  if (mine.block != block_serial) {
    mine.block = block_serial;
    mine.group = 0;
    mine.copies.clear();
  }
  return mine;
}

/// NaN in every floating-point type: what a buffer holds while a copy into it is under way, early or late as it lands.
constexpr unsigned char under_way = 0xff;

bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace

void mma_m16n8k16(float* d, const unsigned* a, const unsigned* b, bool is_bf16, const Place& at) {
  const Unwatched unwatched;
  Product mine{d, a, b, &at};
  warp_operation(~0u, "mma_m16n8k16", &mine, is_bf16 ? complete_product<bf16> : complete_product<f16>, at);
}

void ldmatrix(unsigned* to, int count, const void* row, bool transposed, const Place& at) {
  const Unwatched unwatched;
  if (static_cast<int>(lane()) < 8 * count) {
    if (!is_aligned(row)) fault("ldmatrix from an address that is not a multiple of 16", at);
    if (!is_shared(row, 16)) fault("ldmatrix from 16 bytes that are not all in shared memory", at);
    note_access(row, 16, Access::read, __builtin_return_address(0));
  }
  MatrixLoad mine{to, static_cast<const std::byte*>(row), &at};
  warp_operation(~0u, "ldmatrix", &mine, transposed ? load_of<true>(count) : load_of<false>(count), at);
}

void cp_async(void* shared, const void* global, bool valid, const Place& at) {
  const Unwatched unwatched;
  if (!is_aligned(shared) || !is_aligned(global)) fault("cp_async with an address that is not a multiple of 16", at);
  if (!is_shared(shared, 16)) fault("cp_async to 16 bytes that are not all in shared memory", at);
  if (is_shared(global, 1)) fault("cp_async from shared memory", at);
  const void* const site = __builtin_return_address(0);
  if (valid) note_access(global, 16, Access::read, site);
  note_access(shared, 16, Access::copy_begin, site);
  std::memset(shared, under_way, 16);
  Copies& mine = copies_of_thread();
  mine.copies.push_back({static_cast<std::byte*>(shared), static_cast<const std::byte*>(global), valid, mine.group});
}

void cp_async_commit() {
  const Unwatched unwatched;
  ++copies_of_thread().group;
}

void cp_async_wait(int pending) {
  const Unwatched unwatched;
  const void* const site = __builtin_return_address(0);
  Copies& mine = copies_of_thread();
  std::erase_if(mine.copies, [&](const Copies::Copy& copy) {
    if (copy.group + static_cast<unsigned>(pending) >= mine.group) return false;
    if (copy.valid) note_access(copy.global, 16, Access::read, site);
    note_access(copy.shared, 16, Access::copy_end, site);
    if (copy.valid)
      std::memcpy(copy.shared, copy.global, 16);
    else
      std::memset(copy.shared, 0, 16);
    return true;
  });
}

}  // namespace hearth::cuda::emulate
