// SPDX-License-Identifier: Apache-2.0
// Each thread makes 16 bytes of a result, or one element where images do not consist of such packs. Traffic: each byte
// of the pixels is read once (twice where images are mixed), each element written once; what pixel values become lies
// in shared memory.
#include "core/cuda/elementwise.h"
#include "ops/device/row_split.cuh"
#include "ops/image/padded_images.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

/// Channels whose values fit into the shared memory that every device gives a block.
constexpr std::int64_t max_shared_channels = 32;
constexpr int pixel_values = 256;

struct Pixels {
  int images, w, c, channel_capacity;
  int image_pixels;  ///< of one image
  bool packed;       ///< a unit of work is a pack of 16 bytes, else an element
  bool shared;       ///< the values are copied to shared memory
  const std::uint8_t* pixels;
  const float* values;
  const std::int32_t* erased;  ///< or null
  const float* lambda;         ///< and its box, or null
};

struct Place {
  int row, column;
  __device__ bool is_in(const int* box) const {
    return row >= box[0] && row - box[0] < box[2] && column >= box[1] && column - box[1] < box[3];
  }
};

/// What is read of one image.
struct Source {
  const std::uint8_t* pixels;
  const std::int32_t* box;  ///< or null
  __device__ Source(const Pixels& p, int image)
      : pixels(p.pixels + static_cast<std::int64_t>(image) * p.image_pixels * p.c),
        box(p.erased != nullptr ? p.erased + 4 * static_cast<std::int64_t>(image) : nullptr) {}
  __device__ bool erases(const Pixels& p, int pixel) const {
    return box != nullptr && Place{pixel / p.w, pixel % p.w}.is_in(box);
  }
  __device__ float value(const Pixels& p, const float* values, int pixel, int channel) const {
    if (erases(p, pixel)) return 0;
    return values[pixel_values * channel + pixels[static_cast<std::int64_t>(pixel) * p.c + channel]];
  }
};

/// What pixel values become, copied to shared memory. All threads of the block call.
__device__ inline const float* copied_values(const Pixels& p) {
  float* const copied = dynamic_shared<float>();
  for (int i = static_cast<int>(threadIdx.x); i < p.c * pixel_values; i += static_cast<int>(blockDim.x))
    copied[i] = p.values[i];
  __syncthreads();
  return copied;
}

/// How images are mixed.
struct Mixture {
  float lambda, rest;
  int box[4] = {};
  __device__ explicit Mixture(const Pixels& p) {
    lambda = p.lambda != nullptr ? *p.lambda : 1.0f;
    rest = __fsub_rn(1.0f, lambda);
    for (int side = 0; side < 4 && p.lambda != nullptr; ++side) box[side] = static_cast<int>(p.lambda[1 + side]);
  }
  __device__ bool holds(const Pixels& p, int pixel) const { return Place{pixel / p.w, pixel % p.w}.is_in(box); }
  // Never fused, so that the bits are those of the loader (data/images/transforms/mixup.cpp).
  __device__ float mix(float own, float partner) const {
    return __fadd_rn(__fmul_rn(lambda, own), __fmul_rn(rest, partner));
  }
};

/// Blocks run along an image in x and over the images in y.
template <class T>
__global__ void normalize_images_kernel(HEARTH_GRID_CONSTANT(Pixels) p, T* y) {
  const float* const values = p.shared ? copied_values(p) : p.values;
  const Mixture mixture(p);
  constexpr int pack = pack_size<T>;
  const int count = p.packed ? pack : 1;
  const std::int64_t elements = static_cast<std::int64_t>(p.image_pixels) * p.channel_capacity;
  for (int image = static_cast<int>(blockIdx.y); image < p.images; image += static_cast<int>(gridDim.y)) {
    const int other = p.images - 1 - image;
    const bool mixes = p.lambda != nullptr && other != image;
    const Source own(p, image), partner(p, other);
    T* const result = y + image * elements;
    for (std::int64_t first = global_thread() * count; first < elements; first += global_threads() * count) {
      int pixel = static_cast<int>(first) / p.channel_capacity, channel = static_cast<int>(first) % p.channel_capacity;
      Upcast<T, pack> wide;
      HEARTH_UNROLL
      for (int k = 0; k < pack; ++k) {
        float value = 0;
        if (k < count && channel < p.c) {
          value = own.value(p, values, pixel, channel);
          if (mixes && mixture.holds(p, pixel)) value = mixture.mix(value, partner.value(p, values, pixel, channel));
        }
        wide.at[k] = value;
        if (++channel == p.channel_capacity) channel = 0, ++pixel;
      }
      store_cast_down(result + first, wide, p.packed);
    }
  }
}

/// The same for three channels with room for a fourth, of 16 bits: a thread makes several pixels, whose bytes are asked
/// for at once.
constexpr int rgb_channels = 3, rgb_room = static_cast<int>(detail::stem_channels);
constexpr int rgb_pixels_each = 4;

template <class T>
__global__ void normalize_rgb_kernel(HEARTH_GRID_CONSTANT(Pixels) p, T* y) {
  const float* const values = copied_values(p);
  const Mixture mixture(p);
  const int threads = static_cast<int>(blockDim.x), step = threads * rgb_pixels_each;
  for (int image = static_cast<int>(blockIdx.y); image < p.images; image += static_cast<int>(gridDim.y)) {
    const int other = p.images - 1 - image;
    const bool mixes = p.lambda != nullptr && other != image;
    const Source own(p, image), partner(p, other);
    T* const result = y + static_cast<std::int64_t>(image) * p.image_pixels * rgb_room;
    for (int first = static_cast<int>(blockIdx.x) * step + static_cast<int>(threadIdx.x); first < p.image_pixels;
         first += static_cast<int>(gridDim.x) * step) {
      int byte[rgb_pixels_each][rgb_channels];
      HEARTH_UNROLL
      for (int i = 0; i < rgb_pixels_each; ++i) {
        const int pixel = first + i * threads, there = pixel < p.image_pixels ? pixel : first;
        HEARTH_UNROLL
        for (int channel = 0; channel < rgb_channels; ++channel)
          byte[i][channel] = own.pixels[there * rgb_channels + channel];
      }
      HEARTH_UNROLL
      for (int i = 0; i < rgb_pixels_each; ++i) {
        const int pixel = first + i * threads;
        if (pixel >= p.image_pixels) break;
        const bool erased = own.erases(p, pixel), mixed = mixes && mixture.holds(p, pixel),
                   partner_erased = mixed && partner.erases(p, pixel);
        acc_t<T> wide[rgb_channels];
        HEARTH_UNROLL
        for (int channel = 0; channel < rgb_channels; ++channel) {
          const float* const become = values + pixel_values * channel;
          wide[channel] = erased ? 0.0f : become[byte[i][channel]];
          if (!mixed) continue;
          const int other_byte = partner.pixels[pixel * rgb_channels + channel];
          wide[channel] = mixture.mix(wide[channel], partner_erased ? 0.0f : become[other_byte]);
        }
        store_pack(result + static_cast<std::int64_t>(pixel) * rgb_room,
                   Pack<T, rgb_room>{cast_down<T>(wide[0]), cast_down<T>(wide[1]), cast_down<T>(wide[2])});
      }
    }
  }
}

}  // namespace

void normalize_images(cuda::Stream& stream, const PixelsShape& s, const Tensor& pixels, const Tensor& values,
                      const Tensor& erased, const Tensor& lambda, const Tensor& y) {
  Pixels p{};
  p.images = static_cast<int>(s.n);
  p.w = static_cast<int>(s.w);
  p.c = static_cast<int>(s.c);
  p.channel_capacity = static_cast<int>(s.channel_capacity);
  p.image_pixels = static_cast<int>(s.h * s.w);
  p.shared = s.c <= max_shared_channels;
  p.pixels = pixels.data<std::uint8_t>();
  p.values = values.data<float>();
  p.erased = data_or_null<std::int32_t>(erased);
  p.lambda = data_or_null<float>(lambda);
  const std::size_t shared = p.shared ? static_cast<std::size_t>(s.c) * pixel_values * sizeof(float) : 0;
  visit_dtype("normalize_images", y.dtype(), Floats{}, [&]<class T>() {
    const std::int64_t elements = s.h * s.w * s.channel_capacity;
    p.packed = packs_fit(y.data<T>(), elements);
    // Enough blocks to fill a device, each with several images, so that the values are copied seldom.
    constexpr std::int64_t max_blocks = 4096;
    const auto run = [&](auto kernel, std::int64_t elements_each) {
      const unsigned along = blocks_for(elements, element_block * elements_each, 64);
      const dim3 grid(along, blocks_for(s.n, 1, max_blocks / along));
      launch(stream, "normalize_images", {grid, element_block, shared, bytes_of(pixels, values, erased, lambda, y)},
             kernel, p, y.data<T>());
    };
    if constexpr (sizeof(T) == 2) {
      if (s.c == rgb_channels && s.channel_capacity == rgb_room && packs_fit(y.data<T>(), 0))
        return run(normalize_rgb_kernel<T>, rgb_pixels_each * rgb_room);
    }
    run(normalize_images_kernel<T>, p.packed ? pack_size<T> : 1);
  });
}

}  // namespace hearth::kernels
