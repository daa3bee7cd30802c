// SPDX-License-Identifier: Apache-2.0
// A block sums a run of elements, one more block adds the blocks' sums in order; x and target are read once. Losses in
// acc_t, sums beyond 16 bytes' worth in f64. The gradient is one pass.
#include <algorithm>

#include "ops/device/row_split.cuh"
#include "ops/loss/elementwise_data.h"
#include "ops/loss/elementwise_visit.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int block = 256;
constexpr std::int64_t max_blocks = 1024;

template <class F, class T, int width>
__global__ void __launch_bounds__(block)
    loss_parts(ElementLossData<T, acc_t<T>> in, std::int64_t n, std::int64_t each, double* sums, double* counts) {
  using P = acc_t<T>;
  const std::int64_t begin = blockIdx.x * each, length = n - begin < each ? n - begin : each;
  double sum = 0, count = 0;
  each_column<width>(static_cast<int>(threadIdx.x), block, length, [&](std::int64_t i) {
    P x[width], target[width], part = 0;
    load_unit(in.x + begin + i, x);
    load_unit(in.target + begin + i, target);
    int counted = 0;
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) {
      if (target[k] == in.ignored) continue;
      const std::int64_t at = begin + i + k;
      part += F::value(x[k], target[k], in.pos_weight_at(at), in.a, in.b) * in.weight_at(at);
      ++counted;
    }
    sum += static_cast<double>(part);
    count += counted;
  });
  sum = block_reduce<Sum>(sum, 0.0);
  count = block_reduce<Sum>(count, 0.0);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = sum;
  counts[blockIdx.x] = count;
}

template <class P>
__global__ void __launch_bounds__(block)
    total_of_parts(const double* sums, const double* counts, std::int64_t parts, bool mean, P* result, double* scale) {
  double sum = 0, count = 0;
  for (std::int64_t i = threadIdx.x; i < parts; i += block) {
    sum += sums[i];
    count += counts[i];
  }
  sum = block_reduce<Sum>(sum, 0.0);
  count = block_reduce<Sum>(count, 0.0);
  if (threadIdx.x != 0) return;
  *scale = !mean ? 1.0 : (count > 0 ? 1.0 / count : 0.0);
  *result = static_cast<P>(!mean ? sum : (count > 0 ? sum / count : 0.0));
}

template <class F, class T>
__global__ void __launch_bounds__(block)
    losses_of_elements(ElementLossData<T, acc_t<T>> in, std::int64_t n, acc_t<T>* losses) {
  using P = acc_t<T>;
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) {
    const P target = upcast(in.target[i]);
    const P value = F::value(upcast(in.x[i]), target, in.pos_weight_at(i), in.a, in.b) * in.weight_at(i);
    losses[i] = target == in.ignored ? P(0) : value;
  }
}

/// dy [n] if `each`, else [1].
template <class F, class T, int width>
__global__ void __launch_bounds__(block) loss_slopes(ElementLossData<T, acc_t<T>> in, std::int64_t n, double factor,
                                                     const double* scale, const acc_t<T>* dy, bool each, T* dx) {
  using P = acc_t<T>;
  const double scaled = factor * (scale == nullptr ? 1.0 : *scale);
  const P whole = static_cast<P>(each ? scaled : scaled * static_cast<double>(*dy));
  for (std::int64_t i = global_thread() * width; i < n; i += global_threads() * width) {
    P x[width], target[width];
    load_unit(in.x + i, x);
    load_unit(in.target + i, target);
    HEARTH_UNROLL
    for (int k = 0; k < width; ++k) {
      const P slope = F::slope(x[k], target[k], in.pos_weight_at(i + k), in.a, in.b) * in.weight_at(i + k);
      x[k] = target[k] == in.ignored ? P(0) : slope * (each ? whole * dy[i + k] : whole);
    }
    store_unit(dx + i, x);
  }
}

}  // namespace

void element_losses(cuda::Stream& stream, ElementLoss loss, const ElementLossInputs& in, const Tensor& losses) {
  const std::int64_t n = in.x.size();
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    visit_loss(loss, [&]<class F>(F, const char* name, const char*) {
      launch(stream, name, {blocks_for(n, block, 1 << 16), block}, losses_of_elements<F, T>,
             ElementLossData<T, acc_t<T>>(in), n, losses.data<acc_t<T>>());
    });
  });
}

void element_loss_total(cuda::Stream& stream, ElementLoss loss, const ElementLossInputs& in, bool mean,
                        const Tensor& result, const Tensor& scale) {
  const std::int64_t n = in.x.size();
  // Multiples of 16 elements, so that every run starts aligned.
  const std::int64_t each = std::max<std::int64_t>((n + max_blocks - 1) / max_blocks, 4096) / 16 * 16 + 16;
  const std::int64_t parts = (n + each - 1) / each;
  const Tensor partial = Tensor::empty({2, parts}, DType::f64, in.x.device());
  double* const sums = partial.data<double>();
  visit_rows("loss", in.x.dtype(), n, {in.x.bytes(), in.target.bytes()}, [&]<class T, int width>() {
    visit_loss(loss, [&]<class F>(F, const char* name, const char*) {
      launch(stream, name, {blocks_for(parts, 1), block}, loss_parts<F, T, width>, ElementLossData<T, acc_t<T>>(in), n,
             each, sums, sums + parts);
      launch(stream, name, {1, block}, total_of_parts<acc_t<T>>, sums, sums + parts, parts, mean,
             result.data<acc_t<T>>(), scale.data<double>());
    });
  });
}

void element_loss_grad(cuda::Stream& stream, ElementLoss loss, const ElementLossInputs& in, double factor,
                       const Tensor& scale, const Tensor& dy, const Tensor& dx) {
  const std::int64_t n = in.x.size();
  const bool each = dy.size() != 1 || n == 1;
  visit_rows("loss", in.x.dtype(), n, {in.x.bytes(), in.target.bytes(), dx.bytes()}, [&]<class T, int width>() {
    visit_loss(loss, [&]<class F>(F, const char*, const char* name) {
      launch(stream, name, {blocks_for(n, block * width, 1 << 16), block}, loss_slopes<F, T, width>,
             ElementLossData<T, acc_t<T>>(in), n, factor, scale.defined() ? scale.data<double>() : nullptr,
             dy.data<acc_t<T>>(), each, dx.data<T>());
    });
  });
}

}  // namespace hearth::kernels
