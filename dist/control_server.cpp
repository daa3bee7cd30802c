// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <vector>

#include "core/build.h"
#include "core/cpu/signals.h"
#include "core/error.h"
#include "core/io/descriptor.h"
#include "dist/control.h"
#include "dist/frame.h"

namespace hearth::dist {
namespace {

// Of connections that have not proved anything yet.
constexpr int max_strangers = 64;
constexpr double stranger_seconds = 5;
// What waits to be sent to a rank that does not read: beats and warnings are left out beyond the first, which is no
// sign of its death.
constexpr std::size_t much_unsent = 1 << 16, max_unsent = 1 << 22;
// What a rank may have the server keep, and how many keys it may wait for.
constexpr std::size_t max_stored = std::size_t{64} << 20, max_awaited = 1 << 16;
constexpr double seconds_between_refusals = 1;
constexpr const char* no_token = "it has another token than this rank; give all ranks the same HEARTH_TOKEN";

struct Connection {
  Socket socket;
  std::string in, out;
  std::string nonce;
  std::string who;     // "rank 2 (pid 4711 on node7)", once it has joined
  std::string status;  // what it did last
  std::vector<std::string> waits_for;
  std::size_t stored = 0;  // bytes that it had the server keep
  int rank = -1;
  double give_up_seconds = 0;                         // of silence
  bool broken = false;                                // it is gone, or sent what no rank sends
  bool closing = false;                               // once `out` is sent
  bool silent = false;                                // the others were warned
  Deadline heard = std::chrono::steady_clock::now();  // of a stranger: when it came
};

}  // namespace

class ControlServer::Loop {
 public:
  Loop(const std::string& address, int port, const ControlOptions& options)
      : options_(options), listener_(listen_on(address, port)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    HEARTH_CHECK(UsageError, options.size >= 1, "control server: a group of ", options.size, " ranks");
    HEARTH_CHECK(InternalError, static_cast<bool>(wake_), "eventfd: no descriptor");
    joined_.assign(static_cast<std::size_t>(options.size), false);
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    stopping_ = true;
    wake();
    thread_.join();
  }

  int port() const { return port_of(listener_); }
  void ended(int rank, const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      gone_.emplace_back(rank, reason);
    }
    wake();
  }
  bool wait_for_end(double seconds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, in_seconds(seconds), [&] { return present_ == 0; });
  }

 private:
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof one);
  }

  void run() {
    cpu::block_signals_for_good();
    Deadline next_beat = std::chrono::steady_clock::now();
    while (!stopping_) {
      wait_for_events(next_beat);
      accept_strangers();
      for (Connection& one : connections_) serve(one);
      take_gone();
      tell_refusals();
      if (std::chrono::steady_clock::now() >= next_beat) {
        next_beat = in_seconds(options_.beat_seconds);
        look_after();
      }
      for (Connection& one : connections_) flush(one);
      connections_.remove_if([&](Connection& one) { return end(one); });
    }
    for (Connection& one : connections_) flush(one);
  }

  void wait_for_events(Deadline next_beat) {
    std::vector<pollfd> all{{wake_.descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
    for (const Connection& one : connections_)
      all.push_back({one.socket.descriptor(), static_cast<short>(one.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    poll(all.data(), all.size(), milliseconds_left(next_beat));
  }

  void take_gone() {
    std::uint64_t count = 0;
    if (read(wake_.descriptor(), &count, sizeof count) != sizeof count) return;
    const std::lock_guard lock(mutex_);
    for (const auto& [rank, reason] : gone_)
      if (!joined_[static_cast<std::size_t>(rank)]) fail(reason, nullptr);
    gone_.clear();
  }

  void accept_strangers() {
    const auto strangers = [&] {
      return std::count_if(connections_.begin(), connections_.end(),
                           [](const Connection& one) { return one.rank < 0; });
    };
    while (true) {
      Socket socket(
          above_standard_streams(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      if (!socket) return;
      // The oldest one goes, so that sockets held open keep no rank out.
      if (strangers() >= max_strangers)
        connections_.erase(
            std::find_if(connections_.begin(), connections_.end(), [](const Connection& one) { return one.rank < 0; }));
      Connection& one = connections_.emplace_back();
      one.socket = std::move(socket);
      one.nonce = random_nonce();
      one.out = framed(Frame::hello, one.nonce);
    }
  }

  void serve(Connection& one) {
    char bytes[16384];
    while (!one.broken && !one.closing) {
      const ssize_t got = recv(one.socket.descriptor(), bytes, sizeof bytes, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) {
        one.broken = true;
        return;
      }
      one.in.append(bytes, static_cast<std::size_t>(got));
      if (one.rank >= 0) one.heard = std::chrono::steady_clock::now();
      while (auto frame = take_frame(one.in, one.rank < 0 ? max_frame_of_strangers : max_frame, one.broken)) {
        one.rank < 0 ? join(one, frame->first, frame->second) : take(one, frame->first, frame->second);
        if (one.broken || one.closing) return;
      }
    }
  }

  void join(Connection& one, Frame kind, const std::string& payload) {
    const std::optional<JoinRequest> request = kind == Frame::join ? JoinRequest::of(payload) : std::nullopt;
    if (!request) {
      one.broken = true;
      return;
    }
    const bool knows_token =
        same_proof(request->proof, hmac_sha256(options_.token, "rank" + request->signed_text(one.nonce)));
    const std::string reason = knows_token ? reason_against(*request) : no_token;
    if (!reason.empty()) {
      if (knows_token) ++refused_, last_refusal_ = reason;
      one.out += framed(Frame::refused, reason);
      one.closing = true;
      return;
    }
    one.rank = request->rank;
    one.heard = std::chrono::steady_clock::now();
    one.give_up_seconds = request->give_up_seconds;
    one.who = join_text("rank ", one.rank, " (pid ", request->pid, " on ", request->host, ')');
    joined_[static_cast<std::size_t>(one.rank)] = true;
    {
      const std::lock_guard lock(mutex_);
      ++present_;
    }
    const std::string mine = join_text(options_.server, " (pid ", getpid(), " on ", host_name(), ')');
    const std::string proved = "server" + request->signed_text(one.nonce) + mine;
    one.out += framed(Frame::welcome, hmac_sha256(options_.token, proved) + mine);
    if (!failure_.empty()) one.out += framed(Frame::failed, failure_);
  }

  std::string reason_against(const JoinRequest& request) const {
    if (request.version != build::version)
      return join_text("rank ", request.rank, " on ", request.host, " runs Hearth ", request.version,
                       ", the server runs ", build::version);
    if (request.size != options_.size)
      return join_text("rank ", request.rank, " on ", request.host, " expects ", request.size,
                       " ranks, the server expects ", options_.size);
    if (request.rank < 0 || request.rank >= options_.size)
      return join_text("there is no rank ", request.rank, "; ranks are 0..", options_.size - 1);
    if (joined_[static_cast<std::size_t>(request.rank)])
      return join_text("rank ", request.rank, " has joined already; every process needs a rank of its own");
    return "";
  }

  void take(Connection& one, Frame kind, const std::string& payload) {
    switch (kind) {
      case Frame::beat:
        if (!payload.empty()) one.status = payload;
        return;
      case Frame::set: {
        const std::size_t end = payload.find('\0');
        if (end == std::string::npos) break;
        one.stored += payload.size();
        if (one.stored > max_stored) return end_group_over(one, "values");
        const std::string key = payload.substr(0, end);
        values_[key] = payload;
        for (Connection& other : connections_)
          if (std::erase(other.waits_for, key) > 0) other.out += framed(Frame::value, payload);
        return;
      }
      case Frame::get: {
        const auto found = values_.find(payload);
        if (found != values_.end())
          one.out += framed(Frame::value, found->second);
        else if (one.waits_for.size() < max_awaited)
          one.waits_for.push_back(payload);
        else
          end_group_over(one, "keys to wait for");
        return;
      }
      case Frame::give_up:
        fail(join_text(one.who, " gave up", one.status.empty() ? "" : " at ", one.status, ": ", payload), &one);
        note_end(one);
        one.closing = true;
        return;
      case Frame::leave:
        note_end(one);
        one.closing = true;
        return;
      default:
        break;
    }
    one.broken = true;
  }

  /// A rank that has the server keep ever more of something is out of order, and the group with it.
  void end_group_over(Connection& rank, const char* what) {
    fail(join_text(rank.who, " gave the server of the group more ", what, " than it keeps"), nullptr);
    note_end(rank);
    rank.closing = true;
  }

  /// Tells the ranks who was refused since they were last told, by a line a second at most.
  void tell_refusals() {
    if (refused_ == 0 || std::chrono::steady_clock::now() < next_refusal_) return;
    next_refusal_ = in_seconds(seconds_between_refusals);
    const std::string who =
        refused_ == 1 ? "a process was refused: " : join_text(refused_, " processes were refused, the last: ");
    tell(framed(Frame::warning, who + last_refusal_), nullptr);
    refused_ = 0;
  }

  /// Beats, strangers who say nothing, ranks that do not answer.
  void look_after() {
    for (Connection& one : connections_) {
      const double silence = std::chrono::duration<double>(std::chrono::steady_clock::now() - one.heard).count();
      if (one.rank < 0) {
        one.broken = one.broken || silence > stranger_seconds;
        continue;
      }
      if (one.closing) continue;
      if (one.out.size() < much_unsent) one.out += framed(Frame::beat, "");
      if (silence > one.give_up_seconds) {
        // Should it go on some day, it learns that it is lost; nobody waits for that.
        fail(join_text(one.who, " gave no sign of life for ", one.give_up_seconds, " s", after(one)), nullptr);
        note_end(one);
        one.closing = true;
      } else if ((silence > options_.warn_seconds) != one.silent) {
        one.silent = !one.silent;
        tell(framed(Frame::warning, one.silent ? join_text(one.who, " has given no sign of life for ",
                                                           options_.warn_seconds, " s", after(one))
                                               : one.who + " is there again"),
             &one);
      }
    }
  }

  static std::string after(const Connection& one) { return one.status.empty() ? "" : ", last seen at " + one.status; }

  void tell(const std::string& frame, const Connection* but) {
    const bool may_be_left_out = frame[sizeof(std::uint32_t)] == static_cast<char>(Frame::warning);
    for (Connection& one : connections_)
      if (&one != but && one.rank >= 0 && !(may_be_left_out && one.out.size() > much_unsent)) one.out += frame;
  }

  void fail(const std::string& reason, const Connection* cause) {
    if (!failure_.empty()) return;
    failure_ = reason;
    tell(framed(Frame::failed, reason), cause);
  }

  void flush(Connection& one) {
    while (!one.broken && !one.out.empty()) {
      const ssize_t sent = send(one.socket.descriptor(), one.out.data(), one.out.size(), MSG_NOSIGNAL);
      if (sent > 0)
        one.out.erase(0, static_cast<std::size_t>(sent));
      else if (errno == EAGAIN || errno == EINTR)
        break;
      else
        one.broken = true;
    }
    if (one.out.size() > max_unsent) one.broken = true;
  }

  /// Whether the connection is over.
  bool end(Connection& one) {
    if (one.broken && one.rank >= 0 && !one.closing) {
      fail(one.who + " died" + after(one), &one);
      note_end(one);
    }
    return one.broken || (one.closing && one.out.empty());
  }

  void note_end(const Connection&) {
    const std::lock_guard lock(mutex_);
    --present_;
    changed_.notify_all();
  }

  const ControlOptions options_;
  const Socket listener_;
  const Socket wake_;
  std::atomic<bool> stopping_{false};
  // Of the thread.
  std::list<Connection> connections_;
  std::vector<bool> joined_;
  std::map<std::string, std::string> values_;  // by key, with the key
  std::string failure_;
  int refused_ = 0;  // since the ranks were last told of it
  std::string last_refusal_;
  Deadline next_refusal_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  int present_ = 0;                                // ranks that have joined and not ended
  std::vector<std::pair<int, std::string>> gone_;  // processes that ended
  std::thread thread_;
};

ControlServer::ControlServer(const std::string& address, int port, const ControlOptions& options)
    : loop_(std::make_unique<Loop>(address, port, options)) {}
ControlServer::~ControlServer() = default;
int ControlServer::port() const { return loop_->port(); }
bool ControlServer::wait_for_end(double seconds) const { return loop_->wait_for_end(seconds); }
void ControlServer::ended(int rank, const std::string& reason) { loop_->ended(rank, reason); }

}  // namespace hearth::dist
