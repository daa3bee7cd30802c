// SPDX-License-Identifier: Apache-2.0
// What the ranks of a data parallel run do together. The batches of a step are cut into pieces of rows; every rank
// takes as many of them, in order, and all have the gradient of the whole step before they update their weights.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/collective.h"
#include "data/loading/loader.h"
#include "dist/agreement.h"
#include "dist/data_parallel.h"
#include "train/config/run_config.h"
#include "train/profile/communication.h"
#include "train/profile/trace/step_trace.h"

namespace hearth::train {

struct Loss;
struct Meter;
struct Sums;

/// How the ranks of a run sum gradients on `device`. ConfigError where the wire would round gradients of deterministic
/// mode, as often as there are ranks, and where compression does not go with the rest.
HEARTH_API dist::DataParallelOptions data_parallel_options(const RunConfig& config, Device device,
                                                           std::int64_t steps_per_epoch);

/// How many gradients are divided among ranks together, by `dist.bucket_mb`.
HEARTH_API std::int64_t block_elements(const DistOptions& options);

/// A rank's part of the coming step, and what the whole step is.
struct StepPart {
  std::int64_t samples = 0;    ///< labels of all ranks that count
  std::int64_t tokens = 0;     ///< of all ranks
  std::int64_t positions = 0;  ///< likewise
  std::int64_t pieces = 0;     ///< of all ranks that have rows
  bool alike = true;           ///< whether all pieces are of one shape but for their rows
  struct Piece {
    double weight = 0;           ///< of its loss in the mean over the whole step
    double losses = 0;           ///< how many losses its mean stands for
    std::int64_t number = 0;     ///< among the pieces of all ranks
    std::int64_t first_row = 0;  ///< rows of the pieces before it
  };
  std::vector<Piece> of_pieces{};  ///< this rank's
  /// Where labels may not count: weight and losses of each of this rank's pieces, f64 [pieces, 2] on the host. On a GPU
  /// steps read them there, as they differ from step to step.
  Tensor weights{};

  /// Whether a step of this can be a replay of a step of the other.
  bool same_but_for_weights(const StepPart& other) const;
};

/// What any rank wants of all; each the largest of the ranks'.
struct StepWishes {
  int stop_signal = 0;           ///< the run ends after this step
  bool checkpoint = false;       ///< a checkpoint after this step
  bool shows_progress = false;   ///< the losses are wanted after this step
  bool bad_samples = false;      ///< samples were found bad since the step before
  std::int64_t trace_steps = 0;  ///< that somebody wants traced from the next step on
  bool trace_pending = false;    ///< the text of a trace is not made yet
  // Of the step that is begun, the same on all ranks.
  std::int64_t step = 0;  ///< from 1; 0 where it has no number
  double lr = 0;
};

class HEARTH_API Ranks {
 public:
  /// A run of one process that takes `batches` batches a step: exchanges nothing. begin_step() need not be called.
  explicit Ranks(std::int64_t batches);
  /// Gives all ranks the values of rank 0. Without `cuts_batches` each batch is one rank's. ConfigError where the
  /// pieces do not go round; PeerError where the ranks have different models.
  Ranks(Collective& group, const RunConfig& config, bool cuts_batches, FlatParameters& parameters,
        std::vector<NamedTensor> buffers, std::int64_t steps_per_epoch = 1);

  /// Whether this is a run of one process. A group of one rank is not: it cuts batches as one of several does.
  bool alone() const { return parallel_ == nullptr; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  /// Whether this rank writes what the run leaves: rank 0.
  bool writes() const { return rank() == 0; }
  Collective& group() const { return group_; }
  const dist::DataParallel& parallel() const { return *parallel_; }
  dist::DataParallel& parallel() { return *parallel_; }
  /// Of the last step, from the end of begin_step().
  StepTrace& trace() { return trace_; }
  /// Pieces that this rank computes in a step.
  std::int64_t pieces() const { return each_; }
  /// What its loader gives.
  data::LoaderPart part() const;

  /// Before a step: the ranks tell each other what they have and want, and how long the step before took. PeerError
  /// where one is at another step or has another learning rate.
  const StepPart& begin_step(std::span<const data::Batch> pieces, const Loss& loss, const StepWishes& wishes,
                             const StepTimes& last = {});
  /// What the ranks have told last; empty before the first step.
  std::span<const StepTimes> last_times() const { return last_times_; }
  const StepPart& step() const { return step_; }
  const StepWishes& wishes() const { return wishes_; }
  /// StepPart::weights where the coming step computes; undefined on the CPU.
  const Tensor& weights() const { return weights_; }
  void use_weights(Tensor on_device) { weights_ = std::move(on_device); }
  /// The signal that asks all ranks for the end of the run, or 0; of one process at once.
  int stop_signal() const;
  /// Whether a signal asks all ranks for a checkpoint; of one process at once.
  bool wants_checkpoint() const;
  /// The least of the ranks' numbers.
  std::int64_t least(std::int64_t mine) const;

  /// Around each piece, in order; one without rows too, which changes nothing in between.
  void begin_piece(std::int64_t piece);
  void end_piece(std::int64_t piece, bool has_rows);
  /// After the last one: gradients and buffers are those of the whole step, with the same bits on all ranks.
  void finish_step();
  /// The update of the step was made, not skipped.
  void update_made();
  /// The loss scale of the step, before its first piece.
  void set_scale(double scale);
  /// Registers what compressed gradients leave from step to step.
  void register_state(State& state);

  /// Meters of all ranks read the sum of all ranks' sums. These go on as they were, so that how often they are read
  /// changes no bit of them.
  void read_sums(const Sums& sums, Meter& meter);
  /// The sums of losses of all ranks, in order of rank, as read_sums() found them last.
  std::span<const double> loss_sums() const { return loss_sums_; }

 private:
  struct Told;
  /// What a rank with these pieces tells of them.
  static Told told_of(std::span<const data::Batch> pieces, int rank);
  /// Takes in what the ranks told each other before a step.
  void take_in(std::span<const Told> told, std::int64_t step);
  /// Numbers this rank's pieces and their rows among those of all ranks. `rows_before`: of the ranks before this one.
  void number_pieces(std::span<const data::Batch> pieces, std::int64_t rows_before);
  /// Sets what this rank's pieces count for in the step. `labels` are their weights, if labels may not count, and
  /// `all_labels` is the sum over all ranks.
  void weigh(std::span<const data::Batch> pieces, const Loss& loss, const std::optional<std::vector<double>>& labels,
             double all_labels);
  void reduce();

  Collective& group_;
  const bool deterministic_ = false;
  /// Whether ranks keep a part of the gradients each. They sum each piece then, and take turns at pieces, so that all
  /// pieces are added up in the same order.
  const bool divided_ = false;
  std::int64_t cuts_ = 1;  ///< pieces of a batch
  std::int64_t each_ = 1;
  FlatParameters* parameters_ = nullptr;
  StepTrace trace_;
  std::unique_ptr<dist::DataParallel> parallel_;  ///< null in a run of one process
  std::unique_ptr<dist::PairwiseSum> gradients_;  ///< likewise
  /// Floating buffers move once a step, by the mean over all pieces of where each would have moved them.
  std::vector<NamedTensor> buffers_;
  std::vector<Tensor> buffers_before_;
  Tensor moved_;  ///< all buffers, one after the other; undefined without buffers
  std::unique_ptr<dist::PairwiseSum> moves_;
  StepPart step_;
  Tensor weights_;
  StepWishes wishes_;
  std::vector<StepTimes> last_times_;
  std::vector<double> loss_sums_;
};

}  // namespace hearth::train
