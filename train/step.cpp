// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/step.h"

#include <cmath>
#include <optional>

#include "hearth/autograd/backward.h"
#include "hearth/autograd/grad_mode.h"
#include "hearth/autograd/grad_state.h"
#include "hearth/core/random.h"
#include "hearth/ops/ops.h"
#include "hearth/optim/clip.h"

namespace hearth::train {
namespace {

// Soft labels (mixup) count as right where the heaviest class is predicted.
std::int64_t correct_in(const Tensor& outputs, const Tensor& labels) {
  return count_correct(outputs, is_floating(labels.dtype()) ? argmax(labels, -1) : labels);
}

[[noreturn]] void throw_diverged(const Session& session, const std::string& what) {
  for (const FlatParameters::Entry& entry : session.parameters->entries())
    for (const double value : grad_of(entry.value).to_doubles())
      if (!std::isfinite(value))
        throw DivergedError(join_text(what, " at step ", session.position.step + 1,
                                      "; the first gradient that is not finite is that of \"", entry.name,
                                      "\"; lower the learning rate, warm up longer, or clip the gradients"));
  throw DivergedError(join_text(what, " at step ", session.position.step + 1,
                                "; all gradients are finite; lower the learning rate, or look at the data"));
}

}  // namespace

StepResult training_step(Session& session, std::span<const data::Batch> batches) {
  StepResult result;
  const std::int64_t step = session.position.step;
  result.lr = session.lr(step);
  const RandomScope random(session.config().seed, static_cast<std::uint64_t>(step));
  const AutocastScope autocast(session.autocast());
  std::int64_t samples = 0;
  for (const data::Batch& batch : batches) samples += batch.images.dim(0);

  session.model->train(true);
  session.parameters->zero_grads();
  for (const data::Batch& batch : batches) {
    const Tensor images = batch.images.to(session.device()), labels = batch.labels.to(session.device());
    const Tensor outputs = (*session.model)(images);
    const Tensor loss = session.loss(outputs, labels);
    const std::int64_t n = images.dim(0);
    const double value = loss.item();
    backward(loss, static_cast<double>(n) / static_cast<double>(samples));
    if (!std::isfinite(value)) {
      session.parameters->finish_grads();
      throw_diverged(session, join_text("the loss is ", value));
    }
    result.loss_sum += value * static_cast<double>(n);
    result.correct += correct_in(outputs, labels);
    result.samples += n;
  }
  session.parameters->finish_grads();

  double scale = 1;
  if (const auto limit = session.config().train.clip_norm) {
    result.grad_norm = optim::grad_norm(*session.parameters);
    if (!std::isfinite(result.grad_norm)) throw_diverged(session, "the norm of the gradients is not finite");
    scale = optim::clip_scale(result.grad_norm, *limit);
  }
  session.optimizer->step(result.lr, scale);
  if (session.ema) session.ema->update();
  return result;
}

Meter evaluate(Session& session, const data::DatasetPointer& part) {
  const NoGrad no_grad;
  const AutocastScope autocast(session.autocast());
  std::optional<optim::EmaScope> averaged;
  if (session.ema && !session.ema->in_use()) averaged.emplace(*session.ema);
  session.model->train(false);
  const std::int64_t batch_size = session.config().eval.batch_size.value_or(session.config().train.batch_size);
  data::Loader loader = session.data.eval_loader(part, batch_size);
  Meter meter;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const data::Batch batch = loader.next();
    const Tensor images = batch.images.to(session.device()), labels = batch.labels.to(session.device());
    const Tensor outputs = (*session.model)(images);
    const auto n = images.dim(0);
    meter.loss_sum += session.loss(outputs, labels).item() * static_cast<double>(n);
    meter.correct += correct_in(outputs, labels);
    meter.samples += n;
  }
  session.model->train(true);
  return meter;
}

}  // namespace hearth::train
