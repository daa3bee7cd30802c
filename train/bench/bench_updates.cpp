// SPDX-License-Identifier: Apache-2.0
// The updates of `hearth bench ops`: 25 million parameters in 160 tensors, about those of ResNet-50.
#include <array>
#include <cmath>
#include <deque>
#include <memory>

#include "autograd/grad_state.h"
#include "core/memory/memory.h"
#include "optim/clip.h"
#include "optim/registry.h"
#include "train/bench/bench.h"

namespace hearth::train {
namespace {

constexpr std::int64_t matrices = 54, vectors = 106;
constexpr double lr = 1e-3, norm_limit = 1.0;

struct Update {
  const char* optimizer;
  bool clips;     ///< to a global norm, as language models are trained
  double passes;  ///< over the parameters: values, gradients and state read and written
};
// LARS and the clipped update read values or gradients once more for the norms; LAMB reads all but the gradients twice.
constexpr std::array<Update, 5> updates = {
    {{"sgd", false, 5}, {"adamw", false, 7}, {"adamw", true, 8}, {"lars", false, 7}, {"lamb", false, 10}}};

/// Parameters with gradients, and their optimizer.
class Trained {
 public:
  Trained(const Update& update, Device device, DType dtype, std::int64_t part) : update_(update) {
    std::vector<NamedTensor> named;
    for (std::int64_t i = 0; i < matrices + vectors; ++i) {
      const Shape shape = i < matrices ? Shape{768, 600 / part} : Shape{256 / part};
      tensors_.push_back(Tensor::full(shape, 0.01 * static_cast<double>(i % 7 + 1), dtype, device));
      named.push_back({join_text("p", i), &tensors_.back()});
    }
    flat_ = std::make_unique<FlatParameters>(named);
    Json options = Json::object().set("type", update.optimizer);
    if (std::string(update.optimizer) == "sgd" || std::string(update.optimizer) == "lars") options.set("momentum", 0.9);
    optimizer_ = optim::optimizers().make(options, *flat_);
    for (const FlatParameters::Entry& entry : flat_->entries()) grad_of(entry.value).fill_(3e-4);
    if (update.clips && device.is_cuda()) norm_ = Tensor::zeros({1}, DType::f64, device);
  }

  void step() {
    if (!update_.clips) return optimizer_->step(lr);
    if (!norm_.defined()) return optimizer_->step(lr, optim::clip_scale(optim::grad_norm(*flat_), norm_limit));
    optimizer_->begin_step(lr);
    optim::clip_on_device(*flat_, *optimizer_, norm_limit, norm_);
    optimizer_->apply();
  }
  std::int64_t size() const { return flat_->values().size(); }
  /// Without the gaps, whose size depends on the type.
  std::vector<double> values() const {
    std::vector<double> all;
    for (const FlatParameters::Entry& entry : flat_->entries()) {
      const std::vector<double> part = entry.value.to_doubles();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  Update update_;
  std::deque<Tensor> tensors_;
  std::unique_ptr<FlatParameters> flat_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor norm_;
};

/// After three steps of fewer parameters, against f64 on the CPU.
double error_of(const Update& update, Device device) {
  constexpr std::int64_t part = 8;
  Trained found(update, device, DType::f32, part), exact(update, {}, DType::f64, part);
  for (int i = 0; i < 3; ++i) {
    found.step();
    exact.step();
  }
  return relative_error(found.values(), exact.values());
}

}  // namespace

std::vector<OpBench> update_benches(Device device) {
  std::vector<OpBench> all;
  for (const Update& update : updates) {
    const std::string name = join_text("update/", update.optimizer, update.clips ? "+clip" : "", "/f32");
    const auto run = [=] {
      Trained trained(update, device, DType::f32, 1);
      BenchCase result;
      result.name = name;
      result.shape = join_text(Shape{trained.size()});
      result.device = device;
      result.timing = time_repeated([&] { trained.step(); }, device);
      result.items = 1;
      result.unit = "calls/s";
      result.bytes = update.passes * 4 * static_cast<double>(trained.size());
      result.in_place = true;
      result.peak_bytes = static_cast<double>(memory_of(device).statistics().peak);
      return result;
    };
    all.push_back({name, run, [=] { return error_of(update, device); }, 1e-5});
  }
  return all;
}

}  // namespace hearth::train
