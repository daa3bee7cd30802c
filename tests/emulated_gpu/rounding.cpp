// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_gpu/rounding.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "tests/emulated_gpu/order.h"

namespace hearth::cuda::emulate {
namespace {

struct Rounding {
  std::uint64_t seed;  // 0: exact
  SumOrder sums{};

  explicit Rounding(std::uint64_t s) : seed(s) {
    std::iota(sums.place.begin(), sums.place.end(), std::uint8_t{0});
    if (seed == 0) return;
    Shuffler shuffler(seed);
    for (std::uint32_t i = 16; i > 1; --i) std::swap(sums.place[i - 1], sums.place[shuffler.below(i)]);
    sums.begins_with_sum = shuffler.below(2) == 1;
  }
};

std::uint64_t seed_named(std::string_view name) {
  if (name == "exact") return 0;
  std::uint64_t seed = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), seed);
  HEARTH_CHECK(UsageError, status == std::errc{} && end == name.data() + name.size() && seed > 0,
               "HEARTH_EMULATE_ROUNDING: \"", name, "\" is no rounding; use exact or a seed from 1 on");
  return seed;
}

// Changed while no kernel runs.
Rounding& current() {
  static Rounding now = [] {
    const char* const text = std::getenv("HEARTH_EMULATE_ROUNDING");
    return Rounding(text == nullptr ? 1 : seed_named(text));
  }();
  return now;
}

}  // namespace

void set_rounding(std::string_view name) { current() = Rounding(seed_named(name)); }

std::string rounding() { return current().seed == 0 ? "exact" : std::to_string(current().seed); }

float approximate(float exact, float x) {
  const std::uint64_t seed = current().seed;
  if (seed == 0 || x == 0.0f || !std::isnormal(exact)) return exact;
  const auto bits = std::bit_cast<std::uint32_t>(exact);
  Shuffler shuffler(seed ^ (std::uint64_t{std::bit_cast<std::uint32_t>(x)} << 32 | bits));
  const auto near = std::bit_cast<float>(bits + shuffler.below(5) - 2);
  return std::isnormal(near) ? near : exact;
}

const SumOrder& sum_order() { return current().sums; }

}  // namespace hearth::cuda::emulate
