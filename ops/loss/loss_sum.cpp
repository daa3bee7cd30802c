// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/loss_sum.h"

#include <algorithm>

#include "core/run_on.h"
#include "ops/epilogue/operands.h"

namespace hearth {

void add_loss(const Tensor& sum, const Tensor& loss, double weight, const Tensor& row_weight) {
  HEARTH_CHECK(UsageError, sum.defined() && loss.defined(), "add_loss: sum or loss is absent");
  HEARTH_CHECK(DTypeError, sum.dtype() == DType::f64 && is_floating(loss.dtype()), "add_loss: the sum is ",
               describe(sum), ", the loss ", describe(loss), "; they are f64 and floating");
  HEARTH_CHECK(ShapeError, sum.size() == 1 && loss.size() == 1, "add_loss: the sum is ", describe(sum), ", the loss ",
               describe(loss), "; both have one element");
  HEARTH_CHECK(DeviceError, sum.device() == loss.device(), "add_loss: the sum is on ", sum.device(), ", the loss on ",
               loss.device(), "; move one with to(device)");
  HEARTH_CHECK(UsageError, !row_weight.defined() || (row_weight.dtype() == DType::f64 && row_weight.size() == 1),
               "add_loss: the share is ", row_weight.defined() ? describe(row_weight) : "absent", "; it is one f64");
  HEARTH_CHECK(DeviceError, !row_weight.defined() || row_weight.device() == sum.device(), "add_loss: the sum is on ",
               sum.device(), ", the share on ", row_weight.defined() ? row_weight.device() : Device{},
               "; move one with to(device)");
  run_on(sum.device(), [&](auto& stream) { kernels::add_loss(stream, sum, loss, weight, row_weight); });
}

Tensor label_counts(std::span<const Tensor> parts, std::int64_t ignored) {
  HEARTH_CHECK(UsageError, !parts.empty(), "label_counts: there are no parts");
  const Device device = parts.front().device();
  const Tensor counts = Tensor::empty({static_cast<std::int64_t>(parts.size())}, DType::f64, device);
  run_on(device, [&](auto& stream) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Tensor& part = parts[i];
      HEARTH_CHECK(DeviceError, part.device() == device, "label_counts: part 0 is on ", device, ", part ", i, " on ",
                   part.device(), "; move one with to(device)");
      const bool all_count = is_floating(part.dtype());
      HEARTH_CHECK(DTypeError, all_count || part.dtype() == DType::i64, "label_counts: part ", i, " is ",
                   describe(part), "; labels are i64 or floating targets of every class");
      HEARTH_CHECK(ShapeError, !all_count || part.rank() >= 1, "label_counts: part ", i,
                   " is a scalar; floating targets have a last axis of classes");
      const auto at = static_cast<std::int64_t>(i);
      if (all_count)
        Tensor::view(counts.storage(), {1}, {1}, at, DType::f64, device)
            .fill_(static_cast<double>(detail::rows_of(part.shape())));
      else
        kernels::count_labels(stream, part.contiguous(), ignored, counts.data<double>() + at);
    }
  });
  return counts;
}

Tensor label_weights(const Tensor& counts) {
  HEARTH_CHECK(UsageError, counts.defined() && counts.dtype() == DType::f64 && counts.rank() == 1 && counts.size() > 0,
               "label_weights: the counts are ", counts.defined() ? describe(counts) : "absent",
               "; they are what label_counts() gives");
  const Tensor weights = Tensor::empty(counts.shape(), DType::f64, counts.device());
  run_on(counts.device(), [&](auto& stream) { kernels::divide_by_sum(stream, counts.contiguous(), weights); });
  return weights;
}

namespace kernels {

void add_loss(cpu::Stream&, const Tensor& sum, const Tensor& loss, double weight, const Tensor& row_weight) {
  const double whole = row_weight.defined() ? weight * *row_weight.data<double>() : weight;
  *sum.data<double>() += whole * loss.item();
}

void count_labels(cpu::Stream&, const Tensor& labels, std::int64_t ignored, double* count) {
  const std::int64_t* const values = labels.data<std::int64_t>();
  *count = static_cast<double>(labels.size() - std::count(values, values + labels.size(), ignored));
}

void divide_by_sum(cpu::Stream&, const Tensor& counts, const Tensor& weights) {
  const double* const values = counts.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < counts.size(); ++i) sum += values[i];
  for (std::int64_t i = 0; i < counts.size(); ++i) weights.data<double>()[i] = sum > 0 ? values[i] / sum : 0;
}

}  // namespace kernels
}  // namespace hearth
