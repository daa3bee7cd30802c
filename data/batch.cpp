// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

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

void Batch::set_ragged(std::string_view name, Tensor tensor, std::string_view counts) {
  const auto counter = named(tensors_, counts);
  HEARTH_CHECK(UsageError,
               counter != tensors_.end() && counter->axis == Axis::rows && counter->tensor.rank() == 1 &&
                   counter->tensor.dtype() == DType::i64,
               "batch: the entries of \"", name, "\" are counted by \"", counts,
               "\", which is no tensor i64 [rows] of the batch; set that one first");
  if (tensor.defined() && tensor.rank() > 0 && counter->tensor.device().is_cpu()) {
    const Tensor here = counter->tensor.contiguous();
    const std::span all(here.data<const std::int64_t>(), static_cast<std::size_t>(here.size()));
    const std::int64_t sum = std::accumulate(all.begin(), all.end(), std::int64_t{0});
    HEARTH_CHECK(ShapeError, sum == tensor.dim(0), "batch: \"", name, "\" has ", tensor.dim(0), " entries, and \"",
                 counts, "\" adds up to ", sum);
  }
  set(name, std::move(tensor), Axis::ragged);
  tensors_[static_cast<std::size_t>(named(tensors_, name) - tensors_.begin())].counts = counts;
}

namespace {

/// The entries [begin, end) of rows of `bytes` bytes, appended.
void append_entries(const Tensor& from, std::int64_t begin, std::int64_t end, std::byte*& to) {
  const std::size_t bytes = from.dim(0) == 0 ? 0 : from.byte_size() / static_cast<std::size_t>(from.dim(0));
  const std::size_t count = static_cast<std::size_t>(end - begin) * bytes;
  if (count > 0) std::memcpy(to, from.bytes() + static_cast<std::size_t>(begin) * bytes, count);
  to += count;
}

/// Where the entries of each row begin, and the end.
std::vector<std::int64_t> ends_of(const Tensor& counts) {
  const Tensor here = counts.contiguous();
  std::vector<std::int64_t> ends{0};
  for (std::int64_t i = 0; i < here.size(); ++i) ends.push_back(ends.back() + here.data<const std::int64_t>()[i]);
  return ends;
}

}  // namespace

Batch Batch::gather(const std::vector<std::int64_t>& rows) const {
  const std::int64_t there = this->rows();
  for (const std::int64_t row : rows)
    HEARTH_CHECK(IndexError, row >= 0 && row < there, "batch: row ", row, " of ", there);
  Batch part = map([&](const Named& source) {
    if (source.axis == Axis::shared) return source.tensor;
    const Tensor from = source.tensor.contiguous();
    std::vector<std::int64_t> ends;
    if (source.axis == Axis::ragged) ends = ends_of((*this)[source.counts]);
    const auto begin = [&](std::int64_t row) { return ends.empty() ? row : ends[static_cast<std::size_t>(row)]; };
    std::int64_t entries = 0;
    for (const std::int64_t row : rows) entries += begin(row + 1) - begin(row);
    const Tensor to = Tensor::empty(from.shape().with(0, entries), from.dtype());
    std::byte* at = to.bytes();
    for (const std::int64_t row : rows) append_entries(from, begin(row), begin(row + 1), at);
    return to;
  });
  if (!samples.empty()) {
    part.samples.clear();
    for (const std::int64_t row : rows) part.samples.push_back(samples[static_cast<std::size_t>(row)]);
  }
  return part;
}

Batch with_spare_entries(const Batch& batch) {
  return batch.map([](const Batch::Named& named) {
    if (named.axis != Batch::Axis::ragged) return named.tensor;
    std::int64_t entries = 16;
    while (entries < named.tensor.dim(0)) entries *= 2;
    const Tensor padded = Tensor::zeros(named.tensor.shape().with(0, entries), named.tensor.dtype());
    const Tensor from = named.tensor.contiguous();
    if (from.byte_size() > 0) std::memcpy(padded.bytes(), from.bytes(), from.byte_size());
    return padded;
  });
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
    if (x.axis != y.axis) return false;
    if (x.axis == Batch::Axis::shared) return s == t;
    return s.rank() == t.rank() && s.with(0, 0) == t.with(0, 0);
  });
}

bool same_shapes(const Batch& a, const Batch& b) {
  return same_names(a, b,
                    [](const Batch::Named& x, const Batch::Named& y) { return x.tensor.shape() == y.tensor.shape(); });
}

}  // namespace hearth::data
