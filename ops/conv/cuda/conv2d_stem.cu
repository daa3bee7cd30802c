// SPDX-License-Identifier: Apache-2.0
// First convolutions of 16-bit images on tensor cores: pixels of 4 elements, even strides, at most 8 taps a row.
//
// A patch of an image's row is contiguous, four taps of four channels being the 16 terms of a step, so that a row of
// the matrix of patches is an address in the image as it lies in shared memory: ldmatrix unfolds it on the way. Strips
// of results pass through persistent blocks, which keep their filters (forward) or sums (filter gradient). Images are
// read 1.3 to 2.3 times (7x7 taps), where strips overlap, results and their gradients once; sums are f32.
//
// Reference: conv2d_cpu.cpp.
#include <algorithm>

#include "core/cuda/kernel.h"
#include "ops/conv/cuda/moments.cuh"
#include "ops/conv/cuda/stem.h"
#include "ops/conv/kernels.h"
#include "ops/device/mma.h"
#include "ops/device/multiprocessors.h"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/cuda/tile.cuh"

namespace hearth::kernels {
namespace {

constexpr int channels = static_cast<int>(stem_channels), step_terms = 16, step_taps = step_terms / channels, chunk = 8;
constexpr int forward_warps = 8;
/// Two blocks a multiprocessor.
constexpr std::size_t shared_of_block = std::size_t{113} << 10;
constexpr int blocks_at_once = 2 * multiprocessors;

/// A convolution and its strips: `rows` rows of results of an image.
struct Stem {
  int h, w, c, k, r, s, p, q, stride_h, stride_w, pad_h;
  int left;   ///< pixels before an image that the first patch begins with, an even number
  int lead;   ///< taps of zeros before a filter's own
  int pitch;  ///< pixels of a row in shared memory
  int rows, strips;
  std::int64_t count;  ///< strips of all images

  /// Rows of the image that a strip reads.
  __host__ __device__ int rows_read() const { return (rows - 1) * stride_h + r; }
  /// Of a strip in shared memory.
  __host__ __device__ int image_elements() const { return rows_read() * pitch * channels; }
  __host__ __device__ int filter_size() const { return r * s * c; }
  /// Rows of results of a strip.
  __device__ int rows_of(int strip) const { return min(rows, p - strip * rows); }
};

/// Strips that cost least: rounds of `unit` results, and one for each strip's begin and end. `bytes` is the shared
/// memory of a strip.
template <class Bytes>
Stem in_strips(Stem stem, std::int64_t images, int unit, const Bytes& bytes) {
  std::int64_t least = 0;
  for (int rows = 1; rows <= stem.p; ++rows) {
    Stem tried = stem;
    tried.rows = rows;
    tried.strips = (stem.p + rows - 1) / rows;
    if (rows > 1 && bytes(tried) > shared_of_block) break;
    const std::int64_t cost = tried.strips * ((rows * stem.q + unit - 1) / unit + 1);
    if (rows > 1 && cost >= least) continue;
    least = cost;
    stem.rows = rows, stem.strips = tried.strips;
  }
  stem.count = images * stem.strips;
  return stem;
}

/// Sizes, with strips of one row.
Stem stem_of(const ConvShape& shape, int steps) {
  const auto size = [](std::int64_t value) { return static_cast<int>(value); };
  Stem stem{};
  stem.h = size(shape.h), stem.w = size(shape.w), stem.c = size(shape.c), stem.k = size(shape.k);
  stem.r = size(shape.r), stem.s = size(shape.s), stem.p = size(shape.p), stem.q = size(shape.q);
  stem.stride_h = size(shape.stride_h), stem.stride_w = size(shape.stride_w), stem.pad_h = size(shape.pad_h);
  stem.lead = size(shape.pad_w % 2), stem.left = size(shape.pad_w) + stem.lead;
  stem.pitch = ((stem.q - 1) * stem.stride_w + steps * step_taps + 1) / 2 * 2;
  stem.rows = 1;
  return stem;
}

/// Elements from a filter to the next in shared memory: an odd number of 16 bytes, so that ldmatrix meets no bank
/// twice.
__host__ __device__ int filter_pitch(const Stem& stem, int steps) { return stem.r * steps * step_terms + chunk; }
__host__ __device__ constexpr int padded(int filters) { return filters + chunk; }

/// Up to whole steps.
__host__ __device__ constexpr int in_steps(int results) { return (results + step_terms - 1) / step_terms * step_terms; }
/// Elements of the gradients of a strip's results in shared memory.
__host__ __device__ int gradient_elements(const Stem& stem, int filters) {
  return in_steps(stem.rows * stem.q) * padded(filters);
}

// Two strips: one is on its way while the other is multiplied.
std::size_t forward_bytes(const Stem& stem, int filters, int steps) {
  return sizeof(f16) * static_cast<std::size_t>(filters * filter_pitch(stem, steps) + 2 * stem.image_elements());
}
std::size_t gradient_bytes(const Stem& stem, int filters) {
  return sizeof(f16) * static_cast<std::size_t>(2 * (stem.image_elements() + gradient_elements(stem, filters)));
}

/// A strip, and where its results begin.
struct Strip {
  int index, results;
  std::int64_t image, first;
  __device__ Strip(const Stem& stem, std::int64_t at)
      : index(static_cast<int>(at % stem.strips)),
        results(stem.rows_of(index) * stem.q),
        image(at / stem.strips),
        first((image * stem.p + index * stem.rows) * stem.q) {}
};

/// Calls bring(strip, which), which starts copies, and use(strip, which) once they are there, for each of the block's
/// strips; `which` of two places alternates. All threads of the block call.
template <class Bring, class Use>
__device__ __forceinline__ void for_strips(const Stem& stem, const Bring& bring, const Use& use) {
  std::int64_t at = blockIdx.x;
  if (at < stem.count) bring(Strip(stem, at), 0);
  cuda::cp_async_commit();
  for (int which = 0; at < stem.count; at += gridDim.x, which ^= 1) {
    if (at + gridDim.x < stem.count) bring(Strip(stem, at + gridDim.x), which ^ 1);
    cuda::cp_async_commit();
    cuda::cp_async_wait<1>();
    __syncthreads();
    use(Strip(stem, at), which);
    __syncthreads();
  }
}

/// Brings the rows that a strip reads, two pixels at a time; zeros where there is no image.
template <class T>
__device__ void bring_image(const Stem& stem, const T* x, const Strip& strip, T* to) {
  const int warps = static_cast<int>(blockDim.x) / cuda::warp_size, pairs = stem.pitch / 2;
  const int first = strip.index * stem.rows * stem.stride_h - stem.pad_h;
  for (int i = static_cast<int>(threadIdx.x) / cuda::warp_size; i < stem.rows_read(); i += warps) {
    const int row = first + i;
    const bool is_row = row >= 0 && row < stem.h;
    const T* const from = x + (strip.image * stem.h + (is_row ? row : 0)) * stem.w * channels;
    for (int j = cuda::lane_id(); j < pairs; j += cuda::warp_size) {
      const int column = 2 * j - stem.left;
      const bool valid = is_row && column >= 0 && column < stem.w;
      cuda::cp_async(to + (i * stem.pitch + 2 * j) * channels, valid ? from + column * channels : x, valid);
    }
  }
}

/// Where the patch of a result begins in shared memory.
__device__ __forceinline__ int patch_at(const Stem& stem, int row, int column) {
  return (row * stem.stride_h * stem.pitch + column * stem.stride_w) * channels;
}

/// Where a term of a filter's row lies in the filter; -1 where there is no tap or channel.
__device__ __forceinline__ int element_of(const Stem& stem, int row, int term) {
  const int tap = term / channels - stem.lead, channel = term % channels;
  return tap < 0 || tap >= stem.s || channel >= stem.c ? -1 : (row * stem.s + tap) * stem.c + channel;
}

/// Copies filters from w to shared memory, [filters][r][steps][16]: a thread a term of all.
template <int filters, int steps, class T>
__device__ void hold_filters(const Stem& stem, const T* w, T* to) {
  constexpr int row_terms = steps * step_terms;
  const int pitch = filter_pitch(stem, steps);
  for (int at = static_cast<int>(threadIdx.x); at < stem.r * row_terms; at += static_cast<int>(blockDim.x)) {
    const int element = element_of(stem, at / row_terms, at % row_terms);
    HEARTH_UNROLL
    for (int filter = 0; filter < filters; ++filter)
      to[filter * pitch + at] = element < 0 ? T() : w[filter * stem.filter_size() + element];
  }
}

/// Two words of this lane and its neighbour (lane ^ 1), exchanged: an even lane gets both first ones, an odd lane the
/// second, in the order of the lanes.
__device__ __forceinline__ void exchange(unsigned& first, unsigned& second) {
  const bool odd = cuda::lane_id() % 2 != 0;
  const unsigned got = __shfl_xor_sync(cuda::all_lanes, odd ? first : second, 1);
  first = odd ? got : first;
  second = odd ? second : got;
}

/// Forward, `of_block` filters and so many steps a row of theirs.
template <class Type, int of_block, int of_row, bool has_more>
struct Forward {
  using T = Type;
  static constexpr int filters = of_block, steps = of_row;
  static constexpr bool finishes = has_more;           ///< with a bias or a ReLU
  static constexpr int rows = filters > 64 ? 16 : 32;  ///< results of a warp at a time: 64 or 48 sums a thread
  Stem stem;
  const T* x;  ///< [n, h, w, 4]
  const T* w;  ///< [k, r, s, c]
  tile::Store<T> store;
};

/// Stores what a warp made from result `unit` of a strip on: four lanes write 32 bytes at once, a sector of the caches.
template <class Of, int row_fragments, int column_fragments>
__device__ __forceinline__ void store_unit_of(const Of& of, const Strip& strip, int unit, int first_filter,
                                              const float (&sum)[row_fragments][column_fragments][4]) {
  const int lane = cuda::lane_id();
  const auto finished = [&](int column, float first, float second) {
    if constexpr (Of::finishes) {
      first = of.store.total(0, column, first);
      second = of.store.total(0, column + 1, second);
    }
    return cuda::cast_down_two<typename Of::T>(first, second);
  };
  HEARTH_UNROLL
  for (int i = 0; i < row_fragments; ++i) {
    HEARTH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int result = unit + i * 16 + half * 8 + lane / 4;
      auto* const to = of.store.c + (strip.first + result) * of.stem.k + first_filter + lane % 2 * 8 + lane % 4 / 2 * 4;
      HEARTH_UNROLL
      for (int j = 0; j < column_fragments; j += 2) {
        const int column = first_filter + j * 8 + lane % 4 * 2;
        unsigned first = finished(column, sum[i][j][2 * half], sum[i][j][2 * half + 1]);
        unsigned second = finished(column + 8, sum[i][j + 1][2 * half], sum[i][j + 1][2 * half + 1]);
        exchange(first, second);
        if (result < strip.results)
          cuda::store_pack(reinterpret_cast<unsigned*>(to + j * 8), cuda::Pack<unsigned, 2>{first, second});
      }
    }
  }
}

/// y of strips, some filters a block of 8 warps.
template <class Of>
__global__ void __launch_bounds__(forward_warps* cuda::warp_size, 2) stem_forward(HEARTH_GRID_CONSTANT(Of) of) {
  using T = typename Of::T;
  constexpr int filters = Of::filters, steps = Of::steps, row_fragments = Of::rows / 16, column_fragments = filters / 8;
  const Stem& stem = of.stem;
  T* const held = cuda::dynamic_shared<T>();
  const int pitch = filter_pitch(stem, steps), lane = cuda::lane_id();
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size,
            first_filter = static_cast<int>(blockIdx.y) * filters;
  T* const images = held + filters * pitch;
  hold_filters<filters, steps>(stem, of.w + first_filter * stem.filter_size(), held);
  const int eighth = lane / 8, line = lane % 8;
  const T* const filter_row = held + (eighth / 2 * 8 + line) * pitch + eighth % 2 * 8;
  const auto image_of = [&](int which) { return images + which * stem.image_elements(); };
  const auto bring = [&](const Strip& strip, int which) { bring_image(stem, of.x, strip, image_of(which)); };
  for_strips(stem, bring, [&](const Strip& strip, int which) {
    const T* const image = image_of(which);
    for (int unit = warp * Of::rows; unit < strip.results; unit += forward_warps * Of::rows) {
      const T* patch[row_fragments];
      HEARTH_UNROLL
      for (int i = 0; i < row_fragments; ++i) {
        const int wanted = unit + i * 16 + eighth % 2 * 8 + line, result = wanted < strip.results ? wanted : 0;
        patch[i] = image + patch_at(stem, result / stem.q, result % stem.q) + eighth / 2 * 8;
      }
      float sum[row_fragments][column_fragments][4] = {};
      for (int row = 0; row < stem.r; ++row) {
        HEARTH_UNROLL
        for (int step = 0; step < steps; ++step) {
          unsigned a[row_fragments][4];
          HEARTH_UNROLL
          for (int i = 0; i < row_fragments; ++i)
            cuda::ldmatrix(a[i], patch[i] + row * stem.pitch * channels + step * step_terms);
          HEARTH_UNROLL
          for (int j = 0; j < column_fragments; j += 2) {
            unsigned b[4];
            cuda::ldmatrix(b, filter_row + j * 8 * pitch + (row * steps + step) * step_terms);
            HEARTH_UNROLL
            for (int i = 0; i < row_fragments; ++i) {
              cuda::mma_m16n8k16<T>(sum[i][j], a[i], {b[0], b[1]});
              cuda::mma_m16n8k16<T>(sum[i][j + 1], a[i], {b[2], b[3]});
            }
          }
        }
      }
      store_unit_of(of, strip, unit, first_filter, sum);
    }
  });
}

/// The gradient of filters, likewise.
template <class Type, int of_block, int of_row>
struct Gradient {
  using T = Type;
  static constexpr int filters = of_block, steps = of_row;
  Stem stem;
  const T* x;    ///< [n, h, w, 4]
  const T* dy;   ///< [n, p, q, k]
  float* parts;  ///< [blocks, k, r, s, c]
};

/// The sums of a block's strips: a warp a row of taps.
template <class Of>
__global__ void __launch_bounds__(8 * cuda::warp_size, 1) stem_gradient(HEARTH_GRID_CONSTANT(Of) of) {
  using T = typename Of::T;
  constexpr int filters = Of::filters, steps = Of::steps;
  constexpr int row_fragments = filters / 16, column_fragments = 2 * steps, pitch = padded(filters);
  const Stem& stem = of.stem;
  T* const memory = cuda::dynamic_shared<T>();
  const int lane = cuda::lane_id(), eighth = lane / 8, line = lane % 8;
  const int row = static_cast<int>(threadIdx.x) / cuda::warp_size,
            first_filter = static_cast<int>(blockIdx.y) * filters;
  const auto image_of = [&](int which) {
    return memory + which * (stem.image_elements() + gradient_elements(stem, filters));
  };
  const auto bring = [&](const Strip& strip, int which) {
    bring_image(stem, of.x, strip, image_of(which));
    T* const slopes = image_of(which) + stem.image_elements();
    constexpr int chunks = filters / chunk;
    for (int i = static_cast<int>(threadIdx.x); i < in_steps(strip.results) * chunks;
         i += static_cast<int>(blockDim.x)) {
      const int result = i / chunks, column = i % chunks * chunk;
      const bool valid = result < strip.results;
      const T* const from = valid ? of.dy + (strip.first + result) * stem.k + first_filter + column : of.dy;
      cuda::cp_async(slopes + result * pitch + column, from, valid);
    }
  };
  float sum[row_fragments][column_fragments][4] = {};
  for_strips(stem, bring, [&](const Strip& strip, int which) {
    const T* const image = image_of(which) + row * stem.pitch * channels + eighth / 2 * 8;
    const T* const slope_row =
        image_of(which) + stem.image_elements() + (eighth / 2 * 8 + line) * pitch + eighth % 2 * 8;
    // Of the pixel that this lane addresses: its result and patch.
    int result = eighth % 2 * 8 + line, down = result / stem.q, across = result % stem.q;
    for (int begin = 0; begin < strip.results; begin += step_terms) {
      const T* const patch = image + (result < strip.results ? patch_at(stem, down, across) : 0);
      unsigned a[row_fragments][4], b[steps][4];
      HEARTH_UNROLL
      for (int i = 0; i < row_fragments; ++i) cuda::ldmatrix_transposed(a[i], slope_row + begin * pitch + i * 16);
      HEARTH_UNROLL
      for (int step = 0; step < steps; ++step) cuda::ldmatrix_transposed(b[step], patch + step * step_terms);
      HEARTH_UNROLL
      for (int i = 0; i < row_fragments; ++i) {
        HEARTH_UNROLL
        for (int step = 0; step < steps; ++step) {
          cuda::mma_m16n8k16<T>(sum[i][2 * step], a[i], {b[step][0], b[step][1]});
          cuda::mma_m16n8k16<T>(sum[i][2 * step + 1], a[i], {b[step][2], b[step][3]});
        }
      }
      result += step_terms;
      for (across += step_terms; across >= stem.q; across -= stem.q) ++down;
    }
  });
  float* const to = of.parts + static_cast<std::int64_t>(blockIdx.x) * stem.k * stem.filter_size();
  HEARTH_UNROLL
  for (int i = 0; i < row_fragments; ++i) {
    HEARTH_UNROLL
    for (int j = 0; j < column_fragments; ++j) {
      HEARTH_UNROLL
      for (int own = 0; own < 4; ++own) {
        const int filter = first_filter + i * 16 + own / 2 * 8 + lane / 4;
        const int element = element_of(stem, row, j * 8 + lane % 4 * 2 + own % 2);
        if (element >= 0) to[filter * stem.filter_size() + element] = sum[i][j][own];
      }
    }
  }
}

constexpr int sum_columns = 32, sum_groups_of_block = 8;

/// w [elements] = the parts [count, elements], each eighth of them added in order and then those: parts + 1 accesses.
template <class W>
__global__ void stem_sum(const float* parts, std::int64_t count, std::int64_t elements, W* w) {
  HEARTH_SHARED(float, sums, [sum_groups_of_block][sum_columns]);
  const int column = static_cast<int>(threadIdx.x) % sum_columns, group = static_cast<int>(threadIdx.x) / sum_columns;
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * sum_columns + column;
  float sum = 0;
  if (element < elements)
    for (std::int64_t part = group; part < count; part += sum_groups_of_block) sum += parts[part * elements + element];
  sums[group][column] = sum;
  __syncthreads();
  if (group != 0 || element >= elements) return;
  sum = 0;
  HEARTH_UNROLL
  for (int i = 0; i < sum_groups_of_block; ++i) sum += sums[i][column];
  w[element] = cuda::cast_down<W>(sum);
}

int filters_of_block(const ConvShape& shape) { return shape.k % 96 == 0 ? 96 : shape.k % 64 == 0 ? 64 : 32; }

/// f.operator()<filters, steps>(): filters of a block, and steps of a filter's row.
template <class F>
void with_sizes(const ConvShape& shape, const F& f) {
  const auto with_filters = [&]<int steps>() {
    switch (filters_of_block(shape)) {
      case 96:
        return f.template operator()<96, steps>();
      case 64:
        return f.template operator()<64, steps>();
      default:
        return f.template operator()<32, steps>();
    }
  };
  if (stem_steps(shape) == 1) return with_filters.template operator()<1>();
  with_filters.template operator()<2>();
}

template <class T>
void run_forward(cuda::Stream& stream, const ConvShape& shape, const Conv2dOperands& o) {
  with_sizes(shape, [&]<int filters, int steps>() {
    const Tensor row = tile::bias_row(o.b, o.y);
    const auto store = tile::store_of<T>(o.y, row, false, conv_operands::takes_relu(o.epilogue));
    const auto run_with = [&]<bool finishes>() {
      using Of = Forward<T, filters, steps, finishes>;
      const Stem stem = in_strips(stem_of(shape, steps), shape.n, forward_warps * Of::rows,
                                  [&](const Stem& tried) { return forward_bytes(tried, filters, steps); });
      const dim3 grid(cuda::blocks_for(stem.count, 1, blocks_at_once), cuda::blocks_for(shape.k, filters));
      cuda::launch(stream, "conv2d stem",
                   {grid, forward_warps * cuda::warp_size, forward_bytes(stem, filters, steps),
                    cuda::bytes_of(o.x, o.w, o.b, o.y)},
                   stem_forward<Of>, Of{stem, o.x.data<T>(), o.w.data<T>(), store});
    };
    if (store.bias != nullptr || store.relu) return run_with.template operator()<true>();
    run_with.template operator()<false>();
  });
}

template <class T>
void run_gradient(cuda::Stream& stream, const ConvShape& shape, const Conv2dOperands& o) {
  with_sizes(shape, [&]<int filters, int steps>() {
    const Stem stem = in_strips(stem_of(shape, steps), shape.n, step_terms,
                                [&](const Stem& tried) { return gradient_bytes(tried, filters); });
    const unsigned blocks = cuda::blocks_for(stem.count, 1, blocks_at_once);
    const Tensor parts = Tensor::empty({blocks, o.w.size()}, DType::f32, o.w.device());
    const cuda::LaunchShape launch{dim3(blocks, cuda::blocks_for(shape.k, filters)),
                                   static_cast<unsigned>(stem.r * cuda::warp_size), gradient_bytes(stem, filters),
                                   cuda::bytes_of(o.x, o.y, parts)};
    using Of = Gradient<T, filters, steps>;
    cuda::launch(stream, "conv2d stem gradient", launch, stem_gradient<Of>,
                 Of{stem, o.x.data<T>(), o.y.data<T>(), parts.data<float>()});
    const cuda::LaunchShape sums{cuda::blocks_for(o.w.size(), sum_columns), sum_columns * sum_groups_of_block, 0,
                                 cuda::bytes_of(parts, o.w)};
    const auto add = [&]<class W>() {
      cuda::launch(stream, "conv2d sum", sums, stem_sum<W>, parts.data<float>(), static_cast<std::int64_t>(blocks),
                   o.w.size(), o.w.data<W>());
    };
    o.w.dtype() == DType::f32 ? add.template operator()<float>() : add.template operator()<T>();
  });
  if (o.b.defined()) sum_rows(stream, o.y, o.b);
}

template <class T>
void run_pass(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.pass == Pass::forward) return run_forward<T>(stream, problem.shape, o);
  run_gradient<T>(stream, problem.shape, o);
}

}  // namespace

std::string stem_unsupported(const ConvProblem& problem, std::size_t shared_memory) {
  const ConvShape& s = problem.shape;
  if (size_of(problem.activations) != 2) return join_text("images are ", problem.activations, ", not f16 or bf16");
  if (problem.pass == Pass::backward_data) return "it is for first convolutions";
  if (s.c > stem_channels || s.groups != 1)
    return join_text(s.c, " channels in ", s.groups, " groups; it is for at most ", stem_channels, " in one");
  if (s.k % 32 != 0) return join_text(s.k, " filters, not a multiple of 32");
  if (s.stride_w % 2 != 0 || s.w % 2 != 0) return "its strides and rows are even";
  if (s.dilation_h != 1 || s.dilation_w != 1) return "its taps are neighbours";
  if (s.r > 8 || stem_steps(s) > 2) return join_text("filters of ", s.r, "x", s.s, ", larger than 8x8");
  // What strips take, or rows that are larger than a strip should be; the same on every device.
  const int steps = stem_steps(s), filters = filters_of_block(s);
  const Stem one = stem_of(s, steps);
  const std::size_t bytes =
      problem.pass == Pass::forward ? forward_bytes(one, filters, steps) : gradient_bytes(one, filters);
  if (std::max(bytes, shared_of_block) > shared_memory)
    return join_text("strips of its images take ", std::max(bytes, shared_of_block),
                     " bytes of shared memory, and a block has ", shared_memory);
  return "";
}

void conv2d_stem(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  if (o.x.dtype() == DType::bf16) return run_pass<bf16>(stream, problem, o);
  run_pass<f16>(stream, problem, o);
}

}  // namespace hearth::kernels
