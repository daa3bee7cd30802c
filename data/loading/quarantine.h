// SPDX-License-Identifier: Apache-2.0
// Samples that cannot be read, and what a run does about them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/export.h"
#include "core/tensor.h"
#include "data/loading/sample_runs.h"

namespace hearth {
class State;
}

namespace hearth::data {

/// What to do about a sample that cannot be read: to end with its error, or to let another one stand in for it.
enum class BadSamplePolicy : std::uint8_t { fail, skip };

/// "bad_samples": {...} of a dataset.
struct BadSampleOptions {
  BadSamplePolicy policy = BadSamplePolicy::fail;
  /// How many samples of a split may be bad: below 1 a share of the split, rounded up, from 1 on a number; nothing for
  /// any number.
  std::optional<double> budget = 0.01;
};

/// The bad samples of one split. Loaders find them and pass them over, in all threads; those that batches which were
/// handed out have passed over are registered state. So a resumed run passes over the same ones without trying them,
/// and what it registers does not depend on how many batches are prepared ahead.
class HEARTH_API Quarantine {
 public:
  /// `split` and `source` are for messages. At most `limit` of `size` samples may be bad.
  Quarantine(std::string split, std::string source, std::int64_t size, std::int64_t limit);
  Quarantine(const Quarantine&) = delete;
  Quarantine& operator=(const Quarantine&) = delete;

  /// What is known of a bad sample.
  struct Entry {
    std::int64_t sample = 0;
    std::string fault;  ///< empty where it was not kept
    bool operator==(const Entry&) const = default;
  };

  const std::string& split() const { return split_; }
  std::int64_t limit() const { return limit_; }
  /// Whether the sample is known to be bad. Locks nothing.
  bool holds(std::int64_t sample) const;
  /// The sample, or where it is bad the next one that is not known to be, around the end. Those in between are added to
  /// `passed`. DataError if none is left, or if `passed` alone are more than may be bad. Takes no longer for a long run
  /// of bad samples than for one.
  std::int64_t stand_in(std::int64_t sample, SampleRuns& passed) const;
  /// From now on the sample is known to be bad.
  void find(std::int64_t sample, const std::string& fault);
  /// A batch that passed over these samples is handed out. DataError, naming the first samples, if more are bad than
  /// may be.
  void deliver(const SampleRuns& passed);
  /// Takes in what other processes were handed out, or an earlier one. DataError as of deliver().
  void deliver(std::span<const Entry> entries);

  /// What batches that were handed out have passed over, by rising number.
  std::vector<Entry> delivered() const;
  std::int64_t count() const;
  /// Those of them that no earlier call has given.
  std::vector<Entry> take_new();

  /// Registers what was handed out, a bit a sample, as `name`.
  void register_state(State& state, const std::string& name);
  /// After the state was loaded: goes on as if that were all that was ever found. `known` has the faults.
  void after_load(std::span<const Entry> known);
  /// Forgets everything.
  void clear();

 private:
  void deliver_one(std::int64_t sample);
  void require_limit() const;
  std::string list_of(const SampleRuns& samples) const;

  std::string split_;
  std::string source_;
  std::int64_t size_;
  std::int64_t limit_;
  std::vector<std::atomic<std::uint8_t>> found_;  // a bit a sample
  mutable std::mutex mutex_;                      // of what follows
  std::map<std::int64_t, std::string> faults_;
  SampleRuns bad_;  // as found_ has them
  SampleRuns delivered_;
  std::vector<std::int64_t> new_;
  Tensor bits_;  // of delivered_, u8
};

/// Whether an error is of a sample: of what it holds or is read from, not of memory, of devices or of a wrong use.
HEARTH_API bool is_bad_sample(const Error& error);
/// The most bad samples of `size` that the options allow.
HEARTH_API std::int64_t limit_of(const BadSampleOptions& options, std::int64_t size);

}  // namespace hearth::data
