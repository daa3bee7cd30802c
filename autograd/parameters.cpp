// SPDX-License-Identifier: Apache-2.0
#include "hearth/autograd/parameters.h"

#include "hearth/autograd/grad_state.h"
#include "hearth/core/origin.h"

namespace hearth {

FlatParameters::FlatParameters(const std::vector<NamedTensor>& parameters, std::optional<NarrowCopy> narrow) {
  HEARTH_CHECK(UsageError, !parameters.empty(), "flat parameters: the model has no parameters to train");
  const DType dtype = parameters.front().tensor->dtype();
  const Device device = parameters.front().tensor->device();
  HEARTH_CHECK(DTypeError,
               !narrow || (dtype == DType::f32 && is_floating(narrow->dtype) && size_of(narrow->dtype) == 2),
               "flat parameters: a narrow copy in ", narrow ? narrow->dtype : dtype, " of parameters in ", dtype,
               "; it is f16 or bf16, of f32");
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(dtype));
  std::int64_t total = 0;
  for (const NamedTensor& parameter : parameters) {
    HEARTH_CHECK(DTypeError, parameter.tensor->dtype() == dtype, "flat parameters: \"", parameter.name, "\" is ",
                 parameter.tensor->dtype(), ", the others are ", dtype);
    HEARTH_CHECK(DeviceError, parameter.tensor->device() == device, "flat parameters: \"", parameter.name, "\" is on ",
                 parameter.tensor->device(), ", the others are on ", device,
                 "; move the whole model with to(device) first");
    entries_.push_back({parameter.name, {}, {}, total, parameter.tensor->size()});
    total = checked_add(total, (parameter.tensor->size() + line - 1) / line * line, "flat parameters: size");
  }
  values_ = Tensor::zeros({total}, dtype, device);
  if (narrow) narrow_ = Tensor::zeros({total}, narrow->dtype, device);
  {
    const OriginScope origin = OriginScope::of_op("gradients");
    grads_ = Tensor::zeros({total}, dtype, device);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) bind(entries_[i], parameters[i], narrow);
  refresh_narrow();
}

void FlatParameters::bind(Entry& entry, const NamedTensor& parameter, const std::optional<NarrowCopy>& narrow) {
  Tensor& handle = *parameter.tensor;
  const auto view_of = [&](const Tensor& flat) {
    return Tensor::view(flat.storage(), handle.shape(), contiguous_strides(handle.shape()), entry.begin, flat.dtype(),
                        flat.device());
  };
  entry.master = view_of(values_);
  entry.master.copy_from(handle);
  auto state = std::make_shared<GradState>();
  state->flat = lease_;
  state->grad = view_of(grads_);
  const bool instead = narrow && narrow->use == NarrowCopy::Use::instead && !parameter.wide;
  if (narrow && !instead && !parameter.wide) state->narrow = view_of(narrow_);
  entry.value = (instead ? view_of(narrow_) : entry.master).with_grad_state(std::move(state));
  handle = entry.value;
}

void FlatParameters::refresh_narrow() {
  if (narrow_.defined()) narrow_.copy_from(values_);
}

std::vector<NamedTensor> FlatParameters::masters() {
  std::vector<NamedTensor> result;
  for (Entry& entry : entries_) result.push_back({entry.name, &entry.master});
  return result;
}

void FlatParameters::zero_grads() {
  for (const Entry& entry : entries_) zero_grad(entry.value);
}

void FlatParameters::finish_grads() {
  for (const Entry& entry : entries_) (void)grad_of(entry.value);
}

}  // namespace hearth
