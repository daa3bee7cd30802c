// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "autograd/accumulate.h"
#include "autograd/grad_state.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "core/run_on.h"

namespace hearth::dist {
namespace {

constexpr double mebibyte = 1 << 20;

std::int64_t checksum_of(std::span<const std::byte> bytes) { return crc32c(bytes); }

/// One number of each rank.
std::vector<std::int64_t> gather(Collective& group, std::int64_t mine) {
  const Tensor all = Tensor::zeros({group.size()}, DType::i64);
  group.all_gather(Tensor::of<std::int64_t>({1}, {mine}), all).wait();
  const std::int64_t* const numbers = all.data<const std::int64_t>();
  return {numbers, numbers + group.size()};
}

}  // namespace

DataParallel::DataParallel(Collective& group, FlatParameters& parameters, DataParallelOptions options)
    : group_(&group),
      parameters_(&parameters),
      options_(options),
      self_(std::make_shared<DataParallel*>(this)),
      overlap_(options.overlap) {
  for (const double size : {options_.bucket_mb, options_.first_bucket_mb})
    HEARTH_CHECK(ConfigError, std::isfinite(size) && size > 0, "data parallel: a bucket of ", size,
                 " MiB; sizes are above 0");
  HEARTH_CHECK(ConfigError, options_.zero == 0 || options_.zero == 1, "data parallel: zero ", options_.zero,
               "; it is 0 or 1, which divides the optimizer's state among the ranks");
  agree();
  make_buckets();
  if (const Shards* const shards = parameters_->shards(); shards != nullptr) {
    HEARTH_CHECK(
        UsageError, shards->group == group_ && options_.zero == 1,
        "data parallel: the parameters are divided among ranks, by LowPrecisionCopy::shards; give it this group "
        "and zero 1 here");
    parameters_->gather_values();
  } else {
    group_->broadcast(parameters_->values()).wait();
    if (parameters_->low_precision().defined()) parameters_->refresh_low_precision();
    if (options_.zero == 1) parameters_->shard_updates(*group_);
  }
  const std::vector<FlatParameters::Entry>& entries = parameters_->entries();
  for (std::size_t i = 0; i < entries.size(); ++i)
    on_grad_ready(entries[i].value, [self = self_, i] {
      if (*self != nullptr) (*self)->arrived(i);
    });
}

DataParallel::~DataParallel() {
  *self_ = nullptr;
  // The gradients' memory is theirs until they are done.
  for (const Work& work : works_) try {
      work.wait();
    } catch (const Error&) {  // nobody asks for the sums any more
    }
}

void DataParallel::agree() {
  const std::vector<FlatParameters::Entry>& entries = parameters_->entries();
  const auto count = static_cast<std::int64_t>(entries.size());
  const std::vector<std::int64_t> counts = gather(*group_, count);
  for (int rank = 0; rank < group_->size(); ++rank)
    HEARTH_CHECK(PeerError, counts[static_cast<std::size_t>(rank)] == counts[0], "data parallel: rank ", rank, " has ",
                 counts[static_cast<std::size_t>(rank)], " parameters and rank 0 has ", counts[0],
                 "; every rank builds the same model");
  std::vector<std::int64_t> mine;
  for (const FlatParameters::Entry& entry : entries) {
    const std::string text = join_text(entry.name, '\n', describe(entry.value), '\n', entry.begin);
    mine.push_back(checksum_of(std::as_bytes(std::span(text))));
  }
  const Tensor all = Tensor::zeros({group_->size() * count}, DType::i64);
  group_->all_gather(Tensor::of({count}, mine), all).wait();
  for (std::int64_t i = 0; i < all.size(); ++i) {
    const FlatParameters::Entry& entry = entries[static_cast<std::size_t>(i % count)];
    const std::int64_t* const sums = all.data<const std::int64_t>();
    HEARTH_CHECK(PeerError, sums[i] == sums[i % count], "data parallel: parameter ", i % count, ", on rank ",
                 group_->rank(), " \"", entry.name, "\" ", describe(entry.value), ", is not the same on ranks 0 and ",
                 i / count, "; every rank builds the same model");
  }
}

void DataParallel::make_buckets() {
  const std::vector<FlatParameters::Entry>& entries = parameters_->entries();
  const auto element = static_cast<double>(size_of(parameters_->grads().dtype()));
  bucket_of_.resize(entries.size());
  std::int64_t end = parameters_->grads().size();
  Bucket open;
  const auto close = [&] {
    buckets_.push_back(open);
    end = open.begin;
    open = {};
  };
  const auto fills = [&](std::int64_t size, double mb) { return static_cast<double>(size) * element >= mb * mebibyte; };
  for (std::size_t i = entries.size(); i-- > 0;) {
    // What fills a bucket alone does not hold up others: a tied embedding is ready last of all.
    if (open.parameters != 0 && fills(open.begin - entries[i].begin, options_.bucket_mb)) close();
    open.begin = entries[i].begin;
    open.size = end - open.begin;
    ++open.parameters;
    bucket_of_[i] = buckets_.size();
    const bool first = buckets_.empty();
    if (i == 0 || fills(open.size, first ? std::min(options_.first_bucket_mb, options_.bucket_mb) : options_.bucket_mb))
      close();
  }
  arrived_.assign(entries.size(), 0);
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.parameters);
}

void DataParallel::overlap_next(bool on) { overlap_ = on && options_.overlap; }

void DataParallel::discard() {
  works_.clear();
  std::fill(arrived_.begin(), arrived_.end(), char{0});
  for (std::size_t i = 0; i < buckets_.size(); ++i) missing_[i] = buckets_[i].parameters;
}

void DataParallel::arrived(std::size_t entry) {
  if (!overlap_) return;
  HEARTH_CHECK(UsageError, arrived_[entry] == 0,
               "data parallel: a second backward() before reduce(), which has "
               "begun to sum the gradients of the first; call overlap_next(false) before all but the last");
  arrived_[entry] = 1;
  --missing_[bucket_of_[entry]];
  start_ready();
}

// In order, so that it is the same on all ranks.
void DataParallel::start_ready() {
  while (works_.size() < buckets_.size() && missing_[works_.size()] == 0) start(works_.size());
}

void DataParallel::start(std::size_t number) {
  const Bucket& bucket = buckets_[number];
  const Tensor& grads = parameters_->grads();
  // What had no part in the loss is zero.
  const std::vector<FlatParameters::Entry>& entries = parameters_->entries();
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (bucket_of_[i] == number) (void)grad_of(entries[i].value);
  const Tensor part =
      Tensor::view(grads.storage(), {bucket.size}, {1}, grads.offset() + bucket.begin, grads.dtype(), grads.device());
  works_.push_back(group_->all_reduce(part, Reduce::sum, options_.wire));
}

void DataParallel::reduce() {
  overlapped_ = static_cast<int>(works_.size());
  while (works_.size() < buckets_.size()) start(works_.size());
  const std::vector<Work> works = works_;
  discard();
  // All of them, so that none writes any more when this throws.
  std::exception_ptr fault;
  for (const Work& work : works) try {
      work.wait();
    } catch (...) {
      if (!fault) fault = std::current_exception();
    }
  if (fault) std::rethrow_exception(fault);
}

void DataParallel::require_equal(const Tensor& x, const std::string& what) {
  const Tensor host = x.to(Device{});
  const std::vector<std::int64_t> sums = gather(*group_, checksum_of({host.bytes(), host.byte_size()}));
  for (int rank = 1; rank < group_->size(); ++rank)
    HEARTH_CHECK(PeerError, sums[static_cast<std::size_t>(rank)] == sums[0], what, ": rank ", rank,
                 " has other bits than rank 0");
}

void PairwiseSum::add(std::int64_t index, std::int64_t total) {
  HEARTH_CHECK(UsageError, index >= 0 && index < total, "pairwise sum: term ", index, " of ", total);
  const auto take_in = [&](std::size_t level) {
    run_on(sum_.device(), [&](auto& stream) { kernels::add_into(stream, sum_, levels_[level]); });
  };
  // Level l holds the sum of 2^l terms where bit l of `index` is set.
  std::size_t level = 0;
  for (; (index >> level & 1) != 0; ++level) take_in(level);
  if (index + 1 < total) {
    reserve(total);
    levels_[level].copy_from(sum_);
    return;
  }
  // The last one: what is left of uneven numbers.
  for (++level; (index >> level) != 0; ++level)
    if ((index >> level & 1) != 0) take_in(level);
}

void PairwiseSum::reserve(std::int64_t total) {
  const auto levels =
      static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(total, 1) - 1)));
  while (levels_.size() < levels) levels_.push_back(Tensor::empty_like(sum_));
}

}  // namespace hearth::dist
