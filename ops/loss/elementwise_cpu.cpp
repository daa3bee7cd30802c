// SPDX-License-Identifier: Apache-2.0
// One pass over x and target. Losses are computed in f32 (f64 for f64) and summed in f64, piece by piece in order.
// Reference:
//   for i: if target[i] == ignored: continue
//     sum += weight[i % periodw] * value(x[i], target[i], pos_weight[i % periodp]);  ++count
//   result = mean ? sum / count : sum
#include <algorithm>

#include "core/cpu/blocks.h"
#include "core/cpu/parallel.h"
#include "ops/loss/elementwise_blocks.h"
#include "ops/loss/elementwise_data.h"
#include "ops/scratch.h"

namespace hearth::kernels {
namespace {

constexpr std::int64_t loss_grain = 1 << 15;

/// Blocks of a loss's inputs in the type that is computed in.
template <class T>
class LossBlocks {
 public:
  using A = acc_t<T>;
  explicit LossBlocks(const ElementLossData<T, A>& in) : in_(in) {
    if (in.pos_weight == nullptr) std::fill_n(pos_weights_, cpu::block_size, A(1));
  }

  /// Elements [at, at + n), at most a block.
  void read(std::int64_t at, std::int64_t n) {
    x = cpu::read_block(in_.x + at, n, strip_x_);
    target = cpu::read_block(in_.target + at, n, strip_target_);
    if (in_.pos_weight != nullptr)
      for (std::int64_t i = 0; i < n; ++i) pos_weights_[i] = in_.pos_weight_at(at + i);
    if (in_.weight != nullptr)
      for (std::int64_t i = 0; i < n; ++i) weights_[i] = in_.weight_at(at + i);
  }
  void compute(LossBlock<A> block, A* out, std::int64_t n) const {
    block(x, target, pos_weights_, in_.a, in_.b, out, n);
  }
  const A* weight() const { return in_.weight == nullptr ? nullptr : weights_; }

  const A *x = nullptr, *target = nullptr;

 private:
  const ElementLossData<T, A>& in_;
  cpu::Strip<T> strip_x_, strip_target_;
  alignas(64) A pos_weights_[cpu::block_size];
  alignas(64) A weights_[cpu::block_size];
};

}  // namespace

void element_losses(cpu::Stream&, ElementLoss loss, const ElementLossInputs& in, const Tensor& losses) {
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const ElementLossData<T, A> data(in);
    A* const to = losses.data<A>();
    const LossBlock<A> values = loss_block<A>(loss);
    cpu::parallel_for(in.x.size(), loss_grain, [&](std::int64_t begin, std::int64_t end) {
      LossBlocks<T> blocks(data);
      cpu::each_block(begin, end, [&](std::int64_t at, std::int64_t n) {
        blocks.read(at, n);
        blocks.compute(values, to + at, n);
        scale_slopes(to + at, blocks.target, blocks.weight(), static_cast<const A*>(nullptr), A(1), data.ignored, n);
      });
    });
  });
}

void element_loss_total(cpu::Stream&, ElementLoss loss, const ElementLossInputs& in, bool mean, const Tensor& result,
                        const Tensor& scale) {
  const std::int64_t n = in.x.size(), pieces = (n + loss_grain - 1) / loss_grain;
  cpu::Scratch scratch;
  double* const sums = scratch.take<double>(pieces);
  double* const counts = scratch.take<double>(pieces);
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const ElementLossData<T, A> data(in);
    const LossBlock<A> values = loss_block<A>(loss);
    cpu::parallel_chunks(pieces, [&](std::int64_t i) {
      LossBlocks<T> blocks(data);
      LossSum sum;
      alignas(64) A losses[cpu::block_size];
      cpu::each_block(i * loss_grain, std::min((i + 1) * loss_grain, n), [&](std::int64_t at, std::int64_t count) {
        blocks.read(at, count);
        blocks.compute(values, losses, count);
        add_losses(sum, static_cast<const A*>(losses), blocks.target, blocks.weight(), data.ignored, count);
      });
      sums[i] = sum.sum(), counts[i] = sum.count();
    });
    double sum = 0, count = 0;
    for (std::int64_t i = 0; i < pieces; ++i) sum += sums[i], count += counts[i];
    const double factor = !mean ? 1.0 : (count > 0 ? 1.0 / count : 0.0);
    *scale.data<double>() = factor;
    *result.data<A>() = static_cast<A>(mean ? (count > 0 ? sum / count : 0.0) : sum);
  });
}

void element_loss_grad(cpu::Stream&, ElementLoss loss, const ElementLossInputs& in, double factor, const Tensor& scale,
                       const Tensor& dy, const Tensor& dx) {
  const bool each = dy.size() != 1 || in.x.size() == 1;
  visit_dtype("loss", in.x.dtype(), Floats{}, [&]<class T>() {
    using A = acc_t<T>;
    const ElementLossData<T, A> data(in);
    const A* const arriving = dy.data<A>();
    const double scaled = factor * (scale.defined() ? *scale.data<double>() : 1.0);
    const auto scaled_dy = static_cast<A>(each ? scaled : scaled * static_cast<double>(*arriving));
    T* const out = dx.data<T>();
    const LossBlock<A> slopes = loss_slope_block<A>(loss);
    cpu::parallel_for(in.x.size(), loss_grain, [&](std::int64_t begin, std::int64_t end) {
      LossBlocks<T> blocks(data);
      cpu::Strip<T> strip;
      cpu::each_block(begin, end, [&](std::int64_t at, std::int64_t n) {
        A* const to = cpu::block_of(out + at, strip);
        blocks.read(at, n);
        blocks.compute(slopes, to, n);
        scale_slopes(to, blocks.target, blocks.weight(), each ? arriving + at : nullptr, scaled_dy, data.ignored, n);
        cpu::write_block(strip, out + at, n);
      });
    });
  });
}

}  // namespace hearth::kernels
