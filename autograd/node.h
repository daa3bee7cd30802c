// SPDX-License-Identifier: Apache-2.0
// One recorded op call. Nodes are numbered as they are made, so creation order is a topological order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/grad_state.h"

namespace hearth {

class HEARTH_API Node {
 public:
  explicit Node(const char* name);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const char* name() const { return name_; }
  /// The layer that the op was called in; null outside of modules.
  const char* layer() const { return layer_; }
  std::uint64_t number() const { return number_; }

  /// The gradients of the inputs for the gradient `dy` of the output; undefined where none is wanted.
  /// Runs once: what the op saved is released afterwards. UsageError on a second call.
  virtual std::vector<Tensor> run(Tensor dy) = 0;

  /// The tape slots of the inputs; null where no gradient is needed.
  std::vector<std::shared_ptr<GradState>> inputs;

 private:
  const char* name_;
  const char* layer_;
  std::uint64_t number_;
};

/// Which input gradients are needed, and where a leaf's may be written straight into its final place.
class HEARTH_API NeedsGrad {
 public:
  NeedsGrad(std::span<const std::shared_ptr<GradState>> inputs, Device device) : inputs_(inputs), device_(device) {}
  bool operator[](std::size_t i) const { return inputs_[i] != nullptr; }
  std::size_t size() const { return inputs_.size(); }
  /// Memory for the gradient of input i on the device of dy, uninitialised: the leaf's own gradient when this is its
  /// first contribution (the tape then has nothing to add), else a new tensor. The op must write every element.
  Tensor make(std::size_t i, const Shape& shape, DType dtype) const;
  /// The type to make the gradient of input i in: that of the leaf's gradient where it is f32 and `own` is narrower, so
  /// that f32 sums need not be rounded on their way; else `own`.
  DType type_for(std::size_t i, DType own) const;
  /// The gradient of input i where earlier contributions are in it already, of this shape and type: the leaf's own, or
  /// that of this pass for the result of another op. An op may add its contribution to it and return it, and the tape
  /// then has nothing to add. Undefined otherwise; then make().
  Tensor sum_so_far(std::size_t i, const Shape& shape, DType dtype) const;

 private:
  const GradState* leaf_of_single_use(std::size_t i, const Shape& shape, DType dtype) const;

  std::span<const std::shared_ptr<GradState>> inputs_;
  Device device_;
};

/// A tensor saved for the gradient. Reading it back checks that nobody wrote to it in between.
class HEARTH_API SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor& operator=(const Tensor& tensor);
  /// UsageError when the tensor's bytes were changed after it was kept.
  const Tensor& get() const;
  bool defined() const { return tensor_.defined(); }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

}  // namespace hearth
