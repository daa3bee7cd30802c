// SPDX-License-Identifier: Apache-2.0
#include "train/bench/dist_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <iomanip>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "autograd/record.h"
#include "core/blank.h"
#include "core/error.h"
#include "dist/agreement.h"
#include "dist/cost/choice.h"
#include "dist/cost/routed.h"
#include "models/resnet.h"
#include "models/swin.h"
#include "models/transformer/bert.h"
#include "models/vgg.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double forward_part = 1.0 / 3;

std::unique_ptr<nn::Module> make_traffic_model(const std::string& name) {
  const BlankTensorScope blank;
  if (name == "resnet50") return std::make_unique<models::ResNet>(models::ResNetOptions{.depth = 50});
  if (name == "bert") return std::make_unique<models::Bert>(models::BertOptions{});
  if (name == "vgg16") return std::make_unique<models::Vgg>(models::VggOptions{.depth = 16});
  if (name == "swin_t") return std::make_unique<models::Swin>(models::SwinOptions{});
  std::string known;
  for (const std::string& model : traffic_models()) known += (known.empty() ? "" : ", ") + model;
  throw UsageError(join_text("bench dist: there is no traffic of \"", name, "\"; there is that of ", known));
}

/// Parameters of a model's names and shapes. Their values do not matter; gradients are zeros until they are drawn.
class Gradients {
 public:
  explicit Gradients(const std::string& model) {
    const std::unique_ptr<nn::Module> of = make_traffic_model(model);
    std::vector<NamedTensor> named;
    for (const NamedTensor& parameter : of->parameters()) {
      tensors_.push_back(requires_grad(*parameter.tensor));
      named.push_back({parameter.name, &tensors_.back()});
    }
    flat_ = std::make_unique<FlatParameters>(named);
    flat_->grads().fill_(0);
  }
  FlatParameters& flat() { return *flat_; }
  /// Numbers of many magnitudes, as compression takes longer over some than over others.
  void draw() {
    auto* const g = flat_->grads().data<float>();
    for (std::int64_t i = 0; i < flat_->grads().size(); ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      const auto x = static_cast<float>(static_cast<std::int32_t>(state_ >> 32));
      g[i] = 1e-30F * x * x * x;
    }
  }

 private:
  std::deque<Tensor> tensors_;
  std::unique_ptr<FlatParameters> flat_;
  std::uint64_t state_ = 1;
};

/// Runs the backward pass as if it computed: what hooks of gradients do puts the rest off.
struct Pace {
  Clock::time_point due;   ///< when the next gradient is there
  Clock::time_point left;  ///< when the last one was handed on
};

/// The backward pass of what has one parameter: its gradient is there some time after the one before.
struct TimedGradient {
  static constexpr OpInfo info{.name = "timed_gradient"};
  Pace* pace;
  Clock::duration each;
  struct Saved {
    Shape shape;
    DType dtype{};
  };
  Tensor forward(Saved& saved, const Tensor& y, const Tensor& parameter) const {
    saved = {parameter.shape(), parameter.dtype()};
    return Tensor::zeros(y.shape(), y.dtype());
  }
  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    pace->due += each + (Clock::now() - pace->left);
    std::this_thread::sleep_until(pace->due);
    pace->left = Clock::now();
    // It has what Gradients::draw() left there.
    return {needs[0] ? dy : Tensor(), needs.make(1, saved.shape, saved.dtype)};
  }
};

Clock::duration duration_of(double milliseconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
}

struct StepTraffic {
  double ms = 0;
  Traffic sent;
};

StepTraffic run_traffic_step(dist::DataParallel& parallel, FlatParameters& flat, double compute_ms) {
  Collective& group = parallel.group();
  const std::vector<FlatParameters::Entry>& entries = flat.entries();
  group.barrier();
  const Traffic before = group.traffic();
  const auto begin = Clock::now();
  const double forward_ms = forward_part * compute_ms,
               each = (compute_ms - forward_ms) / static_cast<double>(entries.size());
  parallel.overlap_next(true);
  flat.zero_grads();
  Pace pace;
  Tensor y = Tensor::zeros({1});
  for (std::size_t i = 0; i < entries.size(); ++i)
    y = record(TimedGradient{&pace, duration_of(each)}, y, entries[i].value);
  std::this_thread::sleep_until(begin + duration_of(forward_ms));
  pace = {begin + duration_of(forward_ms), Clock::now()};
  backward(y);
  parallel.reduce();
  parallel.update_made();
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return {ms, group.traffic() - before};
}

/// The largest of the ranks' numbers.
double largest(Collective& group, double mine) {
  const Tensor x = Tensor::of<double>({1}, {mine});
  group.all_reduce(x, Reduce::max).wait();
  return x.item();
}
std::int64_t sum_of(Collective& group, std::int64_t mine) {
  const Tensor x = Tensor::of<std::int64_t>({1}, {mine});
  group.all_reduce(x).wait();
  return x.data<const std::int64_t>()[0];
}

/// Measures sums, chooses what is to be chosen, and predicts the steps to come by the last one.
void predict(TrafficBench& measured, dist::DataParallel& parallel, const TrafficOptions& options) {
  dist::Routed* const routed = dist::routed(parallel.group());
  if (routed == nullptr || parallel.group().size() == 1) return;
  SumChoice choice(parallel, options.choice);
  const auto begin = Clock::now();
  measured.costs = dist::measure_sums(parallel.group(), choice.choices().routes, options.parallel.wire,
                                      static_cast<bool>(options.parallel.compress));
  measured.measuring_ms = 1e3 * std::chrono::duration<double>(Clock::now() - begin).count();
  const dist::PassTimes times = dist::agreed_times(parallel.group(), parallel.last_pass());
  if (choice.why_none().empty()) {
    choice.choose(measured.costs, times);
    measured.choice = choice.text();
    measured.forecast = dist::best_of(choice.forecasts()).step;
  } else {
    measured.forecast = dist::forecasts(parallel, times, measured.costs, choice.choices()).front().step;
  }
}

}  // namespace

std::vector<std::string> traffic_models() { return {"resnet50", "bert", "vgg16", "swin_t"}; }

TrafficBench bench_traffic(Collective& group, const TrafficOptions& options) {
  HEARTH_CHECK(ConfigError, std::isfinite(options.compute_ms) && options.compute_ms >= 0, "bench dist: a step of ",
               options.compute_ms, " ms; give a time of at least 0");
  HEARTH_CHECK(ConfigError, options.steps >= 1, "bench dist: ", options.steps, " steps; give at least 1");
  Gradients gradients(options.model);
  FlatParameters& flat = gradients.flat();
  dist::DataParallel parallel(group, flat, options.parallel);
  TrafficBench measured;
  measured.model = options.model, measured.compute_ms = options.compute_ms;
  for (const FlatParameters::Entry& entry : flat.entries()) measured.parameters += entry.size;
  measured.ranks = group.size(), measured.backend = group.backend();
  const auto step_of = [&] {
    if (options.parallel.compress) gradients.draw();
    return run_traffic_step(parallel, flat, options.compute_ms);
  };
  // The first step takes memory that later ones have.
  (void)step_of();
  parallel.time_next_pass();
  (void)step_of();
  predict(measured, parallel, options);
  std::vector<double> steps, exposed, communication;
  for (std::int64_t i = 0; i < options.steps; ++i) {
    const StepTraffic step = step_of();
    steps.push_back(largest(group, step.ms));
    exposed.push_back(largest(group, 1e3 * step.sent.exposed_seconds));
    communication.push_back(largest(group, 1e3 * step.sent.seconds));
    measured.bytes = sum_of(group, step.sent.bytes);
    measured.remote_bytes = sum_of(group, step.sent.remote_bytes);
  }
  measured.buckets = static_cast<std::int64_t>(parallel.buckets().size());
  measured.bucket_mb = parallel.options().bucket_mb;
  measured.route = dist::route_of(group);
  measured.step = timing_of(steps);
  measured.exposed_ms = timing_of(exposed).median_ms;
  measured.communication_ms = timing_of(communication).median_ms;
  return measured;
}

Json to_json(const TrafficBench& measured) {
  return Json::object()
      .set("schema", 1)
      .set("traffic", measured.model)
      .set("ranks", measured.ranks)
      .set("backend", measured.backend)
      .set("route", measured.route)
      .set("parameters", measured.parameters)
      .set("buckets", measured.buckets)
      .set("compute_ms", measured.compute_ms)
      .set("step_ms", measured.step.median_ms)
      .set("step_ms_min", measured.step.min_ms)
      .set("step_ms_p90", measured.step.p90_ms)
      .set("exposed_ms", measured.exposed_ms)
      .set("communication_ms", measured.communication_ms)
      .set("bytes", measured.bytes)
      .set("remote_bytes", measured.remote_bytes)
      .set("bucket_mb", measured.bucket_mb)
      .set("predicted_step_ms", measured.forecast ? Json(1e3 * measured.forecast->seconds) : Json())
      .set("predicted_exposed_ms", measured.forecast ? Json(1e3 * measured.forecast->exposed) : Json())
      .set("measuring_ms", measured.measuring_ms)
      .set("choice", measured.choice)
      .set("costs", to_json(measured.costs));
}

std::string to_text(const TrafficBench& measured) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << measured.model << ", " << measured.parameters / 1e6
       << " million parameters in " << measured.buckets << " buckets, " << measured.ranks << " ranks by "
       << measured.backend << (measured.route.empty() ? "" : ", route ") << measured.route << "\nstep "
       << measured.step.median_ms << " ms (fastest " << measured.step.min_ms << "), of which " << measured.compute_ms
       << " ms compute; communication " << measured.communication_ms << " ms, exposed " << measured.exposed_ms
       << " ms\n";
  if (measured.forecast)
    text << "predicted: step " << 1e3 * measured.forecast->seconds << " ms, exposed "
         << 1e3 * measured.forecast->exposed << " ms\n";
  if (!measured.choice.empty()) text << "auto: " << measured.choice << "\n";
  text << "bytes of a step, all ranks: " << measured.bytes / 1e6 << " MB, between hosts " << measured.remote_bytes / 1e6
       << " MB\n";
  return text.str();
}

}  // namespace hearth::train
