// SPDX-License-Identifier: Apache-2.0
#include "train/profile/input_use.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "core/cpu/cores.h"
#include "core/text_stream.h"

namespace hearth::train {
namespace {

using data::Stage;

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string percent(double share) { return join_text(std::lround(100 * share), " %"); }

/// "1 worker", "4 workers".
std::string workers_text(int count) { return join_text(count, count == 1 ? " worker" : " workers"); }

/// Whether more threads would find a core: half of one is idle.
bool cores_are_free(const InputUse& use) { return use.cpu_seconds < use.seconds * (use.cores - 0.5); }

/// What makes a stage take less of a core.
std::string less_work(Stage stage, bool images) {
  switch (stage) {
    case Stage::read:
      return images ? "put the files into records (hearth data pack), or keep samples in memory (data.cache_mb)"
                    : "put the samples where they are read faster";
    case Stage::decode:
      return images ? "pack them smaller (hearth data pack --resize 256)" : "store the samples decoded";
    case Stage::augment:
      return images ? "take fewer changes (data.augment), or smaller images (data.augment.image_size)"
                    : "take fewer changes";
    default:
      return images ? "send fewer bytes: smaller images (data.augment.image_size)" : "make fewer and shorter rows";
  }
}

std::string remedy(Stage stage, const InputUse& use) {
  const std::string less = less_work(stage, use.images);
  if (stage == Stage::copy) return less + ", or accumulate fewer batches in a step";
  if (use.loader.workers == 0) return "set data.workers to 1 or more, so that batches are made beside the steps";
  const std::string more = join_text("data.workers ", 2 * use.loader.workers);
  // Who waits for a disk needs no core.
  if (stage == Stage::read) return join_text("add workers (", more, ": more reads under way), or ", less);
  if (cores_are_free(use)) return join_text("add workers (", more, ": cores are free), or ", less);
  return join_text("all ", use.cores, use.cores == 1 ? " core is" : " cores are", " busy: ", less);
}

}  // namespace

double InputUse::wait() const { return seconds > 0 ? std::min(1.0, loader.wait_seconds / seconds) : 0; }
double InputUse::copy() const { return seconds > 0 ? std::min(1.0, copy_seconds / seconds) : 0; }

double InputUse::share(Stage stage) const {
  const double work = loader.times.work();
  // Between steps, as in evaluations, workers have nothing to do.
  const double all = std::max(work, seconds * std::max(loader.workers, 1));
  if (all <= 0) return 0;
  return (stage == Stage::room ? all - work : loader.times[stage]) / all;
}

namespace {

/// What to say of a stage that steps wait for.
std::string blame_of(Stage stage, const InputUse& use) {
  if (stage == Stage::copy)
    return join_text("copy to the device takes ", percent(use.copy()), " of the time: ", remedy(stage, use));
  const std::string of = use.loader.workers == 0 ? "the time" : workers_text(use.loader.workers);
  return join_text(name_of(stage), " takes ", percent(use.share(stage)), " of ", of, ": ", remedy(stage, use));
}

/// Whether workers were idle all the same: waking them takes longer than their work, or others have the cores.
bool waits_for_threads(const InputUse& use) { return use.loader.workers > 0 && use.share(Stage::room) > 0.5; }

}  // namespace

InputAdvice slowest_stage(const InputUse& use) {
  InputAdvice advice{.stage = use.copy_seconds > use.loader.dry_seconds ? Stage::copy : use.loader.times.longest()};
  if (advice.stage != Stage::copy && waits_for_threads(use)) {
    advice.stage = Stage::assemble;
    advice.blame = join_text("batches come late although making them takes ", percent(1 - use.share(Stage::room)),
                             " of ", workers_text(use.loader.workers),
                             ": raise data.prefetch, take larger batches, or set data.workers to 0");
  } else {
    advice.blame = blame_of(advice.stage, use);
  }
  return advice;
}

InputAdvice advice_on_input(const InputUse& use) {
  const double waited = std::min(use.seconds, use.loader.dry_seconds + use.copy_seconds);
  if (waited < wait_worth_telling * use.seconds || waited < seconds_worth_telling) return {};
  InputAdvice advice = slowest_stage(use);
  advice.text = join_text("input: the step waited ", percent(waited / use.seconds), " of the time; ", advice.blame);
  return advice;
}

void write_input(Json& record, const InputUse& use) {
  record.set("data_wait", use.wait());
  if (use.copy_seconds > 0) record.set("data_copy", use.copy());
  if (use.loader.workers > 0)
    record.set("queue_depth", use.loader.depth)
        .set("queue_depth_min", use.loader.min_depth)
        .set("queue_dry", use.loader.dry);
  Json stages = Json::object();
  for (const Stage stage : {Stage::read, Stage::decode, Stage::augment, Stage::assemble, Stage::room})
    stages.set(name_of(stage), use.share(stage));
  record.set("data_workers", use.loader.workers).set("data_stages", std::move(stages));
  if (const InputAdvice advice = advice_on_input(use); !advice.text.empty()) record.set("data_advice", advice.text);
}

InputMeter::InputMeter(const data::Dataset& set) {
  use_.images = set.images() != nullptr;
  use_.cores = cpu::available_cores();
}

InputMeter::StepScope::StepScope(InputMeter& meter)
    : meter_(meter),
      use_(meter.clock_),
      began_(seconds_of(CLOCK_MONOTONIC)),
      cpu_began_(seconds_of(CLOCK_PROCESS_CPUTIME_ID)) {}

InputMeter::StepScope::~StepScope() {
  meter_.use_.seconds += seconds_of(CLOCK_MONOTONIC) - began_;
  meter_.use_.cpu_seconds += seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_began_;
}

const InputUse& InputMeter::collect(data::Loader& loader) {
  use_.loader += loader.take_use();
  const data::StageTimes now = clock_.times();
  use_.copy_seconds += now[Stage::copy] - told_[Stage::copy];
  told_ = now;
  return use_;
}

void InputMeter::clear() {
  const InputUse kept{.cores = use_.cores, .images = use_.images};
  use_ = kept;
}

}  // namespace hearth::train
