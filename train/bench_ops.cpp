// SPDX-License-Identifier: Apache-2.0
// The single operations of `hearth bench ops`, at sizes taken from the reference models. Forward and gradient are
// measured together, as a training step runs them.
#include "hearth/autograd/backward.h"
#include "hearth/autograd/grad_state.h"
#include "hearth/core/memory.h"
#include "hearth/core/profiler.h"
#include "hearth/ops/ops.h"
#include "hearth/train/bench.h"

namespace hearth::train {
namespace {

using Graph = std::function<Tensor()>;

// Where, and how many times the batch of the CPU.
struct Target {
  Device device;
  std::int64_t scale;

  Shape scaled(const Shape& shape) const {
    std::vector<std::int64_t> extents;
    for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis] * (axis == 0 ? scale : 1));
    return Shape(std::span<const std::int64_t>(extents));
  }
  Tensor ones(std::int64_t n) const { return Tensor::full({n}, 1, DType::f32, device); }
  Tensor zeros(std::int64_t n) const { return Tensor::zeros({n}, DType::f32, device); }
};

// Values with some spread; bench results must not depend on special values such as zero.
Tensor filled(const Shape& shape, DType dtype, Device device) {
  const Tensor wide = Tensor::empty(shape);
  float* values = wide.data<float>();
  for (std::int64_t i = 0; i < wide.size(); ++i)
    values[i] = static_cast<float>((i * 2654435761u >> 8) % 2048) / 1024.0f - 1.0f;
  return wide.to(dtype).to(device);
}

BenchCase measure(const std::string& name, const Shape& shape, DType dtype, double bytes, const Graph& graph) {
  const Tensor first = graph();
  const Device device = first.device();
  const Tensor dy = filled(first.shape(), first.dtype(), device);
  const auto run = [&] { backward(graph(), dy.clone()); };
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
  result.bytes = bytes;
  result.peak_bytes = static_cast<double>(memory_of(device).statistics().peak);
  return result;
}

struct ConvCase {
  Shape x;
  std::int64_t k, r, stride;
};

OpBench conv_bench(const Target& on, const ConvCase& c, DType dtype) {
  const std::string name = join_text("conv2d/", c.r, "x", c.r, "s", c.stride, "/k", c.k, "/", dtype);
  return {name, [=] {
            const Shape shape = on.scaled(c.x);
            const Tensor x = as_leaf(filled(shape, dtype, on.device));
            const Tensor w = as_leaf(filled({c.k, c.r, c.r, c.x.dim(-1)}, DType::f32, on.device));
            const Conv2dOptions options{.stride = c.stride, .padding = c.r / 2};
            return measure(name, shape, dtype, 0, [=] { return conv2d(x, w, {}, options); });
          }};
}

OpBench norm_bench(const Target& on, const Shape& given, DType dtype, bool add) {
  const std::string name = join_text("batch_norm/", add ? "add_relu/" : "relu/", dtype);
  return {name, [=] {
            const Shape shape = on.scaled(given);
            const std::int64_t c = shape.dim(-1);
            const Tensor x = as_leaf(filled(shape, dtype, on.device)),
                         residual = add ? as_leaf(filled(shape, dtype, on.device)) : Tensor();
            const Tensor gamma = as_leaf(on.ones(c)), beta = as_leaf(on.zeros(c));
            const Tensor mean = on.zeros(c), variance = on.ones(c);
            // Forward reads x twice and writes y, backward reads x and dy twice and writes dx; a residual is read, and
            // its gradient written.
            const double bytes =
                static_cast<double>(shape.size()) * static_cast<double>(size_of(dtype)) * (add ? 10 : 8);
            return measure(name, shape, dtype, bytes, [=] {
              return batch_norm(x, gamma, beta, {.activation = Activation::relu}, mean, variance, residual);
            });
          }};
}

OpBench unary_bench(const Target& on, const std::string& op, Tensor (*f)(const Tensor&), const Shape& given,
                    DType dtype) {
  const std::string name = op + "/" + name_of(dtype);
  return {name, [=] {
            const Shape shape = on.scaled(given);
            const Tensor x = as_leaf(filled(shape, dtype, on.device));
            // Forward reads x and writes y, backward reads y or x, and dy, and writes dx.
            const double bytes = static_cast<double>(shape.size()) * static_cast<double>(size_of(dtype)) * 5;
            return measure(name, shape, dtype, bytes, [=] { return f(x); });
          }};
}

OpBench linear_bench(const Target& on, std::int64_t given, std::int64_t in, std::int64_t out, DType dtype) {
  const std::string name = join_text("linear/", in, "to", out, "/", dtype);
  return {name, [=] {
            const std::int64_t rows = given * on.scale;
            const Tensor x = as_leaf(filled({rows, in}, dtype, on.device));
            const Tensor w = as_leaf(filled({out, in}, DType::f32, on.device)), b = as_leaf(on.zeros(out));
            return measure(name, {rows, in}, dtype, 0, [=] { return linear(x, w, b); });
          }};
}

OpBench loss_bench(const Target& on, std::int64_t given, std::int64_t classes, DType dtype) {
  const std::string name = join_text("cross_entropy/", classes, "/", dtype);
  return {name, [=] {
            const std::int64_t rows = given * on.scale;
            const Tensor x = as_leaf(filled({rows, classes}, dtype, on.device));
            const Tensor labels = Tensor::zeros({rows}, DType::i64, on.device);
            const double bytes = static_cast<double>(rows * classes) * static_cast<double>(size_of(dtype)) * 3;
            return measure(name, {rows, classes}, dtype, bytes, [=] { return cross_entropy(x, labels); });
          }};
}

OpBench layer_norm_bench(const Target& on, std::int64_t given, std::int64_t c, DType dtype) {
  const std::string name = join_text("layer_norm/", c, "/", dtype);
  return {name, [=] {
            const std::int64_t rows = given * on.scale;
            const Tensor x = as_leaf(filled({rows, c}, dtype, on.device));
            const Tensor gamma = as_leaf(on.ones(c)), beta = as_leaf(on.zeros(c));
            const double bytes = static_cast<double>(rows * c) * static_cast<double>(size_of(dtype)) * 5;
            return measure(name, {rows, c}, dtype, bytes, [=] { return layer_norm(x, gamma, beta); });
          }};
}

}  // namespace

std::vector<OpBench> op_benches(Device device, std::int64_t scale) {
  const Target on{device, scale};
  std::vector<OpBench> all;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ConvCase& c : {ConvCase{{16, 224, 224, 3}, 64, 7, 2}, ConvCase{{16, 56, 56, 64}, 64, 3, 1},
                              ConvCase{{16, 56, 56, 64}, 256, 1, 1}, ConvCase{{16, 28, 28, 128}, 128, 3, 1},
                              ConvCase{{16, 14, 14, 1024}, 256, 1, 1}, ConvCase{{16, 14, 14, 256}, 256, 3, 1},
                              ConvCase{{16, 7, 7, 512}, 512, 3, 1}})
      all.push_back(conv_bench(on, c, dtype));
    for (const Shape& shape : {Shape{16, 112, 112, 64}, Shape{16, 56, 56, 256}, Shape{16, 14, 14, 1024}}) {
      all.push_back(norm_bench(on, shape, dtype, false));
      all.push_back(norm_bench(on, shape, dtype, true));
    }
    all.push_back(linear_bench(on, 2048, 384, 1536, dtype));
    all.push_back(linear_bench(on, 16, 2048, 1000, dtype));
    all.push_back(unary_bench(on, "gelu", gelu, {2048, 1536}, dtype));
    all.push_back(unary_bench(on, "relu", relu, {16, 56, 56, 256}, dtype));
    all.push_back(unary_bench(on, "softmax", softmax, {12288, 256}, dtype));
    all.push_back(layer_norm_bench(on, 8192, 768, dtype));
    all.push_back(loss_bench(on, 2048, 8192, dtype));
  }
  return all;
}

}  // namespace hearth::train
