// SPDX-License-Identifier: Apache-2.0
// Lanes of a warp share a row of up to a thousand classes, a block shares a longer one. The loss reads the logits once,
// whatever their number: largest element, sum of exponentials, what smoothing or targets add and the label's rank are
// found together. The gradient reads them once more and writes once, in place where it may; where its scale is known
// with the loss, a block keeps its row in shared memory between the two. Narrow logits are read as they are.
// Reference: cross_entropy_cpu.cpp.
#include <algorithm>

#include "core/cuda/memory.h"
#include "ops/device/mma.h"
#include "ops/device/multiprocessors.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/softmax/online_sum.cuh"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr std::int64_t short_row = 1024;
constexpr std::int64_t count_blocks = 528;  // each adds to the count once a warp

// The rows, and what every kernel needs of them.
template <class T>
struct Rows {
  const T* x;
  std::int64_t rows, cols;
  acc_t<T> smoothing;
  std::int64_t ignored;
  FaultSlot* faults;

  // Whether this row counts; notes a label that is neither a class nor the ignored one.
  __device__ bool counts(std::int64_t label, bool report) const {
    if (label == ignored) return false;
    if (label >= 0 && label < cols) return true;
    if (report) report_fault(faults, FaultKind::label, label, cols);
    return false;
  }
};

// Where sums of x - shift are taken from: the row's first element, so that a large common offset costs no precision.
template <class T>
__device__ __forceinline__ acc_t<T> shift_of(const T* row) {
  const acc_t<T> first = upcast(*row);
  return first - first == acc_t<T>(0) ? first : acc_t<T>(0);  // infinite or not a number: 0
}

// What comes of rows with class labels; what is null is not wanted.
template <class T>
struct ClassResults {
  acc_t<T>*most, *log_sum, *losses;
  unsigned long long* correct;  // one number, to which rows are added whose label has the largest logit
  T* dx;                        // the logits, which become scale (p - target)
  acc_t<T> scale;
  std::int64_t pitch;  // of the logits' rows; what lies behind the classes is not read, and in dx becomes 0
};

// Where `held`, a block has its row in shared memory, each thread the columns that it works on. While it makes the
// gradient it already asks for the next row, unit by unit as it is done with this one, so that reading does not wait.
template <class T, int width, bool held, class Group>
__global__ void __launch_bounds__(group_block<Group>)
    class_losses(Rows<T> in, const std::int64_t* labels, ClassResults<T> out, Group group) {
  using P = acc_t<T>;
  // Only a row that a block reads from memory may be longer.
  using Index = std::conditional_t<held || std::is_same_v<Group, LaneGroup>, int, std::int64_t>;
  const auto cols = static_cast<Index>(in.cols), pitch = static_cast<Index>(out.pitch);
  const Index first = static_cast<Index>(group.index()) * width, step = static_cast<Index>(group.threads()) * width;
  const Index whole = cols - cols % width;  // the columns of whole units
  T* const copy = held ? dynamic_shared<T>() : nullptr;
  if constexpr (held) {
    const T* const ahead = in.x + group.first_row() * out.pitch;
    for (Index c = first; c < cols; c += step) cp_async(copy + c, ahead + c);
    cp_async_commit();
  }
  const bool smooth = in.smoothing != P(0);
  const P even = in.smoothing / static_cast<P>(in.cols), kept = P(1) - in.smoothing;
  each_row(group, in.rows, [&](std::int64_t row, bool inside) {
    const T* const stored = in.x + row * out.pitch;
    const T* const from = held ? copy : stored;
    const P shift = smooth ? shift_of(stored) : P(0);
    const std::int64_t label = labels[row];
    const bool counts = in.counts(label, inside && group.index() == 0);
    const P of_label = counts ? upcast(stored[label]) : P(0);
    if constexpr (held) cp_async_wait<0>();

    OnlineSum<T> state;
    P sum = 0;
    const auto add = [&](Index c, int count) {
      P value[width];
      load_unit(from + c, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k)
        if (k >= count) value[k] = -std::numeric_limits<P>::infinity();
      state.add(value);
      if (!smooth) return;
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k)
        if (k < count) sum += value[k] - shift;
    };
    Index c = inside ? first : cols;
    for (; c < whole; c += step) add(c, width);
    if (c < cols) add(c, static_cast<int>(cols - c));
    state.join(group);
    if (smooth) sum = group.template reduce<Sum>(sum, P(0));

    // A label with the largest logit is right unless a class before it has the same.
    const bool leads = counts && out.correct != nullptr && of_label == state.most;
    int before = 0;
    if (std::is_same_v<Group, LaneGroup> ? out.correct != nullptr : leads) {
      for (c = inside && leads ? first : cols; c < label; c += step) {
        P value[width];
        load_unit(from + c, value);
        HEARTH_UNROLL
        for (int k = 0; k < width; ++k)
          if (c + k < label && value[k] == of_label) before = 1;
      }
      before = group.template reduce<Sum>(before, 0);
    }
    const P log_total = std::log(state.sum);
    if (inside && group.index() == 0) {
      if (out.most != nullptr) out.most[row] = state.most;
      if (out.log_sum != nullptr) out.log_sum[row] = log_total;
      P loss = 0;
      if (counts) {
        loss = log_total - (of_label - state.most);
        if (smooth) {
          const P mean = sum / static_cast<P>(in.cols) - (state.most - shift);  // of x - most
          loss = kept * loss + in.smoothing * (log_total - mean);
        }
      }
      out.losses[row] = loss;
      if (leads && before == 0) atomicAdd(out.correct, 1ull);
    }
    if (out.dx == nullptr) return;

    // Others have read this row's first element and its label's; a block's reductions have waited for that.
    if constexpr (std::is_same_v<Group, LaneGroup>) __syncwarp();
    const auto share = [&](P x) { return exp_for<T>(x - state.most, log_total); };
    const P even_part = even * out.scale;
    T* const to = out.dx + row * out.pitch;
    const std::int64_t next = row + group.row_step();
    const T* const ahead = in.x + next * out.pitch;
    const Index wanted = next < in.rows ? cols : 0;
    c = inside ? first : pitch;
    for (const Index end = counts ? whole : 0; c < end; c += step) {
      P value[width];
      load_unit(from + c, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) value[k] = share(value[k]) * out.scale - even_part;
      store_unit(to + c, value);
      if constexpr (held)
        if (c < wanted) cp_async(copy + c, ahead + c);
    }
    for (; c < pitch; c += step) {
      P value[width];
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k)
        value[k] = counts && c + k < cols ? share(upcast(from[c + k])) * out.scale - even_part : P(0);
      store_unit(to + c, value);
      if constexpr (held)
        if (c < wanted) cp_async(copy + c, ahead + c);
    }
    if constexpr (held) cp_async_commit();
    // By the thread that wrote the label's unit.
    if (inside && counts && static_cast<Index>(label) / width % group.threads() == group.index())
      to[label] = cast_down<T>((share(of_label) - even - kept) * out.scale);
  });
}

// dx = scale (p - target); dx may be the logits.
template <class T, int width, class Group>
__global__ void __launch_bounds__(group_block<Group>)
    class_gradients(Rows<T> in, const std::int64_t* labels, const acc_t<T>* most, const acc_t<T>* log_sum,
                    const acc_t<T>* scale, std::int64_t scale_step, const double* row_weight, T* dx, Group group) {
  using P = acc_t<T>;
  const P even = in.smoothing / static_cast<P>(in.cols), kept = P(1) - in.smoothing;
  each_row(group, in.rows, [&](std::int64_t row, bool inside) {
    const std::int64_t label = labels[row];
    const bool counts = in.counts(label, false);
    const P top = most[row], log_total = log_sum[row];
    const double whole = static_cast<double>(scale[row * scale_step]);
    const P factor = static_cast<P>(row_weight == nullptr ? whole : whole * *row_weight);
    each_column<width>(group.index(), group.threads(), inside ? in.cols : 0, [&](std::int64_t c) {
      P value[width];
      load_unit(in.x + row * in.cols + c, value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        const P p = exp_for<T>(value[k] - top, log_total) - even;
        value[k] = counts ? (c + k == label ? p - kept : p) * factor : P(0);
      }
      store_unit(dx + row * in.cols + c, value);
    });
  });
}

// Targets t become (1 - smoothing) t + smoothing / cols.
template <class T, int width, class Group>
__global__ void __launch_bounds__(group_block<Group>) target_losses(Rows<T> in, const acc_t<T>* targets, acc_t<T>* most,
                                                                    acc_t<T>* log_sum, acc_t<T>* losses, Group group) {
  using P = acc_t<T>;
  const P even = in.smoothing / static_cast<P>(in.cols), kept = P(1) - in.smoothing;
  each_row(group, in.rows, [&](std::int64_t row, bool inside) {
    const T* const from = in.x + row * in.cols;
    const P shift = shift_of(from);
    OnlineSum<T> state;
    P total = 0, sum = 0;
    each_column<width>(group.index(), group.threads(), inside ? in.cols : 0, [&](std::int64_t c) {
      P value[width], target[width];
      load_unit(from + c, value);
      load_unit(targets + row * in.cols + c, target);
      state.add(value);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        const P t = kept * target[k] + even;
        total += t;
        // A class without target does not count, even where its logit is -infinity.
        sum += t == P(0) ? P(0) : t * (value[k] - shift);
      }
    });
    state.join(group);
    total = group.template reduce<Sum>(total, P(0));
    sum = group.template reduce<Sum>(sum, P(0));
    if (!inside || group.index() != 0) return;
    const P log_total = std::log(state.sum);
    most[row] = state.most;
    log_sum[row] = log_total;
    losses[row] = total * (log_total + (state.most - shift)) - sum;
  });
}

// dx = scale (p sum(target) - target); dx may be the logits. The targets are read twice, then from the cache.
template <class T, int width, class Group>
__global__ void __launch_bounds__(group_block<Group>)
    target_gradients(Rows<T> in, const acc_t<T>* targets, const acc_t<T>* most, const acc_t<T>* log_sum,
                     const acc_t<T>* scale, std::int64_t scale_step, const double* row_weight, T* dx, Group group) {
  using P = acc_t<T>;
  const P even = in.smoothing / static_cast<P>(in.cols), kept = P(1) - in.smoothing;
  each_row(group, in.rows, [&](std::int64_t row, bool inside) {
    const std::int64_t cols = inside ? in.cols : 0;
    const P* const wanted = targets + row * in.cols;
    P total = 0;
    each_column<width>(group.index(), group.threads(), cols, [&](std::int64_t c) {
      P target[width];
      load_unit(wanted + c, target);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) total += kept * target[k] + even;
    });
    total = group.template reduce<Sum>(total, P(0));
    const P top = most[row], log_total = log_sum[row];
    const double whole = static_cast<double>(scale[row * scale_step]);
    const P factor = static_cast<P>(row_weight == nullptr ? whole : whole * *row_weight);
    each_column<width>(group.index(), group.threads(), cols, [&](std::int64_t c) {
      P value[width], target[width];
      load_unit(in.x + row * in.cols + c, value);
      load_unit(wanted + c, target);
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) {
        value[k] = (exp_for<T>(value[k] - top, log_total) * total - (kept * target[k] + even)) * factor;
      }
      store_unit(dx + row * in.cols + c, value);
    });
  });
}

// One block: the sum of all losses in f64 and the number of rows that count, a few microseconds for 64 thousand rows.
constexpr int total_block = 1024;

template <class P>
__global__ void __launch_bounds__(total_block)
    total_loss(const P* losses, const std::int64_t* labels, std::int64_t rows, std::int64_t ignored, bool mean,
               P* result, double* row_weight) {
  double sum = 0, count = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += total_block) {
    sum += static_cast<double>(losses[row]);
    count += labels == nullptr || labels[row] != ignored ? 1 : 0;
  }
  sum = block_reduce<Sum>(sum, 0.0);
  count = block_reduce<Sum>(count, 0.0);
  if (threadIdx.x != 0) return;
  const double part = !mean ? 1.0 : count == 0 ? 0.0 : 1.0 / count;
  *row_weight = part;
  *result = static_cast<P>(sum * part);
}

// Adds to `count` the rows whose label has fewer than k elements before it in descending order. Each warp adds a whole
// number once, so the order does not show.
template <class T, class Group>
__global__ void __launch_bounds__(group_block<Group>)
    count_correct(Rows<T> in, const std::int64_t* labels, std::int64_t k, unsigned long long* count, Group group) {
  using P = acc_t<T>;
  long long correct = 0;
  each_row(group, in.rows, [&](std::int64_t row, bool inside) {
    const std::int64_t label = labels[row];
    const bool counts = in.counts(label, inside && group.index() == 0);
    const T* const from = in.x + row * in.cols;
    const P value = counts ? upcast(from[label]) : P(0);
    long long before = 0;
    each_column<1>(group.index(), group.threads(), counts && inside ? in.cols : 0, [&](std::int64_t c) {
      const P other = upcast(from[c]);
      before += other > value || (other == value && c < label) ? 1 : 0;
    });
    before = group.template reduce<Sum>(before, 0ll);
    correct += inside && group.index() == 0 && counts && value == value && before < k ? 1 : 0;
  });
  correct = warp_reduce<Sum>(correct);
  if (lane_id() == 0 && correct != 0) atomicAdd(count, static_cast<unsigned long long>(correct));
}

template <class T>
Rows<T> rows_of(cuda::Stream& stream, const Tensor& logits, const CrossEntropyOptions& options) {
  const std::int64_t cols = logits.dim(-1);
  return {logits.data<T>(),     logits.size() / cols,    cols, static_cast<acc_t<T>>(options.label_smoothing),
          options.ignore_index, cuda::fault_slot(stream)};
}

// As many blocks as are at work at once, each of which keeps a row in shared memory: one even wave.
std::int64_t held_blocks(const cuda::Stream& stream, std::size_t row_bytes, unsigned threads) {
  const auto by_memory = static_cast<std::int64_t>(max_shared_memory(stream.device()) / (row_bytes + 2048));
  return multiprocessors * std::clamp<std::int64_t>(by_memory, 1, 2048 / threads);
}

template <class T, int width>
void launch_class_losses(cuda::Stream& stream, const Rows<T>& in, const Tensor& labels, const ClassResults<T>& out,
                         std::int64_t moved) {
  const std::size_t row_bytes = static_cast<std::size_t>(in.cols + width - 1) / width * width * sizeof(T);
  const std::int64_t* const classes = labels.data<std::int64_t>();
  with_row_group(in.rows, in.cols, short_row, width, 4, [&]<class Group>(Group group, LaunchShape shape) {
    if constexpr (std::is_same_v<Group, BlockGroup> && width > 1)
      // Beside the row, what reductions take.
      if (out.dx != nullptr && row_bytes + 1024 <= max_shared_memory(stream.device())) {
        shape.shared_bytes = row_bytes;
        shape.grid.x = blocks_for(in.rows, 1, held_blocks(stream, row_bytes, shape.block.x));
        launch(stream, "cross_entropy", shape.moving(moved), class_losses<T, width, true, Group>, in, classes, out,
               group);
        return;
      }
    launch(stream, "cross_entropy", shape.moving(moved), class_losses<T, width, false, Group>, in, classes, out, group);
  });
}

// Class labels are read one by one, so their alignment does not matter.
const void* targets_of(const Tensor& labels) { return is_floating(labels.dtype()) ? labels.bytes() : nullptr; }

}  // namespace

void cross_entropy(cuda::Stream& stream, const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                   const Tensor& most, const Tensor& log_sum, const Tensor& losses) {
  if (logits.size() == 0) return;
  const std::int64_t cols = logits.dim(-1), moved = bytes_of(logits, labels, most, log_sum, losses);
  const auto arrays = {address_of(logits), targets_of(labels)};
  visit_rows("cross_entropy", logits.dtype(), cols, arrays, [&]<class T, int width>() {
    using P = acc_t<T>;
    const Rows<T> in = rows_of<T>(stream, logits, options);
    if (!is_floating(labels.dtype()))
      return launch_class_losses<T, width>(
          stream, in, labels, {most.data<P>(), log_sum.data<P>(), losses.data<P>(), nullptr, nullptr, P(0), cols},
          moved);
    with_row_group(in.rows, cols, short_row, width, 4, [&]<class Group>(Group group, const LaunchShape& shape) {
      launch(stream, "cross_entropy", shape.moving(moved), target_losses<T, width, Group>, in, labels.data<P>(),
             most.data<P>(), log_sum.data<P>(), losses.data<P>(), group);
    });
  });
}

void head_losses(cuda::Stream& stream, const Tensor& logits, std::int64_t classes, const Tensor& labels,
                 const CrossEntropyOptions& options, double scale, const Tensor& losses, const Tensor& correct) {
  const std::int64_t pitch = logits.dim(1);
  const std::int64_t moved = bytes_of(logits, labels, losses) + (scale == 0 ? 0 : bytes_of(logits));
  visit_rows("linear_cross_entropy", logits.dtype(), pitch, {address_of(logits)}, [&]<class T, int width>() {
    Rows<T> in = rows_of<T>(stream, logits, options);
    in.cols = classes;
    auto* const count = correct.defined() ? correct.data<std::int64_t>() : nullptr;
    launch_class_losses<T, width>(
        stream, in, labels,
        {nullptr, nullptr, losses.data<acc_t<T>>(), reinterpret_cast<unsigned long long*>(count),
         scale == 0 ? nullptr : logits.data<T>(), static_cast<acc_t<T>>(scale), pitch},
        moved);
  });
}

void cross_entropy_total(cuda::Stream& stream, const Tensor& losses, const Tensor& labels,
                         const CrossEntropyOptions& options, const Tensor& result, const Tensor& row_weight) {
  visit_dtype("cross_entropy", losses.dtype(), FullFloats{}, [&]<class P>() {
    launch(stream, "cross_entropy_total", {1, total_block, 0, bytes_of(losses, labels, result, row_weight)},
           total_loss<P>, losses.data<P>(), is_floating(labels.dtype()) ? nullptr : labels.data<std::int64_t>(),
           losses.size(), options.ignore_index, options.reduction == Reduction::mean, result.data<P>(),
           row_weight.data<double>());
  });
}

void cross_entropy_grad(cuda::Stream& stream, const Tensor& logits, const Tensor& labels,
                        const CrossEntropyOptions& options, const Tensor& most, const Tensor& log_sum,
                        const Tensor& scale, const Tensor& row_weight, const Tensor& dx) {
  if (logits.size() == 0) return;
  const std::int64_t cols = logits.dim(-1), step = options.reduction == Reduction::none ? 1 : 0;
  const std::int64_t moved = bytes_of(logits, labels, most, log_sum, scale, row_weight, dx);
  const auto arrays = {address_of(logits), targets_of(labels), address_of(dx)};
  visit_rows("cross_entropy", logits.dtype(), cols, arrays, [&]<class T, int width>() {
    using P = acc_t<T>;
    const Rows<T> in = rows_of<T>(stream, logits, options);
    const double* const part = row_weight.defined() ? row_weight.data<double>() : nullptr;
    with_row_group(in.rows, cols, short_row, width, 4, [&]<class Group>(Group group, const LaunchShape& shape) {
      if (is_floating(labels.dtype()))
        launch(stream, "cross_entropy_grad", shape.moving(moved), target_gradients<T, width, Group>, in,
               labels.data<P>(), most.data<P>(), log_sum.data<P>(), scale.data<P>(), step, part, dx.data<T>(), group);
      else
        launch(stream, "cross_entropy_grad", shape.moving(moved), class_gradients<T, width, Group>, in,
               labels.data<std::int64_t>(), most.data<P>(), log_sum.data<P>(), scale.data<P>(), step, part,
               dx.data<T>(), group);
    });
  });
}

void count_correct(cuda::Stream& stream, const Tensor& logits, const Tensor& labels, std::int64_t k,
                   std::int64_t ignore_index, const Tensor& count) {
  if (logits.size() == 0) return;
  visit_dtype("count_correct", logits.dtype(), Floats{}, [&]<class T>() {
    const Rows<T> in = rows_of<T>(stream, logits, {.ignore_index = ignore_index});
    with_row_group(in.rows, in.cols, short_row, 1, 4, [&]<class Group>(Group group, LaunchShape shape) {
      shape.grid.x = blocks_for(shape.grid.x, 1, count_blocks);
      launch(stream, "count_correct", shape.moving(bytes_of(logits, labels, count)), count_correct<T, Group>, in,
             labels.data<std::int64_t>(), k, reinterpret_cast<unsigned long long*>(count.data<std::int64_t>()), group);
    });
  });
}

}  // namespace hearth::kernels
