// SPDX-License-Identifier: Apache-2.0
// Training beside PyTorch: from the same weights and batches, the same losses at every step and the same gradients.
// The cases are files of golden/make_models.py; HEARTH_PARITY_DIR names a folder of larger ones (scripts/parity_torch).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hearth/autograd/backward.h"
#include "hearth/autograd/grad_state.h"
#include "hearth/core/safetensors.h"
#include "hearth/models/import.h"
#include "hearth/models/registry.h"
#include "hearth/ops/ops.h"
#include "hearth/optim/registry.h"

namespace hearth {
namespace {

class Case {
 public:
  explicit Case(const std::string& path) : file_(path) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  Tensor tensor(const std::string& name) const {
    const TensorRecord* record = file_.find(name);
    HEARTH_CHECK(DataError, record, "parity: there is no tensor ", name);
    const Tensor result = Tensor::empty(record->shape, record->dtype);
    const auto bytes = file_.bytes(*record);
    std::memcpy(result.bytes(), bytes.data(), bytes.size());
    return result;
  }
  Json options(const char* key) const { return parse_json(file_.metadata().at(key), key); }

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

void expect_gradients(const Case& parity, const FlatParameters& flat) {
  for (const auto& entry : flat.entries()) {
    const Tensor expected = models::from_torch_layout(entry.name, parity.tensor("grads." + entry.name));
    const std::vector<double> wanted = expected.to_doubles(), found = grad_of(entry.value).to_doubles();
    ASSERT_EQ(wanted.size(), found.size());
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      difference = std::max(difference, std::abs(wanted[i] - found[i]));
    }
    EXPECT_GT(largest, 0.0) << entry.name;
    EXPECT_LE(difference, 1e-5 * largest) << entry.name;
  }
}

/// Losses of all steps; `first_step` runs after the first backward pass.
template <class F>
std::vector<double> train(const Case& parity, DType dtype, std::size_t steps, const F& first_step) {
  const Tensor x = parity.tensor("x").to(dtype), labels = parity.tensor("labels");
  const models::InputInfo input{.height = 1, .width = 1, .channels = x.dim(-1), .classes = 10};
  const auto model = models::make(parity.options("model"), input);
  model->to(dtype);
  FlatParameters flat(model->parameters());
  load(parity, model->parameters(), "weights.");
  load(parity, model->buffers(), "buffers.");
  const auto optimizer = optim::optimizers().make(parity.options("optimizer"), flat);
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::int64_t batch = static_cast<std::int64_t>(step) % x.dim(0);
    flat.zero_grads();
    const Tensor loss = cross_entropy((*model)(batch_of(x, batch)), batch_of(labels, batch));
    backward(loss);
    if (step == 0) first_step(flat);
    optimizer->step(optimizer->base_lr());
    losses.push_back(loss.item());
  }
  return losses;
}

void expect_parity(const std::string& path) {
  const Case parity(path);
  const std::vector<double> exact = parity.tensor("losses.f64").to_doubles();
  const std::vector<double> found =
      train(parity, DType::f64, exact.size(), [&](const FlatParameters& flat) { expect_gradients(parity, flat); });
  double worst = 0;
  for (std::size_t step = 0; step < exact.size(); ++step) {
    worst = std::max(worst, std::abs(found[step] - exact[step]) / std::abs(exact[step]));
    EXPECT_NEAR(found[step] / exact[step], 1.0, 1e-9) << "f64, step " << step;
  }
  const std::vector<double> single = parity.tensor("losses.f32").to_doubles();
  const std::vector<double> found_single =
      train(parity, DType::f32, single.size(), [&](const FlatParameters& flat) { expect_gradients(parity, flat); });
  // Rounding grows from step to step. Where it alone takes PyTorch's f32 further than 1e-4 from its f64, that distance
  // is the measure.
  const double last = exact.back();
  const double own_distance = std::abs(single.back() - last);
  EXPECT_LE(std::abs(found_single.back() - last), std::max(1e-4 * std::abs(last), 4 * own_distance))
      << "f32, last step: " << found_single.back() << ", PyTorch " << single.back() << ", in f64 " << last;
  testing::Test::RecordProperty("worst_f64", std::to_string(worst));
  testing::Test::RecordProperty("f32_last", std::to_string(found_single.back()));
}

class Parity : public testing::TestWithParam<const char*> {};

TEST_P(Parity, FiftyStepsMatchTorch) {
  expect_parity(join_text(HEARTH_SOURCE_DIR, "/tests/golden/", GetParam(), ".safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Golden, Parity, testing::Values("mlp", "resnet_basic", "resnet_bottleneck"),
                         [](const auto& tried) { return std::string(tried.param); });

TEST(ParityLive, EveryCaseOfTheFolder) {
  const char* folder = std::getenv("HEARTH_PARITY_DIR");
  if (!folder) GTEST_SKIP() << "HEARTH_PARITY_DIR is not set; scripts/parity_torch makes the cases";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().string());
    expect_parity(entry.path().string());
    ++count;
  }
  EXPECT_GT(count, 0) << "no cases in " << folder;
}

}  // namespace
}  // namespace hearth
