// SPDX-License-Identifier: Apache-2.0
// A model of one's own, trained twice: by a loop written out by hand, and from a JSON file by the `hearth` commands.
//
//   custom_model                     the loop below
//   custom_model train digits.json   any command of the program `hearth`, with the model "tiny" known to it
#include <hearth/hearth.h>

#include <iostream>
#include <memory>

namespace {

using namespace hearth;

struct TinyOptions {
  std::int64_t width = 16;
};

void describe(Fields<TinyOptions>& f) {
  f.integer("width", &TinyOptions::width, {.min = 1, .max = 4096}, "Channels of the first convolution.");
}

/// Two convolutions and a linear layer. x [N, H, W, C]; y [N, classes].
struct Tiny : nn::Module {
  nn::Conv2d first, second;
  nn::BatchNorm norm;
  nn::Linear out;

  Tiny(std::int64_t channels, std::int64_t width, std::int64_t classes)
      : first(channels, width, {.kernel = 3, .padding = 1, .bias = false}),
        second(width, 2 * width, {.kernel = 3, .stride = 2, .padding = 1, .activation = Activation::relu}),
        norm(width, {.activation = Activation::relu}),
        out(2 * width, classes) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(global_avg_pool(second(norm(first(x))))); }
};

double accuracy(Tiny& model, data::Loader& loader) {
  const NoGrad no_grad;
  model.eval();
  std::int64_t correct = 0;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const data::Batch batch = loader.next();
    correct += static_cast<std::int64_t>(count_correct(model(batch["images"]), batch["labels"]).item());
  }
  model.train();
  return static_cast<double>(correct) / static_cast<double>(loader.samples_per_epoch());
}

int train_by_hand() {
  const data::ImageSplits digits = data::digits({.split = data::DigitsSplit::shuffled});
  const data::TransformOptions scaling{.mean = {0.3}, .std = {0.37}};
  const data::ImageShape shape = digits.train->image_shape();
  data::Loader train(digits.train, data::Transforms(shape, scaling, true), {.batch_size = 32, .shuffle = true});
  data::Loader test(digits.test, data::Transforms(shape, scaling, false), {.batch_size = 90, .workers = 0});

  Tiny model(shape.channels, 16, digits.train->classes());
  nn::initialize(model, 1);
  FlatParameters parameters(model.parameters());
  optim::Sgd optimizer(parameters, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  const std::int64_t steps_per_epoch = train.batches_per_epoch();
  const std::int64_t epochs = 8;
  const optim::CosineSchedule schedule({}, {.total_steps = epochs * steps_per_epoch});
  optimizer.attach(schedule);

  for (std::int64_t step = 0; step < epochs * steps_per_epoch; ++step) {
    const data::Batch batch = train.next();
    const Tensor loss = cross_entropy(model(batch["images"]), batch["labels"]);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if ((step + 1) % steps_per_epoch == 0)
      std::cout << "epoch " << (step + 1) / steps_per_epoch << "  loss " << loss.item() << "  accuracy "
                << 100 * accuracy(model, test) << " %" << std::endl;
  }
  return accuracy(model, test) > 0.95 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return train_by_hand();
  models::add<TinyOptions>("tiny", [](const TinyOptions& o, const models::InputInfo& input) {
    return std::make_unique<Tiny>(input.channels, o.width, input.classes);
  });
  return train::run_cli(argc, argv);
}
