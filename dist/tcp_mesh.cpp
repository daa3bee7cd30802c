// SPDX-License-Identifier: Apache-2.0
#include "dist/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>

#include "core/error.h"
#include "core/io/descriptor.h"
#include "dist/frame.h"

namespace hearth::dist {
namespace {

// Of one attempt to reach a rank, and between looks at whether the group has failed.
constexpr double attempt_seconds = 2, look_seconds = 0.1;
// What a connection has to prove itself, and how many may be about to.
constexpr double proof_seconds = 10;
constexpr std::ptrdiff_t most_unproven = 256;

/// A rank's message to the others on the side channel, which only ranks read.
struct Contact {
  std::string secret, address;
  int port = 0;

  std::string text() const { return join_text(secret, port, ' ', address); }
  static Contact of(const std::string& text) {
    const std::size_t space = text.find(' ', nonce_size);
    HEARTH_CHECK(PeerError, text.size() > nonce_size && space != text.npos, "a rank has told no address");
    return {text.substr(0, nonce_size), text.substr(space + 1),
            std::atoi(text.substr(nonce_size, space - nonce_size).c_str())};
  }
};

/// What a connection begins with, from each end: its rank, and that it knows the secret of the other.
std::string introduction(int rank, const std::string& secret_of_other) {
  const std::int32_t number = rank;
  return std::string(reinterpret_cast<const char*>(&number), sizeof number) +
         hmac_sha256(secret_of_other, join_text("rank ", rank));
}
constexpr std::size_t introduction_size = sizeof(std::int32_t) + proof_size;

/// A connection whose other end has not introduced itself.
struct Unproven {
  Socket socket;
  int called = -1;  ///< the rank that was called; -1 for one who has called
  Deadline deadline{};
  std::string heard{};
};

class Mesh {
 public:
  Mesh(Control& control, int size, const std::string& address, double seconds)
      : control_(control), deadline_(in_seconds(seconds)), ranks_(static_cast<std::size_t>(size)) {
    listener_ = listen_on(address, 0);
    own_ = {random_nonce(), address, port_of(listener_)};
    control_.set(key(control_.rank()), own_.text());
    for (int other = 0; other < control_.rank(); ++other) call(other);
  }

  std::vector<Socket> connected() {
    while (std::count_if(ranks_.begin(), ranks_.end(), [](const Socket& one) { return bool(one); }) + 1 <
           static_cast<std::ptrdiff_t>(ranks_.size())) {
      const std::string failure = control_.failure();
      HEARTH_CHECK(PeerError, failure.empty(), failure);
      HEARTH_CHECK(PeerError, milliseconds_left(deadline_) > 0, "rank ", control_.rank(), " has no connection with ",
                   absent(), "; does the network let their ports through?");
      wait_and_hear();
    }
    return std::move(ranks_);
  }

 private:
  static std::string key(int rank) { return join_text("tcp/", rank); }
  Contact contact(int rank) { return Contact::of(control_.get(key(rank), milliseconds_left(deadline_) / 1e3)); }
  std::string absent() const {
    std::string text;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      if (rank != control_.rank() && !ranks_[static_cast<std::size_t>(rank)])
        text += (text.empty() ? "" : ", ") + control_.who(rank);
    return text;
  }

  /// Connects to a rank of a lower number and introduces itself.
  void call(int other) {
    const Contact there = contact(other);
    while (true) {
      try {
        Socket socket = connect_to(there.address, there.port, std::min(deadline_, in_seconds(attempt_seconds)),
                                   control_.who(other));
        const std::string text = introduction(control_.rank(), there.secret);
        HEARTH_CHECK(PeerError, send_fully(socket, std::as_bytes(std::span(text)), deadline_), control_.who(other),
                     " has hung up on rank ", control_.rank());
        unproven_.push_back({std::move(socket), other, deadline_});
        return;
      } catch (const PeerError&) {
        const std::string failure = control_.failure();
        HEARTH_CHECK(PeerError, failure.empty(), failure);
        if (milliseconds_left(deadline_) == 0) throw;
      }
    }
  }

  void wait_and_hear() {
    std::vector<pollfd> waiting{{listener_.descriptor(), POLLIN, 0}};
    for (const Unproven& one : unproven_) waiting.push_back({one.socket.descriptor(), POLLIN, 0});
    const int milliseconds = milliseconds_left(std::min(deadline_, in_seconds(look_seconds)));
    if (poll(waiting.data(), waiting.size(), milliseconds) < 0) return;
    // Those that are called again come behind.
    auto one = unproven_.begin();
    for (auto ready = waiting.begin() + 1; ready != waiting.end(); ++ready)
      one = (ready->revents != 0 && !hear(*one)) || milliseconds_left(one->deadline) == 0 ? end(one) : std::next(one);
    if (waiting[0].revents != 0) accept_all();
  }

  void accept_all() {
    while (true) {
      Socket socket(
          above_standard_streams(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      if (!socket) {
        const int code = errno;
        // A caller who has hung up already is none.
        HEARTH_CHECK(PeerError, code != EMFILE && code != ENFILE && code != ENOBUFS && code != ENOMEM, "rank ",
                     control_.rank(), " cannot accept connections: ", std::strerror(code));
        return;
      }
      send_at_once(socket);
      const auto has_called = [](const Unproven& one) { return one.called < 0; };
      if (std::ranges::count_if(unproven_, has_called) >= most_unproven)
        unproven_.erase(std::ranges::find_if(unproven_, has_called));
      unproven_.push_back({std::move(socket), -1, in_seconds(proof_seconds)});
    }
  }

  /// Takes what has come; whether the connection may go on.
  bool hear(Unproven& one) {
    char bytes[introduction_size];
    const ssize_t got = recv(one.socket.descriptor(), bytes, introduction_size - one.heard.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    one.heard.append(bytes, static_cast<std::size_t>(got));
    if (one.heard.size() < introduction_size) return true;
    std::int32_t rank = 0;
    std::memcpy(&rank, one.heard.data(), sizeof rank);
    const bool is_rank = same_proof(one.heard, introduction(rank, own_.secret)) && rank >= 0 &&
                         rank < static_cast<std::int32_t>(ranks_.size());
    if (one.called >= 0) {
      HEARTH_CHECK(PeerError, is_rank && rank == one.called, "what listens in the stead of ", control_.who(one.called),
                   " is no rank; let nobody else onto the ranks' subnet");
    } else {
      if (!is_rank || rank <= control_.rank()) return false;
      const std::string answer = introduction(control_.rank(), contact(rank).secret);
      if (!send_fully(one.socket, std::as_bytes(std::span(answer)), deadline_)) return false;
    }
    // A rank that was hung up on in between has called again.
    ranks_[static_cast<std::size_t>(rank)] = std::move(one.socket);
    return false;
  }

  /// Forgets a connection; a rank that has hung up is called again, as it does with too many strangers.
  std::list<Unproven>::iterator end(std::list<Unproven>::iterator one) {
    const int called = one->called;
    const auto next = unproven_.erase(one);
    if (called >= 0 && !ranks_[static_cast<std::size_t>(called)]) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      call(called);
    }
    return next;
  }

  Control& control_;
  const Deadline deadline_;
  Socket listener_;
  Contact own_;
  std::list<Unproven> unproven_;
  std::vector<Socket> ranks_;
};

}  // namespace

std::vector<Socket> connect_ranks(Control& control, int size, const std::string& address, double seconds) {
  return Mesh(control, size, address, seconds).connected();
}

}  // namespace hearth::dist
