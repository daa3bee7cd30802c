// SPDX-License-Identifier: Apache-2.0
#include "train/step/ranks.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "autograd/grad_state.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "dist/process_group.h"
#include "ops/ops.h"
#include "train/model/loss.h"
#include "train/model/meter.h"
#include "train/signals.h"
#include "train/step/compression.h"

namespace hearth::train {

/// What a rank tells the others before a step.
struct Ranks::Told {
  std::int64_t samples = 0, rows = 0, pieces = 0, tokens = 0, positions = 0, kind = 0;
  std::int64_t stop_signal = 0, checkpoint = 0, shows_progress = 0, bad_samples = 0, trace_steps = 0, trace_pending = 0;
  std::int64_t whole_ns = 0, busy_ns = 0;  // of the last step
  double lr = 0, labels = 0;               // the latter by their classes' weights
  static constexpr std::int64_t numbers = 16;
};

namespace {

// Enough for 1, 2, 4 or 8 ranks.
constexpr std::int64_t cuts_in_deterministic_mode = 8;

/// ConfigError unless the sums of a step in deterministic mode do not depend on the ranks.
void check_pieces(const RunConfig& config, std::int64_t cuts, int ranks) {
  const std::int64_t batches = config.train.accumulate, each = batches * cuts / ranks;
  HEARTH_CHECK(ConfigError, !config.train.deterministic || (each & (each - 1)) == 0, "/dist/shards: ", batches,
               " batches of ", cuts, " pieces (train.accumulate, dist.shards) are ", each, " for each of ", ranks,
               " ranks; in deterministic mode that is a power of 2, so that sums do not depend on the ranks");
  HEARTH_CHECK(ConfigError,
               !config.train.deterministic || config.dist.zero < 2 || each == 1 || (ranks & (ranks - 1)) == 0,
               "/dist/zero: ", config.dist.zero, " in deterministic mode, with ", each, " pieces for each of ", ranks,
               " ranks: the ranks sum each piece, which gives the bits of other runs for a power of 2 of ranks; use "
               "zero 0 or 1, or as many pieces as ranks (train.accumulate times dist.shards)");
}

/// Into how many pieces a batch is cut: so many that all ranks get as many pieces of a step.
std::int64_t cuts_of(const RunConfig& config, bool cuts_batches, int ranks) {
  const std::int64_t batches = config.train.accumulate;
  if (!cuts_batches) {
    HEARTH_CHECK(ConfigError,
                 batches % ranks == 0 && config.dist.shards.value_or(1) == 1 && !config.dist.sync_batch_norm,
                 "/train/accumulate: the loss of this task is of a batch as a whole, as that of contrastive is, whose "
                 "pairs are told apart within it, so each batch is one rank's; ",
                 batches, " batches a step do not go round ", ranks,
                 " ranks whole: give a multiple of the ranks, no dist.shards above 1 and no dist.sync_batch_norm");
    check_pieces(config, 1, ranks);
    return 1;
  }
  if (config.dist.sync_batch_norm) {
    // The pieces whose statistics meet are those that the ranks compute at the same time.
    HEARTH_CHECK(ConfigError, batches == 1 && config.dist.shards.value_or(ranks) == ranks,
                 "/dist/sync_batch_norm: every batch is one piece for each of the ", ranks,
                 " ranks then; use train.accumulate 1 and no dist.shards");
    HEARTH_CHECK(ConfigError, config.train.batch_size >= ranks, "/dist/sync_batch_norm: a batch of ",
                 config.train.batch_size, " rows has none for some of ", ranks, " ranks");
    return ranks;
  }
  if (config.dist.shards || config.train.deterministic) {
    const std::int64_t cuts = config.dist.shards.value_or(cuts_in_deterministic_mode);
    HEARTH_CHECK(ConfigError, batches * cuts % ranks == 0, "/dist/shards: ", batches, " batches of ", cuts,
                 " pieces a step do not go round ", ranks, " ranks; give a multiple");
    check_pieces(config, cuts, ranks);
    return cuts;
  }
  return ranks / std::gcd(batches, static_cast<std::int64_t>(ranks));
}

/// A number that tells shapes and types of a batch, but for its rows, from others.
std::int64_t kind_of(const data::Batch& batch) {
  std::string text;
  for (const data::Batch::Named& one : batch.tensors())
    text += join_text(one.name, ' ', one.tensor.dtype(), ' ',
                      one.axis == data::Batch::Axis::shared ? one.tensor.shape() : one.tensor.shape().with(0, 1), '\n');
  return crc32c(std::as_bytes(std::span(text)));
}

/// What the labels of each piece weigh, by their classes' weights; nothing where all count alike.
std::optional<std::vector<double>> labels_of(std::span<const data::Batch> pieces, const Loss& loss) {
  std::vector<double> weights(pieces.size());
  bool may_ignore = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Tensor labels = pieces[i].find("labels");
    if (pieces[i].size() == 0 || !loss.ignored_label || !labels.defined() || is_floating(labels.dtype())) continue;
    may_ignore = true;
    weights[i] =
        loss.weight ? loss.weight(labels).item() : label_counts(std::span(&labels, 1), *loss.ignored_label).item();
  }
  return may_ignore ? std::optional(std::move(weights)) : std::nullopt;
}

/// What one process has of a step.
StepPart step_of(std::span<const data::Batch> batches) {
  StepPart step;
  for (const data::Batch& batch : batches) {
    step.samples += batch.count();
    step.tokens += batch.tokens;
    step.positions += batch.positions;
  }
  return step;
}

}  // namespace

dist::DataParallelOptions data_parallel_options(const RunConfig& config, Device device, std::int64_t steps_per_epoch) {
  HEARTH_CHECK(ConfigError, !config.train.deterministic || config.dist.wire == DType::f32,
               "/dist/wire: ", config.dist.wire,
               " rounds gradients between the ranks, so that the weights depend on their number, and "
               "/train/deterministic is on, which gives the same bits on any number; leave the one or the other out");
  dist::DataParallelOptions options{
      .bucket_mb = initial_bucket_mb(config.dist),
      .first_bucket_mb = config.dist.first_bucket_mb,
      .overlap = config.dist.overlap && (!config.train.deterministic || config.dist.zero > 1),
      .zero = static_cast<int>(config.dist.zero)};
  if (config.dist.wire != DType::f32) options.wire = config.dist.wire;
  if (config.dist.compress) options.compress = compression_of(config, device, steps_per_epoch);
  return options;
}

std::int64_t block_elements(const DistOptions& options) {
  const double elements = initial_bucket_mb(options) * (1 << 20) / sizeof(float);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(elements));
}

bool StepPart::same_but_for_weights(const StepPart& other) const {
  const auto same_piece = [&](const Piece& a, const Piece& b) {
    return a.number == b.number && a.first_row == b.first_row &&
           (weights.defined() || (a.weight == b.weight && a.losses == b.losses));
  };
  return pieces == other.pieces && alike == other.alike && weights.defined() == other.weights.defined() &&
         std::equal(of_pieces.begin(), of_pieces.end(), other.of_pieces.begin(), other.of_pieces.end(), same_piece);
}

Ranks::Ranks(std::int64_t batches) : group_(dist::one_process()), each_(batches), trace_(group_) {}

Ranks::Ranks(Collective& group, const RunConfig& config, bool cuts_batches, FlatParameters& parameters,
             std::vector<NamedTensor> buffers, std::int64_t steps_per_epoch)
    : group_(group),
      deterministic_(config.train.deterministic),
      divided_(parameters.divides_grads()),
      cuts_(cuts_of(config, cuts_batches, group.size())),
      each_(config.train.accumulate * cuts_ / group.size()),
      parameters_(&parameters),
      trace_(group),
      parallel_(std::make_unique<dist::DataParallel>(
          group, parameters, data_parallel_options(config, parameters.grads().device(), steps_per_epoch))),
      gradients_(std::make_unique<dist::PairwiseSum>(parameters.grads())),
      buffers_(std::move(buffers)) {
  std::erase_if(buffers_, [](const NamedTensor& buffer) { return !is_floating(buffer.tensor->dtype()); });
  std::int64_t elements = 0;
  for (const NamedTensor& buffer : buffers_) {
    group_.broadcast(*buffer.tensor).wait();
    elements += buffer.tensor->size();
    buffers_before_.push_back(buffer.tensor->clone());
  }
  // Before steps are recorded, whose memory is not for what stays.
  if (deterministic_) gradients_->reserve(each_);
  if (elements == 0) return;
  const Tensor& first = *buffers_.front().tensor;
  moved_ = Tensor::zeros({elements}, first.dtype(), first.device());
  moves_ = std::make_unique<dist::PairwiseSum>(moved_);
  moves_->reserve(each_);
}

data::LoaderPart Ranks::part() const {
  if (alone()) return {};
  return {.cuts = cuts_,
          .of = each_ * size(),
          .first = divided_ ? rank() : each_ * rank(),
          .count = each_,
          .stride = divided_ ? size() : 1};
}

Ranks::Told Ranks::told_of(std::span<const data::Batch> pieces, int rank) {
  Told mine;
  bool alike = true;
  for (const data::Batch& piece : pieces) {
    if (piece.size() == 0) continue;
    const std::int64_t kind = kind_of(piece);
    alike = alike && (mine.pieces == 0 || kind == mine.kind);
    mine.kind = kind;
    ++mine.pieces;
    mine.rows += piece.rows();
    mine.samples += piece.count();
    mine.tokens += piece.tokens;
    mine.positions += piece.positions;
  }
  if (!alike) mine.kind = -1 - rank;
  return mine;
}

void Ranks::take_in(std::span<const Told> told, std::int64_t step) {
  step_ = {};
  wishes_ = {};
  last_times_.clear();
  std::int64_t kind = 0;
  for (int other = 0; other < size(); ++other) {
    const Told& theirs = told[static_cast<std::size_t>(other)];
    last_times_.push_back({1e-9 * static_cast<double>(theirs.whole_ns), 1e-9 * static_cast<double>(theirs.busy_ns)});
    HEARTH_CHECK(PeerError, theirs.lr == told[0].lr, "step ", step, ": ", dist::who(group_, other),
                 " has the learning rate ", theirs.lr, ", ", dist::who(group_, 0), " has ", told[0].lr,
                 "; hooks give all ranks the same");
    step_.samples += theirs.samples;
    step_.tokens += theirs.tokens;
    step_.positions += theirs.positions;
    step_.pieces += theirs.pieces;
    if (theirs.pieces > 0) {
      step_.alike = step_.alike && (kind == 0 || kind == theirs.kind) && theirs.kind >= 0;
      kind = theirs.kind;
    }
    wishes_.stop_signal = std::max(wishes_.stop_signal, static_cast<int>(theirs.stop_signal));
    wishes_.checkpoint = wishes_.checkpoint || theirs.checkpoint != 0;
    wishes_.shows_progress = wishes_.shows_progress || theirs.shows_progress != 0;
    wishes_.bad_samples = wishes_.bad_samples || theirs.bad_samples != 0;
    wishes_.trace_steps = std::max(wishes_.trace_steps, theirs.trace_steps);
    wishes_.trace_pending = wishes_.trace_pending || theirs.trace_pending != 0;
  }
}

const StepPart& Ranks::begin_step(std::span<const data::Batch> pieces, const Loss& loss, const StepWishes& wishes,
                                  const StepTimes& last) {
  if (alone()) {
    step_ = step_of(pieces);
    wishes_ = wishes;
    return step_;
  }
  if (wishes.step > 0) dist::set_status(group_, join_text("step ", wishes.step));
  const std::optional<std::vector<double>> labels = labels_of(pieces, loss);
  Told mine = told_of(pieces, rank());
  mine.stop_signal = wishes.stop_signal;
  mine.checkpoint = wishes.checkpoint;
  mine.shows_progress = wishes.shows_progress && writes();
  mine.bad_samples = wishes.bad_samples;
  mine.trace_steps = wishes.trace_steps;
  mine.trace_pending = wishes.trace_pending;
  mine.whole_ns = static_cast<std::int64_t>(1e9 * last.whole);
  mine.busy_ns = static_cast<std::int64_t>(1e9 * last.busy);
  mine.lr = wishes.lr;
  if (labels) mine.labels = std::accumulate(labels->begin(), labels->end(), 0.0);
  static_assert(sizeof(Told) == Told::numbers * sizeof(std::int64_t));
  const Tensor all = Tensor::zeros({size() * Told::numbers}, DType::i64);
  const Tensor own = Tensor::of<std::int64_t>(
      {Told::numbers}, std::span<const std::int64_t>(reinterpret_cast<const std::int64_t*>(&mine), Told::numbers));
  group_.all_gather(own, all).wait();
  const std::span told(reinterpret_cast<const Told*>(all.data<const std::int64_t>()), static_cast<std::size_t>(size()));
  take_in(told, wishes.step);
  std::int64_t rows_before = 0;
  for (const Told& theirs : told.first(static_cast<std::size_t>(rank()))) rows_before += theirs.rows;
  step_.of_pieces.resize(pieces.size());
  number_pieces(pieces, rows_before);
  double all_labels = 0;
  for (const Told& theirs : told) all_labels += theirs.labels;
  weigh(pieces, loss, labels, all_labels);
  trace_.begin();
  return step_;
}

void Ranks::number_pieces(std::span<const data::Batch> pieces, std::int64_t rows_before) {
  const bool takes_turns = divided_ && each_ > 1;
  std::vector<std::int64_t> rows;
  for (const data::Batch& piece : pieces) rows.push_back(piece.rows());
  rows.resize(static_cast<std::size_t>(each_), 0);
  // Of all ranks: those of rank 0, then those of rank 1 and so on.
  Tensor all;
  if (takes_turns) {
    all = Tensor::zeros({size() * each_}, DType::i64);
    group_.all_gather(Tensor::of<std::int64_t>({each_}, rows), all).wait();
  }
  std::int64_t begun = rows_before;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(pieces.size()); ++i) {
    StepPart::Piece& piece = step_.of_pieces[static_cast<std::size_t>(i)];
    piece.number = takes_turns ? i * size() + rank() : each_ * rank() + i;
    piece.first_row = begun;
    begun += rows[static_cast<std::size_t>(i)];
    if (!takes_turns) continue;
    piece.first_row = 0;
    for (std::int64_t other = 0; other < size(); ++other)
      for (std::int64_t k = 0; k < each_ && k * size() + other < piece.number; ++k)
        piece.first_row += all.data<const std::int64_t>()[other * each_ + k];
  }
}

void Ranks::weigh(std::span<const data::Batch> pieces, const Loss& loss,
                  const std::optional<std::vector<double>>& labels, double all_labels) {
  const auto part_of = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  const auto all_samples = static_cast<double>(step_.samples);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto count = static_cast<double>(pieces[i].count());
    StepPart::Piece& piece = step_.of_pieces[i];
    piece.weight = labels ? part_of((*labels)[i], all_labels) : part_of(count, all_samples);
    piece.losses = !labels ? count : pieces[i].counted >= 0 && !loss.weight ? (*labels)[i] : piece.weight * all_samples;
  }
  if (!labels) return;
  step_.weights = Tensor::empty({static_cast<std::int64_t>(pieces.size()), 2}, DType::f64);
  double* numbers = step_.weights.data<double>();
  for (const StepPart::Piece& piece : step_.of_pieces) {
    *numbers++ = piece.weight;
    *numbers++ = piece.losses;
  }
}

int Ranks::stop_signal() const { return alone() ? SignalScope::requested() : wishes_.stop_signal; }

bool Ranks::wants_checkpoint() const { return alone() ? SignalScope::checkpoint_requested() : wishes_.checkpoint; }

std::int64_t Ranks::least(std::int64_t mine) const {
  const Tensor all = Tensor::of<std::int64_t>({1}, {mine});
  group_.all_reduce(all, Reduce::min).wait();
  return all.data<const std::int64_t>()[0];
}

void Ranks::begin_piece(std::int64_t piece) {
  if (alone()) return;
  if (piece == 0) parallel_->discard();
  // What comes after the last one is summed as it comes.
  parallel_->overlap_next(piece + 1 == each_);
  if (deterministic_) parameters_->zero_grads();
  for (std::size_t i = 0; piece == 0 && i < buffers_.size(); ++i) buffers_before_[i].copy_from(*buffers_[i].tensor);
}

void Ranks::end_piece(std::int64_t piece, bool has_rows) {
  if (alone()) return;
  if (divided_) parallel_->reduce();
  if (deterministic_) {
    for (const FlatParameters::Entry& entry : parameters_->entries())
      if (!divided_) (void)grad_of(entry.value);
    gradients_->add(piece, each_);
  }
  if (!moves_) return;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Tensor& buffer = *buffers_[i].tensor;
    const Tensor place = Tensor::view(moved_.storage(), buffer.shape(), contiguous_strides(buffer.shape()), begin,
                                      moved_.dtype(), moved_.device());
    has_rows ? place.copy_from(buffer) : place.fill_(0);
    buffer.copy_from(buffers_before_[i]);
    begin += buffer.size();
  }
  if (divided_) group_.all_reduce(moved_).wait();
  moves_->add(piece, each_);
}

void Ranks::finish_step() {
  if (!alone()) reduce();
}

void Ranks::update_made() {
  if (!alone()) parallel_->update_made();
}

void Ranks::set_scale(double scale) {
  if (!alone()) parallel_->set_scale(scale);
}

void Ranks::register_state(State& state) {
  if (!alone()) parallel_->register_state(state);
}

void Ranks::reduce() {
  if (!divided_) parallel_->reduce();
  if (!moves_ || step_.pieces == 0) return;
  if (!divided_) group_.all_reduce(moved_).wait();
  const Tensor mean = mul(moved_, 1.0 / static_cast<double>(step_.pieces));
  std::int64_t begin = 0;
  for (const NamedTensor& named : buffers_) {
    const Tensor& buffer = *named.tensor;
    buffer.copy_from(Tensor::view(mean.storage(), buffer.shape(), contiguous_strides(buffer.shape()), begin,
                                  mean.dtype(), mean.device()));
    begin += buffer.size();
  }
}

void Ranks::read_sums(const Sums& sums, Meter& meter) {
  const Tensor losses = Tensor::zeros({size()}, DType::f64), correct = Tensor::zeros({size()}, DType::i64);
  group_.all_gather(sums.loss.to(Device{}), losses).wait();
  group_.all_gather(sums.correct.to(Device{}), correct).wait();
  loss_sums_.assign(losses.data<const double>(), losses.data<const double>() + size());
  meter.loss_sum = std::accumulate(loss_sums_.begin(), loss_sums_.end(), 0.0);
  const std::int64_t* const counts = correct.data<const std::int64_t>();
  meter.correct = std::accumulate(counts, counts + size(), std::int64_t{0});
}

}  // namespace hearth::train
