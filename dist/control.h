// SPDX-License-Identifier: Apache-2.0
// The side channel of a group: a server that all ranks stay connected to, so that a rank that dies, freezes or gives
// up is named to all others at once, whatever they wait for. It also passes the small values by which ranks find each
// other.
//
// A frame is a length (u32), a kind (u8) and that many bytes less one. A rank proves that it knows the group's token,
// and the server does, by HMAC-SHA256 over both sides' random numbers: the token is never sent, and what was heard
// once opens nothing later.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/export.h"
#include "dist/frame.h"
#include "dist/socket.h"

namespace hearth::dist {

struct ControlOptions {
  int size = 1;
  std::string token{};                   ///< a secret that all ranks share
  double beat_seconds = 0.25;            ///< between signs of life
  double warn_seconds = 5;               ///< without one: the others are warned
  double give_up_seconds = 60;           ///< without one of a rank, as that rank asks, or of the server: the group ends
  std::string server = "hearth launch";  ///< what the server runs in, for the message should that die
};

/// Runs on a thread of its own, in rank 0 or in what started the ranks.
class ControlServer {
 public:
  /// Listens on this address only; port 0 takes a free one.
  ControlServer(const std::string& address, int port, const ControlOptions& options);
  /// Closes all connections.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  int port() const;
  /// Waits until every rank that has joined has left or failed, at most so long; whether they have.
  bool wait_for_end(double seconds) const;
  /// To be called where the process of `rank` has ended: if it had not joined yet, which nobody else sees, all others
  /// fail with `reason`.
  void ended(int rank, const std::string& reason);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// A rank's connection to the server.
class Control {
 public:
  /// Joins as `rank`, trying for so long. PeerError where the server refuses: a wrong token, a rank that is taken,
  /// another size, another version of Hearth, or none. A server that hangs up without a word is asked again.
  Control(const std::string& address, int port, int rank, const ControlOptions& options, double seconds = 60);
  /// Leaves in good order, unless the group has failed.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// Called on another thread, once, when the group has failed; at once if it has already. Each `listener` has one
  /// function: when this returns, its earlier one is not called any more, nor under way.
  void on_failure(const void* listener, std::function<void(const std::string&)> f);
  /// Called when a rank has given no sign of life for a while, and when it does again.
  void on_warning(std::function<void(const std::string&)> f);
  /// Why the group has failed; "" as long as it has not. Waits up to so many seconds for it to fail.
  std::string failure(double wait_seconds = 0) const;

  /// Waits, for so long, until all ranks have called it with the same `options`. PeerError, naming the rank that has
  /// not, or that has others.
  void meet(const std::string& options, double seconds);
  /// "rank 2 (pid 4711 on node7)", once the ranks have met.
  std::string who(int rank) const;

  void set(const std::string& key, const std::string& value);
  /// Waits until some rank has set it. PeerError after so many seconds.
  std::string get(const std::string& key, double seconds = 60);
  /// What this rank does now, for the message should it die.
  void set_status(const std::string& status);
  /// Ends the group: all ranks learn that this one gave up, and why.
  void give_up(const std::string& reason);

  int rank() const { return rank_; }
  /// The address on this machine by which the server is reached.
  const std::string& local_address() const { return local_address_; }

 private:
  bool try_join(Deadline deadline);
  /// Their values, as far as they are set within so many seconds. PeerError where the group fails before.
  std::vector<std::optional<std::string>> wait_for(const std::vector<std::string>& keys, double seconds);
  void send(Frame kind, const std::string& payload);
  void beat();
  void listen();
  void take(Frame kind, const std::string& payload);
  void fail(const std::string& reason);
  void warn(const std::string& text);
  /// Calls all that were not called yet.
  void tell_failure(const std::string& reason);

  const int rank_;
  const ControlOptions options_;
  const std::string server_;
  std::string server_process_;  ///< "rank 0 (pid 4711 on node7)"
  std::string local_address_;
  std::vector<std::string> names_;  ///< by rank, once they have met
  Socket socket_;
  std::mutex sending_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::string failure_;
  std::string status_;
  std::map<std::string, std::string> values_;
  std::mutex calling_;                                                     ///< held while a function of the user runs
  std::map<const void*, std::function<void(const std::string&)>> failed_;  ///< by listener
  std::function<void(const std::string&)> warned_;
  std::atomic<std::int64_t> heard_{0};  // steady clock, ms
  bool stopping_ = false;
  std::thread beats_, listens_;
};

}  // namespace hearth::dist
