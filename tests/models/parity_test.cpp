// SPDX-License-Identifier: Apache-2.0
// Training beside PyTorch: from the same weights and batches, the same losses at every step and the same gradients.
// The cases are files of golden/make_models.py; HEARTH_PARITY_DIR names a folder of larger ones (scripts/parity_torch),
// and HEARTH_PARITY_DEVICE where they are trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/io/safetensors.h"
#include "models/registry.h"
#include "models/weights/import.h"
#include "ops/ops.h"
#include "optim/registry.h"
#include "tests/support/places.h"

namespace hearth::parity_test {
namespace {

class Case {
 public:
  explicit Case(const std::string& path) : file_(path) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  Tensor tensor(const std::string& name) const {
    const TensorRecord* record = file_.find(name);
    HEARTH_CHECK(DataError, record, "parity: there is no tensor ", name);
    const Tensor result = Tensor::empty(record->shape, record->dtype);
    file_.read(*record, {result.bytes(), result.byte_size()});
    return result;
  }
  Json options(const char* key) const { return parse_json(file_.metadata().at(key), key); }
  double number(const char* key) const { return options(key).as_number(); }

 private:
  SafetensorsFile file_;
};

/// Batch i of [batches, ...].
Tensor batch_of(const Tensor& all, std::int64_t i) {
  std::vector<std::int64_t> extents(all.shape().begin() + 1, all.shape().end());
  const Shape shape{std::span<const std::int64_t>(extents)};
  return Tensor::view(all.storage(), shape, contiguous_strides(shape), i * shape.size(), all.dtype(), all.device())
      .clone();
}

void load(const Case& parity, const std::vector<NamedTensor>& tensors, const std::string& prefix) {
  for (const NamedTensor& named : tensors) {
    const Tensor source = models::from_torch_layout(named.name, parity.tensor(prefix + named.name));
    ASSERT_EQ(source.shape(), named.tensor->shape()) << named.name;
    named.tensor->copy_from(source);
  }
}

/// How far gradients lie from PyTorch's of f64: the largest difference in a tensor as part of the tensor's largest
/// gradient, of the worst tensor.
struct Distance {
  double worst = 0;
  std::string tensor;
};

Distance gradient_distance(const Case& parity, const FlatParameters& flat) {
  Distance result;
  for (const auto& entry : flat.entries()) {
    const Tensor expected = models::from_torch_layout(entry.name, parity.tensor("grads." + entry.name));
    const std::vector<double> wanted = expected.to_doubles(), found = grad_of(entry.value).to_doubles();
    HEARTH_CHECK(DataError, wanted.size() == found.size(), "parity: ", entry.name, " has ", found.size(),
                 " gradients, the case ", wanted.size());
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      difference = std::max(difference, std::abs(wanted[i] - found[i]));
    }
    EXPECT_GT(largest, 0.0) << entry.name;
    if (!(difference <= result.worst * largest)) result = {difference / largest, entry.name};
  }
  return result;
}

/// Losses of all steps; `first_step` runs after the first backward pass.
template <class F>
std::vector<double> train(const Case& parity, Device device, DType dtype, std::size_t steps, const F& first_step) {
  const Tensor stored = parity.tensor("x"), labels = parity.tensor("labels");
  const Tensor x = is_floating(stored.dtype()) ? stored.to(dtype) : stored;
  const Tensor source = parity.has("source") ? parity.tensor("source") : Tensor{};
  const bool images = x.rank() == 5;
  const models::InputInfo input{.height = images ? x.dim(2) : 1,
                                .width = images ? x.dim(3) : 1,
                                .channels = x.dim(-1),
                                .classes = 10,
                                .pad = 0,
                                .source_pad = source.defined() ? 0 : -1};
  const auto model = models::make(parity.options("model"), input);
  model->to(dtype);
  load(parity, model->parameters(), "weights.");
  load(parity, model->buffers(), "buffers.");
  model->to(device);
  FlatParameters flat(model->parameters());
  const auto optimizer = optim::optimizers().make(parity.options("optimizer"), flat);
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::int64_t batch = static_cast<std::int64_t>(step) % x.dim(0);
    flat.zero_grads();
    const Tensor given = batch_of(x, batch).to(device);
    const Tensor logits = source.defined() ? (*model)(batch_of(source, batch).to(device), given) : (*model)(given);
    const Tensor loss = cross_entropy(logits, batch_of(labels, batch).to(device));
    backward(loss);
    if (step == 0) first_step(flat);
    optimizer->step(optimizer->base_lr());
    losses.push_back(loss.item());
  }
  return losses;
}

/// What a case showed, for the reader of the test's output.
struct Findings {
  double worst_f64 = 0;                       // over all steps, relative
  double last_f32 = 0, torch_last_f32 = 0;    // relative distance of the last loss from PyTorch's of f64
  double grads_f32 = 0, torch_grads_f32 = 0;  // of the first step
};

double relative(double found, double expected) { return std::abs(found - expected) / std::abs(expected); }

Findings expect_parity(const std::string& path, Device device) {
  const Case parity(path);
  Findings findings;
  const std::vector<double> exact = parity.tensor("losses.f64").to_doubles();
  const std::vector<double> found = train(parity, device, DType::f64, exact.size(), [&](const FlatParameters& flat) {
    const Distance distance = gradient_distance(parity, flat);
    EXPECT_LE(distance.worst, 1e-6) << "f64, gradients of " << distance.tensor;
  });
  for (std::size_t step = 0; step < exact.size(); ++step) {
    findings.worst_f64 = std::max(findings.worst_f64, relative(found[step], exact[step]));
    EXPECT_LE(relative(found[step], exact[step]), 1e-9) << "f64, step " << step;
  }
  EXPECT_LT(exact.back(), exact.front() - 0.1) << "the case trains nothing";

  // The cases are so chosen that rounding alone keeps PyTorch's f32 well within these bounds of its f64.
  findings.torch_last_f32 = relative(parity.tensor("losses.f32").to_doubles().back(), exact.back());
  findings.torch_grads_f32 = parity.number("grads_f32_distance");
  const std::vector<double> single = train(parity, device, DType::f32, exact.size(), [&](const FlatParameters& flat) {
    const Distance distance = gradient_distance(parity, flat);
    findings.grads_f32 = distance.worst;
    EXPECT_LE(distance.worst, 1e-5) << "f32, gradients of " << distance.tensor;
    // On a device a library's order of sums is not PyTorch's of the CPU (2.4 times on an H200).
    EXPECT_LE(distance.worst, (device.is_cuda() ? 4 : 2) * findings.torch_grads_f32)
        << "f32, gradients of " << distance.tensor << " are less exact than PyTorch's";
  });
  findings.last_f32 = relative(single.back(), exact.back());
  EXPECT_LE(findings.last_f32, 1e-4) << "f32, last step: " << single.back() << ", PyTorch in f64 " << exact.back();
  return findings;
}

class Parity : public testing::TestWithParam<std::tuple<const char*, DeviceType>> {};

TEST_P(Parity, FiftyStepsMatchTorch) {
  const auto [name, type] = GetParam();
  if (device_count(type) == 0) GTEST_SKIP() << "no CUDA device here";
  expect_parity(join_text(test::source_dir(), "/tests/golden/", name, ".safetensors"), Device{type});
}

INSTANTIATE_TEST_SUITE_P(Golden, Parity,
                         testing::Combine(testing::Values("bert", "gpt", "mlp", "resnet_basic", "resnet_bottleneck",
                                                          "swin", "transformer_after", "transformer_before"),
                                          testing::Values(DeviceType::cpu, DeviceType::cuda)),
                         [](const auto& tried) {
                           const bool on_cuda = std::get<1>(tried.param) == DeviceType::cuda;
                           return std::string(std::get<0>(tried.param)) + (on_cuda ? "_cuda" : "_cpu");
                         });

TEST(ParityLive, EveryCaseOfTheFolder) {
  const char* folder = std::getenv("HEARTH_PARITY_DIR");
  const char* device = std::getenv("HEARTH_PARITY_DEVICE");
  if (!folder) GTEST_SKIP() << "HEARTH_PARITY_DIR is not set; scripts/parity_torch makes the cases";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().string());
    const Findings found = expect_parity(entry.path().string(), Device(device ? device : "cpu"));
    std::cout << entry.path().stem().string() << ", relative distances from PyTorch in f64:\n  loss in f64, worst step "
              << found.worst_f64 << "\n  loss in f32, last step " << found.last_f32 << "  (PyTorch in f32 "
              << found.torch_last_f32 << ")\n  gradients in f32, first step " << found.grads_f32 << "  (PyTorch in f32 "
              << found.torch_grads_f32 << ")\n";
    ++count;
  }
  EXPECT_GT(count, 0) << "no cases in " << folder;
}

}  // namespace
}  // namespace hearth::parity_test
