// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

namespace hearth {
namespace {
thread_local RandomKey current;
}

RandomKey next_random_key() {
  const RandomKey key = current;
  ++current.op;
  return key;
}

void manual_seed(std::uint64_t seed) { current = {.seed = seed}; }

RandomKey random_position() { return current; }

RandomScope::RandomScope(std::uint64_t seed, std::uint64_t step, RandomPart part)
    : RandomScope(RandomKey{seed, step, 0, part}) {}
RandomScope::RandomScope(const RandomKey& position) : previous_(current) { current = position; }
RandomScope::~RandomScope() { current = previous_; }

}  // namespace hearth
