// SPDX-License-Identifier: Apache-2.0
#include "train/step/step.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cuda/graph.h"
#include "core/origin.h"
#include "core/profiler.h"
#include "core/profiler_spans.h"
#include "core/random.h"
#include "core/run_on.h"
#include "ops/ops.h"
#include "optim/clip.h"
#include "train/step/cuda/feed.h"
#include "train/step/ranks.h"
#include "train/step/visit_batches.h"

namespace hearth::train {
namespace {

// Random operations of one forward pass, at most, so that a million batches fit in a step.
constexpr std::uint32_t max_random_ops = 1 << 12;
// Of a batch that counts for nothing.
constexpr std::int64_t blank_rows = 2;

// What a batch's loss counts for in the mean over a step: a part of its samples or, where some may not count or classes
// have weights, of the labels' weights, which only the device knows.
struct Share {
  double of_samples = 1;
  Tensor of_labels{};  // f64 [1]; undefined where all count alike, and where there is one batch
  Tensor labels{};     // f64 [1]: for how many losses the mean stands; undefined where the meter counts rows
  double losses = 0;   // for how many losses the mean stands, where `labels` does not tell
};

Tensor element_of(const Tensor& all, std::size_t i) {
  return Tensor::view(all.storage(), {1}, {1}, static_cast<std::int64_t>(i), all.dtype(), all.device());
}

/// f64 [parts]: what each part of the labels counts for.
Tensor weights_of(const Loss& loss, std::span<const Tensor> labels) {
  std::vector<Tensor> each;
  for (const Tensor& part : labels) each.push_back(loss.weight(part));
  return concat(each, 0);
}

std::vector<Share> shares_of(const Loss& loss, std::span<const data::Batch> inputs, std::int64_t samples) {
  std::vector<Share> held(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) held[i].losses = static_cast<double>(inputs[i].count());
  std::vector<Tensor> labels;
  bool may_ignore = false;
  for (const data::Batch& input : inputs) {
    labels.push_back(input.find("labels"));
    const bool classes = labels.back().defined() && !is_floating(labels.back().dtype());
    may_ignore = may_ignore || (loss.ignored_label && classes);
  }
  // One batch whose rows the meter counts needs no counting of labels.
  if (!may_ignore || (inputs.size() == 1 && inputs[0].counted < 0)) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      held[i].of_samples = samples > 0 ? static_cast<double>(inputs[i].count()) / static_cast<double>(samples) : 0.0;
    return held;
  }
  const Tensor counts = label_counts(labels, *loss.ignored_label);
  const Tensor parts = inputs.size() > 1 ? label_weights(loss.weight ? weights_of(loss, labels) : counts) : Tensor();
  const Tensor losses = loss.weight && parts.defined() ? mul(parts, sum(counts)) : counts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].counted >= 0) held[i].labels = element_of(losses, i);
    if (!parts.defined()) continue;
    held[i].of_labels = element_of(parts, i);
    // So that the sum is that of the mean over all rows.
    held[i].losses = static_cast<double>(samples);
  }
  return held;
}

/// The same as the ranks have agreed on it.
std::vector<Share> shares_of(const Ranks& ranks) {
  std::vector<Share> held;
  for (const StepPart::Piece& piece : ranks.step().of_pieces)
    held.push_back({.of_samples = piece.weight, .losses = piece.losses});
  const Tensor& weights = ranks.weights();
  for (std::size_t i = 0; weights.defined() && i < held.size(); ++i) {
    held[i].of_labels = element_of(weights, 2 * i);
    held[i].labels = element_of(weights, 2 * i + 1);
  }
  return held;
}

void backward_of(Session& session, const Tensor& loss, const Share& share) {
  if (session.loss_scale)
    backward(loss, session.loss_scale->seed(loss, share.of_samples, share.of_labels));
  else if (share.of_labels.defined())
    backward(loss, reshape(share.of_labels, loss.shape()).to(loss.dtype()));
  else
    backward(loss, share.of_samples);
}

// Whether the host reads losses and norms as they come, and ends the run where one is not finite. Where it does not,
// nothing waits: the device decides, and read_interval() reports.
bool host_decides(const Session& session) { return session.device().is_cpu() && !session.loss_scale; }

// What the random operations of a batch draw by. Rows of one shape draw as those of one batch would; otherwise, as with
// sequences of different lengths, each batch draws numbers of its own.
RandomKey random_key(const Session& session, bool alike, std::int64_t first_row, std::int64_t rows,
                     std::int64_t number) {
  RandomKey key{session.config().seed, static_cast<std::uint64_t>(session.position.step)};
  if (alike)
    key.part = {first_row, rows};
  else
    key.op = static_cast<std::uint32_t>(number) * max_random_ops;
  return key;
}

void require_finite(const Session& session, const Tensor& loss) {
  const double value = loss.item();
  if (!std::isfinite(value))
    throw_diverged(session, join_text("the loss is ", value, " at step ", session.position.step + 1));
}

// Adds the gradients of one batch's loss, and the loss to the meter.
void accumulate_batch(Session& session, const data::Batch& input, const Share& share) {
  const Sums& sums = session.loss_scale ? session.step_sums : session.sums;
  const Tensor loss = session.task->loss(session, input, {.correct = sums.correct});
  enter(session, Phase::backward);
  backward_of(session, loss, share);
  // Other ranks learn of it by their gradients.
  if (host_decides(session) && session.ranks->alone()) require_finite(session, loss);
  // As many losses as the device counted labels.
  add_loss(sums.loss, loss, share.labels.defined() ? 1 : share.losses,
           share.labels.defined() ? share.labels : share.of_labels);
}

// What a rank without rows does where all ranks gather values while they compute: the same, of blank rows that count
// for nothing.
void accumulate_blank(Session& session) {
  const Sums unused(session.device());
  const data::Batch blank = on_device(session, blank_batch(session, blank_rows, session.device().type));
  const Tensor loss = session.task->loss(session, blank, {.correct = unused.correct});
  enter(session, Phase::backward);
  backward_of(session, loss, {.of_samples = 0});
}

// Gradients of the mean over all samples that count.
void accumulate_gradients(Session& session, std::span<const data::Batch> inputs) {
  const AutocastScope autocast(session.autocast());
  Ranks& ranks = *session.ranks;
  std::int64_t samples = 0;
  for (const data::Batch& input : inputs) samples += input.count();
  session.parameters->zero_grads();
  const bool alone = ranks.alone();
  const std::vector<Share> held = alone ? shares_of(session.loss, inputs, samples) : shares_of(ranks);
  const auto is_alike = [&](const data::Batch& input) { return same_but_for_rows(input, inputs[0]); };
  const bool alike = alone ? std::all_of(inputs.begin(), inputs.end(), is_alike) : ranks.step().alike;
  std::int64_t begun = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const data::Batch& input = inputs[i];
    const auto number = static_cast<std::int64_t>(i);
    const StepPart::Piece place =
        alone ? StepPart::Piece{.number = number, .first_row = begun} : ranks.step().of_pieces[i];
    const RandomScope random(random_key(session, alike, place.first_row, input.rows(), place.number));
    begun += input.rows();
    enter(session, Phase::forward);
    ranks.begin_piece(number);
    if (input.size() > 0)
      accumulate_batch(session, input, held[i]);
    else if (session.parameters->divides_values())
      accumulate_blank(session);
    ranks.end_piece(number, input.size() > 0);
  }
  if (!alone) enter(session, Phase::communication);
  ranks.finish_step();
}

// Where the gradients are not clipped, their norm is read all the same: a finite loss may have some that are not
// finite.
void clip_on_host(Session& session, std::optional<double> limit) {
  const double norm = optim::grad_norm(*session.parameters);
  if (!std::isfinite(norm))
    throw_diverged(session, join_text("a gradient is not finite at step ", session.position.step + 1));
  if (!limit) return;
  session.grad_norm = norm;
  double* const grad_scale = session.optimizer->cells().grad_scale;
  HEARTH_CHECK(UsageError, grad_scale != nullptr,
               "train.clip_norm: this optimizer cannot scale gradients; it has to give grad_scale in cells()");
  *grad_scale *= optim::clip_scale(norm, *limit);
}

// What becomes of the gradients: whether they are finite, the scale that clips them, whether the update is skipped.
void decide(Session& session) {
  const std::optional<double> limit = session.config().train.clip_norm;
  if (host_decides(session)) {
    clip_on_host(session, limit);
  } else if (session.loss_scale) {
    session.loss_scale->check_found_inf(
        *session.optimizer, session.ema.get(), limit.value_or(0), session.device_grad_norm,
        {session.step_sums.loss, session.sums.loss, session.step_sums.correct, session.sums.correct});
    session.loss_scale->settle_buffers(*session.optimizer);
  } else if (limit) {
    optim::clip_on_device(*session.parameters, *session.optimizer, *limit, session.device_grad_norm);
  }
}

/// Whether the update is skipped, on the CPU. The same on all ranks, whose gradients have the same bits.
bool is_skipped(Session& session) {
  const bool* const skip = session.optimizer->cells().skip;
  return skip != nullptr && *skip;
}

}  // namespace

namespace {

data::Batch first_samples(const Session& session, DeviceType target) {
  const std::int64_t few = std::min<std::int64_t>(2, session.data.train->size());
  return session.data.train_loader(few, session.config().seed, target).next();
}

/// Blank tensors of `rows` rows, of the names, shapes and types of a batch; rows have no entries of ragged ones.
data::Batch blank_like(const Session& session, const data::Batch& sample, std::int64_t rows) {
  data::Batch batch = sample.map([&](const data::Batch::Named& one) {
    using Axis = data::Batch::Axis;
    const Shape shape = one.axis == Axis::shared   ? one.tensor.shape()
                        : one.axis == Axis::ragged ? one.tensor.shape().with(0, 0)
                                                   : session.task->longest(one.tensor.shape().with(0, rows));
    return Tensor::zeros(shape, one.tensor.dtype());
  });
  batch.counted = -1;
  batch.samples.assign(static_cast<std::size_t>(rows), 0);
  return batch;
}

/// Writes the rows of `from`, over and over, into the beginning of those of `to`, of the same rank and type.
void repeat_rows(const Tensor& to, const Tensor& from) {
  for (std::int64_t row = 0; row < to.dim(0); ++row) {
    Tensor part = to.slice(0, row, row + 1);
    for (int axis = 1; axis < to.rank(); ++axis) part = part.slice(axis, 0, std::min(to.dim(axis), from.dim(axis)));
    Tensor source = from.slice(0, row % from.dim(0), row % from.dim(0) + 1);
    for (int axis = 1; axis < to.rank(); ++axis) source = source.slice(axis, 0, part.dim(axis));
    part.copy_from(source);
  }
}

}  // namespace

data::Batch blank_batch(const Session& session, std::int64_t rows, DeviceType target) {
  return blank_like(session, first_samples(session, target), rows);
}

data::Batch sample_batch(const Session& session, std::int64_t rows, DeviceType target) {
  const data::Batch sample = first_samples(session, target);
  data::Batch batch = blank_like(session, sample, rows);
  std::vector<std::int64_t> repeated;
  for (std::int64_t row = 0; row < rows; ++row) repeated.push_back(row % sample.rows());
  const std::vector<data::Batch::Named> blank = batch.tensors();
  for (const data::Batch::Named& one : blank) {
    const Tensor& from = sample[one.name];
    if (one.axis == data::Batch::Axis::ragged)
      batch.set_ragged(one.name, sample.gather(repeated)[one.name], one.counts);
    else if (from.size() > 0 && from.rank() > 0)
      repeat_rows(one.tensor, from);
  }
  return batch;
}

namespace {

// Random operations of the CPU have the number from the host.
void set_random_step(cpu::Stream&, std::uint64_t) {}

data::Batch on_device(cpu::Stream&, Session& session, const data::Batch& batch) { return batch.to(session.device()); }

}  // namespace

void enter(Session& session, Phase phase) {
  session.phases.enter(phase);
  session.ranks->trace().mark(name_of(phase));
}

StepResult begin_step(Session& session, std::int64_t samples) {
  const double lr = session.lr(session.position.step);
  session.train_mode();
  session.optimizer->begin_step(lr);
  if (session.ema) session.ema->begin_update();
  if (session.loss_scale) session.loss_scale->begin_step(*session.optimizer, session.ema.get(), samples);
  if (session.loss_scale && session.config().dist.compress) session.ranks->set_scale(session.loss_scale->item_scale());
  const auto step = static_cast<std::uint64_t>(session.position.step);
  with_stream(session.device(), [&](auto& stream) { set_random_step(stream, step); });
  return {samples, lr};
}

void run_step(Session& session, std::span<const data::Batch> inputs) {
  const SwitchScope switches(session.switches());
  accumulate_gradients(session, inputs);
  enter(session, Phase::update);
  const OriginScope origin = OriginScope::of_op("optimizer");
  const profiler::Scope scope("optimizer");
  // Values and moments are read and written, gradients read.
  const auto passes = static_cast<double>(3 + 2 * session.optimizer->moments());
  profiler::add_bytes(passes * static_cast<double>(session.parameters->values().byte_size()));
  decide(session);
  session.optimizer->apply(session.ema.get());
  if (session.config().dist.compress && !is_skipped(session)) session.ranks->update_made();
  if (session.ema) session.ema->apply_to_buffers();
  enter(session, Phase::other);
}

data::Batch on_device(Session& session, const data::Batch& batch) {
  return with_stream(session.device(), [&](auto& stream) { return on_device(stream, session, batch); });
}

std::span<const data::Batch> as_loaded(const Session& session, std::span<const data::Batch> batches,
                                       std::vector<data::Batch>& held) {
  if (!session.data.ignored) return batches;
  held.assign(batches.begin(), batches.end());
  for (data::Batch& batch : held) data::ignore_labels(batch, *session.data.ignored);
  return held;
}

StepResult training_step(Session& session, std::span<const data::Batch> batches) {
  enter(session, Phase::copy);
  std::vector<data::Batch> inputs, held;
  std::int64_t samples = 0;
  for (const data::Batch& batch : as_loaded(session, batches, held)) {
    inputs.push_back(on_device(session, batch));
    samples += batch.count();
  }
  if (!session.ranks->alone()) {
    const StepPart& part = session.ranks->step();
    samples = part.samples;
    const bool moves = part.weights.defined() && session.device().is_cuda();
    data::Batch weights;
    if (moves) weights.set("weights", part.weights);
    session.ranks->use_weights(moves ? on_device(session, weights)["weights"] : Tensor());
  }
  enter(session, Phase::other);
  const StepResult result = begin_step(session, samples);
  try {
    run_step(session, inputs);
  } catch (...) {
    session.optimizer->abandon_step();
    if (session.ema) session.ema->abandon_update();
    throw;
  }
  return result;
}

double evaluation_step(Session& session, const data::Batch& input, const Sums& sums, Metrics* metrics) {
  const SwitchScope switches(session.switches());
  const NoGrad no_grad;
  const AutocastScope autocast(session.autocast());
  const Tensor loss = session.task->loss(session, input, {.correct = sums.correct, .metrics = metrics});
  const double weight =
      session.loss.weight ? session.loss.weight(input["labels"]).item() : static_cast<double>(input.count());
  add_loss(sums.loss, loss, weight);
  return weight;
}

RandomKey evaluation_key(const Session& session, std::int64_t batch) {
  constexpr std::uint64_t of_evaluations = 0xC2B2AE3D27D4EB4F;
  return {.seed = session.config().seed ^ of_evaluations,
          .step = static_cast<std::uint64_t>(session.position.step),
          .op = static_cast<std::uint32_t>(batch) * max_random_ops};
}

EvaluationScope::EvaluationScope(Session& session)
    : session_(session),
      was_training_(session.model->is_training()),
      autocast_(session.autocast()),
      random_(evaluation_key(session, 0)),
      switches_(session.switches()) {
  if (session.ema && !session.ema->in_use()) averaged_.emplace(*session.ema);
  session.model->eval();
}

EvaluationScope::~EvaluationScope() { session_.model->train(was_training_); }

namespace {

data::Loader evaluation_loader(const Session& session, const data::DatasetPointer& part,
                               const data::LoaderPart& of_rank = {}) {
  const std::int64_t batch_size = session.config().eval.batch_size.value_or(session.config().train.batch_size);
  return session.data.eval_loader(part, batch_size, session.device().type, of_rank);
}

/// `one` [n] of every rank, on the host, in order of rank: [ranks, n].
Tensor of_all_ranks(Collective& group, const Tensor& one) {
  const Tensor all = Tensor::zeros({group.size(), one.size()}, one.dtype());
  group.all_gather(one.to(Device{}), reshape(all, {all.size()})).wait();
  return all;
}

/// Of blank rows, which count for nothing.
void evaluate_blank(Session& session) {
  const Sums unused(session.device());
  (void)evaluation_step(session, on_device(session, blank_batch(session, blank_rows, session.device().type)), unused);
}

}  // namespace

void visit_batches(Session& session, const data::DatasetPointer& part, std::int64_t most,
                   const std::function<void(const data::Batch&)>& use) {
  const EvaluationScope as_in_evaluations(session);
  data::Loader loader = evaluation_loader(session, part);
  std::int64_t seen = 0;
  for (std::int64_t i = 0; i < loader.batches_per_epoch() && seen < most; ++i) {
    const data::Batch batch = on_device(session, loader.next());
    seen += batch.size();
    const RandomScope random(evaluation_key(session, i));
    use(batch);
  }
}

Meter evaluate(Session& session, const data::DatasetPointer& part) {
  const std::shared_ptr<Metrics> metrics = session.task->metrics();
  Collective& group = session.ranks->group();
  // Where the metrics need all batches in order, every rank takes all.
  const bool in_turn = !metrics || metrics->is_reducible();
  const std::int64_t ranks = in_turn ? group.size() : 1, rank = in_turn ? group.rank() : 0;
  const EvaluationScope as_in_evaluations(session);
  data::Loader loader = evaluation_loader(session, part, {.of = ranks, .first = rank});
  const std::int64_t batches = loader.batches_per_epoch(), rounds = (batches + ranks - 1) / ranks;
  // A place for each batch, and the device is read once, at the end.
  const Tensor losses = Tensor::zeros({rounds}, DType::f64, session.device()),
               correct = Tensor::zeros({rounds}, DType::i64, session.device()),
               samples = Tensor::zeros({rounds}, DType::i64), weights = Tensor::zeros({rounds}, DType::f64);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round * ranks + rank >= batches) {
      // All ranks gather values while they compute.
      if (session.parameters->divides_values()) evaluate_blank(session);
      break;
    }
    const data::Batch batch = on_device(session, loader.next());
    const auto at = static_cast<std::size_t>(round);
    const RandomScope random(evaluation_key(session, round * ranks + rank));
    weights.data<double>()[round] =
        evaluation_step(session, batch, {element_of(losses, at), element_of(correct, at)}, metrics.get());
    samples.data<std::int64_t>()[round] = batch.count();
  }
  const auto of_ranks = [&](const Tensor& mine) { return in_turn ? of_all_ranks(group, mine) : mine.to(Device{}); };
  const Tensor all_losses = of_ranks(losses), all_correct = of_ranks(correct), all_samples = of_ranks(samples),
               all_weights = of_ranks(weights);
  // In the order of the batches, so that any number of ranks has the same bits.
  Meter meter{.metrics = metrics};
  for (std::int64_t i = 0; i < batches; ++i) {
    const std::int64_t at = i % ranks * rounds + i / ranks;
    meter.loss_sum += all_losses.data<const double>()[at];
    meter.correct += all_correct.data<const std::int64_t>()[at];
    meter.samples += all_samples.data<const std::int64_t>()[at];
    meter.weight += all_weights.data<const double>()[at];
  }
  if (metrics && ranks > 1) metrics->reduce(group);
  return meter;
}

}  // namespace hearth::train
