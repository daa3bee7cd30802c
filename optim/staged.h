// SPDX-License-Identifier: Apache-2.0
// A small value that changes from step to step (a learning rate, a bias correction, a step number), where kernels of
// every device can read it. On the CPU that is the value itself. On a CUDA device it is a cell of device memory that
// the host overwrites between steps, in stream order and without waiting, so that a captured step reads the newest
// value.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/build.h"
#include "core/cpu/stream.h"
#include "core/cuda/staging.h"
#include "core/tensor.h"

namespace hearth {

template <class T>
class Staged {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);

  explicit Staged(Device device) {
    if (device.is_cuda()) cell_ = Tensor::zeros({static_cast<std::int64_t>(sizeof(T))}, DType::u8, device);
  }

  /// Takes effect for all work queued from now on. Not while a step is being captured.
  void set(const T& value) {
    value_ = value;
#if HEARTH_HAS_CUDA
    if (cell_.defined()) cuda::stage(cuda::stream_of(cell_.device()), cell_.bytes(), &value_, sizeof(T));
#endif
  }

  /// The value as set last.
  const T& value() const { return value_; }
  /// Where kernels of the stream's device read it.
  const T* at(cpu::Stream&) const { return &value_; }
  const T* at(cuda::Stream&) const { return reinterpret_cast<const T*>(cell_.bytes()); }
  /// Where work of the device may overwrite it, or one field of it, until the next set().
  T* cell() { return cell_.defined() ? reinterpret_cast<T*>(cell_.bytes()) : &value_; }
  template <class Field, class Owner>
  Field* cell(Field Owner::*field) {
    return &(cell()->*field);
  }

 private:
  T value_{};
  Tensor cell_;
};

}  // namespace hearth
