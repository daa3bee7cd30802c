// SPDX-License-Identifier: Apache-2.0
// What the tape keeps beside a tensor: for a leaf its gradient, for a result the node that made it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace hearth {

class Node;

struct HEARTH_API GradState {
  /// For a tensor whose gradient is of the shape and type of `like`, and on its device.
  explicit GradState(const Tensor& like) : shape(like.shape()), dtype(like.dtype()), device(like.device()) {}

  /// What every contribution is compared with.
  Shape shape;
  DType dtype;
  Device device;
  /// Leaf: the gradient, made on first use or a view of a flat buffer. Undefined for results.
  Tensor grad;
  /// Leaf: its value in a low-precision type, kept up to date by the owner of the parameters. Ops that autocast runs in
  /// that type read it, so that nothing is converted at each use. Undefined where there is none.
  Tensor low_precision;
  /// Leaf: the version of the value's storage that `low_precision` was rounded from; ops do not read an outdated copy.
  std::shared_ptr<const std::uint64_t> low_precision_version;
  /// Leaf whose gradient is somewhere else after each backward pass, as ranks keep a part of it each: makes the tensor
  /// of the next one when its first contribution comes. Null for others.
  std::shared_ptr<const std::function<Tensor()>> place;
  /// Leaf: the gradient counts as zero, since nothing has arrived since zero_grad(); the first contribution may be
  /// written, not added.
  bool is_zero = true;
  /// Leaf in a low-precision type: its value in f32, which the optimizer updates and files keep. Undefined where there
  /// is none, and where ranks have a part of it each.
  Tensor master;
  /// Leaf: above 0 ops take it for a tensor that needs no gradient (nn::Module::freeze(), and each nn::FreezeScope).
  int frozen = 0;
  /// Leaf: lives as long as the FlatParameters that the leaf's values and gradient are part of.
  std::weak_ptr<const void> flat;
  /// Leaf: called when the last contribution of a backward pass has arrived.
  std::vector<std::function<void()>> ready_hooks;
  /// Result: the node that made it. Null for a leaf.
  std::shared_ptr<Node> node;
  /// Result, and leaf with hooks: what has been summed so far during a backward pass.
  Tensor pending;
  /// See register_hook().
  std::vector<std::function<Tensor(const Tensor&)>> hooks;

  ~GradState();
};

/// True for a leaf whose value and gradient are part of FlatParameters that are alive.
HEARTH_API bool is_flat(const Tensor& tensor);
/// Whether any FlatParameters are alive in this process.
HEARTH_API bool any_flat();
/// True if backward would reach this tensor.
HEARTH_API bool needs_grad(const Tensor& tensor);
/// The same tensor as a leaf that collects a gradient. DTypeError for integer types; UsageError for results of ops.
HEARTH_API Tensor requires_grad(const Tensor& tensor);
/// A leaf's gradient; zeros if nothing arrived. UsageError for a tensor that is not a leaf, and where ranks keep a part
/// of the gradient each.
HEARTH_API Tensor grad_of(const Tensor& leaf);
/// Forgets the leaf's gradient: it reads as zero and the next contribution replaces it.
HEARTH_API void zero_grad(const Tensor& leaf);
/// In each backward pass f(dy) is called once, with the whole gradient of `tensor`, a leaf or the result of an op,
/// before it goes on or, in a leaf, is added to what is there. A defined tensor that f returns replaces it, and has its
/// shape, type and device (ShapeError, DTypeError, DeviceError in the backward pass). Hooks run in the order they were
/// registered, without recording; a step that is captured once and replayed calls them once. UsageError for a tensor
/// that needs no gradient and for an empty f.
HEARTH_API void register_hook(const Tensor& tensor, std::function<Tensor(const Tensor& dy)> f);
/// f runs each time a backward pass has delivered its last contribution to this leaf.
HEARTH_API void on_grad_ready(const Tensor& leaf, std::function<void()> f);

}  // namespace hearth
