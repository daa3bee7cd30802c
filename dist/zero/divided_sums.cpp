// SPDX-License-Identifier: Apache-2.0
#include "dist/zero/divided_sums.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/accumulate.h"
#include "autograd/grad_state.h"
#include "core/error.h"
#include "core/marker.h"
#include "core/origin.h"
#include "core/run_on.h"

namespace hearth::dist {
namespace {

// Blocks whose sums are under way at a time: each holds its buffer.
constexpr std::size_t most_under_way = 2;
constexpr std::uint64_t never = ~std::uint64_t{0};

}  // namespace

DividedSums::DividedSums(FlatParameters& parameters, bool overlap)
    : parameters_(parameters), overlap_(overlap), arrived_(parameters.entries().size(), 0) {
  const std::vector<FlatParameters::Block>& blocks = parameters.blocks();
  blocks_.resize(blocks.size());
  written_.assign(blocks.size(), never);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    block_of_.insert(block_of_.end(), blocks[b].entries, b);
    const Shards::Range mine = parameters.shards()->range(b);
    own_.push_back(slice_of(parameters.grads(), mine.place, mine.end - mine.begin));
  }
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  for (std::size_t i = 0; i < entries.size(); ++i)
    entries[i].value.grad_state()->place =
        std::make_shared<const std::function<Tensor()>>([this, i] { return place(i); });
  forget();
}

DividedSums::~DividedSums() {
  discard();
  for (const FlatParameters::Entry& entry : parameters_.entries()) entry.value.grad_state()->place = nullptr;
}

void DividedSums::forget() {
  for (std::size_t b = 0; b < blocks_.size(); ++b) blocks_[b] = {{}, parameters_.blocks()[b].entries};
  for (const FlatParameters::Entry& entry : parameters_.entries()) {
    entry.value.grad_state()->grad = {};
    zero_grad(entry.value);
  }
  std::fill(arrived_.begin(), arrived_.end(), char{0});
  under_way_.clear();
  started_ = 0;
}

void DividedSums::discard() {
  for (const Sum& sum : under_way_) try {
      sum.work.wait();
    } catch (const Error&) {  // nobody asks for the sums any more
    }
  forget();
}

Tensor DividedSums::place(std::size_t entry) {
  HEARTH_CHECK(UsageError, arrived_[entry] == 0,
               "data parallel: a second backward() before reduce(), which has begun to sum the gradients of the first; "
               "with zero 2 and 3 call reduce() after each");
  return view_in_buffer(entry);
}

Tensor DividedSums::view_in_buffer(std::size_t entry) {
  const std::size_t b = block_of_[entry];
  const FlatParameters::Block& block = parameters_.blocks()[b];
  Tensor& buffer = blocks_[b].buffer;
  if (!buffer.defined()) {
    finish(most_under_way - 1);
    const OriginScope origin = OriginScope::of_op("gradients");
    const Tensor& grads = parameters_.grads();
    buffer = Tensor::empty({block.size}, grads.dtype(), grads.device());
    // The gaps behind parameters are zeros.
    const std::vector<FlatParameters::Entry>& entries = parameters_.entries();
    for (std::size_t i = block.first; i < block.first + block.entries; ++i) {
      const std::int64_t end = entries[i].begin + entries[i].size - block.begin,
                         next = i + 1 < block.first + block.entries ? entries[i + 1].begin - block.begin : block.size;
      if (next > end) slice_of(buffer, end, next - end).fill_(0);
    }
  }
  const FlatParameters::Entry& of = parameters_.entries()[entry];
  return Tensor::view(buffer.storage(), of.value.shape(), contiguous_strides(of.value.shape()), of.begin - block.begin,
                      buffer.dtype(), buffer.device());
}

void DividedSums::arrived(std::size_t entry) {
  arrived_[entry] = 1;
  --blocks_[block_of_[entry]].missing;
  start_ready();
}

// In order, so that it is the same on all ranks.
void DividedSums::start_ready() {
  while (started_ < blocks_.size() && blocks_[blocks_.size() - 1 - started_].missing == 0) start();
}

void DividedSums::start() {
  const std::size_t b = blocks_.size() - 1 - started_;
  const FlatParameters::Block& block = parameters_.blocks()[b];
  std::optional<Marker> marker;
  if (Marker::is_on()) marker.emplace(lasting_text(join_text("block ", b + 1, " of ", blocks_.size())));
  for (std::size_t i = block.first; i < block.first + block.entries; ++i) {
    GradState& state = *parameters_.entries()[i].value.grad_state();
    // What had no part in the loss is zero.
    if (state.is_zero) view_in_buffer(i).fill_(0);
    state.grad = {};
    state.is_zero = true;
    arrived_[i] = 1;
  }
  finish(most_under_way - 1);
  ++started_;
  const bool is_first = written_[b] != parameters_.zeroings();
  written_[b] = parameters_.zeroings();
  const Tensor& own = own_[b];
  const Tensor part = is_first ? Tensor() : Tensor::empty(own.shape(), own.dtype(), own.device());
  const Shards& shards = *parameters_.shards();
  std::vector<std::int64_t> cuts = shards.cuts_of(b);
  for (std::int64_t& cut : cuts) cut -= block.begin;
  under_way_.push_back({b, shards.group->reduce_parts(blocks_[b].buffer, cuts, is_first ? own : part), part});
  if (!overlap_) finish(0);
}

void DividedSums::finish(std::size_t most) {
  while (under_way_.size() > most) {
    const Sum sum = std::move(under_way_.front());
    under_way_.erase(under_way_.begin());
    try {
      sum.work.wait();
    } catch (const PeerError& error) {
      throw PeerError(join_text(error.what(), "; this rank waited for the gradients of block ", sum.block + 1, " of ",
                                blocks_.size()));
    }
    blocks_[sum.block].buffer = {};
    if (sum.part.defined())
      run_on(sum.part.device(), [&](auto& stream) { hearth::kernels::add_into(stream, own_[sum.block], sum.part); });
  }
}

void DividedSums::reduce() {
  overlapped_ = static_cast<int>(started_);
  while (started_ < blocks_.size()) start();
  finish(0);
  forget();
  parameters_.note_sums();
}

}  // namespace hearth::dist
