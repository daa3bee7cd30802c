// SPDX-License-Identifier: Apache-2.0
#include "train/memory/step_memory.h"

#include <algorithm>
#include <limits>

#include "core/build.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

// Of inputs on their way to a CUDA device (cuda::Feed).
constexpr std::int64_t fed_sets = 2;
// Left free when a batch size is recommended: what the driver rounds up, and small things outside of the pool.
constexpr double margin = 0.02;
constexpr const char* blank_input = "blank input";

std::int64_t bytes_of(const Tensor& tensor) { return static_cast<std::int64_t>(tensor.byte_size()); }

/// Two batches show what any number of them does: the second finds gradients to add to.
std::vector<data::Batch> blank_batches(const Session& session, std::int64_t batch_size, DeviceType target) {
  const std::int64_t count = std::min<std::int64_t>(2, session.ranks->pieces());
  return std::vector<data::Batch>(static_cast<std::size_t>(count), blank_batch(session, batch_size, target));
}

struct Inputs {
  Inputs(const Session& session, std::int64_t batch_size, DeviceType target) {
    const OriginScope origin = OriginScope::of_op(blank_input);
    host = blank_batches(session, batch_size, target);
    for (const data::Batch& batch : host) device.push_back(batch.to(session.device()));
  }
  /// Bytes that a batch brings to the device.
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const data::Batch::Named& one : host.front().tensors())
      if (one.axis != data::Batch::Axis::shared) sum += bytes_of(one.tensor);
    return sum;
  }
  std::vector<data::Batch> host;
  std::vector<data::Batch> device;
};

void run_blank_step(Session& session, const Inputs& inputs) {
  if (!session.ranks->alone())
    (void)session.ranks->begin_step(inputs.host, session.loss, {.lr = session.lr(session.position.step)});
  (void)begin_step(session, inputs.host.front().size());
  run_step(session, inputs.device);
}

void run_evaluation(Session& session, const Inputs& inputs) {
  const Sums sums(session.device());
  session.model->train(false);
  evaluation_step(session, inputs.device.front(), sums);
  session.train_mode();
}

template <class F>
void trace(MemoryTrace& into, F&& work) {
  const MemoryObserverScope scope(into);
  work();
}

bool same_op(const Origin& origin, const char* op) { return origin.op != nullptr && std::string(origin.op) == op; }

bool is_within(const MemoryBudget& budget, const MemoryNeed& need) { return budget.holds(need.peak, need.reserved); }

/// A block of a pool, held for a while.
class Held {
 public:
  Held(MemoryResource& memory, std::int64_t bytes)
      : memory_(memory), bytes_(static_cast<std::size_t>(bytes)), pointer_(memory.allocate(bytes_)) {}
  ~Held() { memory_.deallocate(pointer_, bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  MemoryResource& memory_;
  std::size_t bytes_;
  void* pointer_;
};

}  // namespace

MeasuredBatches batches_to_measure(const Session& session) {
  const std::int64_t small = session.task->rows_to_measure();
  return {small, 2 * small};
}

StepMemory::StepMemory(Session& session, MeasuredBatches measured, DeviceType target)
    : measured_(measured), device_(session.device()), target_(target) {
  const RunConfig& config = session.config();
  graph_ = target == DeviceType::cuda && why_not_replayed(session).empty();
  pinned_ = session.config().train.pinned;
  accumulate_ = session.ranks->pieces();
  evaluation_batch_ = config.eval.batch_size;
  // Ranks compute pieces of batches, and evaluate whole ones.
  if (!session.ranks->alone() && !evaluation_batch_) evaluation_batch_ = config.train.batch_size;
  for (const data::DatasetPointer& part : {session.data.valid, session.data.test})
    if (part) evaluation_samples_ = std::max(evaluation_samples_, part->size());
  if (target == DeviceType::cpu) {
    const data::Loader loader = session.make_train_loader();
    prefetch_ = loader.options().workers > 0 ? loader.options().prefetch : 0;
  }

  MemoryTrace small_step(device_), small_evaluation(device_);
  {
    const Inputs inputs(session, measured.small, target);
    sample_bytes_ = inputs.bytes() / measured.small;
    // What is made at first use is not part of every step.
    run_blank_step(session, inputs);
    run_evaluation(session, inputs);
    measure_fixed(session);
    trace(small_step, [&] { run_blank_step(session, inputs); });
    trace(small_evaluation, [&] { run_evaluation(session, inputs); });
  }
  const Inputs inputs(session, measured.large, target);
  // Choices among implementations are made once a problem, and may try some out.
  run_blank_step(session, inputs);
  run_evaluation(session, inputs);
  MemoryTrace large_step(device_), large_evaluation(device_);
  trace(large_step, [&] { run_blank_step(session, inputs); });
  trace(large_evaluation, [&] { run_evaluation(session, inputs); });
  step_.emplace(small_step, measured.small, large_step, measured.large);
  evaluation_.emplace(small_evaluation, measured.small, large_evaluation, measured.large);
}

void StepMemory::measure_fixed(Session& session) {
  fixed_.parameters = session.parameters->value_bytes();
  fixed_.gradients = bytes_of(session.parameters->grads());
  for (const NamedTensor& buffer : session.model->buffers()) fixed_.buffers += bytes_of(*buffer.tensor);
  std::int64_t all = 0;
  for (const StorageRecord& storage : largest_storages(device_, std::numeric_limits<std::size_t>::max())) {
    const auto bytes = static_cast<std::int64_t>(storage.bytes);
    if (same_op(storage.origin, "optimizer")) fixed_.optimizer += bytes;
    if (same_op(storage.origin, "average")) fixed_.averages += bytes;
    // A dataset held in memory stays on the CPU.
    const bool elsewhere = storage.origin.op == nullptr && device_.type != target_;
    if (same_op(storage.origin, blank_input) || elsewhere) continue;
    fixed_blocks_.push_back(bytes);
    all += bytes;
  }
  fixed_.other = all - fixed_.parameters - fixed_.gradients - fixed_.optimizer - fixed_.averages - fixed_.buffers;
}

MemoryNeed StepMemory::at(std::int64_t batch, const MemoryBudget& budget) const {
  if (target_ != DeviceType::cuda) return at(batch);
  try {
    return needed(batch, budget);
  } catch (const OutOfMemory&) {
    return at(batch);
  }
}

MemoryNeed StepMemory::needed(std::int64_t batch, const MemoryBudget& budget) const {
  MemoryNeed need = fixed_;
  need.batch = batch;
  const std::int64_t batch_bytes = batch * sample_bytes_;
  const std::int64_t evaluation_batch = std::min(evaluation_batch_.value_or(batch), evaluation_samples_);
  // A replayed step is fed as a whole, others batch by batch; a set stays as large as the largest needed it.
  const bool is_fed = target_ == DeviceType::cuda && pinned_;
  const std::int64_t fed =
      is_fed ? fed_sets * std::max(batch_bytes * (graph_ ? accumulate_ : 1), evaluation_batch * sample_bytes_) : 0;
  need.inputs = batch_bytes * (accumulate_ + prefetch_) + fed;
  need.kept = step_->kept(batch);
  const BatchTrace::Peak peak = step_->peak(batch);
  need.working = std::max<std::int64_t>(0, peak.bytes - need.kept);
  need.peak_origin = peak.origin;
  // While a part is evaluated on the CPU, the training batches prepared ahead wait.
  const std::int64_t waiting = graph_ ? need.inputs : prefetch_ * batch_bytes + fed;
  const std::int64_t evaluation_inputs = evaluation_batch * sample_bytes_ * (1 + prefetch_);
  if (evaluation_batch > 0) need.evaluation = evaluation_->peak(evaluation_batch).bytes + evaluation_inputs;

  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  const std::unique_ptr<MemoryResource> pool = make_imagined_pool(target_, budget.available);
  const auto limited = make_limited_memory(*pool, budget.limit < 0 ? any : budget.limit);
  const std::unique_ptr<MemoryResource> counting = make_counting_memory(*limited);
  std::vector<std::unique_ptr<Held>> blocks;
  for (const std::int64_t bytes : fixed_blocks_) blocks.push_back(std::make_unique<Held>(*counting, bytes));
  std::unique_ptr<MemoryResource> arena;
  if (graph_) arena = make_pool_memory(*counting, min_cuda_region);
  {
    const Held inputs(*counting, need.inputs);
    // The second time finds the blocks of the first.
    for (int i = 0; i < 2; ++i) step_->replay(graph_ ? *arena : *counting, batch);
    if (graph_) need.working = std::max(need.working, arena->statistics().reserved - need.kept);
  }
  if (evaluation_batch > 0) {
    const Held inputs(*counting, waiting + evaluation_inputs);
    evaluation_->replay(*counting, evaluation_batch);
  }
  arena.reset();
  need.peak = counting->statistics().peak;
  need.reserved = pool->statistics().reserved;
  return need;
}

std::optional<std::int64_t> StepMemory::largest_batch(const MemoryBudget& budget, std::int64_t most) const {
  if (!is_within(budget, at(1, budget))) return std::nullopt;
  std::int64_t fits = 1, too_large = most + 1;
  while (too_large - fits > 1) {
    // In doubling steps first: most budgets are far below `most`.
    const std::int64_t middle =
        too_large == most + 1 ? std::min(2 * fits, fits + (too_large - fits) / 2) : fits + (too_large - fits) / 2;
    const std::int64_t tried = std::max(middle, fits + 1);
    (is_within(budget, at(tried, budget)) ? fits : too_large) = tried;
  }
  return fits;
}

std::string StepMemory::shortage(std::int64_t batch, const MemoryBudget& budget) const {
  const MemoryNeed need = at(batch, budget);
  if (is_within(budget, need)) return "";
  const std::optional<std::int64_t> fits = largest_batch(budget, batch);
  return join_text(
      "a run at batch ", batch, " is estimated to need ", need.reserved, " bytes; ", budget.bytes(),
      " are available on ", device_, "; ",
      fits ? join_text("train.batch_size=", *fits, " would fit") : "not even a batch of 1 fits; use a smaller model");
}

std::string StepMemory::method() const {
  std::string text = join_text("blocks of real steps at batches ", measured_.small, " and ", measured_.large, " on ",
                               device_, ", each extended in proportion to the batch and replayed");
  if (!step_->matched() || !evaluation_->matched())
    text += "; the two steps differ in some blocks, which are taken as proportional";
  if ((target_ == DeviceType::cuda) != device_.is_cuda())
    text += "; there is no such GPU here, so working memory is that of the cpu's kernels";
  return text;
}

std::int64_t largest_rows(const Session& session) {
  const std::int64_t rows = session.data.rows_by_tokens();
  return rows > 0 ? rows : session.config().train.batch_size;
}

void require_run_fits(Session& session, const MemoryBudget& budget) {
  const std::int64_t rows = largest_rows(session);
  MeasuredBatches measured = batches_to_measure(session);
  if (measured.large > rows) measured = rows > 1 ? MeasuredBatches{2, 4} : MeasuredBatches{1, 2};
  std::string shortage;
  try {
    shortage = StepMemory(session, measured, session.device().type).shortage(rows, budget);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error&) {
    // What the model refuses of a blank batch says nothing about memory.
  }
  HEARTH_CHECK(OutOfMemory, shortage.empty(), shortage);
  session.restart();
}

std::string advice_on_batch(Session& session) {
  if (session.data.rows_by_tokens() > 0) return "use a smaller data.tokens_per_batch";
  const std::int64_t batch = session.config().train.batch_size;
  const Device device = session.device();
  std::string text;
  try {
    MemoryBudget budget = memory_budget(device);
    const std::int64_t granted = budget.bytes();
    for (std::int64_t* part : {&budget.limit, &budget.available})
      if (*part > 0) *part = static_cast<std::int64_t>(static_cast<double>(*part) * (1 - margin));
    const StepMemory memory(session, batch > 2 ? MeasuredBatches{2, 4} : MeasuredBatches{1, 2}, device.type);
    const MemoryNeed wanted = memory.at(batch, budget);
    const std::optional<std::int64_t> fits = memory.largest_batch(budget, batch);
    if (!fits)
      text = join_text("not even a batch of 1 would fit: ", memory.at(1).peak, " bytes of ", granted, " on ", device);
    else if (*fits >= batch)
      text = join_text("a run at batch ", batch, " is estimated to need ", wanted.reserved, " bytes of ", granted,
                       " on ", device, "; something else holds memory");
    else
      text = join_text("train.batch_size=", *fits, " would fit (", memory.at(*fits, budget).peak, " bytes of ", granted,
                       " on ", device, "; ", batch, " needs ", wanted.peak, ")");
  } catch (const OutOfMemory&) {
    text = "not even a step of a few samples fits; use a smaller model";
  } catch (const Error&) {
    // What stopped the training is what the caller has to hear of.
  }
  return text;
}

}  // namespace hearth::train
