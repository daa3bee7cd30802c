// SPDX-License-Identifier: Apache-2.0
#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/build.h"
#include "core/cuda/graph.h"
#include "core/origin.h"
#include "core/random.h"
#include "core/run_on.h"
#include "data/text/token_set.h"
#include "ops/ops.h"
#include "optim/clip.h"

namespace hearth::train {
namespace {

// Where no label is ignored, none has this.
constexpr std::int64_t no_class = -100;
// Random operations of one forward pass, at most, so that there is room for a million batches in a step.
constexpr std::uint32_t most_random_ops = 1 << 12;

// What a batch's loss counts for in the mean over a step: a part of its samples or, where some may not count, of the
// labels that do, which only the device knows.
struct Share {
  double of_samples = 1;
  Tensor of_labels{};  // f64 [1]; undefined where all count, and where there is one batch
  Tensor labels{};     // f64 [1]: how many count; undefined where the meter counts rows
};

std::vector<Share> shares_of(const Loss& loss, std::span<const data::Batch> inputs, std::int64_t samples) {
  std::vector<Share> shares(inputs.size());
  std::vector<Tensor> labels;
  bool may_ignore = false;
  for (const data::Batch& input : inputs) {
    labels.push_back(input.labels);
    may_ignore = may_ignore || (loss.ignored_label && !is_floating(input.labels.dtype()));
  }
  // One batch whose rows the meter counts needs no counting of labels.
  if (!may_ignore || (inputs.size() == 1 && inputs[0].counted < 0)) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      shares[i].of_samples = samples > 0 ? static_cast<double>(inputs[i].count()) / static_cast<double>(samples) : 0.0;
    return shares;
  }
  const auto element = [](const Tensor& all, std::size_t i) {
    return Tensor::view(all.storage(), {1}, {1}, static_cast<std::int64_t>(i), DType::f64, all.device());
  };
  const Tensor counts = label_counts(labels, *loss.ignored_label);
  const Tensor parts = inputs.size() > 1 ? label_shares(counts) : Tensor();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].counted >= 0) shares[i].labels = element(counts, i);
    if (parts.defined()) shares[i].of_labels = element(parts, i);
  }
  return shares;
}

void sweep(Session& session, const Tensor& loss, const Share& share) {
  if (session.loss_scale)
    backward(loss, session.loss_scale->seed(loss, share.of_samples, share.of_labels));
  else if (share.of_labels.defined())
    backward(loss, reshape(share.of_labels, loss.shape()).to(loss.dtype()));
  else
    backward(loss, share.of_samples);
}

// What the network makes of an input: one of images, of texts, or of pairs of texts.
Tensor outputs_of(Session& session, const data::Batch& input) {
  if (input.source.defined()) return (*session.model)(input.source, input.target);
  if (input.input.defined()) return (*session.model)(input.input);
  return (*session.model)(session.network_input(input.images, input.erased, input.share));
}

// Soft labels (mixup) count as right where the heaviest class is predicted.
void count_hits(const Loss& rule, const Tensor& outputs, const Tensor& labels, const Tensor& correct) {
  const NoGrad no_grad;
  const Tensor classes = is_floating(labels.dtype()) ? argmax(labels, -1) : labels;
  run_on(outputs.device(), [&](auto& stream) {
    kernels::count_correct(stream, outputs.detach().contiguous(), classes, 1, rule.ignored_label.value_or(no_class),
                           correct);
  });
}

// Whether the rows of a step's batches have one shape. They then draw as one batch would; otherwise, as with texts of
// different lengths, each batch draws numbers of its own.
bool rows_are_alike(std::span<const data::Batch> inputs) {
  const auto differ = [](const Tensor& a, const Tensor& b) {
    if (!a.defined() || !b.defined()) return a.defined() != b.defined();
    return a.rank() != b.rank() || a.shape().with(0, 0) != b.shape().with(0, 0);
  };
  return std::none_of(inputs.begin(), inputs.end(), [&](const data::Batch& input) {
    return differ(input.images, inputs[0].images) || differ(input.labels, inputs[0].labels) ||
           differ(input.input, inputs[0].input) || differ(input.source, inputs[0].source);
  });
}

// Gradients of the mean over all samples that count. after_backward(loss) runs for each batch.
template <class F>
void accumulate_gradients(Session& session, std::span<const data::Batch> inputs, F&& after_backward) {
  session.set_switches();
  const AutocastScope autocast(session.autocast());
  std::int64_t samples = 0;
  for (const data::Batch& input : inputs) samples += input.count();
  session.parameters->zero_grads();
  const std::vector<Share> shares = shares_of(session.loss, inputs, samples);
  std::int64_t begun = 0;
  const bool alike = rows_are_alike(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const data::Batch& input = inputs[i];
    RandomKey key{session.config().seed, static_cast<std::uint64_t>(session.position.step)};
    if (alike)
      key.part = {begun, input.rows()};
    else
      key.op = static_cast<std::uint32_t>(i) * most_random_ops;
    const RandomScope random(key);
    begun += input.rows();
    const Sums& sums = session.loss_scale ? session.step_sums : session.sums;
    const Tensor loss = loss_of(session, input, sums.correct);
    sweep(session, loss, shares[i]);
    after_backward(loss);
    // As many losses as the device counted labels, or so that the sum is that of the mean over all rows.
    const Share& share = shares[i];
    if (share.labels.defined())
      add_loss(sums.loss, loss, 1, share.labels);
    else
      add_loss(sums.loss, loss, static_cast<double>(share.of_labels.defined() ? samples : input.count()),
               share.of_labels);
  }
  session.parameters->finish_grads();
}

// The weights and, in the same pass, their average; then that of the buffers.
void apply_update(Session& session) {
  session.optimizer->apply(session.ema.get());
  if (session.ema) session.ema->apply_to_buffers();
}

void host_step(Session& session, std::span<const data::Batch> inputs, double lr) {
  session.model->train(true);
  accumulate_gradients(session, inputs, [&](const Tensor& loss) {
    if (const double value = loss.item(); !std::isfinite(value)) {
      session.parameters->finish_grads();
      throw_diverged(session, join_text("the loss is ", value, " at step ", session.position.step + 1));
    }
  });
  // A finite loss may have gradients that are not. Clipping reads them all the same.
  const double norm = optim::grad_norm(*session.parameters);
  if (!std::isfinite(norm))
    throw_diverged(session, join_text("a gradient is not finite at step ", session.position.step + 1));
  double scale = 1;
  if (const auto limit = session.config().train.clip_norm) {
    session.grad_norm = norm;
    scale = optim::clip_scale(norm, *limit);
  }
  const OriginScope origin = OriginScope::of_op("optimizer");
  session.optimizer->begin_step(lr, scale);
  if (session.ema) session.ema->begin_update();
  apply_update(session);
}

}  // namespace

Tensor loss_of(Session& session, const data::Batch& input, const Tensor& correct) {
  if (session.chunked != nullptr) {
    const Tensor x = input.source.defined() ? session.chunked->features_pair(input.source, input.target)
                                            : session.chunked->features(input.input);
    const auto [weight, bias] = session.chunked->head();
    return session.loss.of_head(x, weight, bias, input.labels, correct);
  }
  const Tensor outputs = outputs_of(session, input);
  const Tensor loss = session.loss(outputs, input.labels);
  if (correct.defined()) count_hits(session.loss, outputs, input.labels, correct);
  return loss;
}

data::Batch blank_rows(const Session& session, std::int64_t rows) {
  const Device device = session.device();
  const auto ids = [&](std::int64_t length) { return Tensor::zeros({rows, length}, DType::i32, device); };
  data::Batch input;
  const data::TokenDataset* const tokens = session.data.train->tokens();
  if (tokens == nullptr) {
    const data::ImageShape shape = session.data.input_shape();
    input.images = Tensor::zeros({rows, shape.height, shape.width, shape.channels}, DType::f32, device);
    input.labels = Tensor::zeros({rows}, DType::i64, device);
    return input;
  }
  if (tokens->source_tokenizer() != nullptr)
    input.source = ids(tokens->longest()), input.target = ids(tokens->longest());
  else
    input.input = ids(tokens->longest());
  input.labels = tokens->labelled() != nullptr ? Tensor::zeros({rows}, DType::i64, device)
                                               : Tensor::zeros({rows, tokens->longest()}, DType::i64, device);
  return input;
}

data::Batch moved_input(const Session& session, const data::Batch& batch) {
  data::Batch moved{.counted = batch.counted};
  for (const auto tensor : batch_tensors)
    if ((batch.*tensor).defined()) moved.*tensor = (batch.*tensor).to(session.device());
  return moved;
}

StepResult begin_device_step(Session& session, std::int64_t samples) {
  const double lr = session.lr(session.position.step);
  session.model->train(true);
  session.optimizer->begin_step(lr);
  if (session.ema) session.ema->begin_update();
  if (session.loss_scale) session.loss_scale->begin_step(*session.optimizer, session.ema.get(), samples);
#if HEARTH_HAS_CUDA
  if (session.device().is_cuda())
    cuda::set_random_step(cuda::stream_of(session.device()), static_cast<std::uint64_t>(session.position.step));
#endif
  return {samples, lr};
}

void run_device_step(Session& session, std::span<const data::Batch> inputs) {
  accumulate_gradients(session, inputs, [](const Tensor&) {});
  const OriginScope origin = OriginScope::of_op("optimizer");
  const auto limit = session.config().train.clip_norm;
  if (session.loss_scale) {
    session.loss_scale->judge(
        *session.optimizer, session.ema.get(), limit.value_or(0), session.device_grad_norm,
        {session.step_sums.loss, session.sums.loss, session.step_sums.correct, session.sums.correct});
    session.loss_scale->settle_buffers(*session.optimizer);
  } else if (limit) {
    optim::clip_on_device(*session.parameters, *session.optimizer, *limit, session.device_grad_norm);
  }
  apply_update(session);
}

StepResult training_step(Session& session, std::span<const data::Batch> batches) {
  std::vector<data::Batch> inputs;
  std::int64_t samples = 0;
  for (const data::Batch& batch : batches) {
    inputs.push_back(moved_input(session, batch));
    samples += batch.count();
  }
  if (session.device().is_cuda() || session.loss_scale) {
    const StepResult result = begin_device_step(session, samples);
    run_device_step(session, inputs);
    return result;
  }
  const double lr = session.lr(session.position.step);
  host_step(session, inputs, lr);
  return {samples, lr};
}

void evaluation_step(Session& session, const data::Batch& input, const Sums& sums) {
  session.set_switches();
  const NoGrad no_grad;
  const AutocastScope autocast(session.autocast());
  add_loss(sums.loss, loss_of(session, input, sums.correct), static_cast<double>(input.count()));
}

Meter evaluate(Session& session, const data::DatasetPointer& part) {
  std::optional<optim::EmaScope> averaged;
  if (session.ema && !session.ema->in_use()) averaged.emplace(*session.ema);
  session.model->train(false);
  const std::int64_t batch_size = session.config().eval.batch_size.value_or(session.config().train.batch_size);
  data::Loader loader = session.data.eval_loader(part, batch_size, Session::image_type(session.device().type));
  // Summed where the run computes; read once at the end.
  const Sums sums(session.device());
  Meter meter;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const data::Batch input = moved_input(session, loader.next());
    evaluation_step(session, input, sums);
    meter.samples += input.count();
  }
  sums.read(meter);
  session.model->train(true);
  return meter;
}

}  // namespace hearth::train
