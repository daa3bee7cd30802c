// SPDX-License-Identifier: Apache-2.0
// Fills, conversions and strided copies on the device. Each thread moves four neighbouring elements where the addresses
// allow it, one otherwise; every element is read once and written once.
#include <cuda_runtime_api.h>

#include <bit>

#include "core/convert.h"
#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/kernel.h"
#include "core/cuda/runtime.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int block = 256;
constexpr std::int64_t max_blocks = 1 << 16;

template <class Word>
__global__ void fill_words(Word* y, std::int64_t n, Word value) {
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) y[i] = value;
}

template <class From, class To>
__global__ void convert_elements(const From* source, To* destination, std::int64_t n) {
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) destination[i] = convert_element<To>(source[i]);
}

template <class From, class To>
__global__ void convert_packs(const From* source, To* destination, std::int64_t packs) {
  for (std::int64_t i = global_thread(); i < packs; i += global_threads()) {
    const Pack<From, 4> from = load_pack<4>(source + 4 * i);
    Pack<To, 4> to;
    HEARTH_UNROLL
    for (int k = 0; k < 4; ++k) to.at[k] = convert_element<To>(from.at[k]);
    store_pack(destination + 4 * i, to);
  }
}

struct Nest {
  int rank;
  std::int64_t extent[Shape::max_rank], from[Shape::max_rank], to[Shape::max_rank];
};

template <class Word>
__global__ void copy_elements(const Word* source, Word* destination, std::int64_t n, HEARTH_GRID_CONSTANT(Nest) nest) {
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) {
    std::int64_t rest = i, from = 0, to = 0;
    for (int axis = nest.rank - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % nest.extent[axis];
      rest /= nest.extent[axis];
      from += index * nest.from[axis];
      to += index * nest.to[axis];
    }
    destination[to] = source[from];
  }
}

std::int64_t bytes_per(std::size_t element, std::int64_t n) { return static_cast<std::int64_t>(element) * n; }

template <class Word>
void fill_with(cuda::Stream& stream, std::byte* y, std::int64_t n, Word value) {
  launch(stream, "fill", {blocks_for(n, block, max_blocks), block, 0, bytes_per(sizeof(Word), n)}, fill_words<Word>,
         reinterpret_cast<Word*>(y), n, value);
}

template <class Word>
void copy_words(cuda::Stream& stream, const std::byte* source, std::byte* destination, std::int64_t n,
                const Nest& nest) {
  launch(stream, "copy_strided", {blocks_for(n, block, max_blocks), block, 0, bytes_per(2 * sizeof(Word), n)},
         copy_elements<Word>, reinterpret_cast<const Word*>(source), reinterpret_cast<Word*>(destination), n, nest);
}

template <class From, class To>
void convert_types(cuda::Stream& stream, const std::byte* source, std::byte* destination, std::int64_t n) {
  const auto* from = reinterpret_cast<const From*>(source);
  auto* to = reinterpret_cast<To*>(destination);
  constexpr std::size_t both = sizeof(From) + sizeof(To);
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % (4 * sizeof(From)) == 0 &&
                       reinterpret_cast<std::uintptr_t>(to) % (4 * sizeof(To)) == 0;
  const std::int64_t packs = aligned ? n / 4 : 0;
  launch(stream, "convert", {blocks_for(packs, block, max_blocks), block, 0, bytes_per(4 * both, packs)},
         convert_packs<From, To>, from, to, packs);
  const std::int64_t rest = n - 4 * packs;
  launch(stream, "convert", {blocks_for(rest, block, max_blocks), block, 0, bytes_per(both, rest)},
         convert_elements<From, To>, from + 4 * packs, to + 4 * packs, rest);
}

}  // namespace

void fill(cuda::Stream& stream, DType dtype, std::byte* y, std::int64_t n, double value) {
  visit_dtype("fill", dtype, AllTypes{}, [&]<class T>() {
    const T element = convert_element<T>(value);
    if constexpr (sizeof(T) == 1)
      fill_with(stream, y, n, std::bit_cast<std::uint8_t>(element));
    else if constexpr (sizeof(T) == 2)
      fill_with(stream, y, n, std::bit_cast<std::uint16_t>(element));
    else if constexpr (sizeof(T) == 4)
      fill_with(stream, y, n, std::bit_cast<std::uint32_t>(element));
    else
      fill_with(stream, y, n, std::bit_cast<std::uint64_t>(element));
  });
}

void convert(cuda::Stream& stream, DType from, const std::byte* source, DType to, std::byte* destination,
             std::int64_t n) {
  ++live_counters().conversions;
  visit_dtype("convert", from, AllTypes{}, [&]<class From>() {
    visit_dtype("convert", to, AllTypes{},
                [&]<class To>() { convert_types<From, To>(stream, source, destination, n); });
  });
}

void copy_strided(cuda::Stream& stream, const StridedBytes& source, const StridedBytes& destination,
                  const Shape& shape) {
  HEARTH_CHECK(InternalError, source.dtype == destination.dtype, "copy_strided on the device from ", source.dtype,
               " to ", destination.dtype, "; convert first");
  Nest nest{};
  nest.rank = shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    nest.extent[axis] = shape[axis];
    nest.from[axis] = source.strides[static_cast<std::size_t>(axis)];
    nest.to[axis] = destination.strides[static_cast<std::size_t>(axis)];
  }
  ++live_counters().layout_changes;
  const std::int64_t n = shape.size();
  switch (size_of(source.dtype)) {
    case 1:
      return copy_words<std::uint8_t>(stream, source.bytes, destination.bytes, n, nest);
    case 2:
      return copy_words<std::uint16_t>(stream, source.bytes, destination.bytes, n, nest);
    case 4:
      return copy_words<std::uint32_t>(stream, source.bytes, destination.bytes, n, nest);
    default:
      return copy_words<std::uint64_t>(stream, source.bytes, destination.bytes, n, nest);
  }
}

}  // namespace hearth::kernels

const void* hearth::cuda::any_kernel() {
  void (*const any)(std::uint32_t*, std::int64_t, std::uint32_t) = kernels::fill_words;
  return reinterpret_cast<const void*>(any);
}
