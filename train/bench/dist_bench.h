// SPDX-License-Identifier: Apache-2.0
// The communication of data parallel steps, without their computation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/collective.h"
#include "core/io/json_text.h"
#include "dist/data_parallel.h"
#include "train/bench/bench.h"
#include "train/step/sum_choice.h"

namespace hearth::train {

struct TrafficOptions {
  std::string model;      ///< one of traffic_models()
  double compute_ms = 0;  ///< of a step without communication; a third is the forward pass
  std::int64_t steps = 10;
  dist::DataParallelOptions parallel{};
  SumChoiceOptions choice{};
};

/// "resnet50", "bert", "vgg16", "swin_t".
std::vector<std::string> traffic_models();

/// What ranks measured; of a step the slowest rank's times, bytes of all ranks together.
struct TrafficBench {
  std::string model;
  std::int64_t parameters = 0;  ///< elements
  std::int64_t buckets = 0;
  double compute_ms = 0;
  Timing step;
  double exposed_ms = 0;        ///< median over the steps of what ranks waited for communication
  double communication_ms = 0;  ///< median of what it took, hidden or not
  std::int64_t bytes = 0, remote_bytes = 0;
  int ranks = 1;
  std::string backend, route;
  double bucket_mb = 0;
  dist::SumCosts costs;
  std::optional<dist::Forecast> forecast;  ///< of a step, before the steps; none of one rank, nor by NCCL
  double measuring_ms = 0;                 ///< of the costs
  std::string choice;                      ///< what was chosen, and why; empty where all is given
};

/// Steps of DataParallel with the parameters of a model, in the order of its backward pass. A step computes nothing: it
/// sleeps for the forward pass, and each parameter's gradient is there after its part of the backward pass, one as long
/// as another's. Every rank calls it. UsageError for an unknown model; ConfigError for a time below 0.
TrafficBench bench_traffic(Collective& group, const TrafficOptions& options);

Json to_json(const TrafficBench& measured);
std::string to_text(const TrafficBench& measured);

}  // namespace hearth::train
