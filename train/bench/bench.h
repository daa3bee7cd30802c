// SPDX-License-Identifier: Apache-2.0
// What `hearth bench` measures with: repeated timing, and the machine's own limits to compare with.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/io/json_text.h"

namespace hearth::train {

struct Timing {
  double median_ms = 0;
  double min_ms = 0;
  double p90_ms = 0;
};

/// Median, minimum and 90th percentile. UsageError for an empty list.
Timing timing_of(std::vector<double> milliseconds);
/// Runs f until `budget_ms` is used up, at least five times after one warm-up. On a CUDA device several runs are queued
/// for each time taken, so that the wait at the end does not count.
Timing time_repeated(const std::function<void()>& f, Device device = {}, double budget_ms = 300);

/// What a device reaches, measured at the first call: memory copy and an array changed in place (reads and writes
/// counted), and large matrix products in f32, bf16 and f16.
struct Ceilings {
  double copy_gbs = 0;
  double in_place_gbs = 0;  ///< a copy's on a CUDA device, which writes without reading first
  double matmul_f32_tflops = 0;
  double matmul_bf16_tflops = 0;  ///< 0 where no fast bf16 product is present
  double matmul_f16_tflops = 0;   ///< likewise
};
const Ceilings& ceilings(Device device = {});
/// That of matrix products in a type: f32's where its own are made in f32.
double matmul_ceiling(const Ceilings& limit, DType dtype);

/// One measured case, as published in the bench JSON.
struct BenchCase {
  std::string name;
  std::string shape;
  DType dtype = DType::f32;
  Device device;
  std::int64_t batch = 1;
  Timing timing;
  double latency_ms = 0;  ///< of one run that is waited for, where `timing` is that of several back to back
  double items = 0;       ///< processed in one run
  std::string unit = "images/s";
  double flops = 0;       ///< of one run; 0 where arithmetic is not the point
  double bytes = 0;       ///< read and written in one run; 0 where memory is not the point
  bool in_place = false;  ///< what is written was read before
  double peak_bytes = 0;
  std::string implementation;
  std::optional<double> max_error;  ///< see OpBench::error
  bool ok = true;                   ///< the error is within the case's bound
};
/// The published object of a case.
Json to_json(const BenchCase& measured);
/// A line for people.
std::string to_line(const BenchCase& measured);

/// The largest |found - exact| as part of the largest |exact|; NaN where one of `found` is. UsageError unless
/// both have the same number of elements.
double relative_error(std::span<const double> found, std::span<const double> exact);

/// One operation that `hearth bench ops` measures.
struct OpBench {
  std::string name;
  std::function<BenchCase()> run;
  std::function<double()> error;  ///< relative_error against f64 on the CPU, of a smaller problem
  double error_bound = 0;
};
/// All of them. Batches and rows are `scale` times those of the CPU.
std::vector<OpBench> op_benches(Device device, std::int64_t scale);
/// The optimizers' part of them.
std::vector<OpBench> update_benches(Device device);
/// The operations of detection.
std::vector<OpBench> box_benches(Device device);
/// The compression of gradients, on the CPU.
std::vector<OpBench> compression_benches();

}  // namespace hearth::train
