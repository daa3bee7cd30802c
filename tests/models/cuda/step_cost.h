// SPDX-License-Identifier: Apache-2.0
// What a training step of a model costs on a CUDA device, by counter. The same on a real and on the emulated device.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string_view>

#include "autograd/backward.h"
#include "autograd/parameters.h"
#include "core/cuda/counters.h"
#include "core/cuda/stream.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "models/nn/nn.h"
#include "ops/dispatch/candidates.h"

namespace hearth::models {

inline constexpr Device gpu{DeviceType::cuda, 0};

struct StepCost {
  cuda::Counters forward, backward;
  std::int64_t kept = 0;  ///< bytes between the passes
  StepCost operator-(const StepCost& other) const {
    return {forward - other.forward, backward - other.backward, kept - other.kept};
  }
};

/// Launches, and calls of libraries.
inline std::int64_t calls(const cuda::Counters& counters) { return counters.launches + counters.library_calls; }

/// Launches that GELU by erf costs behind the latest products: a library's do not take it on.
inline std::int64_t gelu_apart() { return last_choice("linear").starts_with("cublaslt") ? 1 : 0; }

/// Of the third step of a model, which is drawn and moved to the device.
inline StepCost step_cost(nn::Module& model, const std::function<Tensor()>& loss_of) {
  nn::initialize(model, 1);
  model.to(gpu);
  FlatParameters flat(model.parameters());
  StepCost cost;
  for (int step = 0; step < 3; ++step) {
    const RandomScope random(1, static_cast<std::uint64_t>(step));
    flat.zero_grads();
    const std::int64_t before = memory_of(gpu).statistics().in_use;
    const cuda::Counters start = cuda::counters();
    const Tensor loss = loss_of();
    const cuda::Counters middle = cuda::counters();
    cost.kept = memory_of(gpu).statistics().in_use - before;
    backward(loss);
    flat.finish_grads();
    cost.forward = middle - start;
    cost.backward = cuda::counters() - middle;
  }
  return cost;
}

/// Nothing but kernels: no copy that only reorders, no wait, no allocation, nothing from or to the host.
inline void expect_undisturbed(const cuda::Counters& counters) {
  EXPECT_EQ(counters.layout_changes, 0);
  EXPECT_EQ(counters.waits, 0);
  EXPECT_EQ(counters.copies_in + counters.copies_out, 0);
  // Where tests of bounds want each tensor as a block of its own, there is no pool to take them from.
  const char* const memory = std::getenv("HEARTH_MEMORY");
  const bool pooled = memory == nullptr || std::string_view(memory) != "system";
  EXPECT_TRUE(counters.allocations == 0 || !pooled) << counters.allocations << " allocations";
}

inline void expect_undisturbed(const StepCost& cost) {
  expect_undisturbed(cost.forward);
  expect_undisturbed(cost.backward);
}

}  // namespace hearth::models
