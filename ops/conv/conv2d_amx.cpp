// SPDX-License-Identifier: Apache-2.0
// The convolution of bf16 images on the processor's tiles. The filter gradient is a matrix product
// (ops/matmul/amx_product.h) whose operands are copied into tiles straight from the images, a piece that fits the
// caches at a time; the other passes are in conv_streams.cpp. No image is unfolded in memory.
// Reference: conv2d_cpu.cpp.
#include "core/error.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/conv/conv_streams.h"
#include "ops/matmul/amx_product.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/onednn.h"

namespace hearth::kernels {
namespace {

namespace amx = cpu::amx;

/// Where a tap reads, relative to the first tap of a pixel, and the first channel.
struct TapStep {
  std::int64_t h, w, channel;
};

/// Of images as stored [n, h, w, c]: rows are the output pixels, along them run the taps' channels.
class Patches {
 public:
  using Type = bf16;
  static constexpr bool along_k = false;

  Patches(const ConvShape& s, const bf16* images) : shape_(s), images_(images) {}

  TapStep step(std::int64_t inner) const {
    const std::int64_t tap = inner / shape_.c;
    return {tap / shape_.s * shape_.dilation_h, tap % shape_.s * shape_.dilation_w, inner % shape_.c};
  }
  void prepare(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t pixel = first + i, row = pixel / shape_.q % shape_.p, column = pixel % shape_.q;
      Pixel& to = pixels_[i];
      to.image = images_ + pixel / shape_.q / shape_.p * shape_.h * shape_.w * shape_.c;
      to.h = static_cast<std::int32_t>(row * shape_.stride_h - shape_.pad_h);
      to.w = static_cast<std::int32_t>(column * shape_.stride_w - shape_.pad_w);
    }
  }
  const bf16* at(std::int64_t i, const TapStep& step) const {
    const Pixel& pixel = pixels_[i];
    const std::int64_t h = pixel.h + step.h, w = pixel.w + step.w;
    if (h < 0 || h >= shape_.h || w < 0 || w >= shape_.w) return nullptr;
    return pixel.image + (h * shape_.w + w) * shape_.c + step.channel;
  }

 private:
  struct Pixel {
    const bf16* image;
    std::int32_t h, w;
  };

  ConvShape shape_;
  const bf16* images_;
  Pixel pixels_[amx::max_chunk];
};

template <class W>
void sum_filter_gradient(const ConvShape& s, const Conv2dOperands& o) {
  const std::int64_t unfolded = s.r * s.s * s.c, outputs = s.n * s.p * s.q;
  const amx::Rows<bf16, false> gradients{o.y.data<bf16>(), s.k};
  const Patches patches(s, o.x.data<bf16>());
  W* const dw = o.w.data<W>();
  amx::product(
      {1, s.k, unfolded, outputs}, [&](std::int64_t) -> const auto& { return gradients; },
      [&](std::int64_t) -> const auto& { return patches; },
      [=](std::int64_t) {
        return [=](std::int64_t row, std::int64_t column, std::int64_t count, const float* sums) {
          amx::store_row(sums, nullptr, false, count, dw + row * unfolded + column);
        };
      });
  if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), DType::bf16, outputs, s.k, o.b.data<float>());
}

void run(const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.pass != Pass::backward_weights) return convolve_on_tiles(problem, o);
  (problem.weights == DType::f32 ? sum_filter_gradient<float> : sum_filter_gradient<bf16>)(problem.shape, o);
}

std::string unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.activations != DType::bf16) return join_text("images of ", problem.activations, ", not bf16");
  if (s.groups != 1) return join_text(s.groups, " groups");
  const std::int64_t channels = problem.pass == Pass::backward_data ? s.k : s.c;
  if (channels % 32 != 0) return join_text(channels, " channels side by side, not a multiple of 32");
  return amx::unsupported();
}

// Measured on an Intel Xeon with AMX, ResNet-50's shapes at batch 16: filter gradients of 256 filters and more take a
// third to three quarters of the library's time, with fewer filters longer than there. Filters of one pixel are the
// library's products on tiles, if it is there. For the rest, by streams, there is a prototype's measurement only: 2.4
// to 3.1 TFLOP/s of two cores where the library has 0.23 to 0.51.
std::string why_slower(const ConvProblem& problem) {
  if (!cpu::dnn::available()) return "";
  const ConvShape& s = problem.shape;
  if (problem.pass == Pass::backward_weights) return s.k >= 256 ? "" : "few filters for each copy of the images";
  return s.r * s.s > 1 ? "" : "filters of one pixel";
}

}  // namespace

const Conv2dCandidate conv2d_amx{"amx", unsupported, run, nullptr, why_slower};

}  // namespace hearth::kernels
