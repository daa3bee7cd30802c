// SPDX-License-Identifier: Apache-2.0
// Copies of runs in the widest words that addresses, pitches and length allow: threads run along a run in x and over
// the runs in y. Traffic: every byte is read once and written once.
#include "core/cuda/elementwise.h"
#include "ops/shape/concat.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

struct alignas(16) Sixteen {
  std::uint64_t low, high;
};

/// Pitches and length in words.
template <class Word>
__global__ void copy_words(const Word* from, std::int64_t from_pitch, Word* to, std::int64_t to_pitch,
                           std::int64_t rows, std::int64_t length) {
  walk_rows(rows, length,
            [&](std::int64_t row, std::int64_t i) { to[row * to_pitch + i] = from[row * from_pitch + i]; });
}

template <class Word>
void copy_as(cuda::Stream& stream, const std::byte* from, std::int64_t from_pitch, std::byte* to, std::int64_t to_pitch,
             std::int64_t rows, std::int64_t bytes) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Word));
  launch(stream, "copy_runs", shape_over_rows(rows, bytes / size).moving(2 * rows * bytes), copy_words<Word>,
         reinterpret_cast<const Word*>(from), from_pitch / size, reinterpret_cast<Word*>(to), to_pitch / size, rows,
         bytes / size);
}

}  // namespace

void copy_runs(cuda::Stream& stream, const std::byte* from, std::int64_t from_pitch, std::byte* to,
               std::int64_t to_pitch, std::int64_t rows, std::int64_t bytes) {
  const auto every = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to) |
                     static_cast<std::uintptr_t>(from_pitch | to_pitch | bytes);
  if (every % 16 == 0) return copy_as<Sixteen>(stream, from, from_pitch, to, to_pitch, rows, bytes);
  if (every % 4 == 0) return copy_as<std::uint32_t>(stream, from, from_pitch, to, to_pitch, rows, bytes);
  if (every % 2 == 0) return copy_as<std::uint16_t>(stream, from, from_pitch, to, to_pitch, rows, bytes);
  return copy_as<std::uint8_t>(stream, from, from_pitch, to, to_pitch, rows, bytes);
}

}  // namespace hearth::kernels
