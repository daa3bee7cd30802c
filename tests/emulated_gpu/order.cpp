// SPDX-License-Identifier: Apache-2.0
// Orders of blocks and threads.
#include "tests/emulated_gpu/order.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "core/error.h"

namespace hearth::cuda::emulate {

Order order_named(std::string_view text) {
  if (text == "forward") return {};
  if (text == "reverse") return {Order::Kind::reverse, 0};
  Order order{Order::Kind::shuffled, 0};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), order.seed);
  HEARTH_CHECK(UsageError, !text.empty() && status == std::errc{} && end == text.data() + text.size(),
               "HEARTH_EMULATE_ORDER: \"", text,
               "\" is no order; use forward, reverse or a number (the seed of a shuffle)");
  return order;
}

std::string name_of(const Order& order) {
  if (order.kind == Order::Kind::forward) return "forward";
  return order.kind == Order::Kind::reverse ? "reverse" : std::to_string(order.seed);
}

std::uint64_t Shuffler::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

BlockOrder::BlockOrder(const Order& order, std::uint64_t n) : n_(n), start_(0), step_(1) {
  if (order.kind == Order::Kind::reverse) {
    start_ = n - 1;
    step_ = n - 1;
  } else if (order.kind == Order::Kind::shuffled) {
    Shuffler shuffler(order.seed ^ n);
    start_ = shuffler.next() % n;
    do step_ = 1 + shuffler.next() % n;
    while (std::gcd(step_, n) != 1);
  }
}

void thread_order(const Order& order, Shuffler& shuffler, unsigned threads, std::vector<std::uint16_t>& result) {
  result.resize(threads);
  std::iota(result.begin(), result.end(), std::uint16_t{0});
  if (order.kind == Order::Kind::reverse) std::reverse(result.begin(), result.end());
  if (order.kind != Order::Kind::shuffled) return;
  const auto shuffle = [&](std::uint16_t* items, unsigned n) {
    for (unsigned i = n; i > 1; --i) std::swap(items[i - 1], items[shuffler.below(i)]);
  };
  std::uint16_t warps[32];
  const unsigned count = (threads + 31) / 32;
  std::iota(warps, warps + count, std::uint16_t{0});
  shuffle(warps, count);
  std::uint16_t* next = result.data();
  for (unsigned i = 0; i < count; ++i) {
    const unsigned first = warps[i] * 32u, lanes = std::min(32u, threads - first);
    std::iota(next, next + lanes, static_cast<std::uint16_t>(first));
    shuffle(next, lanes);
    next += lanes;
  }
}

}  // namespace hearth::cuda::emulate
