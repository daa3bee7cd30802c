// SPDX-License-Identifier: Apache-2.0
// Attention within windows on a CUDA device in ordinary arithmetic, for every type, window and width that fits. A block
// has one head of one window at a time in shared memory, gathered from the image; a warp works on one query, or on one
// key, with the tokens in its lanes, so nothing is added across warps and bits repeat. Sums are f32 (f64 beside f64).
// Forward is one launch. The gradient makes the weights again: over the queries for q and the biases, over the keys for
// k and v. A block of it walks over its share of the windows of one head, adding the gradients of biases and padding to
// sums of its own, which it folds into the table's entries at its end; a second launch adds the shares in order.
// Reference: window_attention_cpu.cpp.
#include <cmath>
#include <limits>

#include "ops/attention/cuda/window_problem.cuh"
#include "ops/attention/window_kernels.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace window_problem;

constexpr int warps = 8, threads = warps * warp_size;

__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / warp_size; }
/// Odd, so that neighbouring rows begin in different banks.
__host__ __device__ constexpr int pitch_of(int width) { return width | 1; }

/// One head of one window, as a block works on it.
struct Window {
  Place place;
  std::int64_t at, h;
  const Spot* spots;
  int tokens, seams;

  template <class T>
  __device__ Window(const Problem<T>& p, std::int64_t number, std::int64_t head, const Spot* tokens_at)
      : place(p.grid, number),
        at(number),
        h(head),
        spots(tokens_at),
        tokens(static_cast<int>(p.grid.tokens())),
        seams(place.seams(p.grid)) {}
  template <class T>
  __device__ __forceinline__ std::int64_t row(const Problem<T>& p, int t) const {
    return place.row(p.grid, spots[t]);
  }
};

/// q (part 0), k or v of all tokens, times a factor.
template <class T, class P>
__device__ void load_part(const Problem<T>& p, const Window& window, int part, P factor, P* to) {
  const std::int64_t first = part * p.channels + window.h * p.width;
  for (int t = warp_id(); t < window.tokens; t += warps) {
    const std::int64_t row = window.row(p, t);
    for (int d = lane_id(); d < p.width; d += warp_size) {
      const P behind = p.padding != nullptr ? p.padding[first + d] : P(0);
      to[t * pitch_of(p.width) + d] = (row >= 0 ? upcast(p.qkv[row * 3 * p.channels + first + d]) : behind) * factor;
    }
  }
}

template <class T, class P>
__device__ void load_slopes(const Problem<T>& p, const Window& window, const T* dy, P* to) {
  for (int t = warp_id(); t < window.tokens; t += warps) {
    const std::int64_t row = window.row(p, t);
    for (int d = lane_id(); d < p.width; d += warp_size)
      to[t * pitch_of(p.width) + d] = row >= 0 ? upcast(dy[row * p.channels + window.h * p.width + d]) : P(0);
  }
}

template <class P>
__device__ __forceinline__ P product(const P* a, const P* b, int width) {
  P sum = 0;
  for (int d = 0; d < width; ++d) sum += a[d] * b[d];
  return sum;
}

/// The score of query i and key j from their rows.
template <class T, class P>
__device__ __forceinline__ P score(const Problem<T>& p, const Window& window, int i, int j, const P* q, const P* k) {
  const Spot query = window.spots[i], key = window.spots[j];
  P value = product(q, k, p.width) + p.table[(query.place - key.place + middle_of(p.grid)) * p.heads + window.h];
  if (((query.zone ^ key.zone) & window.seams) != 0) value += P(window_mask);
  return value;
}

template <class T>
__device__ __forceinline__ acc_t<T> kept(const Problem<T>& p, const Window& window, int i, int j) {
  acc_t<T> factor[1];
  draw(p.draws, first_weight(p, window.at, window.h) + i * window.tokens + j, factor);
  return factor[0];
}

/// scores[j] = exp(score - shift) for the lane's keys, where -shift makes the largest 1; the sum over all of them.
template <class T, class P>
__device__ P weigh(const Problem<T>& p, const Window& window, int i, const P* q, const P* k, P* scores, P* shift) {
  const int tokens = window.tokens, pitch = pitch_of(p.width);
  P most = -std::numeric_limits<P>::infinity();
  for (int j = lane_id(); j < tokens; j += warp_size) {
    const P value = score(p, window, i, j, q + i * pitch, k + j * pitch);
    scores[j] = value;
    most = Largest::join(most, value);
  }
  most = warp_reduce<Largest>(most);
  P sum = 0;
  for (int j = lane_id(); j < tokens; j += warp_size) {
    scores[j] = std::exp(scores[j] - most);
    sum += scores[j];
  }
  *shift = most;
  return warp_reduce<Sum>(sum);
}

/// The sum over t of weights[t] times channel d of row t.
template <class P>
__device__ __forceinline__ P weighted(const P* weights, const P* rows, int tokens, int pitch, int d) {
  P sum = 0;
  for (int t = 0; t < tokens; ++t) sum += weights[t] * rows[t * pitch + d];
  return sum;
}

template <class T>
__global__ void __launch_bounds__(threads, 2) attend_windows(HEARTH_GRID_CONSTANT(Problem<T>) p, T* y) {
  using P = acc_t<T>;
  HEARTH_SHARED(Spot, spots, [max_window * max_window]);
  const int tokens = static_cast<int>(p.grid.tokens()), pitch = pitch_of(p.width);
  P* const q = dynamic_shared<P>();
  P *const k = q + tokens * pitch, *const v = k + tokens * pitch;
  P* const weights = v + tokens * pitch + warp_id() * tokens;
  place_tokens(p.grid, tokens, spots);
  __syncthreads();
  const Window window(p, blockIdx.x / p.heads, blockIdx.x % p.heads, spots);
  load_part(p, window, 0, p.scale, q);
  load_part(p, window, 1, P(1), k);
  load_part(p, window, 2, P(1), v);
  __syncthreads();
  for (int i = warp_id(); i < tokens; i += warps) {
    const std::int64_t row = window.row(p, i);
    if (row < 0) continue;
    P shift;
    const P inverse = P(1) / weigh(p, window, i, q, k, weights, &shift);
    if (p.draws.on)
      for (int j = lane_id(); j < tokens; j += warp_size) weights[j] *= kept(p, window, i, j);
    __syncwarp();
    for (int d = lane_id(); d < p.width; d += warp_size)
      y[row * p.channels + window.h * p.width + d] = cast_down<T>(weighted(weights, v, tokens, pitch, d) * inverse);
    __syncwarp();
  }
}

/// dq of one window, and the biases' slopes. Of each query, `shifts` gets what makes exp() the weight and `deltas` the
/// mean slope. `own`: this warp's memory for two rows of tokens.
template <class T, class P>
__device__ void differentiate_queries(const Problem<T>& p, const Window& window, const P* rows, P* shifts, P* deltas,
                                      P* own, P* bias, T* dqkv) {
  const int tokens = window.tokens, pitch = pitch_of(p.width);
  const P *const q = rows, *const k = q + tokens * pitch, *const v = k + tokens * pitch, *const dy = v + tokens * pitch;
  P *const weights = own, *const slopes = own + tokens;
  for (int i = warp_id(); i < tokens; i += warps) {
    const std::int64_t row = window.row(p, i);
    if (row < 0) continue;
    P shift;
    const P sum = weigh(p, window, i, q, k, weights, &shift);
    P delta = 0;
    for (int j = lane_id(); j < tokens; j += warp_size) {
      weights[j] /= sum;
      slopes[j] = product(dy + i * pitch, v + j * pitch, p.width) * kept(p, window, i, j);
      delta += weights[j] * slopes[j];
    }
    delta = warp_reduce<Sum>(delta);
    for (int j = lane_id(); j < tokens; j += warp_size) {
      slopes[j] = weights[j] * (slopes[j] - delta);
      if (bias != nullptr) bias[i * tokens + j] += slopes[j];
    }
    if (lane_id() == 0) {
      shifts[i] = shift + std::log(sum);
      deltas[i] = delta;
    }
    __syncwarp();
    for (int d = lane_id(); d < p.width; d += warp_size)
      dqkv[row * 3 * p.channels + window.h * p.width + d] =
          cast_down<T>(weighted(slopes, k, tokens, pitch, d) * p.scale);
    __syncwarp();
  }
}

/// dk and dv of one window; those of keys behind the image are added to `padding`.
template <class T, class P>
__device__ void differentiate_keys(const Problem<T>& p, const Window& window, const P* rows, const P* shifts,
                                   const P* deltas, P* own, P* padding, T* dqkv) {
  const int tokens = window.tokens, pitch = pitch_of(p.width);
  const P *const q = rows, *const k = q + tokens * pitch, *const v = k + tokens * pitch, *const dy = v + tokens * pitch;
  P *const weights = own, *const slopes = own + tokens;
  for (int j = warp_id(); j < tokens; j += warps) {
    const std::int64_t row = window.row(p, j);
    if (row < 0 && padding == nullptr) continue;
    for (int i = lane_id(); i < tokens; i += warp_size) {
      const bool inside = window.row(p, i) >= 0;  // other queries have no slopes
      const P factor = inside ? kept(p, window, i, j) : P(0);
      const P weight = inside ? std::exp(score(p, window, i, j, q + i * pitch, k + j * pitch) - shifts[i]) : P(0);
      weights[i] = weight * factor;
      slopes[i] = inside ? weight * (product(dy + i * pitch, v + j * pitch, p.width) * factor - deltas[i]) : P(0);
    }
    __syncwarp();
    for (int d = lane_id(); d < p.width; d += warp_size) {
      const P dk = weighted(slopes, q, tokens, pitch, d), dv = weighted(weights, dy, tokens, pitch, d);
      if (row >= 0) {
        T* const to = dqkv + row * 3 * p.channels + window.h * p.width + d;
        to[p.channels] = cast_down<T>(dk);
        to[2 * p.channels] = cast_down<T>(dv);
      } else {
        padding[2 * j * p.width + d] += dk;
        padding[(2 * j + 1) * p.width + d] += dv;
      }
    }
    __syncwarp();
  }
}

/// A block differentiates one head of one share of the windows.
template <class T>
__global__ void __launch_bounds__(threads, 2) differentiate_windows(HEARTH_GRID_CONSTANT(Problem<T>) p, const T* dy,
                                                                    T* dqkv, Split split, ShareSums<acc_t<T>> sums) {
  using P = acc_t<T>;
  HEARTH_SHARED(Spot, spots, [max_window * max_window]);
  const int tokens = static_cast<int>(p.grid.tokens()), pitch = pitch_of(p.width);
  P* const rows = dynamic_shared<P>();
  P* const shifts = rows + 4 * tokens * pitch;
  P* const deltas = shifts + tokens;
  P* const own = deltas + tokens + 2 * warp_id() * tokens;
  P* const bias =
      sums.pairs == nullptr ? nullptr : sums.pairs + static_cast<std::int64_t>(blockIdx.x) * tokens * tokens;
  P* const padding =
      sums.padding == nullptr ? nullptr : sums.padding + static_cast<std::int64_t>(blockIdx.x) * 2 * tokens * p.width;
  if (bias != nullptr)
    for (int e = static_cast<int>(threadIdx.x); e < tokens * tokens; e += threads) bias[e] = P(0);
  if (padding != nullptr)
    for (int e = static_cast<int>(threadIdx.x); e < 2 * tokens * p.width; e += threads) padding[e] = P(0);
  place_tokens(p.grid, tokens, spots);
  const std::int64_t share = blockIdx.x / p.heads, end = split.end(share);
  for (std::int64_t at = split.begin(share); at < end; ++at) {
    __syncthreads();
    const Window window(p, at, blockIdx.x % p.heads, spots);
    load_part(p, window, 0, p.scale, rows);
    load_part(p, window, 1, P(1), rows + tokens * pitch);
    load_part(p, window, 2, P(1), rows + 2 * tokens * pitch);
    load_slopes(p, window, dy, rows + 3 * tokens * pitch);
    __syncthreads();
    differentiate_queries(p, window, rows, shifts, deltas, own, bias, dqkv);
    __syncthreads();
    differentiate_keys(p, window, rows, shifts, deltas, own, padding, dqkv);
  }
  __syncthreads();
  fold_share(p.grid, sums, p.width, [&](int i, int j) { return bias[i * tokens + j]; });
}

constexpr int join_warps = 32;

/// dtable [entries, heads] and dpadding [3C] from `folded`, either may be null. A lane has a column of all heads; the
/// warps of a block share the rows and are then added in order.
template <class P>
__global__ void __launch_bounds__(join_warps* warp_size, 1)
    join_shares(ShareSums<P> sums, std::int64_t shares, std::int64_t heads, std::int64_t width, P* dtable,
                P* dpadding) {
  HEARTH_SHARED(P, parts, [join_warps][warp_size]);
  const std::int64_t all = heads * sums.columns, c = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane_id();
  P sum = 0;
  if (c < all)
    for (std::int64_t share = warp_id(); share < shares; share += join_warps) sum += sums.folded[share * all + c];
  parts[warp_id()][lane_id()] = sum;
  __syncthreads();
  if (warp_id() > 0 || c >= all) return;
  for (int warp = 1; warp < join_warps; ++warp) sum += parts[warp][lane_id()];
  const std::int64_t h = c / sums.columns, column = c % sums.columns;
  if (column < sums.entries) {
    dtable[column * heads + h] = sum;
    return;
  }
  const std::int64_t part = (column - sums.entries) / width, d = (column - sums.entries) % width;
  dpadding[((part + 1) * heads + h) * width + d] = sum;
  if (part == 0) dpadding[h * width + d] = 0;  // a query behind the image has no gradient
}

/// Dynamic shared memory for `arrays` of rows of a head and `rows` rows of tokens.
std::size_t shared_bytes(DType sums, std::int64_t window, std::int64_t width, int arrays, int rows) {
  const std::int64_t pitch = pitch_of(static_cast<int>(width));
  return static_cast<std::size_t>(window * window * (arrays * pitch + rows)) * size_of(sums);
}
std::size_t forward_bytes(DType sums, std::int64_t window, std::int64_t width) {
  return shared_bytes(sums, window, width, 3, warps);
}
std::size_t gradient_bytes(DType sums, std::int64_t window, std::int64_t width) {
  return shared_bytes(sums, window, width, 4, 2 + 2 * warps);
}

}  // namespace

namespace window_problem {

template <class P>
void join_windows(Stream& stream, const WindowAttentionArguments& a, const ShareSums<P>& sums, std::int64_t shares,
                  const WindowAttentionGradients& g) {
  launch(stream, "window_attention_grad join",
         {blocks_for(a.heads * sums.columns, warp_size), join_warps * warp_size, 0,
          shares * a.heads * sums.columns * static_cast<std::int64_t>(sizeof(P))},
         join_shares<P>, sums, shares, a.heads, a.head_width(), g.dtable.defined() ? g.dtable.data<P>() : nullptr,
         g.dpadding.defined() ? g.dpadding.data<P>() : nullptr);
}
template void join_windows(Stream&, const WindowAttentionArguments&, const ShareSums<float>&, std::int64_t,
                           const WindowAttentionGradients&);
template void join_windows(Stream&, const WindowAttentionArguments&, const ShareSums<double>&, std::int64_t,
                           const WindowAttentionGradients&);

}  // namespace window_problem

std::size_t window_attention_portable_shared(DType dtype, std::int64_t window, std::int64_t width) {
  return gradient_bytes(dtype == DType::f64 ? DType::f64 : DType::f32, window, width) +
         max_window * max_window * sizeof(Spot);
}

void window_attention_portable(Stream& stream, const WindowAttentionArguments& a, const Tensor& y) {
  constexpr std::int64_t most = 0x7fffffff;
  HEARTH_CHECK(ShapeError, a.heads <= most && a.batch() * a.grid.windows() <= most / a.heads,
               "window_attention: ", a.batch(), " samples of ", a.grid.windows(), " windows and ", a.heads,
               " heads are more than one launch takes; use a smaller batch");
  visit_dtype("window_attention", y.dtype(), Floats{}, [&]<class T>() {
    launch(stream, "window_attention",
           {blocks_for(a.batch() * a.grid.windows() * a.heads, 1), threads,
            forward_bytes(dtype_of<acc_t<T>>(), a.grid.window, a.head_width()), bytes_of(a.qkv, a.table, a.padding, y)},
           attend_windows<T>, problem_of<T>(stream, a), y.data<T>());
  });
}

void window_attention_grad_portable(Stream& stream, const WindowAttentionArguments& a, const Tensor& dy,
                                    const WindowAttentionGradients& g) {
  visit_dtype("window_attention", dy.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const Split split(a, 1056);
    const Shares<P> shares(a, g, split, Pairs::in_memory);
    launch(
        stream, "window_attention_grad",
        {blocks_for(split.shares * a.heads, 1), threads, gradient_bytes(dtype_of<P>(), a.grid.window, a.head_width()),
         bytes_of(a.qkv, a.table, a.padding, dy, g.dqkv, shares.folded, shares.pairs, shares.padding)},
        differentiate_windows<T>, problem_of<T>(stream, a), static_cast<const T*>(dy.data<T>()), g.dqkv.data<T>(),
        split, shares.sums);
    join_windows(stream, a, shares.sums, split.shares, g);
  });
}

}  // namespace hearth::kernels
