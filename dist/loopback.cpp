// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "dist/transport.h"

namespace hearth::dist {
namespace {

// What a sender does not wait for, as with connections that have buffers.
constexpr std::size_t buffered_bytes = 1024;

/// What all ranks of a group see, under one mutex.
struct Hub {
  Hub(int size, std::vector<int> of_ranks)
      : ranks(size),
        hosts(std::move(of_ranks)),
        boxes(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)),
        left(static_cast<std::size_t>(size)) {}

  struct Message {
    std::span<const std::byte> bytes;
    int* unread;  // counts down in the sender's exchange(); null of one that is buffered
    std::vector<std::byte> buffer{};
  };
  std::deque<Message>& box(int from, int to) {
    return boxes[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(to)];
  }
  bool has_left(int rank) const { return left[static_cast<std::size_t>(rank)] != 0; }
  void check() const {
    if (!failure.empty()) throw PeerError(failure);
  }

  const int ranks;
  const std::vector<int> hosts;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<Message>> boxes;  // what a rank has sent to another and was not received yet
  std::vector<char> left;                  // by rank
  std::string failure;
};

class Loopback : public Transport {
 public:
  Loopback(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~Loopback() override {
    const std::lock_guard lock(hub_->mutex);
    hub_->left[static_cast<std::size_t>(rank_)] = 1;
    hub_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks; }
  const char* name() const override { return "loopback"; }
  std::vector<int> hosts() const override { return hub_->hosts; }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::unique_lock lock(hub_->mutex);
    int unread = 0;
    hub_->check();
    for (const Outgoing& message : out) send(message, unread);
    hub_->changed.notify_all();
    try {
      for (const Incoming& one : in) receive(lock, one);
      const auto lost = [&] {
        return std::find_if(out.begin(), out.end(), [&](const Outgoing& one) {
          return hub_->has_left(one.to) && !hub_->box(rank_, one.to).empty();
        });
      };
      hub_->changed.wait(lock, [&] { return unread == 0 || !hub_->failure.empty() || lost() != out.end(); });
      if (unread != 0) {
        hub_->check();
        throw PeerError(join_text("rank ", lost()->to, " has left the group"));
      }
    } catch (...) {
      // Nobody may read this frame's memory any more.
      for (const Outgoing& one : out) hub_->box(rank_, one.to).clear();
      throw;
    }
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(hub_->mutex);
    if (hub_->failure.empty()) hub_->failure = join_text("rank ", rank_, " gave up: ", reason);
    hub_->changed.notify_all();
  }
  std::string failure() const override {
    const std::lock_guard lock(hub_->mutex);
    return hub_->failure;
  }

 private:
  void send(const Outgoing& message, int& unread) {
    std::deque<Hub::Message>& box = hub_->box(rank_, message.to);
    if (message.bytes.size() > buffered_bytes) {
      ++unread;
      box.push_back({message.bytes, &unread});
      return;
    }
    box.push_back({{}, nullptr, {message.bytes.begin(), message.bytes.end()}});
    box.back().bytes = box.back().buffer;
  }

  void receive(std::unique_lock<std::mutex>& lock, const Incoming& one) {
    std::deque<Hub::Message>& box = hub_->box(one.from, rank_);
    hub_->changed.wait(lock, [&] { return !box.empty() || !hub_->failure.empty() || hub_->has_left(one.from); });
    if (box.empty()) {
      hub_->check();
      throw PeerError(join_text("rank ", one.from, " has left the group"));
    }
    const Hub::Message& message = box.front();
    HEARTH_CHECK(PeerError, message.bytes.size() == one.bytes.size(), "rank ", one.from, " sends ",
                 message.bytes.size(), " bytes where rank ", rank_, " expects ", one.bytes.size());
    if (!message.bytes.empty()) std::memcpy(one.bytes.data(), message.bytes.data(), message.bytes.size());
    if (message.unread != nullptr) --*message.unread;
    box.pop_front();
    hub_->changed.notify_all();
  }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> loopback_transports(int size, const std::vector<int>& hosts) {
  HEARTH_CHECK(UsageError, size >= 1 && size <= 4096, "loopback: ", size, " ranks; 1..4096 are possible");
  HEARTH_CHECK(UsageError, hosts.empty() || hosts.size() == static_cast<std::size_t>(size), "loopback: ", hosts.size(),
               " hosts for ", size, " ranks; each has one");
  const auto hub =
      std::make_shared<Hub>(size, hosts.empty() ? std::vector<int>(static_cast<std::size_t>(size)) : hosts);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) transports.push_back(std::make_unique<Loopback>(hub, rank));
  return transports;
}

}  // namespace hearth::dist
