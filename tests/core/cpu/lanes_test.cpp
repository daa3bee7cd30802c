// SPDX-License-Identifier: Apache-2.0
// Vectors of every instruction set against one element after the other; HEARTH_ISA tells which set is in use.
#include "core/cpu/lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::kernels {
namespace {

// Floats at and around the numbers of 16 bits and half way between them, of both signs, with infinities and NaN.
std::vector<float> edges() {
  std::vector<float> all;
  for (std::uint32_t upper = 0; upper < 0x10000u; upper += 37)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xc000u, 0xffffu})
      all.push_back(std::bit_cast<float>(upper << 16 | lower));
  for (const std::uint32_t bits : {0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fffffffu, 0xff800000u, 0xffffffffu})
    all.push_back(std::bit_cast<float>(bits));
  return all;
}

}  // namespace
}  // namespace hearth::kernels
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "tests/core/cpu/lanes_test.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

template <class T>
void store_in_loop(const float* from, std::int64_t count, T* into) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) cpu::store(into + i, from[i]);
}

template <class T>
std::int64_t fill(const float* from, std::int64_t count, T* into) {
  return fill_lanes(into, count, [&](std::int64_t i) { return load_lanes(from + i); });
}

template <class T>
std::int64_t widen(const T* from, std::int64_t count, acc_t<T>* into) {
  return fill_lanes(into, count, [&](std::int64_t i) { return load_lanes(from + i); });
}

/// What each accumulator got, and where the rest begins.
template <class P>
std::int64_t sums(const P* from, std::int64_t count, P* of_accumulator) {
  typename Lanes<P>::Vector held[4] = {};
  const std::int64_t end = over_lanes<P>(count, [&](std::int64_t i, int k) { held[k] += load_lanes(from + i); });
  for (int k = 0; k < 4; ++k) of_accumulator[k] = sum_of_lanes<P>(held[k]);
  return end;
}

inline std::int64_t bytes() { return HEARTH_ISA_VECTOR_BYTES; }

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

template <class T>
void expect_stored_alike(std::uint16_t (&bits_of)(float)) {
  const std::vector<float> from = edges();
  const auto count = static_cast<std::int64_t>(from.size());
  std::vector<T> looped(from.size()), filled(from.size());
  HEARTH_ISA_CALL(store_in_loop, from.data(), count, looped.data());
  const std::int64_t end = HEARTH_ISA_CALL(fill, from.data(), count, filled.data());
  EXPECT_GT(end, count - HEARTH_ISA_CALL(bytes) / 4);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(looped[at].bits, bits_of(from[at])) << from[at];
    if (i < end) {
      EXPECT_EQ(filled[at].bits, bits_of(from[at])) << from[at];
    } else {
      EXPECT_EQ(filled[at].bits, 0) << "nothing is written behind the vectors";
    }
  }
}

TEST(Lanes, StoreWhatOneElementWould) {
  expect_stored_alike<bf16>(bf16::from_float);
  expect_stored_alike<f16>(f16::from_float);
}

template <class T>
void expect_loaded_alike() {
  std::vector<T> from;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) from.push_back(T::from_bits(static_cast<std::uint16_t>(bits)));
  std::vector<float> into(from.size());
  EXPECT_EQ(HEARTH_ISA_CALL(widen, from.data(), 0x10000, into.data()), 0x10000);
  for (std::size_t i = 0; i < from.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(into[i]), std::bit_cast<std::uint32_t>(static_cast<float>(from[i]))) << i;
}

TEST(Lanes, LoadWhatOneElementWould) {
  expect_loaded_alike<bf16>();
  expect_loaded_alike<f16>();
}

template <class P>
void expect_every_element_once() {
  std::vector<P> from(200, P(1));
  const auto lanes = HEARTH_ISA_CALL(bytes) / static_cast<std::int64_t>(sizeof(P));
  for (std::int64_t count = 0; count <= 200; ++count) {
    P of[4] = {}, into[200] = {};
    const std::int64_t end = count / lanes * lanes, fours = count / (4 * lanes) * lanes;
    EXPECT_EQ(HEARTH_ISA_CALL(sums, from.data(), count, of), end);
    EXPECT_EQ(HEARTH_ISA_CALL(widen, from.data(), count, into), end);
    EXPECT_EQ(of[0], static_cast<P>(end - 3 * fours)) << count;
    for (int k = 1; k < 4; ++k) EXPECT_EQ(of[k], static_cast<P>(fours)) << count;
    for (std::int64_t i = 0; i < 200; ++i) EXPECT_EQ(into[i], P(i < end ? 1 : 0)) << i << " of " << count;
  }
}

TEST(Lanes, TakeEveryElementOnce) {
  expect_every_element_once<float>();
  expect_every_element_once<double>();
}

}  // namespace
}  // namespace hearth::kernels
#endif
