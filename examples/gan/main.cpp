// SPDX-License-Identifier: Apache-2.0
// A loop of one's own with two models and two optimizers: a GAN (generative adversarial nets, Goodfellow et al. 2014,
// arXiv:1406.2661) that draws handwritten digits. Mixed precision, gradient accumulation, averaged weights, and one
// state file that a killed training goes on from, to the same bits.
//
//   gan train digits_gan.json gan.state              trains, or goes on from the state file
//   gan sample digits_gan.json gan.state digits.png  draws a grid of digits
#include <hearth/core/cpu/parallel.h>
#include <hearth/hearth.h>

#include <cmath>
#include <filesystem>
#include <iostream>

namespace {

using namespace hearth;

enum class Precision { O0, O1, O2 };

constexpr std::int64_t side = 8, pixels = side * side, latent = 16;

struct Options {
  std::uint64_t seed = 1;
  std::int64_t epochs = 60;
  std::int64_t batch_size = 16;
  std::int64_t accumulate = 2;
  std::int64_t width = 128;
  double lr = 0.0005;
  double clip_norm = 5;
  double ema = 0.99;
  Precision precision = Precision::O2;
};
void describe(Fields<Options>& f) {
  f.integer("seed", &Options::seed, {.min = 0}, "All randomness follows from this number.");
  f.integer("epochs", &Options::epochs, {.min = 1, .max = 1 << 20}, "Passes over the digits.");
  f.integer("batch_size", &Options::batch_size, {.min = 1, .max = 512}, "Digits in a batch.");
  f.integer("accumulate", &Options::accumulate, {.min = 1, .max = 64}, "Batches of an update.");
  f.integer("width", &Options::width, {.min = 1, .max = 4096}, "Units of a hidden layer.");
  f.number("lr", &Options::lr, {.above = 0}, "Learning rate of both models; it falls to 0.");
  f.number("clip_norm", &Options::clip_norm, {.above = 0}, "Largest norm of a model's gradients.");
  f.number("ema", &Options::ema, {.min = 0, .below = 1}, "Decay of the average of the generator's weights.");
  f.choice("precision", &Options::precision, {{"O0", Precision::O0}, {"O1", Precision::O1}, {"O2", Precision::O2}},
           "f32, products in bf16, or weights in bf16 too, of which the optimizers keep f32 masters.");
}

/// Noise [N, latent] to digits [N, pixels], black -1 and white 1.
struct Generator : nn::Module {
  nn::Linear first, second, out;
  nn::BatchNorm first_norm, second_norm;
  explicit Generator(const Options& o)
      : first(latent, o.width),
        second(o.width, o.width),
        out(o.width, pixels),
        first_norm(o.width, {.activation = Activation::relu}),
        second_norm(o.width, {.activation = Activation::relu}) {
    register_module("first", first);
    register_module("first_norm", first_norm);
    register_module("second", second);
    register_module("second_norm", second_norm);
    register_module("out", out);
  }
  Tensor forward(const Tensor& z) override { return tanh(out(second_norm(second(first_norm(first(z)))))); }
};

/// Digits [N, pixels] to logits [N, 1] of being drawn by hand.
struct Discriminator : nn::Module {
  nn::Linear first, second, out;
  explicit Discriminator(const Options& o) : first(pixels, o.width), second(o.width, o.width), out(o.width, 1) {
    register_module("first", first);
    register_module("second", second);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(leaky_relu(second(leaky_relu(first(x), 0.2)), 0.2)); }
};

FlatParameters initialized(nn::Module& model, std::uint64_t seed, Precision precision) {
  using Use = LowPrecisionCopy::Use;
  nn::initialize(model, seed);
  if (precision == Precision::O0) return FlatParameters(model.parameters());
  return FlatParameters(model.parameters(),
                        LowPrecisionCopy{DType::bf16, precision == Precision::O1 ? Use::beside : Use::instead});
}

/// Everything that a step changes, and the one state that holds it.
struct Gan {
  explicit Gan(const Options& options, std::int64_t total_steps)
      : o(options),
        generator(o),
        discriminator(o),
        generator_parameters(initialized(generator, o.seed, o.precision)),
        discriminator_parameters(initialized(discriminator, o.seed + 1, o.precision)),
        schedule({}, {.total_steps = total_steps}),
        generator_optimizer(generator_parameters, {.lr = o.lr, .beta1 = 0.5, .weight_decay = 0}),
        discriminator_optimizer(discriminator_parameters, {.lr = o.lr, .beta1 = 0.5, .weight_decay = 0}),
        average(generator_parameters, generator.buffers(), {.decay = o.ema, .warmup = true}) {
    generator_optimizer.attach(schedule);
    discriminator_optimizer.attach(schedule);
    state.within("generator.", [&](State& s) {
      for (const NamedTensor& one : generator_parameters.masters()) s.add(one.name, one.tensor);
      for (const NamedTensor& one : generator.buffers()) s.add(one.name, one.tensor);
      generator_optimizer.register_state(s);
      average.register_state(s);
    });
    state.within("discriminator.", [&](State& s) {
      for (const NamedTensor& one : discriminator_parameters.masters()) s.add(one.name, one.tensor);
      discriminator_optimizer.register_state(s);
    });
    // Noise and the order of the digits are functions of the seed and the step: these two are all that is left.
    state.add("epoch", &epoch);
    state.add("step", &step);
  }

  void load(const std::string& path) {
    state.load(path);
    // The state holds f32 values; what the models compute with in bf16 follows from them.
    generator_parameters.refresh_low_precision();
    discriminator_parameters.refresh_low_precision();
  }

  AutocastScope autocast() const {
    return AutocastScope(o.precision == Precision::O0 ? std::nullopt : std::optional(DType::bf16));
  }
  Tensor noise(std::int64_t count) const { return randn({count, latent}); }
  /// Mean over the batch: how wrong the discriminator is if all of x is drawn by hand (1) or by the generator (0).
  Tensor error(const Tensor& x, double by_hand) {
    const Tensor logits = discriminator(x);
    return bce_with_logits(logits, Tensor::full(logits.shape(), by_hand));
  }
  /// One update of each model; the losses.
  std::pair<double, double> update(const std::vector<Tensor>& batches);

  Options o;
  Generator generator;
  Discriminator discriminator;
  FlatParameters generator_parameters, discriminator_parameters;
  optim::CosineSchedule schedule;
  optim::Adam generator_optimizer, discriminator_optimizer;
  optim::Ema average;
  std::int64_t epoch = 0, step = 0;
  State state;
};

std::pair<double, double> Gan::update(const std::vector<Tensor>& batches) {
  const AutocastScope precision = autocast();
  const RandomScope random(o.seed, static_cast<std::uint64_t>(step));
  const double part = 1.0 / static_cast<double>(batches.size());
  double right = 0, wrong = 0;
  discriminator_optimizer.zero_grad();
  for (const Tensor& real : batches) {
    const Tensor drawn = generator(noise(real.dim(0))).detach();
    // One-sided label smoothing, Salimans et al. 2016.
    const Tensor loss = mul(add(error(real, 0.9), error(drawn, 0)), 0.5);
    backward(loss, part);
    right += part * loss.item();
  }
  discriminator_optimizer.clip_grad_norm(o.clip_norm);
  discriminator_optimizer.step();

  // Gradients reach the generator through the discriminator, whose own weights get none.
  const nn::FreezeScope frozen(discriminator);
  generator_optimizer.zero_grad();
  for (const Tensor& real : batches) {
    const Tensor loss = error(generator(noise(real.dim(0))), 1);
    backward(loss, part);
    wrong += part * loss.item();
  }
  generator_optimizer.clip_grad_norm(o.clip_norm);
  generator_optimizer.step();
  average.update();
  ++step;
  return {right, wrong};
}

data::Loader digits(const Options& o) {
  const auto images = data::digits({}).train;
  const data::Transforms scaled(images->image_shape(), {.mean = {0.5}, .std = {0.5}}, true);
  return data::Loader(images, scaled, {.batch_size = o.batch_size, .shuffle = true, .drop_last = true, .seed = o.seed});
}

std::int64_t steps_per_epoch(const Options& o) { return digits(o).batches_per_epoch() / o.accumulate; }

/// Digits that the averaged generator draws, [count, pixels].
Tensor drawn_by(Gan& gan, std::int64_t count) {
  const optim::EmaScope averaged(gan.average);
  const NoGrad no_grad;
  const AutocastScope precision = gan.autocast();
  const RandomScope random(gan.o.seed + 2, 0);
  gan.generator.eval();
  const Tensor drawn = gan.generator(gan.noise(count)).to(DType::f32);
  gan.generator.train();
  return drawn;
}

double rms(const Tensor& x) { return std::sqrt(mean(mul(x, x)).item()); }
Tensor deviation(const Tensor& x) {
  return sqrt(maximum(sub(mean(mul(x, x), {0}), mul(mean(x, {0}), mean(x, {0}))), 0));
}

/// How far mean and standard deviation of each pixel are from those of the digits, over all pixels.
Json quality(Gan& gan) {
  data::Loader loader = digits(gan.o);
  std::vector<Tensor> all;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) all.push_back(flatten(loader.next()["images"], 1));
  const Tensor real = concat(all, 0), drawn = drawn_by(gan, real.dim(0));
  return Json::object()
      .set("mean_distance", rms(sub(mean(drawn, {0}), mean(real, {0}))))
      .set("deviation_distance", rms(sub(deviation(drawn), deviation(real))));
}

void train(Gan& gan, const std::string& path) {
  const std::int64_t steps = steps_per_epoch(gan.o);
  data::Loader loader = digits(gan.o);
  while (gan.epoch < gan.o.epochs) {
    loader.seek(gan.epoch, 0);
    std::pair<double, double> losses;  // of the last update
    for (std::int64_t i = 0; i < steps; ++i) {
      std::vector<Tensor> batches;
      for (std::int64_t k = 0; k < gan.o.accumulate; ++k) batches.push_back(flatten(loader.next()["images"], 1));
      losses = gan.update(batches);
    }
    ++gan.epoch;
    gan.state.save(path);
    std::cerr << "epoch " << gan.epoch << "  discriminator " << losses.first << "  generator " << losses.second << "\n";
  }
  std::cout << to_text(quality(gan).set("epoch", gan.epoch).set("state_sha256", gan.state.hash())) << std::endl;
}

/// Eight by eight digits, each pixel four by four.
void sample(Gan& gan, const std::string& path) {
  constexpr std::int64_t tiles = 8, zoom = 4, size = tiles * side * zoom;
  const std::vector<double> ink = drawn_by(gan, tiles * tiles).to_doubles();
  data::Image grid;
  grid.reshape(size, size, 1);
  for (std::int64_t y = 0; y < size; ++y)
    for (std::int64_t x = 0; x < size; ++x) {
      const std::int64_t row = y / zoom, column = x / zoom, digit = row / side * tiles + column / side;
      const double value = ink[static_cast<std::size_t>(digit * pixels + row % side * side + column % side)];
      grid.pixels[static_cast<std::size_t>(y * size + x)] =
          static_cast<std::uint8_t>(std::lround(255 * (value + 1) / 2));
    }
  data::write_png(path, grid);
}

int run(const std::vector<std::string>& words) {
  const bool trains = words.size() == 3 && words[0] == "train", samples = words.size() == 4 && words[0] == "sample";
  HEARTH_CHECK(UsageError, trains || samples,
               "usage: gan train OPTIONS.json STATE, or gan sample OPTIONS.json STATE PNG");
  const auto options = parse_fields<Options>(read_json(words[1]));
  HEARTH_CHECK(ConfigError, steps_per_epoch(options) >= 1, "/accumulate: an epoch has fewer batches");
  cpu::set_deterministic(true);
  Gan gan(options, options.epochs * steps_per_epoch(options));
  if (samples || std::filesystem::exists(words[2])) gan.load(words[2]);
  trains ? train(gan, words[2]) : sample(gan, words[3]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << "gan: " << error.what() << std::endl;
    return 1;
  }
}
