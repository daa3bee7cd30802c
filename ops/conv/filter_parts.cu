// SPDX-License-Identifier: Apache-2.0
// The gradients of several convolutions' filters, made whole in one launch: each in parts that are added in order, or
// in the images' type and to be converted. A thread an element; parts + 1 accesses.
#include <algorithm>

#include "core/cuda/kernel.h"
#include "ops/conv/kernels.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

constexpr int block = 256, most = 8;

/// `wide`: of the type of sums, else of the images'.
struct PartsOfFilters {
  const void* parts[most];
  void* w[most];
  std::int64_t count[most], elements[most], end_block[most];
  bool wide_parts[most], wide_w[most];
};

template <class T>
__global__ void sum_filter_parts_kernel(HEARTH_GRID_CONSTANT(PartsOfFilters) all) {
  using A = acc_t<T>;
  const std::int64_t at = blockIdx.x;
  int which = 0;
  while (at >= all.end_block[which]) ++which;
  const std::int64_t elements = all.elements[which],
                     i = (at - (which == 0 ? 0 : all.end_block[which - 1])) * block + threadIdx.x;
  if (i >= elements) return;
  A sum = 0;
  for (std::int64_t part = 0; part < all.count[which]; ++part) {
    const std::int64_t from = part * elements + i;
    sum += all.wide_parts[which] ? static_cast<const A*>(all.parts[which])[from]
                                 : upcast(static_cast<const T*>(all.parts[which])[from]);
  }
  if (all.wide_w[which])
    static_cast<A*>(all.w[which])[i] = sum;
  else
    static_cast<T*>(all.w[which])[i] = cast_down<T>(sum);
}

template <class T>
void run(Stream& stream, std::span<const FilterParts> list) {
  PartsOfFilters all{};
  std::int64_t blocks = 0, bytes = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& [parts, w] = list[i];
    all.parts[i] = parts.bytes();
    all.w[i] = w.bytes();
    all.elements[i] = w.size();
    all.count[i] = parts.size() / w.size();
    all.wide_parts[i] = parts.dtype() == dtype_of<acc_t<T>>();
    all.wide_w[i] = w.dtype() == dtype_of<acc_t<T>>();
    blocks += blocks_for(w.size(), block);
    all.end_block[i] = blocks;
    bytes += bytes_of(parts, w);
  }
  launch(stream, "conv2d sums", {blocks_for(blocks, 1), block, 0, bytes}, sum_filter_parts_kernel<T>, all);
}

}  // namespace

void sum_filter_parts(Stream& stream, std::span<const FilterParts> list, DType images) {
  while (!list.empty()) {
    const std::size_t count = std::min<std::size_t>(list.size(), most);
    visit_dtype("conv2d", images, Floats{}, [&]<class T>() { run<T>(stream, list.first(count)); });
    list = list.subspan(count);
  }
}

}  // namespace hearth::kernels
