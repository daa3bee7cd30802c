// SPDX-License-Identifier: Apache-2.0
// Flat parameters whose f32 values are divided among ranks: each has those that it updates; what the model computes
// with, low-precision values and the f32 values of few parameters, is gathered.
#include <algorithm>

#include "autograd/parameters.h"

namespace hearth {
void FlatParameters::make_wide(const std::vector<NamedTensor>& parameters, const std::vector<std::size_t>& entry_of,
                               const std::optional<LowPrecisionCopy>& low_precision) {
  split_ = std::make_unique<Split>();
  split_->wide_begin.assign(entries_.size(), -1);
  if (!low_precision || low_precision->use == LowPrecisionCopy::Use::beside) {
    if (!block_values_) split_->gathered = values_;
    return;
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::int64_t& begin = split_->wide_begin[entry_of[i]];
    if (!parameters[i].keep_fp32 || begin >= 0) continue;
    begin = total;
    // As long as in the buffers, with the gap behind it.
    const std::size_t next = entry_of[i] + 1;
    total += (next < entries_.size() ? entries_[next].begin : total_) - entries_[entry_of[i]].begin;
  }
  split_->wide = Tensor::zeros({total}, values_.dtype(), values_.device());
}

void FlatParameters::split_values() {
  const Tensor all = values_;
  values_ = Tensor::empty({shards_->size()}, all.dtype(), all.device());
  shards_->take(all, values_);
  divide_entries();
  divide_wide();
}

void FlatParameters::divide_entries() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const std::size_t block = block_of(i);
    Shards of_entry{shards_->group, shards_->cuts_of(block)};
    for (std::int64_t& cut : of_entry.cuts) cut = std::clamp(cut - entry.begin, std::int64_t{0}, entry.size);
    const Shards::Range mine = shards_->range(block), part = of_entry.range(0);
    entry.master = slice_of(values_, mine.place + entry.begin + part.begin - mine.begin, part.end - part.begin);
    split_->of_entries.push_back(std::move(of_entry));
  }
}

void FlatParameters::divide_wide() {
  if (!split_->wide.defined()) return;
  // A cut of the buffers is one of the wide values where they lie in the same order.
  split_->of_wide = Shards{shards_->group, {}};
  for (const std::int64_t cut : shards_->cuts) {
    std::int64_t place = split_->wide.size();
    for (std::size_t i = entries_.size(); i-- > 0;) {
      const std::int64_t begin = split_->wide_begin[i];
      if (begin >= 0 && cut < entries_[i].begin + entries_[i].size)
        place = begin + std::max<std::int64_t>(0, cut - entries_[i].begin);
    }
    split_->of_wide.cuts.push_back(place);
  }
  split_->of_wide.cuts.front() = 0;
}

void FlatParameters::gather_split_values() {
  const Tensor& computed = split_->gathered.defined() ? split_->gathered : low_precision_;
  block_values_ ? block_values_->values_changed() : shards_->put(values_, computed);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (split_->wide_begin[i] < 0 || entries_[i].master.size() == 0) continue;
    slice_of(split_->wide, split_->wide_begin[i] + split_->of_entries[i].range(0).begin, entries_[i].master.size())
        .copy_from(entries_[i].master);
  }
  if (!block_values_) shards_->gather(computed);
  if (split_->wide.defined() && split_->wide.size() > 0) split_->of_wide.gather(split_->wide);
  if (split_->gathered.defined() && low_precision_.defined()) low_precision_.copy_from(split_->gathered);
}

std::int64_t FlatParameters::value_bytes() const {
  std::size_t bytes = values_.byte_size();
  if (low_precision_.defined()) bytes += low_precision_.byte_size();
  if (split_ && split_->gathered.defined()) bytes += split_->gathered.byte_size();
  if (split_ && split_->wide.defined()) bytes += split_->wide.byte_size();
  return static_cast<std::int64_t>(bytes);
}

void FlatParameters::register_masters(State& state) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (split_)
      state.add_shard(entry.name, &entry.master, split_->of_entries[i], entry.value.shape());
    else
      state.add(entry.name, &entry.master);
  }
}

}  // namespace hearth
