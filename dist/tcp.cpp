// SPDX-License-Identifier: Apache-2.0
#include "dist/tcp.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>

#include "core/error.h"
#include "core/io/descriptor.h"
#include "dist/tcp_mesh.h"

namespace hearth::dist {
namespace {

// By then the side channel knows why a connection broke.
constexpr double verdict_seconds = 1.5;

/// What goes one way between this rank and another in an exchange: of each message its length, then its bytes.
class Stream {
 public:
  Stream(int peer, bool sends) : peer_(peer), sends_(sends) {}
  // Its parts lead to its lengths.
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void add(std::span<std::byte> bytes) {
    lengths_.push_back(sends_ ? bytes.size() : 0);
    parts_.push_back({std::as_writable_bytes(std::span(&lengths_.back(), 1)), bytes.size(), true});
    parts_.push_back({bytes, bytes.size(), false});
  }
  int peer() const { return peer_; }
  bool sends() const { return sends_; }
  bool is_done() const { return at_ == parts_.size(); }

  /// Moves what can be moved at once by `socket`; whether anything was. PeerError, which says what is the matter with
  /// the other end.
  bool move(const Socket& socket) {
    bool has_moved = false;
    while (!is_done()) {
      Part& part = parts_[at_];
      const int more = part.is_length ? MSG_MORE : 0;
      const ssize_t count = sends_
                                ? send(socket.descriptor(), part.bytes.data(), part.bytes.size(), MSG_NOSIGNAL | more)
                                : recv(socket.descriptor(), part.bytes.data(), part.bytes.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) break;
      HEARTH_CHECK(PeerError, count > 0, count == 0 ? "it has closed the connection" : std::strerror(errno));
      has_moved = true;
      part.bytes = part.bytes.subspan(static_cast<std::size_t>(count));
      if (!part.bytes.empty()) continue;
      if (!sends_ && part.is_length)
        HEARTH_CHECK(PeerError, lengths_[at_ / 2] == part.size, "it sends ", lengths_[at_ / 2], " bytes where ",
                     part.size, " are awaited");
      ++at_;
    }
    return has_moved;
  }

 private:
  struct Part {
    std::span<std::byte> bytes;  ///< what is left of it
    std::uint64_t size;          ///< of the message
    bool is_length;
  };
  int peer_;
  bool sends_;
  std::size_t at_ = 0;
  std::deque<std::uint64_t> lengths_;  ///< stay where they are
  std::vector<Part> parts_;
};

class TcpTransport : public Transport {
 public:
  TcpTransport(Control& control, int size, const TcpOptions& options)
      : control_(control),
        timeout_seconds_(options.timeout_seconds),
        wake_(above_standard_streams(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
        ranks_(connect_ranks(control, size, options.address.empty() ? control.local_address() : options.address,
                             options.join_seconds)) {
    HEARTH_CHECK(PeerError, wake_, "eventfd: ", std::strerror(errno));
    control.on_failure(this, [this](const std::string& reason) { interrupt(reason); });
  }
  ~TcpTransport() override { control_.on_failure(this, nullptr); }

  int rank() const override { return control_.rank(); }
  int size() const override { return static_cast<int>(ranks_.size()); }
  const char* name() const override { return "tcp"; }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::list<Stream> streams;
    const auto add = [&](int peer, bool sends, std::span<std::byte> bytes) {
      if (bytes.empty()) return;
      const auto stream = std::ranges::find_if(
          streams, [&](const Stream& known) { return known.peer() == peer && known.sends() == sends; });
      (stream != streams.end() ? *stream : streams.emplace_back(peer, sends)).add(bytes);
    };
    for (const Incoming& one : in) add(one.from, false, one.bytes);
    for (const Outgoing& one : out) add(one.to, true, {const_cast<std::byte*>(one.bytes.data()), one.bytes.size()});
    throw_if_interrupted();
    Deadline deadline = in_seconds(timeout_seconds_);
    while (!streams.empty()) {
      if (!move(streams)) {
        wait(streams, deadline);
        throw_if_interrupted();
      } else {
        deadline = in_seconds(timeout_seconds_);
      }
      std::erase_if(streams, [](const Stream& stream) { return stream.is_done(); });
    }
  }

  void abort(const std::string& reason) override {
    interrupt(reason);
    if (control_.failure().empty()) control_.give_up(reason);
  }

  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  const Socket& socket_of(const Stream& stream) const { return ranks_[static_cast<std::size_t>(stream.peer())]; }

  /// Whether anything has moved.
  bool move(std::list<Stream>& streams) {
    bool has_moved = false;
    for (Stream& stream : streams) {
      try {
        has_moved = stream.move(socket_of(stream)) || has_moved;
      } catch (const PeerError& error) {
        fail(stream, error.what());
      }
    }
    return has_moved;
  }

  /// Until something may move, or the transport is interrupted.
  void wait(const std::list<Stream>& streams, Deadline deadline) {
    std::vector<pollfd> waiting{{wake_.descriptor(), POLLIN, 0}};
    for (const Stream& stream : streams)
      waiting.push_back({socket_of(stream).descriptor(), stream.sends() ? short{POLLOUT} : short{POLLIN}, 0});
    if (poll(waiting.data(), waiting.size(), milliseconds_left(deadline)) == 0)
      fail(streams.front(), join_text("nothing has moved for ", timeout_seconds_, " s"));
  }

  /// PeerError with what the side channel says, which knows better; else with this.
  [[noreturn]] void fail(const Stream& stream, const std::string& why) {
    const std::string known = control_.failure(verdict_seconds);
    interrupt(!known.empty() ? known
                             : join_text("rank ", rank(), " cannot ", stream.sends() ? "send to " : "receive from ",
                                         control_.who(stream.peer()), ": ", why));
    throw PeerError(failure());
  }

  void interrupt(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    const std::uint64_t one = 1;
    (void)!write(wake_.descriptor(), &one, sizeof one);
  }
  void throw_if_interrupted() const {
    const std::string reason = failure();
    HEARTH_CHECK(PeerError, reason.empty(), reason);
  }

  Control& control_;
  const double timeout_seconds_;
  const Socket wake_;  ///< readable once the transport is interrupted
  const std::vector<Socket> ranks_;
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(Control& control, int size, const TcpOptions& options) {
  return std::make_unique<TcpTransport>(control, size, options);
}

}  // namespace hearth::dist
