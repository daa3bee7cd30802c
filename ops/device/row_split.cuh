// SPDX-License-Identifier: Apache-2.0
// How kernels that treat each row on its own (softmax, layer_norm, cross_entropy) share a row among threads: a short
// row among neighbouring lanes of a warp, a long one among the threads of a block. Either way thread `index` of
// `threads` takes the units index, index + threads, ... of `width` neighbouring columns, so that neighbours read
// neighbouring memory, 16 bytes at a time where rows are aligned.
#pragma once

#include "core/cuda/kernel.h"
#include "core/tensor.h"

namespace hearth::cuda {

/// Units of a row that a lane holds in registers at most: 32 elements where they come in packs of 16 bytes, else 8.
template <class T, int width>
inline constexpr int lane_units = width == 1 || sizeof(T) == 8 ? 8 / width : 32 / width;

/// The longest row that one warp holds in registers.
template <class T, int width>
inline constexpr std::int64_t warp_cols = warp_size* lane_units<T, width>* width;

/// How many lanes of a warp share a row of `cols` <= 32 * max_units * width elements: a power of two. As few as divide
/// the row's units evenly, because idle lanes cost more than a few steps.
inline int lanes_for(std::int64_t cols, int width, int max_units) {
  const std::int64_t units = (cols + width - 1) / width;
  int lanes = 1;
  while (lanes < warp_size && (units % (2 * lanes) == 0 || static_cast<std::int64_t>(lanes) * max_units < units))
    lanes *= 2;
  // Units of single elements are dealt out as widely as possible: then neighbours read neighbours.
  while (width == 1 && lanes < warp_size && lanes < units) lanes *= 2;
  return lanes;
}

/// `lanes` neighbouring lanes share a row, so a warp works on 32 / lanes rows at once. All lanes of the warp must call
/// everything together.
struct LaneGroup {
  int lanes;

  __device__ int threads() const { return lanes; }
  __device__ int index() const { return lane_id() & (lanes - 1); }
  __device__ std::int64_t first_row() const { return global_thread() / warp_size * (warp_size / lanes); }
  __device__ std::int64_t row_step() const { return global_threads() / warp_size * (warp_size / lanes); }
  __device__ int row_in_step() const { return lane_id() / lanes; }

  template <class Join, class T>
  __device__ T reduce(T value, T) const {
    for (int step = lanes / 2; step > 0; step /= 2) value = Join::join(value, __shfl_xor_sync(all_lanes, value, step));
    return value;
  }
};

/// A block shares a row.
struct BlockGroup {
  int unused = 0;

  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ std::int64_t first_row() const { return blockIdx.x; }
  __device__ std::int64_t row_step() const { return gridDim.x; }
  __device__ int row_in_step() const { return 0; }

  template <class Join, class T>
  __device__ T reduce(T value, T neutral) const {
    return block_reduce<Join>(value, neutral);
  }
};

/// f(row, inside) for the rows of this thread's group. Where `inside` is false the row only repeats the last one: the
/// thread must go through the same reductions, but has no columns (each_unit with cols = 0).
template <class Group, class F>
__device__ __forceinline__ void each_row(const Group& group, std::int64_t rows, F&& f) {
  for (std::int64_t first = group.first_row(); first < rows; first += group.row_step()) {
    const std::int64_t row = first + group.row_in_step();
    f(row < rows ? row : rows - 1, row < rows);
  }
}

/// f(unit, column) for the units that thread `index` of `threads` holds of a row; the loop unrolls, so that arrays
/// indexed by `unit` stay in registers.
template <int max_units, int width, class F>
__device__ __forceinline__ void each_unit(int index, int threads, int cols, F&& f) {
  HEARTH_UNROLL
  for (int unit = 0; unit < max_units; ++unit) {
    const int column = (unit * threads + index) * width;
    if (column >= cols) break;
    f(unit, column);
  }
}

/// The same for a row of any length, which is not held; columns are numbered in the type of `cols`.
template <int width, class Index, class F>
__device__ __forceinline__ void each_column(int index, int threads, Index cols, F&& f) {
  for (Index column = static_cast<Index>(index) * width; column < cols; column += static_cast<Index>(threads) * width)
    f(column);
}

/// `width` neighbouring elements as they lie in memory, two of 16 bits to a word.
template <class T, int width>
using RawUnit = std::conditional_t<sizeof(T) == 2 && width % 2 == 0, Pack<unsigned, width / 2>, Pack<T, width>>;

/// One access of at most 16 bytes, to an address that is a multiple of them. What a thread loads before it uses any of
/// it is under way together.
template <int width, class T>
__device__ __forceinline__ RawUnit<T, width> load_raw(const T* p) {
  return *reinterpret_cast<const RawUnit<T, width>*>(p);
}

template <class T, int width>
__device__ __forceinline__ void unpack(const RawUnit<T, width>& raw, acc_t<T>* value) {
  if constexpr (std::is_same_v<RawUnit<T, width>, Pack<T, width>>) {
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) value[k] = upcast(raw.at[k]);
  } else {
    HEARTH_UNROLL
    for (int k = 0; k < width; k += 2) {
      const unsigned word = raw.at[k / 2];
      if constexpr (std::is_same_v<T, bf16>) {
        value[k] = std::bit_cast<float>(word << 16);
        value[k + 1] = std::bit_cast<float>(word & 0xffff0000u);
      } else {
        value[k] = upcast(T::from_bits(static_cast<std::uint16_t>(word)));
        value[k + 1] = upcast(T::from_bits(static_cast<std::uint16_t>(word >> 16)));
      }
    }
  }
}

/// `width` neighbouring elements, upcast; with width > 1 the address is a multiple of 16 bytes.
template <int width, class T>
__device__ __forceinline__ void load_unit(const T* p, acc_t<T> (&value)[width]) {
  constexpr int piece = width < pack_size<T> ? width : pack_size<T>;
  HEARTH_UNROLL
  for (int begin = 0; begin < width; begin += piece) unpack<T, piece>(load_raw<piece>(p + begin), value + begin);
}

template <int width, class T>
__device__ __forceinline__ void store_unit(T* p, const acc_t<T> (&value)[width]) {
  if constexpr (width == 1) {
    *p = cast_down<T>(value[0]);
  } else if constexpr (sizeof(T) == 2 && width % 8 == 0) {
    HEARTH_UNROLL
    for (int begin = 0; begin < width; begin += 8) {
      const acc_t<T>* const v = value + begin;
      store_words(p + begin, cast_down_two<T>(v[0], v[1]), cast_down_two<T>(v[2], v[3]), cast_down_two<T>(v[4], v[5]),
                  cast_down_two<T>(v[6], v[7]));
    }
  } else {
    constexpr int piece = width < pack_size<T> ? width : pack_size<T>;
    HEARTH_UNROLL
    for (int begin = 0; begin < width; begin += piece) {
      Pack<T, piece> pack;
      HEARTH_UNROLL
      for (int k = 0; k < piece; ++k) pack.at[k] = cast_down<T>(value[begin + k]);
      store_pack(p + begin, pack);
    }
  }
}

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

inline const void* address_of(const Tensor& tensor) { return tensor.defined() ? tensor.bytes() : nullptr; }

/// Whether every array may be read in 16-byte pieces, rows being `cols` elements of T long. Absent ones are null.
template <class T>
bool rows_fit(std::int64_t cols, std::initializer_list<const void*> arrays) {
  if (cols % pack_size<T> != 0) return false;
  for (const void* const array : arrays)
    if (reinterpret_cast<std::uintptr_t>(array) % 16 != 0) return false;
  return true;
}

/// f.operator()<width>(): 16 bytes of T where `packed`, else 1.
template <class T, class F>
void with_width(bool packed, F&& f) {
  if (packed)
    f.template operator()<pack_size<T>>();
  else
    f.template operator()<1>();
}

/// f.operator()<T, width>() for the floating type.
template <class F>
void visit_rows(const char* op, DType dtype, std::int64_t cols, std::initializer_list<const void*> arrays, F&& f) {
  visit_dtype(op, dtype, Floats{}, [&]<class T>() {
    with_width<T>(rows_fit<T>(cols, arrays), [&]<int width>() { f.template operator()<T, width>(); });
  });
}

inline constexpr int row_block = 128;      ///< threads of a block, unless a kernel says otherwise
inline constexpr int max_row_block = 512;  ///< of one that shares a very long row

/// The most threads of a block that works in such groups.
template <class Group>
inline constexpr int group_block = std::is_same_v<Group, LaneGroup> ? row_block : max_row_block;

/// Blocks for `rows` rows of `lanes` lanes each.
inline unsigned lane_group_blocks(std::int64_t rows, int lanes, int block = row_block) {
  return blocks_for(rows, block / lanes);
}

/// Threads of the block that shares a row too long for a warp.
inline unsigned long_row_block(std::int64_t cols) { return cols >= 8192 ? max_row_block : 256; }

/// f(group, launch shape) with the threads that share a row of `cols` elements in units of `width`: lanes of at most
/// `lane_most` units each up to `lane_cols` elements, else a block.
template <class F>
void with_row_group(std::int64_t rows, std::int64_t cols, std::int64_t lane_cols, int width, int lane_most, F&& f) {
  if (cols <= lane_cols) {
    const LaneGroup group{lanes_for(cols, width, lane_most)};
    f(group, LaunchShape{lane_group_blocks(rows, group.lanes), row_block});
  } else {
    f(BlockGroup{}, LaunchShape{blocks_for(rows, 1), long_row_block(cols)});
  }
}

}  // namespace hearth::cuda
