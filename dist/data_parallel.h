// SPDX-License-Identifier: Apache-2.0
// Data parallel training: every rank has all parameters and a part of the batch; the gradients are summed over the
// ranks, bucket by bucket, while the backward pass goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/parameters.h"
#include "core/collective.h"
#include "dist/cost/pass_clock.h"
#include "dist/strategy/strategy.h"

namespace hearth::dist {

class DividedSums;

struct DataParallelOptions {
  double bucket_mb = 10;       ///< MiB of gradients that are summed in one collective
  double first_bucket_mb = 1;  ///< of the first, so that communication begins early
  bool overlap = true;         ///< sum a bucket as soon as the backward pass has filled it; else all in reduce()
  /// 1: each rank keeps the optimizer's state, and a moving average, of a part of the weights, updates that part and
  /// gives it to the others (stage 1 of ZeRO, Rajbhandari et al. 2020, arXiv:1910.02054). 2: it keeps the gradients of
  /// that part only, too; the parameters have a Division. 3: it keeps the values of that part only, too, by
  /// Division::values. The results are the same.
  int zero = 0;
  /// The type in which f32 gradients travel: bf16 or f16 halve the bytes. Sums are formed in f32.
  std::optional<DType> wire{};
  /// How gradients are compressed on their way to the sum (dist/strategy/registry.h); empty: not at all. Not with
  /// `wire` and `zero`.
  StrategyFactory compress{};
};

/// Sums the gradients of `parameters` over the ranks of `group`; both must outlive it. Gradients are sums, not means:
/// a rank weighs its loss by its part of the global batch, as with backward(loss, 1.0 / group.size()) for equal parts.
///
///   dist::DataParallel parallel(group, parameters);
///   ...
///   backward(loss, 1.0 / group.size());
///   parallel.reduce();
///   optimizer.step();
///
/// With `zero`, optimizers and moving averages of `parameters` are made after this.
class HEARTH_API DataParallel {
 public:
  /// Gives every rank the values of rank 0, or, where ranks have a part of them each, of the rank that has them.
  /// PeerError, naming the rank and the parameter, where the ranks have different parameters; ConfigError for sizes
  /// that are not above 0, a `zero` other than 0 to 3, `compress` with `wire` or `zero`, and `wire` with zero 2 or 3;
  /// UsageError for a `zero` that is not that of the parameters.
  DataParallel(Collective& group, FlatParameters& parameters, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Whether backward passes from now on begin to sum what they have filled. Off for all but the last one of an
  /// update that accumulates several. With zero 2 and 3 it changes nothing: each backward pass is followed by reduce(),
  /// which adds to the sums of the update.
  void overlap_next(bool on);
  /// Forgets what backward passes have begun to sum, after a step that was given up.
  void discard();
  /// After the last backward() of an update: sums what was not summed yet and waits for all. Gradients of parameters
  /// that had no part in the loss count as zeros. PeerError where a rank failed: the gradients are of no use then.
  void reduce();

  // Where gradients are compressed with state, as residuals are (Strategy::is_stateful()).

  /// The update from the gradients of the last reduce() was made, on all ranks: what compression has left to the next
  /// step counts. After an update that was skipped call discard() instead; UsageError at the next sum without either.
  void update_made();
  /// The loss scale of the gradients from now on.
  void set_scale(double scale) { strategy_->set_scale(scale); }
  /// Registers what compression leaves from step to step.
  void register_state(State& state) { strategy_->register_state(state); }
  const Strategy& strategy() const { return *strategy_; }

  /// PeerError, naming the rank, unless all ranks have the same bits in `x`; `what` is its name in the message.
  void require_equal(const Tensor& x, const std::string& what);

  using Bucket = dist::Bucket;
  /// Those of parameters, in the order in which they are summed: from the end of the buffer, where a backward pass
  /// begins. The last parameters make up the first bucket.
  static std::vector<Bucket> buckets_of(const FlatParameters& parameters, const DataParallelOptions& options);
  /// The same, in the order in which they were complete in a pass with these PassTimes::arrivals.
  static std::vector<Bucket> buckets_of(const FlatParameters& parameters, const DataParallelOptions& options,
                                        const std::vector<double>& arrivals);
  /// Of each bucket the last of its gradients' arrivals.
  static std::vector<double> ready_times(const FlatParameters& parameters, const std::vector<Bucket>& buckets,
                                         const std::vector<double>& arrivals);
  /// Those of this one's parameters.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Other buckets from the next step on, in the order of `arrivals`, which all ranks give the same (PeerError).
  /// UsageError while sums are under way, and with compress, whose state is that of the buckets.
  void use_buckets(double bucket_mb, const std::vector<double>& arrivals);
  const DataParallelOptions& options() const { return options_; }
  const FlatParameters& parameters() const { return *parameters_; }
  /// How many buckets the last reduce() found summed or under way.
  int overlapped() const { return overlapped_; }
  Collective& group() const { return *group_; }
  /// The pass that the next overlap_next(true) announces is timed.
  void time_next_pass() { times_next_ = true; }
  /// Of the last pass that was timed, after reduce().
  const PassTimes& last_pass() const { return clock_.times(); }

 private:
  void number_buckets();
  std::string bucket_name(std::size_t number) const;
  void agree();
  void arrived(std::size_t entry);
  void start_ready();
  void forget();
  void begin_step();
  void start(std::size_t bucket);
  Tensor grads_of(std::size_t bucket) const;
  /// Returns when the collective under way of a bucket is done.
  void wait(std::size_t bucket) const;
  /// Goes on with the next collective of a bucket.
  void go_on(std::size_t bucket);
  bool has_further(std::size_t bucket) const { return sums_[bucket].stage < strategy_->further(); }

  Collective* group_;
  FlatParameters* parameters_;
  DataParallelOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;   ///< by entry
  std::shared_ptr<DataParallel*> self_;  ///< what the hooks of leaves refer to; null after the end
  bool overlap_ = true;
  std::vector<char> arrived_;  ///< by entry
  std::vector<int> missing_;   ///< entries that a bucket waits for
  struct Sum {
    Work work;
    int stage = 0;  ///< collectives before it
  };
  std::vector<Sum> sums_;  ///< of the buckets that were started
  std::unique_ptr<Strategy> strategy_;
  bool is_settled_ = true;  ///< whether what became of the last update is known
  int overlapped_ = 0;
  std::unique_ptr<DividedSums> divided_;  ///< of zero 2; else null
  PassClock clock_;
  bool times_next_ = false;
};

/// Adds up gradients of micro-batches in an order that does not depend on how many a rank has: neighbours in pairs,
/// then pairs of these, as the ranks' sums are added. Where each rank has 2^k of them the result has the same bits for
/// every number of ranks. Holds up to k further buffers of the gradients' size.
class HEARTH_API PairwiseSum {
 public:
  /// `sum` is where each term appears and where the result will be, contiguous; it must outlive this.
  explicit PairwiseSum(Tensor sum) : sum_(std::move(sum)) {}

  /// Takes the next term of `total` in; the last one leaves the sum of all in the tensor.
  void add(std::int64_t index, std::int64_t total);
  /// Takes the memory for sums of `total` terms now.
  void reserve(std::int64_t total);

 private:
  Tensor sum_;
  std::vector<Tensor> levels_;
};

}  // namespace hearth::dist
