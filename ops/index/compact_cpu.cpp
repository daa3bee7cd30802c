// SPDX-License-Identifier: Apache-2.0
// Chunks of the mask are counted and then moved, each by one task.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "core/error.h"
#include "ops/index/compact.h"
#include "ops/index/index.h"

namespace hearth::kernels {
namespace {

constexpr std::int64_t chunks_a_task = 4;

/// f(chunk, its first element, how many it has).
template <class F>
void each_chunk(const Tensor& mask, const F& f) {
  const std::int64_t n = mask.size(), chunks = (n + mask_chunk - 1) / mask_chunk;
  cpu::parallel_for(chunks, chunks_a_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i, i * mask_chunk, std::min(mask_chunk, n - i * mask_chunk));
  });
}

/// f(rows of the chunk from its first element on, how many, number of the first among all): those within the capacity.
template <class F>
void each_list(const MaskedRows& rows, const F& f) {
  const bool* const mask = rows.mask.data<bool>();
  const std::int64_t* const starts = rows.starts.data<std::int64_t>();
  each_chunk(rows.mask, [&](std::int64_t chunk, std::int64_t first, std::int64_t length) {
    std::int32_t list[mask_chunk];
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      list[count] = static_cast<std::int32_t>(i);
      count += mask[first + i] ? 1 : 0;
    }
    f(list, std::min(count, rows.capacity - starts[chunk]), first, starts[chunk]);
  });
}

/// Positions in a tensor of this shape, which ascend.
class Position {
 public:
  explicit Position(const Shape& shape) : shape_(shape) {}

  void move_to(std::int64_t element) {
    const int last = shape_.rank() - 1;
    at_[last] += element - element_;
    element_ = element;
    for (int axis = last; axis > 0 && at_[axis] >= shape_[axis]; --axis) {
      at_[axis - 1] += at_[axis] / shape_[axis];
      at_[axis] %= shape_[axis];
    }
  }
  void write(std::int64_t* to) const { std::copy_n(at_, shape_.rank(), to); }

 private:
  const Shape& shape_;
  std::int64_t at_[Shape::max_rank] = {};
  std::int64_t element_ = 0;
};

/// Copies rows of so many bytes: row slot + i of the packed rows, and row first + list[i] of all.
template <bool spread>
void move_rows(const std::int32_t* list, std::int64_t count, std::int64_t first, std::int64_t slot, std::int64_t bytes,
               const std::byte* from, std::byte* to) {
  const auto move_by = [&](auto width) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t packed = (slot + i) * bytes, row = (first + list[i]) * bytes;
      std::memcpy(to + (spread ? row : packed), from + (spread ? packed : row), static_cast<std::size_t>(width()));
    }
  };
  switch (bytes) {
    case 4:
      return move_by([] { return 4; });
    case 8:
      return move_by([] { return 8; });
    case 16:
      return move_by([] { return 16; });
    default:
      return move_by([bytes] { return bytes; });
  }
}

/// Of a row of packed ones.
std::int64_t row_bytes(const Tensor& x) {
  return x.size() / std::max<std::int64_t>(x.dim(0), 1) * static_cast<std::int64_t>(size_of(x.dtype()));
}

}  // namespace

void find_rows(cpu::Stream&, const char* op, const MaskedRows& rows, const Tensor& count) {
  std::int64_t* const starts = rows.starts.data<std::int64_t>();
  const auto* const mask = reinterpret_cast<const std::uint8_t*>(rows.mask.bytes());
  each_chunk(rows.mask, [&](std::int64_t chunk, std::int64_t first, std::int64_t length) {
    std::int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < length; ++i) sum += mask[first + i];
    starts[chunk] = sum;
  });
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < rows.starts.size() - 1; ++i) total += std::exchange(starts[i], total);
  starts[rows.starts.size() - 1] = total;
  *count.data<std::int64_t>() = total;
  HEARTH_CHECK(IndexError, total <= rows.capacity, op, ": ", total, " elements of ", rows.mask.size(),
               " in a list for ", rows.capacity, "; ask for a larger capacity");
}

void pack_rows(cpu::Stream&, const MaskedRows& rows, const Tensor& x, const Tensor& y, const Shape& shape,
               const Tensor& indices) {
  const std::int64_t total = rows.starts.data<std::int64_t>()[rows.starts.size() - 1], rank = shape.rank();
  const auto* const from = x.defined() ? reinterpret_cast<const std::byte*>(x.bytes()) : nullptr;
  auto* const to = y.defined() ? reinterpret_cast<std::byte*>(y.bytes()) : nullptr;
  std::int64_t* const places = indices.data<std::int64_t>();
  each_list(rows, [&](const std::int32_t* list, std::int64_t count, std::int64_t first, std::int64_t slot) {
    Position position(shape);
    for (std::int64_t i = 0; i < count; ++i) {
      position.move_to(first + list[i]);
      position.write(places + (slot + i) * rank);
    }
    if (to != nullptr) move_rows<false>(list, count, first, slot, row_bytes(y), from, to);
  });
  std::fill(places + total * rank, places + rows.capacity * rank, std::int64_t{0});
  if (to != nullptr)
    std::memset(to + total * row_bytes(y), 0, static_cast<std::size_t>((rows.capacity - total) * row_bytes(y)));
}

void spread_rows(cpu::Stream&, const MaskedRows& rows, const Tensor& dy, const Tensor& dx) {
  dx.fill_(0);
  if (dx.size() == 0) return;
  each_list(rows, [&](const std::int32_t* list, std::int64_t count, std::int64_t first, std::int64_t slot) {
    move_rows<true>(list, count, first, slot, row_bytes(dy), reinterpret_cast<const std::byte*>(dy.bytes()),
                    reinterpret_cast<std::byte*>(dx.bytes()));
  });
}

}  // namespace hearth::kernels
