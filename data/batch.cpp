// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include <algorithm>

#include "core/error.h"

namespace hearth::data {
namespace {

auto named(const std::vector<Batch::Named>& tensors, std::string_view name) {
  return std::find_if(tensors.begin(), tensors.end(), [&](const Batch::Named& one) { return one.name == name; });
}

bool same_names(const Batch& a, const Batch& b, const auto& same_shape) {
  return std::equal(a.tensors().begin(), a.tensors().end(), b.tensors().begin(), b.tensors().end(),
                    [&](const Batch::Named& x, const Batch::Named& y) {
                      return x.name == y.name && x.tensor.dtype() == y.tensor.dtype() && same_shape(x, y);
                    });
}

}  // namespace

const Tensor& Batch::operator[](std::string_view name) const {
  const auto found = named(tensors_, name);
  if (found != tensors_.end()) return found->tensor;
  std::string names;
  for (const Named& one : tensors_) names += (names.empty() ? "" : ", ") + one.name;
  throw UsageError(join_text("batch: there is no tensor \"", name, "\"; it has ", names.empty() ? "none" : names));
}

Tensor Batch::find(std::string_view name) const {
  const auto found = named(tensors_, name);
  return found == tensors_.end() ? Tensor() : found->tensor;
}

void Batch::set(std::string_view name, Tensor tensor, Axis axis) {
  HEARTH_CHECK(UsageError, !name.empty(), "batch: a tensor has an empty name");
  HEARTH_CHECK(UsageError, tensor.defined(), "batch: the tensor \"", name, "\" is undefined; leave it out");
  HEARTH_CHECK(ShapeError, axis == Axis::shared || tensor.rank() > 0, "batch: the tensor \"", name,
               "\" is a scalar and has no rows; say Batch::Axis::shared");
  const auto found = named(tensors_, name);
  if (found == tensors_.end())
    tensors_.push_back({std::string(name), std::move(tensor), axis});
  else
    tensors_[static_cast<std::size_t>(found - tensors_.begin())] = {std::string(name), std::move(tensor), axis};
}

Batch Batch::to(Device device) const {
  return map([&](const Named& one) { return one.tensor.to(device); });
}

std::int64_t Batch::rows() const {
  for (const Named& one : tensors_)
    if (one.axis == Axis::rows) return one.tensor.dim(0);
  return 0;
}

void ignore_labels(Batch& batch, std::int64_t number) {
  const Tensor given = batch.find("labels");
  if (!given.defined() || given.dtype() != DType::i64) return;
  const Tensor here = given.to(Device{}).contiguous();
  const std::span found(here.data<const std::int64_t>(), static_cast<std::size_t>(here.size()));
  if (batch.counted >= 0 && std::find(found.begin(), found.end(), number) == found.end()) return;
  const Tensor labels = here.clone();
  const std::span all(labels.data<std::int64_t>(), static_cast<std::size_t>(labels.size()));
  std::replace(all.begin(), all.end(), number, ignored_label);
  batch.counted = labels.size() - std::count(all.begin(), all.end(), ignored_label);
  batch.set("labels", labels.to(given.device()));
}

bool same_but_for_rows(const Batch& a, const Batch& b) {
  return same_names(a, b, [](const Batch::Named& x, const Batch::Named& y) {
    const Shape &s = x.tensor.shape(), &t = y.tensor.shape();
    if (x.axis == Batch::Axis::shared) return s == t;
    return s.rank() == t.rank() && s.with(0, 0) == t.with(0, 0);
  });
}

bool same_shapes(const Batch& a, const Batch& b) {
  return same_names(a, b,
                    [](const Batch::Named& x, const Batch::Named& y) { return x.tensor.shape() == y.tensor.shape(); });
}

}  // namespace hearth::data
