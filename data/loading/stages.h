// SPDX-License-Identifier: Apache-2.0
// Where the time of loading goes: which stage each thread that makes batches is in, since when and with which sample,
// and how long it has been in each. One thread writes a clock, any thread reads it; nothing is locked.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/export.h"

namespace hearth::data {

enum class Stage : std::uint8_t {
  room,      ///< waits: as many batches are ready as may be
  read,      ///< bytes from files or from elsewhere; all of a dataset's read() that is no other stage
  decode,    ///< pixels or samples from these bytes
  augment,   ///< crop, resize, colour, normalisation, mixing
  assemble,  ///< the order of samples, tokens, and the tensors of the batch
  copy,      ///< to the device
};
inline constexpr std::size_t stage_count = 6;
/// "decode".
HEARTH_API const char* name_of(Stage stage);

/// Seconds in each stage.
struct HEARTH_API StageTimes {
  std::array<double, stage_count> seconds{};

  double& operator[](Stage stage) { return seconds[static_cast<std::size_t>(stage)]; }
  double operator[](Stage stage) const { return seconds[static_cast<std::size_t>(stage)]; }
  StageTimes& operator+=(const StageTimes& other);
  StageTimes& operator-=(const StageTimes& other);
  /// Of all stages.
  double total() const;
  /// Of all but `room`.
  double work() const { return total() - (*this)[Stage::room]; }
  /// The stage other than `room` with the most time.
  Stage longest() const;
};

/// The clock of one thread.
class HEARTH_API StageClock {
 public:
  static constexpr std::int64_t none = -1;

  StageClock();
  StageClock(const StageClock&) = delete;
  StageClock& operator=(const StageClock&) = delete;

  /// From now on the thread makes batch number `batch`, or none.
  void begin_batch(std::int64_t batch);
  /// From now on it is in this stage, with this sample, or none.
  void at(Stage stage, std::int64_t sample = none);
  /// From now on it is in this stage with the sample it had. Returns the stage before.
  Stage enter(Stage stage);

  /// Since the clock began, the stage that the thread is in now included.
  StageTimes times() const;
  struct Activity {
    Stage stage = Stage::room;
    double stage_seconds = 0;    ///< so long in this stage
    std::int64_t batch = none;   ///< as begin_batch() was told
    std::int64_t sample = none;  ///< index in the dataset
    double sample_seconds = 0;   ///< so long at this sample, over all of its stages
  };
  Activity activity() const;

  /// While it lives, StageScopes of this thread are told to `clock`.
  class HEARTH_API Use {
   public:
    explicit Use(StageClock& clock);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    StageClock* before_;
  };

 private:
  void change(Stage to, std::int64_t sample, bool new_sample);
  template <class Read>
  auto consistent(Read&& read) const;

  // Odd while the thread that owns the clock changes it.
  alignas(64) std::atomic<std::uint32_t> version_{0};
  std::atomic<Stage> stage_{Stage::room};
  std::atomic<std::int64_t> since_, sample_since_;  // ns
  std::atomic<std::int64_t> batch_{none}, sample_{none};
  std::array<std::atomic<std::int64_t>, stage_count> ns_{};
};

/// Counts its lifetime for a stage, where the thread has a clock: for code that is called from afar, as decoders and
/// datasets are. Scopes may be nested; time counts for the innermost.
class HEARTH_API StageScope {
 public:
  explicit StageScope(Stage stage);
  ~StageScope();
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  StageClock* clock_;
  Stage before_ = Stage::room;
};

}  // namespace hearth::data
