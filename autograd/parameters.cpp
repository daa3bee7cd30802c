// SPDX-License-Identifier: Apache-2.0
#include "autograd/parameters.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "autograd/grad_state.h"
#include "core/origin.h"

namespace hearth {
namespace {

std::atomic<std::int64_t> alive{0};

// What counts FlatParameters while it lives.
struct Lease {
  Lease() { alive.fetch_add(1, std::memory_order_relaxed); }
  ~Lease() { alive.fetch_sub(1, std::memory_order_relaxed); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
};

// Where the next one begins.
std::int64_t end_of(const FlatParameters::Entry& entry, DType dtype) {
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t lines = entry.size / line + (entry.size % line != 0 ? 1 : 0);
  return checked_add(entry.begin, lines * line, "flat parameters: size");
}

// Those that are not frozen.
std::vector<NamedTensor> trained(const std::vector<NamedTensor>& all) {
  const std::vector<std::size_t> tied = tied_to(all);
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const NamedTensor& first = all[tied[i]];
    HEARTH_CHECK(UsageError, all[i].frozen == first.frozen, "flat parameters: \"", all[i].name, "\" and \"", first.name,
                 "\" are one tensor, of which one is frozen; freeze both or none");
    HEARTH_CHECK(UsageError, !all[i].uninitialized, "flat parameters: \"", all[i].name, "\" ", all[i].tensor->shape(),
                 " was never initialized; call nn::initialize(model, seed), or load its weights first");
    const auto& leaf = all[i].tensor->grad_state();
    HEARTH_CHECK(UsageError, all[i].frozen || leaf == nullptr || leaf->frozen == 0, "flat parameters: \"", all[i].name,
                 "\" is frozen by an nn::FreezeScope, which would not give another tensor back; end the scope first");
    if (!all[i].frozen) result.push_back(all[i]);
  }
  return result;
}

}  // namespace

bool any_flat() { return alive.load(std::memory_order_relaxed) > 0; }

std::shared_ptr<const void> FlatParameters::make_lease() { return std::make_shared<Lease>(); }

std::vector<std::size_t> tied_to(const std::vector<NamedTensor>& parameters) {
  std::map<std::pair<const Storage*, std::int64_t>, std::size_t> first_at;
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    HEARTH_CHECK(UsageError, parameters[i].tensor != nullptr && parameters[i].tensor->defined(), "parameters: \"",
                 parameters[i].name, "\" has no tensor; give the parameters() of a module, or the address of a tensor");
    const Tensor& tensor = *parameters[i].tensor;
    std::size_t first = i;
    // Of no elements none is shared.
    if (tensor.size() > 0)
      first = first_at.emplace(std::pair(tensor.storage().get(), tensor.offset()), i).first->second;
    const Tensor& other = *parameters[first].tensor;
    HEARTH_CHECK(ShapeError, other.shape() == tensor.shape() && other.strides() == tensor.strides(), "parameters: \"",
                 parameters[i].name, "\" ", tensor.shape(), " begins where \"", parameters[first].name, "\" ",
                 other.shape(),
                 " does but has other elements; give it a copy of its own, or let the model transpose "
                 "and reshape the other where it uses it");
    result.push_back(first);
  }
  return result;
}

namespace {

/// What the constructor refuses of parameters that are trained, and of options.
void check_options(const std::vector<NamedTensor>& parameters, bool all_frozen,
                   const std::optional<LowPrecisionCopy>& low_precision, const std::optional<Division>& division) {
  HEARTH_CHECK(UsageError, !parameters.empty(), "flat parameters: the model has no parameters to train",
               all_frozen ? "; all are frozen" : "");
  const DType dtype = parameters.front().tensor->dtype();
  HEARTH_CHECK(DTypeError, is_floating(dtype), "flat parameters: \"", parameters.front().name, "\" is ", dtype,
               "; what is trained is of a floating type, and integers may be buffers");
  HEARTH_CHECK(DTypeError,
               !low_precision ||
                   (dtype == DType::f32 && is_floating(low_precision->dtype) && size_of(low_precision->dtype) == 2),
               "flat parameters: a low-precision copy in ", low_precision ? low_precision->dtype : dtype,
               " of parameters in ", dtype, "; it is f16 or bf16, of f32");
  const bool splits = low_precision && low_precision->shards != nullptr;
  HEARTH_CHECK(UsageError, !splits || low_precision->use == LowPrecisionCopy::Use::instead,
               "flat parameters: values that the model itself computes with are not divided among ranks; give "
               "LowPrecisionCopy::shards with Use::instead");
  HEARTH_CHECK(UsageError, !division || (division->group != nullptr && division->block_elements > 0 && !splits),
               "flat parameters: a division needs a group and blocks of at least 1 element, and divides what "
               "LowPrecisionCopy::shards would; leave these out");
}

}  // namespace

FlatParameters::FlatParameters(const std::vector<NamedTensor>& listed, std::optional<LowPrecisionCopy> low_precision,
                               std::optional<Division> division) {
  const std::vector<NamedTensor> parameters = trained(listed);
  check_options(parameters, !listed.empty(), low_precision, division);
  const DType dtype = parameters.front().tensor->dtype();
  const Device device = parameters.front().tensor->device();
  const bool splits = low_precision && low_precision->shards != nullptr;
  const std::vector<std::size_t> entry_of = add_entries(parameters);
  total_ = end_of(entries_.back(), dtype);
  if (division) {
    blocks_ = blocks_of(division->block_elements);
    shards_ = Shards{division->group, block_cuts(division->group->size(), division->block_elements)};
  } else if (splits) {
    shards_ = Shards{low_precision->shards, even_cuts(low_precision->shards->size())};
  }
  const bool divides = division && division->values;
  values_ = Tensor::zeros({divides ? shards_->size() : total_}, dtype, device);
  if (low_precision && !divides) low_precision_ = Tensor::zeros({total_}, low_precision->dtype, device);
  {
    const OriginScope origin = OriginScope::of_op("gradients");
    grads_ = Tensor::zeros({division ? shards_->size() : total_}, dtype, device);
  }
  if (divides) {
    const bool instead = low_precision && low_precision->use == LowPrecisionCopy::Use::instead;
    block_values_ =
        std::make_unique<BlockValues>(*shards_, values_, instead ? low_precision->dtype : dtype,
                                      low_precision && !instead ? std::optional(low_precision->dtype) : std::nullopt);
  }
  if (shards_) make_wide(parameters, entry_of, low_precision);
  if (divides) divide_entries(), divide_wide();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Entry& entry = entries_[entry_of[i]];
    if (!entry.value.defined()) bind(entry, parameters[i], low_precision);
    // A body of its own, so that the users of the slot count the handles.
    *parameters[i].tensor = entry.value.with_grad_state(entry.value.grad_state());
    ++entry.handles;
  }
  if (divides) return;
  if (low_precision_.defined()) low_precision_.copy_from(values_);
  note_rounded();
  if (shards_) split_values();
}

std::size_t FlatParameters::block_of(std::size_t entry) const {
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), entry,
                                      [](std::size_t number, const Block& block) { return number < block.first; });
  return after == blocks_.begin() ? 0 : static_cast<std::size_t>(after - blocks_.begin()) - 1;
}

std::vector<FlatParameters::Block> FlatParameters::blocks_of(std::int64_t block_elements) const {
  std::vector<Block> blocks;
  Block open;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::int64_t end = i + 1 < entries_.size() ? entries_[i + 1].begin : total_;
    const auto close = [&] {
      blocks.push_back(open);
      open = {open.begin + open.size, 0, open.first + open.entries, 0};
    };
    // What fills a block alone does not hold up others.
    if (open.entries > 0 && end - entries_[i].begin >= block_elements) close();
    open.size = end - open.begin;
    ++open.entries;
    if (open.size >= block_elements || i + 1 == entries_.size()) close();
  }
  return blocks;
}

std::vector<std::size_t> FlatParameters::add_entries(const std::vector<NamedTensor>& parameters) {
  const DType dtype = parameters.front().tensor->dtype();
  const Device device = parameters.front().tensor->device();
  const std::vector<std::size_t> tied = tied_to(parameters);
  std::map<const Tensor*, const NamedTensor*> listed;
  std::set<std::string_view> names;
  std::vector<std::size_t> entry_of;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const NamedTensor& parameter = parameters[i];
    const Tensor& tensor = *parameter.tensor;
    const auto [first, is_new] = listed.emplace(&tensor, &parameter);
    HEARTH_CHECK(UsageError, is_new, "flat parameters: \"", first->second->name, "\" and \"", parameter.name,
                 "\" are one handle; list it once");
    HEARTH_CHECK(UsageError, names.insert(parameter.name).second, "flat parameters: two are named \"", parameter.name,
                 "\"; give each a name, under which its state is saved");
    HEARTH_CHECK(
        UsageError, !is_flat(tensor), "flat parameters: \"", parameter.name,
        "\" is part of other FlatParameters, whose optimizer would train nothing from then on; make one for all "
        "parameters, with groups of the optimizer for those that differ, or end the other first");
    HEARTH_CHECK(DTypeError, tensor.dtype() == dtype, "flat parameters: \"", parameter.name, "\" is ", tensor.dtype(),
                 ", the others are ", dtype);
    HEARTH_CHECK(DeviceError, tensor.device() == device, "flat parameters: \"", parameter.name, "\" is on ",
                 tensor.device(), ", the others are on ", device, "; move the whole model with to(device) first");
    entry_of.push_back(tied[i] < i ? entry_of[tied[i]] : entries_.size());
    if (tied[i] < i) continue;
    const std::int64_t begin = entries_.empty() ? 0 : end_of(entries_.back(), dtype);
    entries_.push_back({parameter.name, {}, {}, begin, tensor.size()});
  }
  return entry_of;
}

void FlatParameters::bind(Entry& entry, const NamedTensor& parameter,
                          const std::optional<LowPrecisionCopy>& low_precision) {
  const Tensor& handle = *parameter.tensor;
  const auto view_of = [&](const Tensor& flat) {
    return Tensor::view(flat.storage(), handle.shape(), contiguous_strides(handle.shape()), entry.begin, flat.dtype(),
                        flat.device());
  };
  const auto number = static_cast<std::size_t>(&entry - entries_.data());
  const std::size_t block = block_of(number);
  const auto view_of_block = [&](const Tensor& values) {
    return Tensor::view(values.storage(), handle.shape(), contiguous_strides(handle.shape()),
                        entry.begin - blocks_[block].begin, values.dtype(), values.device());
  };
  if (block_values_) {
    const Shards::Range part = split_->of_entries[number].range(0);
    const Tensor flat = handle.contiguous().as_shape({entry.size});
    entry.master.copy_from(slice_of(flat, part.begin, part.end - part.begin));
  } else {
    entry.master = view_of(values_);
    entry.master.copy_from(handle);
  }
  auto state = std::make_shared<GradState>(handle);
  state->flat = lease_;
  if (!divides_grads()) state->grad = view_of(grads_);
  if (handle.grad_state() != nullptr) {
    state->hooks = handle.grad_state()->hooks;
    state->ready_hooks = handle.grad_state()->ready_hooks;
  }
  const bool instead = low_precision && low_precision->use == LowPrecisionCopy::Use::instead && !parameter.keep_fp32;
  if (low_precision && !instead && !parameter.keep_fp32) {
    state->low_precision = block_values_ ? view_of_block(block_values_->copy(block)) : view_of(low_precision_);
    state->low_precision_version = block_values_ ? block_values_->copy_version(block) : rounded_;
  }
  if (instead && !split_) state->master = entry.master;
  Tensor value;
  if (split_ && split_->wide_begin[number] >= 0) {
    value = Tensor::view(split_->wide.storage(), handle.shape(), contiguous_strides(handle.shape()),
                         split_->wide_begin[number], values_.dtype(), values_.device());
    value.copy_from(handle);
  } else if (block_values_) {
    value = view_of_block(block_values_->block(block));
  } else {
    value = instead ? view_of(low_precision_) : entry.master;
  }
  entry.value = value.with_grad_state(std::move(state));
}

void FlatParameters::refresh_low_precision() {
  if (split_)
    gather_split_values();
  else if (low_precision_.defined())
    low_precision_.copy_from(values_);
  note_rounded();
}

std::vector<std::int64_t> FlatParameters::even_cuts(int ranks) const {
  return cuts_between({0, total_, 0, entries_.size()}, ranks);
}

std::vector<std::int64_t> FlatParameters::block_cuts(int ranks, std::int64_t block_elements) const {
  std::vector<std::int64_t> cuts{0};
  for (const Block& block : blocks_of(block_elements)) {
    const std::vector<std::int64_t> of_block = cuts_between(block, ranks);
    cuts.insert(cuts.end(), of_block.begin() + 1, of_block.end());
  }
  return cuts;
}

std::vector<std::int64_t> FlatParameters::cuts_between(const Block& block, int ranks) const {
  std::vector<std::int64_t> cuts{block.begin};
  std::size_t entry = block.first;
  const std::size_t entries = block.first + block.entries;
  for (int rank = 1; rank < ranks; ++rank) {
    // size * rank / ranks, which could overflow.
    const std::int64_t target = block.begin + block.size / ranks * rank + block.size % ranks * rank / ranks;
    while (entry + 1 < entries && entries_[entry + 1].begin <= target) ++entry;
    const std::int64_t begin = entries_[entry].begin,
                       end = entry + 1 < entries ? entries_[entry + 1].begin : block.begin + block.size,
                       before = begin + (target - begin) / piece_elements * piece_elements,
                       after = std::min(end, before + piece_elements);
    cuts.push_back(target - before <= after - target ? before : after);
  }
  cuts.push_back(block.begin + block.size);
  return cuts;
}

void FlatParameters::shard_updates(Collective& group) {
  HEARTH_CHECK(UsageError, !shards_, "flat parameters: their updates are divided among ranks already");
  shards_ = Shards{&group, even_cuts(group.size())};
}

void FlatParameters::gather_values() {
  if (!shards_) return;
  if (!split_) shards_->gather(values_);
  refresh_low_precision();
}

std::uint64_t FlatParameters::computed_version() const {
  std::uint64_t version = 0;  // Both only grow.
  if (low_precision_.defined()) version += low_precision_.storage()->version();
  if (split_ && split_->gathered.defined()) version += split_->gathered.storage()->version();
  return version;
}

void FlatParameters::note_rounded() {
  if (low_precision_.defined())
    *rounded_ = (split_ && split_->gathered.defined() ? split_->gathered : values_).storage()->version();
  computed_version_ = computed_version();
}

std::vector<NamedTensor> FlatParameters::masters() {
  HEARTH_CHECK(UsageError, !split_, "flat parameters: ranks have a part of the values each; use register_masters()");
  std::vector<NamedTensor> result;
  for (Entry& entry : entries_) result.push_back({entry.name, &entry.master});
  return result;
}

void FlatParameters::zero_grads() {
  ++zeroings_;
  has_sums_ = false;
  for (const Entry& entry : entries_) zero_grad(entry.value);
}

void FlatParameters::note_sums() {
  has_sums_ = true;
  grads_.storage()->bump_version();
}

void FlatParameters::finish_grads() {
  HEARTH_CHECK(UsageError, !divides_grads() || has_sums_,
               "flat parameters: the ranks have not summed gradients since zero_grads(); call reduce() of their "
               "DataParallel after backward()");
  if (divides_grads()) return;
  const bool any = std::any_of(entries_.begin(), entries_.end(),
                               [](const Entry& entry) { return !entry.value.grad_state()->is_zero; });
  HEARTH_CHECK(UsageError, any,
               "flat parameters: no gradient has arrived since zero_grads(); call backward() after zero_grads(), on a "
               "loss that these parameters lead to");
  for (const Entry& entry : entries_) (void)grad_of(entry.value);
}

void FlatParameters::check_handles() const {
  for (const Entry& entry : entries_)
    HEARTH_CHECK(UsageError, entry.value.grad_state().use_count() > entry.handles,
                 "update: the model no longer holds \"", entry.name, "\" ", describe(entry.value),
                 ": it was given another tensor after FlatParameters were made, or is gone, so that it would not be "
                 "trained; write into it with copy_from(), or assign before FlatParameters are made");
}

void FlatParameters::check_low_precision() const {
  HEARTH_CHECK(UsageError, computed_version() == computed_version_, "update: weights ",
               low_precision_.defined() ? join_text("in ", low_precision_.dtype()) : "that ranks update a part of each",
               " were written, which the update would overwrite with values(); write into masters() and call "
               "refresh_low_precision(), or load registered state, and read through data<const T>()");
}

void FlatParameters::begin_update(const void* optimizer) {
  HEARTH_CHECK(UsageError, lease_ != nullptr,
               "update: the FlatParameters were moved to another object after the optimizer was made; make it of that");
  check_handles();
  check_low_precision();
  finish_grads();
  HEARTH_CHECK(
      UsageError, updated_by_ == nullptr || updated_by_ == optimizer || updated_from_ != grads_.storage()->version(),
      "update: another optimizer has used these gradients; give each optimizer a backward() of its own, or use "
      "one optimizer with groups");
}

void FlatParameters::end_update(const void* optimizer) {
  updated_by_ = optimizer;
  updated_from_ = grads_.storage()->version();
  note_rounded();
}

}  // namespace hearth
