// SPDX-License-Identifier: Apache-2.0
// A problem of one's own: a dataset, a U-Net and a segmentation task, known to every command of the program `hearth`.
//
//   custom_task train digits_unet.json     trains: two handwritten digits on a canvas, a class for each pixel
//   custom_task eval runs/digits_unet      the intersection over union of each class
//   custom_task image canvas.png           writes a canvas to try
//   custom_task predict runs/digits_unet canvas.png --out masks
#include <hearth/hearth.h>

#include <filesystem>
#include <iostream>
#include <memory>

namespace {

using namespace hearth;

constexpr int side = 32;
// The strongest ink that still counts as background.
constexpr int faint = 96;

/// A canvas of side x side grey pixels with two digits, and the class of each pixel: 0 for background, 1 + the digit.
struct Canvas {
  data::Image image;
  std::vector<std::int64_t> labels = std::vector<std::int64_t>(side * side, 0);
};

Canvas draw_canvas(Random& random) {
  static const data::ImageDatasetPointer digits = data::digits();
  Canvas canvas;
  canvas.image.reshape(side, side, 1);
  std::fill(canvas.image.pixels.begin(), canvas.image.pixels.end(), std::uint8_t{0});
  for (int half = 0; half < 2; ++half) {
    const auto [digit, label] =
        digits->get(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(digits->size()))));
    // Drawn twice as large, somewhere in the upper or the lower half.
    const auto left = static_cast<int>(random.below(side - 15));
    for (int y = 0; y < 16; ++y)
      for (int x = 0; x < 16; ++x) {
        const std::uint8_t ink = digit.row(y / 2)[x / 2];
        const auto place = static_cast<std::size_t>((16 * half + y) * side + left + x);
        canvas.image.pixels[place] = ink;
        if (ink > faint) canvas.labels[place] = 1 + label;
      }
  }
  return canvas;
}

/// Images as the model takes them: f32 [H, W, 1] in 0..1.
Tensor as_tensor(const data::Image& image) {
  const Tensor pixels = Tensor::of({image.height, image.width, 1}, image.pixels).to(DType::f32);
  return mul(pixels, 1.0 / 255);
}

/// `count` canvases that `seed` draws.
struct Canvases : data::SampleDataset {
  Canvases(std::int64_t samples, std::uint64_t which) : count(samples), seed(which) {
    for (int digit = 0; digit < 10; ++digit) names.push_back(std::to_string(digit));
  }
  std::int64_t size() const override { return count; }
  data::TensorSample read(std::int64_t index, Random&) const override {
    Random random(seed, static_cast<std::uint64_t>(index));
    const Canvas canvas = draw_canvas(random);
    return {{"images", as_tensor(canvas.image)}, {"labels", Tensor::of({side, side}, canvas.labels)}};
  }
  const std::vector<std::string>& class_names() const override { return names; }

  std::int64_t count;
  std::uint64_t seed;
  std::vector<std::string> names{"background"};
};

struct CanvasOptions : data::DataOptions {
  std::int64_t train_size = 2000;
  std::int64_t test_size = 200;
};
void describe(Fields<CanvasOptions>& f) {
  data::describe_common(f);
  f.integer("train_size", &CanvasOptions::train_size, {.min = 1, .max = 1 << 30}, "Training canvases.");
  f.integer("test_size", &CanvasOptions::test_size, {.min = 1, .max = 1 << 30}, "Test canvases.");
}

/// Two convolutions, each with batch normalisation and ReLU.
struct Block : nn::Module {
  nn::Conv2d first, second;
  nn::BatchNorm first_norm, second_norm;

  Block(std::int64_t in, std::int64_t out)
      : first(in, out, {.kernel = 3, .padding = 1, .bias = false}),
        second(out, out, {.kernel = 3, .padding = 1, .bias = false}),
        first_norm(out, {.activation = Activation::relu}),
        second_norm(out, {.activation = Activation::relu}) {
    register_module("first", first);
    register_module("first_norm", first_norm);
    register_module("second", second);
    register_module("second_norm", second_norm);
  }
  Tensor forward(const Tensor& x) override { return second_norm(second(first_norm(first(x)))); }
};

/// A U-Net of three levels (Ronneberger et al., 2015). x [N, H, W, C], sides multiples of 4; y [N, H, W, classes].
struct UNet : nn::Module {
  Block down1, down2, bottom, up2, up1;
  nn::Conv2d out;

  UNet(std::int64_t channels, std::int64_t width, std::int64_t classes)
      : down1(channels, width),
        down2(width, 2 * width),
        bottom(2 * width, 4 * width),
        up2(6 * width, 2 * width),
        up1(3 * width, width),
        out(width, classes, {.kernel = 1}) {
    register_module("down1", down1);
    register_module("down2", down2);
    register_module("bottom", bottom);
    register_module("up2", up2);
    register_module("up1", up1);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor whole = down1(x), half = down2(max_pool2d(whole, {.kernel = 2, .stride = 2}));
    const Tensor quarter = bottom(max_pool2d(half, {.kernel = 2, .stride = 2}));
    const Tensor wider = up2(concat({interpolate(quarter, {.scale = 2}), half}, 3));
    return out(up1(concat({interpolate(wider, {.scale = 2}), whole}, 3)));
  }
};

struct UNetOptions {
  std::int64_t width = 16;
};
void describe(Fields<UNetOptions>& f) {
  f.integer("width", &UNetOptions::width, {.min = 1, .max = 4096}, "Channels of the first level.");
}

/// Segmentation, which the library has; only how a file becomes an input, and a mask a file, is the program's own.
struct Digits : train::SegmentationTask {
  using SegmentationTask::SegmentationTask;

  Json predict(const train::TrainedModel& trained, const std::string& path, const std::string& folder) const override {
    const data::Image image = data::decode_image(path);
    HEARTH_CHECK(DataError, image.height == side && image.width == side, path, ": ", image.height, " x ", image.width,
                 " pixels; the model takes ", side, " x ", side);
    data::Image grey;
    grey.reshape(side, side, 1);
    for (std::size_t i = 0; i < grey.pixels.size(); ++i)
      grey.pixels[i] = image.pixels[i * static_cast<std::size_t>(image.channels)];
    const Tensor x = reshape(as_tensor(grey), {1, side, side, 1}).to(trained.device());
    const Tensor classes = argmax((*trained.model)(x), -1).to(Device{});
    data::Image mask;
    mask.reshape(side, side, 1);
    // Background is black, the classes are shades of grey.
    for (std::int64_t i = 0; i < classes.size(); ++i)
      mask.pixels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(25 * classes.data<const std::int64_t>()[i]);
    const std::string written =
        (std::filesystem::path(folder) / std::filesystem::path(path).stem()).string() + "_mask.png";
    data::write_png(written, mask);
    return Json::object().set("input", path).set("mask", written);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "image") {
    Random random(7, 0);
    data::write_png(argv[2], draw_canvas(random).image);
    return 0;
  }
  data::add<CanvasOptions>("digit_canvases", [](const CanvasOptions& o) -> data::Splits {
    return {std::make_shared<Canvases>(o.train_size, 1), nullptr, std::make_shared<Canvases>(o.test_size, 2)};
  });
  models::add<UNetOptions>("small_unet", [](const UNetOptions& o, const models::InputInfo& input) {
    return std::make_unique<UNet>(input.channels, o.width, input.classes);
  });
  train::tasks().add<NoOptions>("digits", "Digits on a canvas.", [](const NoOptions&, const data::DataSplits& data) {
    return std::unique_ptr<train::Task>(std::make_unique<Digits>(data));
  });
  return train::run_cli(argc, argv);
}
