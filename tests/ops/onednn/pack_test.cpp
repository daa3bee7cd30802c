// SPDX-License-Identifier: Apache-2.0
// Packing of filters: against the layout's own formula, and bit for bit against the library's copies.
#include "ops/onednn/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/build.h"
#include "core/half.h"
#include "core/random.h"
#include "ops/onednn/library.h"

namespace hearth::cpu::dnn::pack_test {
namespace {

using Unit = FilterBlocks::Unit;

std::vector<float> filters_like(const FilterBlocks& b) {
  std::vector<float> w(static_cast<std::size_t>(b.groups * b.k * b.r * b.s * b.c));
  Random random(7, 0);
  for (float& v : w) v = static_cast<float>(random.uniform(-2.0, 2.0));
  const float special[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                           -std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max(), -0.0f};
  for (std::size_t i = 0; i < w.size(); i += 29) w[i] = special[i / 29 % 5];
  return w;
}

std::vector<std::uint16_t> narrow_bits(const std::vector<float>& w) {
  std::vector<std::uint16_t> bits;
  for (const float v : w) bits.push_back(bf16::from_float(v));
  return bits;
}

// A layout whose blocks follow each other as c, s, r, k, g, the first fastest.
FilterBlocks dense(std::int64_t groups, std::int64_t k, std::int64_t c, Unit unit, bool k_runs_fastest,
                   std::int64_t block_k, std::int64_t block_c) {
  FilterBlocks b{.groups = groups, .k = k, .r = 3, .s = 2, .c = c};
  b.unit = unit, b.k_runs_fastest = k_runs_fastest, b.block_k = block_k, b.block_c = block_c;
  b.stride_c = block_k * block_c;
  b.stride_s = b.stride_c * ((c + block_c - 1) / block_c);
  b.stride_r = b.stride_s * b.s;
  b.stride_k = b.stride_r * b.r;
  b.stride_g = b.stride_k * ((k + block_k - 1) / block_k);
  return b;
}

// Where element k, c of a block lies in it.
std::int64_t within_block(const FilterBlocks& b, std::int64_t k, std::int64_t c) {
  const std::int64_t per_k = b.unit == Unit::pair_of_k ? 2 : 1, per_c = b.unit == Unit::pair_of_c ? 2 : 1;
  const std::int64_t row = k / per_k, column = c / per_c;
  const std::int64_t unit = b.k_runs_fastest ? column * (b.block_k / per_k) + row : row * (b.block_c / per_c) + column;
  return unit * per_k * per_c + k % per_k + c % per_c;
}

template <class T>
void expect_formula(const FilterBlocks& b, const std::vector<T>& w, const std::vector<T>& packed) {
  std::vector<T> expected(packed.size(), T{});
  const std::int64_t taps = b.r * b.s;
  for (std::int64_t g = 0; g < b.groups; ++g)
    for (std::int64_t k = 0; k < b.k; ++k)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t c = 0; c < b.c; ++c) {
          const std::int64_t at = g * b.stride_g + k / b.block_k * b.stride_k + tap / b.s * b.stride_r +
                                  tap % b.s * b.stride_s + c / b.block_c * b.stride_c +
                                  within_block(b, k % b.block_k, c % b.block_c);
          expected[static_cast<std::size_t>(at)] = w[static_cast<std::size_t>(((g * b.k + k) * taps + tap) * b.c + c)];
        }
  EXPECT_EQ(std::memcmp(packed.data(), expected.data(), packed.size() * sizeof(T)), 0)
      << "k " << b.k << " c " << b.c << " blocks " << b.block_k << "x" << b.block_c << " groups " << b.groups;
}

struct Kind {
  Unit unit;
  bool k_runs_fastest;
  std::int64_t block_k, block_c;
};

constexpr Kind kinds[] = {{Unit::one, true, 8, 1},          {Unit::pair_of_c, true, 8, 2},
                          {Unit::one, true, 16, 1},         {Unit::one, true, 48, 1},
                          {Unit::one, true, 16, 16},        {Unit::one, false, 16, 16},
                          {Unit::pair_of_k, false, 16, 16}, {Unit::pair_of_c, true, 16, 2},
                          {Unit::pair_of_c, true, 64, 2},   {Unit::pair_of_c, true, 16, 16}};

TEST(DnnPack, FollowsTheFormulaOfTheLayout) {
  for (const Kind& kind : kinds)
    for (const std::int64_t groups : {1, 3})
      for (const std::int64_t k : {1, 16, 37, 64})
        for (const std::int64_t c : {1, 3, 16, 40, 65}) {
          const FilterBlocks b = dense(groups, k, c, kind.unit, kind.k_runs_fastest, kind.block_k, kind.block_c);
          ASSERT_TRUE(is_packable(b));
          const auto w = filters_like(b);
          const auto size = static_cast<std::size_t>(groups * b.stride_g);
          if (kind.unit == Unit::one) {
            std::vector<float> packed(size, 1.0f);
            pack_filters(b, w.data(), DType::f32, packed.data());
            expect_formula(b, w, packed);
            continue;
          }
          const auto narrow = narrow_bits(w);
          std::vector<std::uint16_t> packed(size, 1);
          pack_filters(b, w.data(), DType::f32, packed.data());
          expect_formula(b, narrow, packed);
          packed.assign(size, 1);
          pack_filters(b, narrow.data(), DType::bf16, packed.data());
          expect_formula(b, narrow, packed);
        }
}

TEST(DnnPack, TablesThatVectorsDoNotFillAreUnsupported) {
  EXPECT_FALSE(is_packable(dense(1, 32, 32, Unit::one, true, 4, 1)));
  EXPECT_FALSE(is_packable(dense(1, 32, 32, Unit::one, false, 16, 4)));
  EXPECT_FALSE(is_packable(dense(1, 32, 32, Unit::pair_of_k, true, 32, 1)));
  EXPECT_FALSE(is_packable(dense(1, 256, 32, Unit::pair_of_c, true, 128, 2)));
}

#if HEARTH_HAS_DNNL

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// Packs by own code and by the library, and compares every byte.
void expect_as_the_library(const dnnl::memory::dims& dims, Type from_type, Type to_type, Tag tag) {
  const std::size_t at = dims.size() - 4;
  const std::int64_t c = dims[at + 1], r = dims[at + 2], s = dims[at + 3];
  dnnl::memory::dims strides{r * s * c, 1, s * c, c};
  if (at == 1) strides.insert(strides.begin(), dims[1] * r * s * c);
  const Desc from(dims, from_type, strides), to(dims, to_type, tag);
  const auto blocks = blocks_of(from, to);
  ASSERT_TRUE(blocks.has_value()) << static_cast<int>(tag);
  const auto wide = filters_like(*blocks);
  const auto narrow = narrow_bits(wide);
  const bool from_narrow = from_type == Type::bf16;
  void* w = from_narrow ? static_cast<void*>(const_cast<std::uint16_t*>(narrow.data()))
                        : static_cast<void*>(const_cast<float*>(wide.data()));
  std::vector<std::byte> own(to.get_size(), std::byte{1}), theirs(to.get_size(), std::byte{2});
  pack_filters(*blocks, w, from_narrow ? DType::bf16 : DType::f32, own.data());
  dnnl::memory source(from, engine(), w), destination(to, engine(), theirs.data());
  dnnl::reorder(source, destination).execute(stream(), source, destination);
  EXPECT_TRUE(own == theirs) << "layout " << static_cast<int>(tag) << " k " << dims[at] << " c " << c;
}

TEST(DnnPack, GivesTheBitsOfTheLibrary) {
  const bool hardware = has_hardware_bf16();
  for (const std::int64_t k : {16, 64, 70})
    for (const std::int64_t c : {3, 32, 40, 128}) {
      for (const Tag tag : {Tag::Acdb8a, Tag::Acdb16a, Tag::Acdb32a, Tag::Acdb64a, Tag::ABcd16a16b, Tag::ABcd16b16a})
        expect_as_the_library({k, c, 3, 3}, Type::f32, Type::f32, tag);
      expect_as_the_library({2, k, c, 3, 3}, Type::f32, Type::f32, Tag::gOIhw16i16o);
      if (!hardware) continue;
      for (const Type from : {Type::f32, Type::bf16}) {
        for (const Tag tag : {Tag::ABcd8a16b2a, Tag::ABcd8b16a2b, Tag::AcdB32a2b, Tag::AcdB64a2b})
          expect_as_the_library({k, c, 3, 3}, from, Type::bf16, tag);
        expect_as_the_library({2, k, c, 3, 3}, from, Type::bf16, Tag::gOIhw8o16i2o);
      }
    }
}

TEST(DnnPack, LeavesOtherLayoutsToTheLibrary) {
  const dnnl::memory::dims dims{32, 32, 3, 3};
  const Desc plain(dims, Type::f32, Tag::acdb);
  EXPECT_TRUE(blocks_of(plain, Desc(dims, Type::f32, Tag::ABcd16a16b)).has_value());
  EXPECT_FALSE(blocks_of(plain, Desc(dims, Type::f32, Tag::abcd)).has_value());
  EXPECT_FALSE(blocks_of(plain, Desc(dims, Type::f32, Tag::ABcd4a4b)).has_value());
  EXPECT_FALSE(blocks_of(Desc(dims, Type::f32, Tag::abcd), Desc(dims, Type::f32, Tag::ABcd16a16b)).has_value());
  const dnnl::memory::dims depthwise{32, 1, 1, 3, 3};
  EXPECT_FALSE(blocks_of(Desc(depthwise, Type::f32, dnnl::memory::dims{9, 9, 1, 3, 1}),
                         Desc(depthwise, Type::f32, Tag::Goihw16g))
                   .has_value());
}

#endif

}  // namespace
}  // namespace hearth::cpu::dnn::pack_test
