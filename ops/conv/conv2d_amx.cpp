// SPDX-License-Identifier: Apache-2.0
// The convolution of bf16 images on the processor's tiles: each pass is a matrix product (ops/matmul/amx_product.h)
// whose operands are copied into tiles straight from the images, a piece that fits the caches at a time, so that no
// image is unfolded in memory.
// Reference: conv2d_cpu.cpp.
#include "core/error.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/matmul/amx_product.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/onednn.h"

namespace hearth::kernels {

#if HEARTH_AMX

namespace {

namespace amx = cpu::amx;

/// Where a tap reads, relative to the first tap of a pixel, and the first channel.
struct TapStep {
  std::int64_t h, w, channel;
};

/// Of images as stored [n, h, w, c]: rows are the output pixels, along them run the taps' channels. With `spread` the
/// images are those of a result, spread by the stride, as the data gradient reads them; pixels then count the input's.
template <bool along, bool spread>
class Patches {
 public:
  using Type = bf16;
  static constexpr bool along_k = along;

  Patches(const ConvShape& s, const bf16* images)
      : shape_(s),
        images_(images),
        height_(spread ? s.p : s.h),
        width_(spread ? s.q : s.w),
        channels_(spread ? s.k : s.c) {}

  TapStep step(std::int64_t inner) const {
    const std::int64_t tap = inner / channels_, sign = spread ? -1 : 1;
    return {sign * tap / shape_.s * shape_.dilation_h, sign * (tap % shape_.s) * shape_.dilation_w, inner % channels_};
  }
  void prepare(std::int64_t first, std::int64_t count) {
    const std::int64_t rows = spread ? shape_.h : shape_.p, columns = spread ? shape_.w : shape_.q;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t pixel = first + i, row = pixel / columns % rows, column = pixel % columns;
      Pixel& to = pixels_[i];
      to.image = images_ + pixel / columns / rows * height_ * width_ * channels_;
      to.h = static_cast<std::int32_t>(spread ? row + shape_.pad_h : row * shape_.stride_h - shape_.pad_h);
      to.w = static_cast<std::int32_t>(spread ? column + shape_.pad_w : column * shape_.stride_w - shape_.pad_w);
    }
  }
  const bf16* at(std::int64_t i, const TapStep& step) const {
    const Pixel& pixel = pixels_[i];
    std::int64_t h = pixel.h + step.h, w = pixel.w + step.w;
    if (spread && (shape_.stride_h > 1 || shape_.stride_w > 1)) {
      if (h % shape_.stride_h != 0 || w % shape_.stride_w != 0) return nullptr;
      h /= shape_.stride_h, w /= shape_.stride_w;
    }
    if (h < 0 || h >= height_ || w < 0 || w >= width_) return nullptr;
    return pixel.image + (h * width_ + w) * channels_ + step.channel;
  }

 private:
  struct Pixel {
    const bf16* image;
    std::int32_t h, w;
  };

  ConvShape shape_;
  const bf16* images_;
  std::int64_t height_, width_, channels_;
  Pixel pixels_[std::max(amx::max_block, amx::max_chunk)];
};

/// Filters [k, taps, c] as the data gradient reads them: a row for each tap and filter.
template <class T>
struct FiltersByTap {
  using Type = T;
  static constexpr bool along_k = false;

  const T* filters;
  std::int64_t k, taps, c;
  std::int64_t first = 0;

  std::int64_t step(std::int64_t inner) const { return inner; }
  void prepare(std::int64_t from, std::int64_t) { first = from; }
  const T* at(std::int64_t i, std::int64_t step) const {
    const std::int64_t tap = (first + i) / k, filter = (first + i) % k;
    return filters + (filter * taps + tap) * c + step;
  }
};

/// Rows of `columns` values of bf16 or f32.
template <class T>
auto into(const Tensor& to, std::int64_t columns, const float* bias) {
  return [data = to.data<T>(), columns, bias](std::int64_t) {
    return [=](std::int64_t row, std::int64_t column, std::int64_t count, const float* sums) {
      amx::store_row(sums, bias == nullptr ? nullptr : bias + column, false, count, data + row * columns + column);
    };
  };
}

/// make(batch) for the only matrix of its kind.
template <class Operand>
auto only(const Operand& operand) {
  return [&operand](std::int64_t) -> const Operand& { return operand; };
}

template <class W>
void run_with(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  const std::int64_t taps = s.r * s.s, unfolded = taps * s.c, outputs = s.n * s.p * s.q, inputs = s.n * s.h * s.w;
  switch (problem.pass) {
    case Pass::forward: {
      const Patches<true, false> patches(s, o.x.data<bf16>());
      const amx::Rows<W, true> filters{o.w.data<W>(), unfolded};
      return amx::product({1, outputs, s.k, unfolded}, only(patches), only(filters),
                          into<bf16>(o.y, s.k, o.b.defined() ? o.b.data<float>() : nullptr));
    }
    case Pass::backward_data: {
      const Patches<true, true> patches(s, o.y.data<bf16>());
      const FiltersByTap<W> filters{o.w.data<W>(), s.k, taps, s.c};
      return amx::product({1, inputs, s.c, taps * s.k}, only(patches), only(filters), into<bf16>(o.x, s.c, nullptr));
    }
    case Pass::backward_weights: {
      const amx::Rows<bf16, false> gradients{o.y.data<bf16>(), s.k};
      const Patches<false, false> patches(s, o.x.data<bf16>());
      amx::product({1, s.k, unfolded, outputs}, only(gradients), only(patches), into<W>(o.w, unfolded, nullptr));
      if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), DType::bf16, outputs, s.k, o.b.data<float>());
    }
  }
}

void run(const ConvProblem& problem, const Conv2dOperands& o) {
  (problem.weights == DType::f32 ? run_with<float> : run_with<bf16>)(problem, o);
}

std::string unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.activations != DType::bf16) return join_text("images of ", problem.activations, ", not bf16");
  if (s.groups != 1) return join_text(s.groups, " groups");
  const std::int64_t channels = problem.pass == Pass::backward_data ? s.k : s.c;
  if (channels % 32 != 0) return join_text(channels, " channels side by side, not a multiple of 32");
  return amx::unsupported();
}

// Measured on one core of an Intel Xeon with AMX, ResNet-50's shapes at batch 16: filter gradients of 256 filters and
// more take a third to three quarters of the library's time, all else takes longer than there.
std::string why_slower(const ConvProblem& problem) {
  if (!cpu::dnn::available()) return "";
  if (problem.pass != Pass::backward_weights) return "the library multiplies these images without copying them";
  return problem.shape.k >= 256 ? "" : "few filters for each copy of the images";
}

}  // namespace

const Conv2dCandidate conv2d_amx{"amx", unsupported, run, nullptr, why_slower};

#else

const Conv2dCandidate conv2d_amx{"amx", [](const ConvProblem&) { return cpu::amx::unsupported(); },
                                 [](const ConvProblem&, const Conv2dOperands&) {}};

#endif

}  // namespace hearth::kernels
