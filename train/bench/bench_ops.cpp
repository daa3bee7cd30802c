// SPDX-License-Identifier: Apache-2.0
// The single operations of `hearth bench ops`, at sizes taken from the reference models. Forward and gradient are
// measured together, as a training step runs them.
#include <algorithm>
#include <array>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/memory/memory.h"
#include "core/profiler.h"
#include "ops/ops.h"
#include "train/bench/bench.h"

namespace hearth::train {
namespace {

/// Where an operation is tried, and how many times the batch of the CPU.
struct Target {
  Device device;
  std::int64_t scale = 1;
  bool exact = false;  ///< the same values in f64

  Shape scaled(const Shape& shape) const {
    std::vector<std::int64_t> extents(shape.begin(), shape.end());
    if (!extents.empty()) extents[0] *= scale;
    return Shape(std::span<const std::int64_t>(extents));
  }
  Tensor placed(const Tensor& values) const { return (exact ? values.to(DType::f64) : values).to(device); }
  /// Values with some spread; results must not depend on special values such as zero.
  Tensor spread(const Shape& shape, DType dtype, std::int64_t first = 0) const {
    const Tensor wide = Tensor::empty(shape);
    float* values = wide.data<float>();
    for (std::int64_t i = 0; i < wide.size(); ++i)
      values[i] = static_cast<float>(((i + first) * 2654435761u >> 8) % 2048) / 1024.0f - 1.0f;
    return placed(wide.to(dtype));
  }
  Tensor input(const Shape& shape, DType dtype) const { return requires_grad(spread(shape, dtype)); }
  /// For the gradient of a result; unlike its operands, so that nothing cancels.
  Tensor gradient(const Tensor& y, DType rounded) const { return spread(y.shape(), rounded, 7919).to(y.dtype()); }
  Tensor parameter(const Shape& shape, double value) const { return requires_grad(placed(Tensor::full(shape, value))); }
};

/// An operation on its operands; the first of them is the one whose gradient is looked at.
struct Work {
  Tensor x;
  std::function<Tensor()> graph;
};
using MakeWork = std::function<Work(const Target&)>;

/// Of the result and of x's gradient against the same operation in f64 on the CPU, at the batch of the CPU.
double error_of(const MakeWork& make, Device device) {
  const auto results = [&](const Target& on) {
    const Work work = make(on);
    const Tensor y = work.graph();
    backward(y, on.gradient(y, DType::bf16));
    return std::array{y.to_doubles(), grad_of(work.x).to_doubles()};
  };
  const auto found = results({device}), exact = results({.device = {}, .exact = true});
  return std::max(relative_error(found[0], exact[0]), relative_error(found[1], exact[1]));
}

BenchCase measured(const std::string& name, const Shape& shape, DType dtype, Device device,
                   const std::function<void()>& run) {
  run();
  const double flops_before = profiler::total_flops();
  run();
  BenchCase result;
  result.flops = profiler::total_flops() - flops_before;
  memory_of(device).reset_peak();
  result.name = name;
  result.shape = join_text(shape);
  result.dtype = dtype;
  result.batch = shape.rank() > 0 ? shape[0] : 1;
  result.device = device;
  result.timing = time_repeated(run, device);
  result.items = 1;
  result.unit = "calls/s";
  result.peak_bytes = static_cast<double>(memory_of(device).statistics().peak);
  return result;
}

/// The benches of one device.
class Benches {
 public:
  Benches(Device device, std::int64_t scale) : target_{.device = device, .scale = scale} {}

  /// `passes` counts how often as many bytes as x has are read or written, forward and backward; 0 where arithmetic is
  /// the point.
  void add(const std::string& family, const std::string& variant, const Shape& shape, DType dtype, double passes,
           const MakeWork& make) {
    const std::string name = join_text(family, "/", variant, variant.empty() ? "" : "/", dtype);
    const auto run = [on = target_, name, shape = target_.scaled(shape), dtype, passes, make] {
      const Work work = make(on);
      const Tensor dy = on.gradient(work.graph(), DType::bf16);
      BenchCase result = measured(name, shape, dtype, on.device, [&] { backward(work.graph(), dy.clone()); });
      result.bytes = passes * static_cast<double>(shape.size()) * static_cast<double>(size_of(dtype));
      return result;
    };
    const auto check = [device = target_.device, make] { return error_of(make, device); };
    all.push_back({name, run, check, dtype == DType::f32 ? 1e-4 : 2e-2});
  }

  void conv(const Shape& x, std::int64_t k, std::int64_t r, std::int64_t stride, DType dtype) {
    const Conv2dOptions options{.stride = stride, .padding = r / 2};
    add("conv2d", join_text(r, "x", r, "s", stride, "/k", k), x, dtype, 0, [=](const Target& on) -> Work {
      const Tensor in = on.input(on.scaled(x), dtype), w = on.input({k, r, r, x.dim(-1)}, DType::f32);
      return {in, [=] { return conv2d(in, w, {}, options); }};
    });
  }

  void norm(const Shape& x, DType dtype, bool add_residual) {
    // Forward reads x twice and writes y, backward reads x and dy twice and writes dx; a residual is read, and its
    // gradient written.
    const double passes = add_residual ? 10 : 8;
    add("batch_norm", add_residual ? "add_relu" : "relu", x, dtype, passes, [=](const Target& on) -> Work {
      const std::int64_t c = x.dim(-1);
      const Tensor in = on.input(on.scaled(x), dtype);
      const Tensor residual = add_residual ? on.input(on.scaled(x), dtype) : Tensor();
      const Tensor gamma = on.parameter({c}, 1), beta = on.parameter({c}, 0);
      const Tensor mean = gamma.detach().clone(), variance = mean.clone();
      return {in,
              [=] { return batch_norm(in, gamma, beta, {.activation = Activation::relu}, mean, variance, residual); }};
    });
  }

  void unary(const std::string& op, Tensor (*f)(const Tensor&), const Shape& shape, DType dtype) {
    // Forward reads x and writes y, backward reads y or x, and dy, and writes dx.
    add(op, "", shape, dtype, 5, [=](const Target& on) -> Work {
      const Tensor x = on.input(on.scaled(shape), dtype);
      return {x, [=] { return f(x); }};
    });
  }

  void linear(std::int64_t rows, std::int64_t in, std::int64_t out, Activation activation, DType dtype) {
    const char* then = activation == Activation::gelu ? "+gelu" : "";
    add("linear", join_text(in, "to", out, then), {rows, in}, dtype, 0, [=](const Target& on) -> Work {
      const Tensor x = on.input({rows * on.scale, in}, dtype);
      const Tensor w = on.input({out, in}, DType::f32), b = on.parameter({out}, 0);
      return {x, [=] { return hearth::linear(x, w, b, activation); }};
    });
  }

  void attention(std::int64_t n, std::int64_t t, std::int64_t heads, std::int64_t width, bool causal, DType dtype) {
    const Shape shape{n, t, 3 * heads * width};
    add("attention", join_text(heads, "x", width, causal ? "/causal" : ""), shape, dtype, 0,
        [=](const Target& on) -> Work {
          const Tensor qkv = on.input(on.scaled(shape), dtype);
          return {qkv, [=] { return self_attention(qkv, heads, {.causal = causal}); }};
        });
  }

  /// In square images, by windows shifted by half. The rate in bytes counts qkv and the result, and both gradients.
  void window_attention(std::int64_t n, std::int64_t side, std::int64_t heads, std::int64_t window, DType dtype) {
    const Shape shape{n, side, side, 3 * 32 * heads};
    add("window_attention", join_text(heads, "x32/", window, n == 1 ? "/one" : ""), shape, dtype, 11.0 / 3,
        [=](const Target& on) -> Work {
          const Tensor qkv = on.input(on.scaled(shape), dtype);
          const Tensor table = on.parameter({(2 * window - 1) * (2 * window - 1), heads}, 0.5);
          const Tensor behind = on.parameter({shape[3]}, 0.25);
          const WindowAttentionOptions options{
              .heads = heads, .window = window, .shift = window / 2, .padding = behind};
          return {qkv, [=] { return hearth::window_attention(qkv, table, options); }};
        });
  }

  void layer_norm(std::int64_t rows, std::int64_t c, DType dtype) {
    add("layer_norm", join_text(c), {rows, c}, dtype, 5, [=](const Target& on) -> Work {
      const Tensor x = on.input({rows * on.scale, c}, dtype);
      const Tensor gamma = on.parameter({c}, 1), beta = on.parameter({c}, 0);
      return {x, [=] { return hearth::layer_norm(x, gamma, beta); }};
    });
  }

  /// As in front of patch merging in Swin.
  void merge_layer_norm(const Shape& x, DType dtype) {
    add("merge_layer_norm", join_text(x.dim(1), "x", x.dim(2)), x, dtype, 5, [=](const Target& on) -> Work {
      const Tensor in = on.input(on.scaled(x), dtype);
      const Tensor gamma = on.parameter({4 * x.dim(3)}, 1), beta = on.parameter({4 * x.dim(3)}, 0);
      return {in, [=] { return hearth::merge_layer_norm(in, gamma, beta); }};
    });
  }

  // Forward reads x and f and writes sum and y, backward reads sum and dy and writes two gradients.
  void add_layer_norm(std::int64_t rows, std::int64_t c, DType dtype) {
    add("add_layer_norm", join_text(c), {rows, c}, dtype, 8, [=](const Target& on) -> Work {
      const Tensor x = on.input({rows * on.scale, c}, dtype), f = on.input({rows * on.scale, c}, dtype);
      const Tensor gamma = on.parameter({c}, 1), beta = on.parameter({c}, 0);
      return {x, [=] {
                const RandomScope random(1, 1);
                return hearth::add_layer_norm(x, f, gamma, beta, {.dropout = 0.1}).y;
              }};
    });
  }

  // By chunks of rows, or with all logits.
  void head(std::int64_t rows, std::int64_t c, std::int64_t classes, bool whole, DType dtype) {
    add("linear_cross_entropy", join_text(classes, whole ? "/whole" : ""), {rows, c}, dtype, 0,
        [=](const Target& on) -> Work {
          const Tensor x = on.input({rows * on.scale, c}, dtype);
          // Logits of a few units, as a model has them.
          const Tensor w = requires_grad(on.spread({classes, c}, dtype) * (1.0 / 32));
          const Tensor labels = Tensor::zeros({rows * on.scale}, DType::i64, on.device);
          if (whole) return {x, [=] { return cross_entropy(hearth::linear(x, w, {}), labels); }};
          return {x, [=] { return linear_cross_entropy(x, w, {}, labels); }};
        });
  }

  void loss(std::int64_t rows, std::int64_t classes, DType dtype) {
    add("cross_entropy", join_text(classes), {rows, classes}, dtype, 3, [=](const Target& on) -> Work {
      const Tensor x = on.input({rows * on.scale, classes}, dtype);
      const Tensor labels = Tensor::zeros({rows * on.scale}, DType::i64, on.device);
      return {x, [=] { return cross_entropy(x, labels); }};
    });
  }

  std::vector<OpBench> all;

 private:
  Target target_;
};

void add_vision(Benches& on, DType dtype) {
  on.conv({16, 224, 224, 3}, 64, 7, 2, dtype);
  on.conv({16, 56, 56, 64}, 64, 3, 1, dtype);
  on.conv({16, 56, 56, 64}, 256, 1, 1, dtype);
  on.conv({16, 28, 28, 128}, 128, 3, 1, dtype);
  on.conv({16, 14, 14, 1024}, 256, 1, 1, dtype);
  on.conv({16, 14, 14, 256}, 256, 3, 1, dtype);
  on.conv({16, 7, 7, 512}, 512, 3, 1, dtype);
  for (const Shape& shape : {Shape{16, 112, 112, 64}, Shape{16, 56, 56, 256}, Shape{16, 14, 14, 1024}})
    for (const bool add_residual : {false, true}) on.norm(shape, dtype, add_residual);
  on.window_attention(8, 56, 3, 7, dtype);  // Swin-T at 224 pixels, the first stage
  on.window_attention(8, 28, 6, 7, dtype);  // and the others
  on.window_attention(8, 14, 12, 7, dtype);
  on.window_attention(8, 7, 24, 7, dtype);
  on.window_attention(1, 56, 3, 7, dtype);   // of one image, where a chain of operations is bound by launches
  on.window_attention(32, 16, 3, 4, dtype);  // at 64 pixels
  on.window_attention(1, 96, 4, 12, dtype);  // Swin-B at 384 pixels
  on.merge_layer_norm({8, 56, 56, 96}, dtype);
  on.linear(16, 2048, 1000, Activation::none, dtype);
  on.unary("relu", relu, {16, 56, 56, 256}, dtype);
}

void add_language(Benches& on, DType dtype) {
  on.linear(2048, 384, 1536, Activation::none, dtype);
  on.linear(1024, 768, 3072, Activation::gelu, dtype);
  on.linear(1024, 3072, 768, Activation::none, dtype);
  on.unary("gelu", gelu, {2048, 1536}, dtype);
  on.unary("softmax", softmax, {12288, 256}, dtype);
  on.layer_norm(8192, 768, dtype);
  on.add_layer_norm(8192, 768, dtype);
  on.attention(8, 256, 12, 64, true, dtype);   // GPT-2
  on.attention(2, 1024, 12, 64, true, dtype);  // GPT-2 at its full length
  on.attention(16, 128, 6, 64, false, dtype);  // MiniLM
  on.attention(32, 64, 4, 32, true, dtype);    // a small GPT of characters
  on.loss(2048, 8192, dtype);
  on.loss(256, 50257, dtype);
  for (const bool whole : {false, true}) on.head(512, 768, 50257, whole, dtype);
}

}  // namespace

std::vector<OpBench> op_benches(Device device, std::int64_t scale) {
  Benches on(device, scale);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_vision(on, dtype);
    add_language(on, dtype);
  }
  for (OpBench& boxes : box_benches(device)) on.all.push_back(std::move(boxes));
  for (OpBench& update : update_benches(device)) on.all.push_back(std::move(update));
  if (device.is_cpu())
    for (OpBench& compression : compression_benches()) on.all.push_back(std::move(compression));
  return std::move(on.all);
}

}  // namespace hearth::train
