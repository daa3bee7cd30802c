// SPDX-License-Identifier: Apache-2.0
#include "dist/cost/links.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "core/error.h"
#include "dist/ordered_sum.h"

namespace hearth::dist {
namespace {

// Of a message that costs nothing but its latency, and of the largest.
constexpr std::size_t small_bytes = 4 << 10, largest_bytes = std::size_t{4} << 20;
// No larger message is sent after one that took so long.
constexpr double long_message_seconds = 0.08;
constexpr int message_windows = 3;
// Of messages that take as long as a change of threads.
constexpr int messages_at_once = 8;
constexpr std::size_t call_bytes = 640;

class Measurement {
 public:
  using Exchange = std::function<void(std::span<const Outgoing>, std::span<const Incoming>)>;

  Measurement(int rank, const std::vector<int>& hosts, const Exchange& exchange)
      : rank_(rank),
        size_(static_cast<int>(hosts.size())),
        exchange_(exchange),
        out_(largest_bytes),
        in_(std::max(largest_bytes, hosts.size() * call_bytes)) {
    std::map<int, std::vector<int>> on;
    for (int other = 0; other < size_; ++other) on[hosts[static_cast<std::size_t>(other)]].push_back(other);
    const std::vector<int>& local = on[hosts[static_cast<std::size_t>(rank)]];
    const auto number = static_cast<std::size_t>(std::find(local.begin(), local.end(), rank) - local.begin());
    std::vector<int> peers;
    for (const auto& [host, ranks] : on) {
      most_ = std::max(most_, ranks.size());
      if (number < ranks.size()) peers.push_back(ranks[number]);
    }
    hosts_ = on.size();
    near_ = beside(local), far_ = beside(peers);
  }

  LinkCosts take() {
    LinkCosts costs;
    costs.call = measured(messages_at_once, [&] { compare(); });
    if (most_ > 1) costs.on_host = cost_of(near_, 1);
    if (hosts_ > 1) costs.between_hosts = cost_of(far_, static_cast<double>(most_));
    costs.sum = measured(2,
                         [&] {
                           constexpr std::size_t half = largest_bytes / 2;
                           const std::byte* const rows[] = {out_.data(), out_.data() + half};
                           reduce_rows(rows, DType::f32, in_.data(), DType::f32, half / sizeof(float), Reduce::sum);
                         }) /
                static_cast<double>(largest_bytes);
    return costs;
  }

 private:
  /// Those before and after this one in a ring of ranks; -1 where it is alone.
  struct Beside {
    int before = -1, after = -1;
  };
  Beside beside(const std::vector<int>& ranks) const {
    const std::size_t n = ranks.size();
    if (n < 2) return {};
    const auto at = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    return {ranks[(at + n - 1) % n], ranks[(at + 1) % n]};
  }

  void pass(const Beside& to, std::size_t bytes) {
    if (to.after < 0) return;
    const Outgoing out{to.after, std::span(out_).first(bytes)};
    const Incoming in{to.before, std::span(in_).first(bytes)};
    exchange_({&out, 1}, {&in, 1});
  }

  /// What ranks do before a collective.
  void compare() {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      out.push_back({other, std::span(out_).first(call_bytes)});
      in.push_back({other, std::span(in_).subspan(static_cast<std::size_t>(other) * call_bytes, call_bytes)});
    }
    exchange_(out, in);
  }

  /// The largest of all ranks' numbers.
  double agreed(double mine) {
    std::vector<double> all(static_cast<std::size_t>(size_), mine);
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      out.push_back({other, std::as_bytes(std::span(&mine, 1))});
      in.push_back({other, std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(other)], 1))});
    }
    exchange_(out, in);
    return *std::max_element(all.begin(), all.end());
  }

  /// Seconds of `f`, after a first time: the median of a few message_windows of `times`, the largest of the ranks'.
  double measured(int times, const std::function<void()>& f) {
    compare();
    f();
    std::vector<double> seconds;
    for (int i = 0; i < message_windows; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < times; ++k) f();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times);
    }
    std::nth_element(seconds.begin(), seconds.begin() + message_windows / 2, seconds.end());
    return agreed(seconds[message_windows / 2]);
  }

  /// `senders`: how messages_at_once ranks share a link.
  LinkCost cost_of(const Beside& to, double senders) {
    const double latency = measured(messages_at_once, [&] { pass(to, small_bytes); });
    std::size_t bytes = largest_bytes / 64;
    double seconds = 0;
    while (true) {
      seconds = measured(1, [&] { pass(to, bytes); });
      if (bytes == largest_bytes || seconds >= long_message_seconds) break;
      bytes *= 4;
    }
    return fit(senders * static_cast<double>(small_bytes), latency, senders * static_cast<double>(bytes), seconds);
  }

  const int rank_, size_;
  const Exchange& exchange_;
  std::vector<std::byte> out_, in_;
  std::size_t most_ = 0, hosts_ = 0;
  Beside near_, far_;
};

}  // namespace

LinkCost fit(double fewer_bytes, double their_seconds, double more_bytes, double seconds) {
  HEARTH_CHECK(UsageError, fewer_bytes >= 0 && fewer_bytes < more_bytes, "fit of a link: ", fewer_bytes, " and ",
               more_bytes, " bytes; the latter are more");
  const double per_byte = std::max(0.0, (seconds - their_seconds) / (more_bytes - fewer_bytes));
  return {std::max(0.0, their_seconds - per_byte * fewer_bytes), per_byte};
}

LinkCosts measure_links(int rank, const std::vector<int>& hosts,
                        const std::function<void(std::span<const Outgoing>, std::span<const Incoming>)>& exchange) {
  if (hosts.size() < 2) return {};
  return Measurement(rank, hosts, exchange).take();
}

}  // namespace hearth::dist
