// SPDX-License-Identifier: Apache-2.0
#include "hearth/autograd/parameters.h"

#include "hearth/autograd/grad_state.h"
#include "hearth/core/origin.h"

namespace hearth {

FlatParameters::FlatParameters(const std::vector<NamedTensor>& parameters) {
  HEARTH_CHECK(UsageError, !parameters.empty(), "flat parameters: the model has no parameters to train");
  const DType dtype = parameters.front().tensor->dtype();
  const Device device = parameters.front().tensor->device();
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(dtype));
  std::int64_t total = 0;
  for (const NamedTensor& parameter : parameters) {
    HEARTH_CHECK(DTypeError, parameter.tensor->dtype() == dtype, "flat parameters: \"", parameter.name, "\" is ",
                 parameter.tensor->dtype(), ", the others are ", dtype);
    HEARTH_CHECK(DeviceError, parameter.tensor->device() == device, "flat parameters: \"", parameter.name, "\" is on ",
                 parameter.tensor->device(), ", the others are on ", device,
                 "; move the whole model with to(device) first");
    entries_.push_back({parameter.name, {}, total, parameter.tensor->size()});
    total = checked_add(total, (parameter.tensor->size() + line - 1) / line * line, "flat parameters: size");
  }
  values_ = Tensor::zeros({total}, dtype, device);
  {
    const OriginScope origin = OriginScope::of_op("gradients");
    grads_ = Tensor::zeros({total}, dtype, device);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tensor& handle = *parameters[i].tensor;
    const Strides strides = contiguous_strides(handle.shape());
    const Tensor view = Tensor::view(values_.storage(), handle.shape(), strides, entries_[i].begin, dtype, device);
    view.copy_from(handle);
    auto state = std::make_shared<GradState>();
    state->grad = Tensor::view(grads_.storage(), handle.shape(), strides, entries_[i].begin, dtype, device);
    entries_[i].value = view.with_grad_state(std::move(state));
    handle = entries_[i].value;
  }
}

void FlatParameters::zero_grads() {
  for (const Entry& entry : entries_) zero_grad(entry.value);
}

void FlatParameters::finish_grads() {
  for (const Entry& entry : entries_) (void)grad_of(entry.value);
}

}  // namespace hearth
