// SPDX-License-Identifier: Apache-2.0
#include "train/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <map>

#include "autograd/grad_mode.h"
#include "core/cpu/parallel.h"
#include "core/creation.h"
#include "core/cuda/emulation.h"
#include "core/run_on.h"
#include "core/text_stream.h"
#include "ops/onednn/onednn.h"
#include "ops/ops.h"

namespace hearth::train {
namespace {

// Milliseconds of one of `runs` runs.
double run_ms(const std::function<void()>& f, Device device, int runs) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) f();
  wait_for(device);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / runs;
}

// An emulated device is as large and as fast as the machine below it.
bool is_large_device() { return !cuda::is_emulated(); }

double measured_copy_gbs(Device device) {
  constexpr std::int64_t bytes = std::int64_t{128} << 20;
  if (device.is_cuda()) {
    const std::int64_t size = is_large_device() ? 8 * bytes : bytes / 16;
    const Tensor from = Tensor::zeros({size}, DType::u8, device), to = Tensor::zeros({size}, DType::u8, device);
    return 2.0 * static_cast<double>(size) / time_repeated([&] { to.copy_from(from); }, device).min_ms / 1e6;
  }
  const Tensor from = Tensor::zeros({bytes}, DType::u8), to = Tensor::zeros({bytes}, DType::u8);
  const Timing timing = time_repeated([&] {
    cpu::parallel_for(bytes, std::int64_t{1} << 20, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.bytes() + begin, from.bytes() + begin, static_cast<std::size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(bytes) / timing.min_ms / 1e6;
}

// On a CPU a copy reads what it is to write as well, so that an update in place moves more of what is counted.
double measured_in_place_gbs() {
  constexpr std::int64_t elements = std::int64_t{96} << 20, piece = std::int64_t{1} << 14;
  const Tensor array = Tensor::zeros({elements}, DType::f32);
  float* const values = array.data<float>();
  const Timing timing = time_repeated([&] {
    cpu::parallel_for(elements, piece, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[i] += 1.0f;
    });
  });
  return 8.0 * static_cast<double>(elements) / timing.min_ms / 1e6;
}

// Random, as a GPU draws less power for constant numbers, and so runs faster; a sixteenth is drawn and repeated.
Tensor random_square(std::int64_t n, DType dtype, Device device) {
  const Tensor part = randn({n / 16, n}).to(dtype).to(device);
  return concat(std::vector<Tensor>(16, part), 0);
}

double measured_matmul_tflops(DType dtype, Device device) {
  const std::int64_t n = device.is_cpu() ? 1536 : is_large_device() ? 8192 : 128;
  const NoGrad no_grad;
  const Tensor a = random_square(n, dtype, device), b = random_square(n, dtype, device);
  const Timing timing = time_repeated([&] { (void)matmul(a, b); }, device);
  return 2.0 * std::pow(static_cast<double>(n), 3) / timing.min_ms / 1e9;
}

}  // namespace

Timing timing_of(std::vector<double> milliseconds) {
  HEARTH_CHECK(UsageError, !milliseconds.empty(), "timing: nothing was measured");
  std::sort(milliseconds.begin(), milliseconds.end());
  const std::size_t n = milliseconds.size();
  return {milliseconds[n / 2], milliseconds[0], milliseconds[std::min(n - 1, n * 9 / 10)]};
}

Timing time_repeated(const std::function<void()>& f, Device device, double budget_ms) {
  f();
  wait_for(device);
  const int runs = device.is_cpu() ? 1 : std::clamp(static_cast<int>(5 / run_ms(f, device, 1)), 1, 100);
  std::vector<double> all;
  double used = 0;
  while (all.size() < 5 || used < budget_ms) {
    all.push_back(run_ms(f, device, runs));
    used += all.back() * runs;
  }
  return timing_of(std::move(all));
}

const Ceilings& ceilings(Device device) {
  static std::map<std::string, Ceilings> known;
  const auto [place, missing] = known.try_emplace(name_of(device));
  if (missing) {
    const bool bf16 = device.is_cuda() || cpu::dnn::has_hardware_bf16();
    const double copy = measured_copy_gbs(device);
    place->second = {copy, device.is_cpu() ? measured_in_place_gbs() : copy, measured_matmul_tflops(DType::f32, device),
                     bf16 ? measured_matmul_tflops(DType::bf16, device) : 0,
                     device.is_cuda() ? measured_matmul_tflops(DType::f16, device) : 0};
  }
  return place->second;
}

double matmul_ceiling(const Ceilings& limit, DType dtype) {
  const double own = dtype == DType::bf16  ? limit.matmul_bf16_tflops
                     : dtype == DType::f16 ? limit.matmul_f16_tflops
                                           : 0;
  return own > 0 ? own : limit.matmul_f32_tflops;
}

namespace {

double gbs(const BenchCase& c) { return c.bytes / c.timing.median_ms / 1e6; }
double tflops(const BenchCase& c) { return c.flops / c.timing.median_ms / 1e9; }

double percent_of_limit(const BenchCase& c) {
  const Ceilings& limit = ceilings(c.device);
  const double peak = matmul_ceiling(limit, c.dtype);
  const double memory = c.in_place ? limit.in_place_gbs : limit.copy_gbs;
  return 100 * std::max(c.bytes > 0 ? gbs(c) / memory : 0, c.flops > 0 ? tflops(c) / peak : 0);
}

}  // namespace

Json to_json(const BenchCase& c) {
  const Ceilings& limit = ceilings(c.device);
  Json what = Json::object();
  what.set("name", c.name)
      .set("shape", c.shape)
      .set("dtype", name_of(c.dtype))
      .set("batch", c.batch)
      .set("device", name_of(c.device));
  Json own = Json::object();
  own.set("ms", c.timing.median_ms)
      .set("ms_min", c.timing.min_ms)
      .set("ms_p90", c.timing.p90_ms)
      .set("latency_ms", c.latency_ms > 0 ? Json(c.latency_ms) : Json())
      .set("per_s", c.items / c.timing.median_ms * 1e3)
      .set("unit", c.unit)
      .set("gbs", gbs(c))
      .set("tflops", tflops(c))
      .set("peak_mem_mb", c.peak_bytes / 1e6)
      .set("implementation", c.implementation);
  return Json::object()
      .set("schema", 1)
      .set("case", what)
      .set("hearth", own)
      .set("peers", Json::array())
      .set("ratio_best_peer", Json())
      .set("ceilings", Json::object()
                           .set("copy_gbs", limit.copy_gbs)
                           .set("in_place_gbs", limit.in_place_gbs)
                           .set("matmul_tflops", matmul_ceiling(limit, c.dtype)))
      .set("percent_of_limit", percent_of_limit(c))
      .set("max_error", c.max_error ? Json(*c.max_error) : Json())
      .set("ok", c.ok)
      .set("note", "");
}

double relative_error(std::span<const double> found, std::span<const double> exact) {
  HEARTH_CHECK(UsageError, found.size() == exact.size(), "relative error: ", found.size(), " values beside ",
               exact.size());
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    const double d = std::abs(found[i] - exact[i]);
    if (!(d <= difference)) difference = d;
    if (std::isnan(difference)) return difference;
  }
  return difference == 0 ? 0 : difference / largest;
}

std::string to_line(const BenchCase& c) {
  TextStream out;
  out << std::left << std::setw(36) << c.name << " " << std::setw(26) << c.shape << " " << std::setw(5)
      << name_of(c.dtype) << std::right << std::fixed << std::setprecision(3) << std::setw(11) << c.timing.median_ms
      << " ms (min " << c.timing.min_ms;
  if (c.latency_ms > 0) out << ", one at a time " << c.latency_ms;
  out << ")" << std::setprecision(1);
  if (c.flops > 0) out << std::setw(9) << 1e3 * tflops(c) << " GFLOP/s";
  if (c.bytes > 0) out << std::setw(9) << gbs(c) << " GB/s";
  if (c.flops > 0 || c.bytes > 0) out << std::setw(8) << percent_of_limit(c) << " % of limit";
  if (!c.implementation.empty()) out << "  " << c.implementation;
  if (c.max_error) out << std::scientific << "  error " << *c.max_error << (c.ok ? "" : ", too much");
  return out.str();
}

}  // namespace hearth::train
