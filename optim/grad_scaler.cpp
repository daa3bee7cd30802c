// SPDX-License-Identifier: Apache-2.0
#include "optim/grad_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/run_on.h"
#include "optim/clip.h"

namespace hearth::optim {
namespace {

void check_cells(const UpdateCells& update) {
  HEARTH_CHECK(UsageError, update.grad_scale != nullptr && update.skip != nullptr,
               "loss scale: this optimizer cannot skip an update; it has to give grad_scale and skip in cells()");
}

/// UsageError unless `cell` is undefined or one f64 on the device, where kernels read or write it.
void check_cell(const char* name, const Tensor& cell, Device device) {
  HEARTH_CHECK(UsageError,
               !cell.defined() || (cell.size() == 1 && cell.dtype() == DType::f64 && cell.device() == device),
               "loss scale: ", name, " is ", describe(cell), " on ", cell.defined() ? cell.device() : device,
               "; it is f64 [1] on ", device, ", or undefined");
}

}  // namespace

GradScaler::GradScaler(FlatParameters& parameters, const std::vector<NamedTensor>& buffers,
                       const GradScalerOptions& options)
    : parameters_(parameters), options_(options), input_(parameters.values().device()) {
  HEARTH_CHECK(ConfigError,
               options.floor > 0 && options.floor <= options.start && options.start <= options.ceiling &&
                   std::isfinite(options.ceiling),
               "loss scale: ", options.start, " between floor ", options.floor, " and ceiling ", options.ceiling,
               "; all are finite and above 0, in this order");
  HEARTH_CHECK(ConfigError, options.growth_steps >= 1, "loss scale: grows after ", options.growth_steps,
               " updates; it is at least 1");
  HEARTH_CHECK(ConfigError,
               options.growth > 1 && std::isfinite(options.growth) && options.backoff > 0 && options.backoff < 1,
               "loss scale: growth ", options.growth, " and backoff ", options.backoff,
               "; growth is above 1 and finite, backoff between 0 and 1");
  HEARTH_CHECK(ConfigError, options.hysteresis >= 1, "loss scale: hysteresis ", options.hysteresis,
               "; it is at least 1");
  HEARTH_CHECK(DTypeError, parameters.values().dtype() == DType::f32, "loss scale: the parameters are ",
               parameters.values().dtype(), "; their values are f32");
  const Device device = parameters.values().device();
  scale_ = Tensor::full({1}, options.start, DType::f64, device);
  counters_ = Tensor::zeros({3}, DType::i64, device);
  overflows_ = Tensor::zeros({1}, DType::i64, device);
  uncounted_ = Tensor::zeros({1}, DType::i64, device);

  gather_buffers(buffers);
}

// A copy keeps bits, so that the flat memory may be called f32 whatever lies in it.
void GradScaler::gather_buffers(const std::vector<NamedTensor>& buffers) {
  constexpr std::int64_t line = 64, word = 4;
  const auto lines = [](const Tensor& tensor) {
    return (static_cast<std::int64_t>(tensor.byte_size()) + line - 1) / line;
  };
  std::int64_t total = 0;
  for (const NamedTensor& buffer : buffers)
    HEARTH_CHECK(UsageError, buffer.tensor != nullptr && buffer.tensor->defined(), "loss scale: buffer \"", buffer.name,
                 "\" has no tensor; give the buffers() of a module, or the address of a tensor that has values");
  for (const NamedTensor& buffer : buffers) total += lines(*buffer.tensor);
  const Device device = parameters_.values().device();
  buffers_ = Tensor::zeros({total * line / word}, DType::f32, device);
  std::int64_t begin = 0;
  for (const NamedTensor& buffer : buffers) {
    Tensor& handle = *buffer.tensor;
    const std::int64_t offset = begin * line / static_cast<std::int64_t>(size_of(handle.dtype()));
    const Tensor view = Tensor::view(buffers_.storage(), handle.shape(), contiguous_strides(handle.shape()), offset,
                                     handle.dtype(), device);
    view.copy_from(handle);
    begin += lines(handle);
    handle = view;
  }
  backup_ = buffers_.clone();
}

void GradScaler::begin_step(Optimizer& optimizer, Ema* average, std::int64_t samples) {
  optimizer_ = &optimizer;
  average_ = average;
  input_.set({.step = optimizer.steps(),
              .average_step = average != nullptr ? average->updates() - 1 : 0,
              .known_skipped = known_skipped_,
              .samples = samples});
}

Tensor GradScaler::seed(const Tensor& loss, double weight, const Tensor& factor) const {
  HEARTH_CHECK(UsageError, loss.defined() && loss.size() == 1, "loss scale: seed() for ", describe(loss),
               "; the loss is one number, as mean() and sum() give it");
  HEARTH_CHECK(DTypeError, is_floating(loss.dtype()), "loss scale: seed() for ", describe(loss),
               "; the loss is of a floating type");
  HEARTH_CHECK(DeviceError, loss.device() == scale_.device(), "loss scale: seed() for a loss on ", loss.device(),
               ", but the parameters are on ", scale_.device());
  check_cell("the factor", factor, scale_.device());
  const Tensor dy = Tensor::empty(loss.shape(), loss.dtype(), loss.device());
  const double* const further = factor.defined() ? factor.data<double>() : nullptr;
  run_on(loss.device(), [&](auto& stream) { kernels::scale_seed(stream, scale_.data<double>(), weight, further, dy); });
  return dy;
}

void GradScaler::check_found_inf(Optimizer& optimizer, Ema* average, double max_norm, const Tensor& norm,
                                 const Sums& sums) {
  const UpdateCells update = optimizer.cells();
  check_cells(update);
  check_cell("the norm", norm, scale_.device());
  parameters_.finish_grads();
  const Tensor& grads = parameters_.grads();
  const Tensor squares = Tensor::empty({}, DType::f64, grads.device());
  squares_of_grads(parameters_, squares);
  if (update.squares != nullptr) *update.squares = squares;
  run_on(grads.device(), [&](auto& stream) {
    const bool summing = sums.loss.defined();
    kernels::check_found_inf(stream, {.options = options_,
                                      .input = input_.at(stream),
                                      .squares = squares.data<double>(),
                                      .scale = scale_.data<double>(),
                                      .counters = counters_.data<std::int64_t>(),
                                      .overflows = overflows_.data<std::int64_t>(),
                                      .uncounted = uncounted_.data<std::int64_t>(),
                                      .max_norm = max_norm,
                                      .norm = norm.defined() ? norm.data<double>() : nullptr,
                                      .update = update,
                                      .average_weight = average != nullptr ? average->weight_cell() : nullptr,
                                      .average = average != nullptr ? average->options() : EmaOptions{},
                                      .step_loss = summing ? sums.step_loss.data<double>() : nullptr,
                                      .step_correct = summing ? sums.step_correct.data<std::int64_t>() : nullptr,
                                      .loss = summing ? sums.loss.data<double>() : nullptr,
                                      .correct = summing ? sums.correct.data<std::int64_t>() : nullptr});
  });
}

void GradScaler::settle_buffers(Optimizer& optimizer) {
  if (buffers_.size() == 0) return;
  const UpdateCells update = optimizer.cells();
  check_cells(update);
  run_on(buffers_.device(), [&](auto& stream) { kernels::keep_or_restore(stream, update.skip, buffers_, backup_); });
}

Tensor GradScaler::tell_skipped(Optimizer& optimizer, Ema* average) {
  const Tensor counters = counters_.to(Device{});
  const std::int64_t skipped = counters.data<const std::int64_t>()[1];
  optimizer.forget_steps(skipped - known_skipped_);
  if (average != nullptr) average->forget_updates(skipped - known_skipped_);
  known_skipped_ = skipped;
  return counters;
}

GradScaler::Reading GradScaler::read(Optimizer& optimizer, Ema* average) {
  const Tensor counters = tell_skipped(optimizer, average), uncounted = uncounted_.to(Device{});
  Reading reading;
  reading.scale = scale_.item();
  reading.skipped = counters.data<std::int64_t>()[1];
  reading.stuck = counters.data<std::int64_t>()[2];
  reading.uncounted = uncounted.data<std::int64_t>()[0];
  if (reading.uncounted != 0) uncounted_.fill_(0);
  return reading;
}

void GradScaler::after_load() {
  // The state may be that of a run with other bounds.
  const double loaded = scale_.item(), scale = std::clamp(loaded, options_.floor, options_.ceiling);
  if (scale != loaded) scale_.fill_(scale);
  known_skipped_ = counters_.to(Device{}).data<std::int64_t>()[1];
  backup_.copy_from(buffers_);
}

void GradScaler::register_state(State& state) {
  state.before_reading([this] {
    if (optimizer_ != nullptr) (void)tell_skipped(*optimizer_, average_);
  });
  state.add("loss_scale.scale", &scale_);
  state.add("loss_scale.counters", &counters_);
  if (options_.hysteresis > 1) state.add("loss_scale.overflows", &overflows_);
}

}  // namespace hearth::optim
