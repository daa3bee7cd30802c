// SPDX-License-Identifier: Apache-2.0
// What depends on the order of queued work is tested under many orders where the GPU is the emulated one. A real one
// has the order that it has.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/build.h"
#if HEARTH_CUDA_EMULATED
#include "tests/emulated_gpu/runtime.h"
#endif

namespace hearth::test {

/// Calls f() under the eager policy, the lazy one and twenty seeds; once on a real GPU.
template <class F>
void under_every_stream_policy(F&& f) {
#if HEARTH_CUDA_EMULATED
  using namespace cuda::emulate;
  constexpr std::uint64_t seeds = 20;
  const Settings before = settings();
  const auto under = [&](const std::string& name, const StreamPolicy& policy) {
    SCOPED_TRACE(name);
    Settings wanted = before;
    wanted.streams = policy;
    apply(wanted);
    f();
  };
  under("eager", {StreamPolicy::Kind::eager});
  under("lazy", {StreamPolicy::Kind::lazy});
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    under("seed " + std::to_string(seed), {StreamPolicy::Kind::seeded, seed});
  apply(before);
#else
  f();
#endif
}

}  // namespace hearth::test
