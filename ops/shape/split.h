// SPDX-License-Identifier: Apache-2.0
// Tensors put together along a new axis and taken apart again. Made of views and concat(), so they take any element
// type and have gradients. Negative axes count from the end.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace hearth {

/// Tensors of one shape along a new axis: n of [A, B] at axis 1 give [A, n, B]. ShapeError for no tensors, unlike
/// shapes or an axis out of range; DTypeError, DeviceError as concat().
HEARTH_API Tensor stack(const std::vector<Tensor>& tensors, int axis = 0);
/// Views of `size` elements each along `axis`, the last one as long as it is. ShapeError for a size below 1 or an axis
/// out of range.
template <std::integral Size>
std::vector<Tensor> split(const Tensor& x, Size size, int axis = 0);
/// Views of these sizes, which add up to the extent of the axis. ShapeError otherwise.
HEARTH_API std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis = 0);
/// At most `count` views of equal sizes but for the last: of ceil(extent / count) elements. ShapeError for a count
/// below 1 or an axis out of range.
HEARTH_API std::vector<Tensor> chunk(const Tensor& x, std::int64_t count, int axis = 0);
/// x without its axes of extent 1; a view where x is contiguous.
HEARTH_API Tensor squeeze(const Tensor& x);
/// x without this axis where its extent is 1, else x; a view where x is contiguous. ShapeError for an axis out of
/// range.
HEARTH_API Tensor squeeze(const Tensor& x, int axis);
/// x with a new axis of extent 1 at this position; a view where x is contiguous. ShapeError for a position out of
/// range.
HEARTH_API Tensor unsqueeze(const Tensor& x, int axis);
/// x with the order of the elements along these axes reversed; a copy, but x itself for no axes. ShapeError for an axis
/// out of range or named twice; any element type that index_select() takes.
HEARTH_API Tensor flip(const Tensor& x, const std::vector<int>& axes);

namespace detail {
HEARTH_API std::vector<Tensor> split_evenly(const Tensor& x, std::int64_t size, int axis);
}  // namespace detail

template <std::integral Size>
std::vector<Tensor> split(const Tensor& x, Size size, int axis) {
  return detail::split_evenly(x, static_cast<std::int64_t>(size), axis);
}

}  // namespace hearth
