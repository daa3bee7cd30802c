// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "autograd/accumulate.h"
#include "autograd/grad_state.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "core/marker.h"
#include "core/origin.h"
#include "core/run_on.h"
#include "dist/agreement.h"

namespace hearth::dist {
namespace {

constexpr double mebibyte = 1 << 20;

std::int64_t checksum_of(std::span<const std::byte> bytes) { return crc32c(bytes); }

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
  make_buckets();
  agree();
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
  discard();
}

void DataParallel::agree() {
  const std::vector<FlatParameters::Entry>& entries = parameters_->entries();
  const Tensor& low_precision = parameters_->low_precision();
  NamedValues mine{{"parameters", std::to_string(entries.size())}};
  for (std::size_t i = 0; i < entries.size(); ++i)
    mine.emplace_back(join_text("parameter ", i), join_text('"', entries[i].name, "\" ", describe(entries[i].value)));
  mine.emplace_back("gradients", join_text(parameters_->grads().dtype()));
  mine.emplace_back("low-precision weights", low_precision.defined() ? join_text(low_precision.dtype()) : "");
  mine.emplace_back("divided weights", parameters_->shards() != nullptr ? "yes" : "no");
  mine.emplace_back("zero", std::to_string(options_.zero));
  mine.emplace_back("wire", options_.wire ? join_text(*options_.wire) : "");
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    mine.emplace_back(bucket_name(i), join_text(buckets_[i].size, " elements from ", buckets_[i].begin, " on"));
  require_same(*group_, "data parallel", mine, "every rank builds the same model, with the same options");
}

std::vector<DataParallel::Bucket> DataParallel::buckets_of(const FlatParameters& parameters,
                                                           const DataParallelOptions& options) {
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  const auto element = static_cast<double>(size_of(parameters.grads().dtype()));
  std::vector<Bucket> buckets;
  std::int64_t end = parameters.grads().size();
  Bucket open;
  const auto close = [&] {
    buckets.push_back(open);
    end = open.begin;
    open = {};
  };
  const auto fills = [&](std::int64_t size, double mb) { return static_cast<double>(size) * element >= mb * mebibyte; };
  for (std::size_t i = entries.size(); i-- > 0;) {
    // What fills a bucket alone does not hold up others: a tied embedding is ready last of all.
    if (open.parameters != 0 && fills(open.begin - entries[i].begin, options.bucket_mb)) close();
    open.begin = entries[i].begin;
    open.size = end - open.begin;
    ++open.parameters;
    const bool first = buckets.empty();
    if (i == 0 || fills(open.size, first ? std::min(options.first_bucket_mb, options.bucket_mb) : options.bucket_mb))
      close();
  }
  return buckets;
}

void DataParallel::make_buckets() {
  buckets_ = buckets_of(*parameters_, options_);
  std::size_t entry = parameters_->entries().size();
  bucket_of_.resize(entry);
  arrived_.assign(entry, 0);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (int k = 0; k < buckets_[i].parameters; ++k) bucket_of_[--entry] = i;
    missing_.push_back(buckets_[i].parameters);
  }
}

std::string DataParallel::bucket_name(std::size_t number) const {
  return join_text("bucket ", number + 1, " of ", buckets_.size());
}

void DataParallel::overlap_next(bool on) { overlap_ = on && options_.overlap; }

void DataParallel::discard() {
  // The gradients' memory is theirs until they are done.
  for (const Work& work : works_) try {
      work.wait();
    } catch (const Error&) {  // nobody asks for the sums any more
    }
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
  std::optional<Marker> marker;
  if (Marker::is_on()) marker.emplace(lasting_text(bucket_name(number)));
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
  for (std::size_t i = 0; i < works.size(); ++i) try {
      works[i].wait();
    } catch (const PeerError& error) {
      const std::string text = join_text(error.what(), "; this rank waited for the gradients of ", bucket_name(i));
      if (!fault) fault = std::make_exception_ptr(PeerError(text));
    } catch (...) {
      if (!fault) fault = std::current_exception();
    }
  if (fault) std::rethrow_exception(fault);
}

void DataParallel::require_equal(const Tensor& x, const std::string& what) {
  const Tensor host = x.to(Device{});
  const std::vector<std::int64_t> sums = gather(*group_, checksum_of({host.bytes(), host.byte_size()}));
  for (int rank = 1; rank < group_->size(); ++rank)
    HEARTH_CHECK(PeerError, sums[static_cast<std::size_t>(rank)] == sums[0], what, ": ", who(*group_, rank),
                 " has other bits than ", who(*group_, 0));
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
