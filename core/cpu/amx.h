// SPDX-License-Identifier: Apache-2.0
// The processor's matrix tiles (Intel AMX), and the same instructions in plain C++ for tests on processors without.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "core/half.h"

/// Whether this compiler builds kernels in the instructions that has_bf16_vectors() asks for.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEARTH_BF16_VECTORS 1
#else
#define HEARTH_BF16_VECTORS 0
#endif

namespace hearth::cpu::amx {

/// Why bf16 products on tiles cannot be used in this process, or empty: an absent instruction, a system that does not
/// give leave, HEARTH_ISA below v4. Asks the system once.
std::string unsupported();

/// Whether processor, build and HEARTH_ISA have AVX-512 with bf16: conversions and vector products.
bool has_bf16_vectors();
/// Why they have not, or empty.
std::string bf16_vectors_unsupported();

/// Products take EmulatedTiles in all threads, and unsupported() is empty, from emulate(true) to emulate(false). Pairs
/// of these may be nested. For tests.
void emulate(bool begins);
bool emulated();

// Of both: eight tiles of 16 rows of 64 bytes. multiply<c, a, b>() adds to the f32 tile c [16, 16] the product of the
// bf16 tiles a [16, 32] and b [16 pairs of rows, 16 columns, 2].

/// In plain C++.
class EmulatedTiles {
 public:
  template <int tile>
  void clear() {
    std::fill_n(tiles_[tile], 256, 0u);
  }
  template <int tile>
  void load(const void* from, std::int64_t stride) {
    for (int row = 0; row < 16; ++row)
      std::copy_n(static_cast<const char*>(from) + row * stride, 64, reinterpret_cast<char*>(tiles_[tile] + 16 * row));
  }
  template <int tile>
  void store(void* to, std::int64_t stride) {
    for (int row = 0; row < 16; ++row)
      std::copy_n(reinterpret_cast<const char*>(tiles_[tile] + 16 * row), 64, static_cast<char*>(to) + row * stride);
  }
  template <int c, int a, int b>
  void multiply() {
    for (int row = 0; row < 16; ++row)
      for (int pair = 0; pair < 16; ++pair)
        for (int column = 0; column < 16; ++column)
          add(tiles_[c][16 * row + column], tiles_[a][16 * row + pair], tiles_[b][16 * pair + column]);
  }

 private:
  static void add(std::uint32_t& sum, std::uint32_t a, std::uint32_t b) {
    const auto low = [](std::uint32_t pair) { return std::bit_cast<float>(pair << 16); };
    const auto high = [](std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); };
    sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(sum) + low(a) * low(b) + high(a) * high(b));
  }

  std::uint32_t tiles_[8][256];
};

#if defined(__x86_64__) && defined(__GNUC__)

/// The instructions. An object configures the tiles of the calling thread and gives them back.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) Config {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Config config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Tiles() { asm volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int tile>
  void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  /// Rows lie `stride` bytes apart.
  template <int tile>
  void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int c, int a, int b>
  void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
};

#else
using Tiles = EmulatedTiles;
#endif

constexpr std::int64_t tile_values = 512;  ///< of bf16

/// The four tiles of sums of a square of 32, and two tiles of each operand, a part of one step.
template <class TileUnit>
struct Square {
  TileUnit tiles;

  void clear() {
    tiles.template clear<0>();
    tiles.template clear<1>();
    tiles.template clear<2>();
    tiles.template clear<3>();
  }
  void load(const float* c) {
    tiles.template load<0>(c, 64);
    tiles.template load<1>(c + 256, 64);
    tiles.template load<2>(c + 512, 64);
    tiles.template load<3>(c + 768, 64);
  }
  void store(float* c) {
    tiles.template store<0>(c, 64);
    tiles.template store<1>(c + 256, 64);
    tiles.template store<2>(c + 512, 64);
    tiles.template store<3>(c + 768, 64);
  }
  /// Rows lie `row` values apart.
  void load_a(const bf16* x, std::int64_t row = 32) {
    tiles.template load<4>(x, 2 * row);
    tiles.template load<5>(x + 16 * row, 2 * row);
  }
  void load_b(const bf16* w) { load_b(w, w + tile_values); }
  void load_b(const bf16* first, const bf16* second) {
    tiles.template load<6>(first, 64);
    tiles.template load<7>(second, 64);
  }
  void multiply() {
    tiles.template multiply<0, 4, 6>();
    tiles.template multiply<1, 4, 7>();
    tiles.template multiply<2, 5, 6>();
    tiles.template multiply<3, 5, 7>();
  }
};

}  // namespace hearth::cpu::amx
