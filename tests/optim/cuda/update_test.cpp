// SPDX-License-Identifier: Apache-2.0
// The optimizers on a CUDA device (a real or the emulated one): they agree with the CPU, give the same bits each time,
// and take the launches they promise. The CPU is vouched for elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/random.h"
#include "core/run_on.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/grad_scaler.h"
#include "optim/registry.h"

namespace hearth::update_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

/// Random numbers of either sign.
Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype, Device device) {
  Random random(11, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(device);
}

/// Parameters of many sizes: of one element, of no whole pack, of more than one piece.
class ManyParameters {
 public:
  ManyParameters(DType dtype, Device device)
      : tensors_{numbers({150, 131}, 1, dtype, device), numbers({131}, 2, dtype, device),
                 numbers({1}, 3, dtype, device), numbers({7, 3}, 4, dtype, device),
                 numbers({16384, 1}, 5, dtype, device)},
        flat_({{"first.weight", &tensors_[0]},
               {"first.bias", &tensors_[1]},
               {"scale", &tensors_[2]},
               {"second.weight", &tensors_[3]},
               {"third.weight", &tensors_[4]}}) {}

  FlatParameters& flat() { return flat_; }
  void set_gradients(std::uint64_t step) {
    const Tensor& grads = flat_.grads();
    std::uint64_t stream = 100 * (step + 1);
    // The last parameter has no gradient in every other step.
    const std::size_t count = flat_.entries().size() - step % 2;
    flat_.zero_grads();
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor& value = flat_.entries()[i].value;
      grad_of(value).copy_from(numbers(value.shape(), stream++, grads.dtype(), {}));
    }
  }

 private:
  std::array<Tensor, 5> tensors_;
  FlatParameters flat_;
};

std::unique_ptr<optim::Optimizer> make(const std::string& text, FlatParameters& parameters) {
  return optim::optimizers().make(parse_json(text, "test"), parameters);
}

std::vector<double> after_steps(const std::string& text, DType dtype, Device device) {
  ManyParameters many(dtype, device);
  const auto optimizer = make(text, many.flat());
  for (std::uint64_t step = 0; step < 3; ++step) {
    many.set_gradients(step);
    optimizer->step(0.05, 0.75);
  }
  return many.flat().values().to_doubles();
}

/// The largest difference beside the largest number.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0, scale = 1;
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= most)) most = difference;
    scale = std::max(scale, std::abs(b[i]));
  }
  return most / scale;
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

struct OptimizerCase {
  const char* text;
  int launches;  // of a step
};

void PrintTo(const OptimizerCase& tried, std::ostream* out) { *out << tried.text; }

constexpr OptimizerCase optimizer_cases[] = {
    {R"({"type": "sgd", "weight_decay": 0.1})", 1},
    {R"({"type": "sgd", "momentum": 0.9, "nesterov": true, "weight_decay": 0.1})", 1},
    {R"({"type": "sgd", "momentum": 0.9, "groups": [{"type": "by_name", "match": ["second.*"], "lr_scale": 10}]})", 1},
    {R"({"type": "adam", "weight_decay": 0.1})", 1},
    {R"({"type": "adamw", "groups": [{"type": "by_name", "match": ["*.bias"], "weight_decay": 0.5}]})", 1},
    {R"({"type": "lars", "trust": 0.02, "weight_decay": 0.1})", 2},
    {R"({"type": "lars", "trust": 1, "clip_trust": true, "lr_in_momentum": true,
         "groups": [{"type": "by_name", "match": ["first.*"], "adapt": true, "lr_scale": 10}]})",
     2},
    // The bound lies between what the base rate and the group's make of it.
    {R"({"type": "lars", "trust": 0.1, "clip_trust": true,
         "groups": [{"type": "by_name", "match": ["first.*"], "adapt": true, "lr_scale": 10}]})",
     2},
    {R"({"type": "lamb", "weight_decay": 0.1})", 2},
    // Two more for the norm of all gradients.
    {R"({"type": "lamb", "max_grad_norm": 1, "norm_min": 5, "norm_max": 100})", 4},
};

class OptimOnDevice : public OnDevice, public testing::WithParamInterface<OptimizerCase> {};

TEST_P(OptimOnDevice, AgreesWithTheCpu) {
  const char* const text = GetParam().text;
  EXPECT_LE(distance(after_steps(text, DType::f64, gpu), after_steps(text, DType::f64, {})), 1e-14);
  EXPECT_LE(distance(after_steps(text, DType::f32, gpu), after_steps(text, DType::f32, {})), 2e-7);
}

TEST_P(OptimOnDevice, GivesTheSameBitsEachTime) {
  const char* const text = GetParam().text;
  EXPECT_EQ(after_steps(text, DType::f32, gpu), after_steps(text, DType::f32, gpu));
}

TEST_P(OptimOnDevice, TakesFewLaunchesAndNoWait) {
  ManyParameters many(DType::f32, gpu);
  const auto optimizer = make(GetParam().text, many.flat());
  many.set_gradients(0);
  optimizer->step(0.05);
  many.set_gradients(2);
  const cuda::Counters before = cuda::counters();
  optimizer->step(0.05);
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.launches, GetParam().launches);
  EXPECT_EQ(spent.waits, 0);
  // The coefficients go to the device, from pinned memory.
  EXPECT_LE(spent.bytes_copied, 512);
  EXPECT_EQ(spent.copies_out + spent.copies_within + spent.pageable_copies, 0);
}

TEST_P(OptimOnDevice, ClippingOrScalingCostsThreeLaunches) {
  ManyParameters many(DType::f32, gpu);
  const auto optimizer = make(GetParam().text, many.flat());
  optim::GradScaler scale(many.flat(), {}, {});
  const Tensor norm = Tensor::zeros({1}, DType::f64, gpu);
  const auto launches = [&](const std::function<void()>& between) {
    many.set_gradients(0);
    optimizer->begin_step(0.05);
    scale.begin_step(*optimizer, nullptr, 1);
    const cuda::Counters before = cuda::counters();
    between();
    optimizer->apply();
    const cuda::Counters spent = cuda::counters() - before;
    EXPECT_EQ(spent.waits + spent.copies_out + spent.copies_within + spent.pageable_copies, 0);
    return spent.launches;
  };
  // Two for the norm of all gradients, which LAMB takes over where it wants it too, and one for what follows from it.
  const int without_norm = std::min(GetParam().launches, 2);
  EXPECT_EQ(launches([&] { optim::clip_on_device(many.flat(), *optimizer, 1.0, norm); }), without_norm + 3);
  EXPECT_EQ(launches([&] { scale.check_found_inf(*optimizer, nullptr, 1.0, norm, {}); }), without_norm + 3);
  EXPECT_EQ(launches([] {}), GetParam().launches) << "a norm is of one step";
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimOnDevice, testing::ValuesIn(optimizer_cases),
                         [](const auto& tried) { return "case" + std::to_string(tried.index); });

double squares_of(const Tensor& x, double scale) {
  return run_on(x.device(), [&](auto& stream) { return kernels::sum_of_squares(stream, x, scale); });
}
double largest_of(const Tensor& x) {
  return run_on(x.device(), [&](auto& stream) { return kernels::largest_magnitude(stream, x); });
}

class NormsOnDevice : public OnDevice {};

TEST_F(NormsOnDevice, AgreeWithTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::int64_t size : {0, 1, 3, 255, 16384, 16385, 70001}) {
      const Tensor x = numbers({size}, 5, dtype, {});
      const Tensor on_gpu = x.to(gpu);
      EXPECT_NEAR(squares_of(on_gpu, 0.3), squares_of(x, 0.3), 1e-14 * squares_of(x, 0.3)) << size;
      EXPECT_EQ(largest_of(on_gpu), largest_of(x)) << size;
      if (size < 3) continue;
      // Not aligned for packs.
      const Tensor part = Tensor::view(on_gpu.storage(), {size - 1}, {1}, 1, dtype, gpu);
      const Tensor same = Tensor::view(x.storage(), {size - 1}, {1}, 1, dtype, {});
      EXPECT_NEAR(squares_of(part, 1.0), squares_of(same, 1.0), 1e-14 * squares_of(same, 1.0)) << size;
    }
  }
}

TEST_F(NormsOnDevice, NoNumberHidesNotANumber) {
  for (const std::int64_t place : {0, 5, 16383, 16390, 39999}) {
    std::vector<double> values(40000, 1.0);
    values[static_cast<std::size_t>(place)] = std::nan("");
    values[20000] = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(std::isnan(largest_of(Tensor::of<double>({40000}, values).to(gpu)))) << place;
  }
}

TEST_F(NormsOnDevice, GradientsBeyondTheRangeOfTheirSquares) {
  for (const double size : {1e200, 1e-200, 1.0}) {
    ManyParameters many(DType::f64, gpu);
    for (const auto& entry : many.flat().entries()) grad_of(entry.value).fill_(-size);
    std::int64_t count = 0;
    for (const auto& entry : many.flat().entries()) count += entry.size;
    EXPECT_NEAR(optim::grad_norm(many.flat()) / size / std::sqrt(static_cast<double>(count)), 1.0, 1e-12) << size;
  }
}

TEST_F(NormsOnDevice, AScalarOnTheDeviceNeedsNoWait) {
  const Tensor x = numbers({50000}, 5, DType::f32, gpu);
  const Tensor sum = Tensor::zeros({}, DType::f64, gpu);
  const cuda::Counters before = cuda::counters();
  kernels::sum_of_squares(cuda::stream_of(gpu), x, 1.0, sum);
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.launches, 2);
  EXPECT_EQ(spent.waits, 0);
  EXPECT_EQ(sum.item(), squares_of(x, 1.0));
}

TEST_F(NormsOnDevice, ClipsAsTheHostWould) {
  for (const double squares : {0.0, 0.25, 9.0, std::nan("")}) {
    const Tensor sum = Tensor::full({}, squares, DType::f64, gpu), norm = Tensor::zeros({}, DType::f64, gpu);
    const Tensor scale = Tensor::full({}, 0.5, DType::f64, gpu);
    kernels::clip_by_sum(cuda::stream_of(gpu), sum, 1.5, norm, scale.data<double>());
    const double length = std::sqrt(squares);
    if (std::isnan(squares)) {
      EXPECT_TRUE(std::isnan(norm.item()) && std::isnan(scale.item()));
      continue;
    }
    EXPECT_DOUBLE_EQ(norm.item(), length);
    EXPECT_DOUBLE_EQ(scale.item(), 0.5 * std::min(1.0, 1.5 / (length + 1e-6)));
  }
}

class EmaOnDevice : public OnDevice {};

TEST_F(EmaOnDevice, AgreesWithTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<double> averages[2], values[2], statistics[2];
    const std::array<Device, 2> devices = {Device{}, gpu};
    for (std::size_t i = 0; i < 2; ++i) {
      ManyParameters many(dtype, devices[i]);
      Tensor statistic = numbers({37}, 9, dtype, devices[i]);
      optim::Ema ema(many.flat(), {{"running_mean", &statistic}}, {.decay = 0.75});
      for (int step = 0; step < 3; ++step) {
        many.flat().values().fill_(step);
        statistic.fill_(step + 1.0);
        ema.update();
      }
      ema.swap();
      averages[i] = many.flat().values().to_doubles();
      values[i] = ema.average().to_doubles();
      statistics[i] = statistic.to_doubles();
    }
    EXPECT_LE(distance(averages[1], averages[0]), dtype == DType::f64 ? 1e-15 : 2e-7);
    EXPECT_EQ(values[1], values[0]);
    EXPECT_LE(distance(statistics[1], statistics[0]), dtype == DType::f64 ? 1e-15 : 2e-7);
  }
}

}  // namespace
}  // namespace hearth::update_test
