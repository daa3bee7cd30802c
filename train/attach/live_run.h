// SPDX-License-Identifier: Apache-2.0
// The side of a training run that other processes can attach to: a thread answers them while the steps go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/io/json_text.h"
#include "train/attach/attach_request.h"
#include "train/profile/communication.h"
#include "train/profile/phase_meter.h"

namespace hearth::train {

/// What does not change while a run is attached to.
struct LiveFacts {
  std::string name{};
  std::string device{};
  std::string unit{};  ///< of throughput, "images/s"
  int ranks = 1;
  std::int64_t total_steps = 0;
};

/// Where a run stands after a step.
struct LiveStep {
  std::int64_t step = 0;
  double epoch = 0;
  std::int64_t steps = 0;                 ///< since the last line of metrics
  double seconds = 0;                     ///< of these
  std::int64_t samples = 0;               ///< of these
  std::span<const StepTimes> ranks = {};  ///< the last step of each, where there are several
};

/// Answers requests at a socket in the run's folder, which only the run's user and root may open, and once a second at
/// a file. Publishing takes no longer than a copy; nothing that a client does makes a step wait.
class HEARTH_API LiveRun {
 public:
  LiveRun(std::string folder, LiveFacts facts);
  /// Tells clients that wait for a trace that the run has ended. The socket goes.
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  // By the thread that trains.
  void publish(const LiveStep& step);
  /// A line of metrics.
  void publish(const Json& record);
  /// While it lives the run does something else than steps, "evaluation": a literal.
  class HEARTH_API Doing {
   public:
    /// Does nothing without a run.
    Doing(LiveRun* run, const char* what);
    ~Doing();
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    LiveRun* run_;
  };
  /// Steps that are to be traced; 0 where nobody asks, or a trace is being made.
  std::int64_t trace_asked() const;
  void begin_trace();
  /// Hands over a trace: the events of each rank, in order, each a list of JSON objects without the brackets; or why
  /// there is none.
  void finish_trace(std::vector<std::string> events, const std::string& failure = {});

  /// Why there is no socket; empty where there is one.
  const std::string& why_no_socket() const { return why_no_socket_; }

 private:
  struct Client;
  using Clock = std::chrono::steady_clock;

  void serve();
  void accept_client(std::vector<Client>& clients) const;
  /// Reads what a client has sent; false where it is done with.
  bool hear(Client& client);
  void ask_trace(std::int64_t steps);
  void read_request_file();
  /// Writes the trace that was handed over, if there is one, and answers those who wait for it.
  void answer_traces(std::vector<Client>& clients);
  Json status() const;
  std::string path(const char* name) const { return folder_ + "/" + name; }

  std::string folder_;
  LiveFacts facts_;
  std::string why_no_socket_;
  int listener_ = -1;
  int wake_ = -1;

  mutable std::mutex mutex_;
  bool stopping_ = false;
  LiveStep step_;
  std::vector<StepTimes> rank_times_;
  Clock::time_point stepped_{};
  const char* doing_ = "";
  Json training_, evaluation_;    ///< the last lines
  std::int64_t trace_steps_ = 0;  ///< asked for
  bool tracing_ = false;
  struct Trace {
    std::vector<std::string> events;
    std::string failure;
  };
  std::optional<Trace> traced_;

  std::string file_id_;  ///< of the request by file that is being served; "" where there is none
  std::thread thread_;
};

}  // namespace hearth::train
