// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
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
#include "dist/zero/divided_sums.h"

namespace hearth::dist {
namespace {

constexpr double mebibyte = 1 << 20;

/// The bucket of each parameter.
std::vector<std::size_t> bucket_numbers(std::size_t parameters, const std::vector<Bucket>& buckets) {
  std::vector<std::size_t> from_the_end(buckets.size()), numbers(parameters);
  std::iota(from_the_end.begin(), from_the_end.end(), std::size_t{0});
  std::stable_sort(from_the_end.begin(), from_the_end.end(),
                   [&](std::size_t a, std::size_t b) { return buckets[a].begin > buckets[b].begin; });
  for (const std::size_t bucket : from_the_end)
    for (int i = 0; i < buckets[bucket].parameters; ++i) numbers[--parameters] = bucket;
  return numbers;
}

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
  HEARTH_CHECK(ConfigError, options_.zero >= 0 && options_.zero <= 3, "data parallel: zero ", options_.zero,
               "; it is 0, or 1 to divide the optimizer's state among the ranks, 2 to divide gradients too, or 3 to "
               "divide values too");
  HEARTH_CHECK(ConfigError, options_.zero < 2 || !options_.wire, "data parallel: zero ", options_.zero,
               " with a wire type; gradients that are divided travel as they are: leave the wire "
               "out, or use zero 1");
  HEARTH_CHECK(UsageError,
               options_.zero < 2
                   ? !parameters_->divides_grads()
                   : parameters_->divides_grads() && (options_.zero == 3) == parameters_->divides_values(),
               "data parallel: zero ", options_.zero,
               parameters_->divides_grads() ? ", but the parameters have a Division: use zero 2"
                                            : "; make the FlatParameters with a Division among this group");
  HEARTH_CHECK(ConfigError, !options_.compress || (!options_.wire && options_.zero == 0),
               "data parallel: compress with ", options_.wire ? "a wire type" : "zero",
               "; leave the one or the other out");
  buckets_ = buckets_of(*parameters_, options_);
  number_buckets();
  strategy_ = (options_.compress ? options_.compress : plain_sum(options_.wire))({*group_, *parameters_, buckets_});
  if (strategy_->reads_all()) overlap_ = options_.overlap = false;
  agree();
  if (const Shards* const shards = parameters_->shards(); shards != nullptr) {
    HEARTH_CHECK(
        UsageError, shards->group == group_ && options_.zero > 0,
        "data parallel: the parameters are divided among ranks, by LowPrecisionCopy::shards or a Division; give it "
        "this group and zero 1 or 2 here");
    parameters_->gather_values();
  } else {
    group_->broadcast(parameters_->values()).wait();
    if (parameters_->low_precision().defined()) parameters_->refresh_low_precision();
    if (options_.zero == 1) parameters_->shard_updates(*group_);
  }
  if (parameters_->divides_grads()) divided_ = std::make_unique<DividedSums>(*parameters_, options_.overlap);
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
  mine.emplace_back("compress", strategy_->name());
  for (const auto& [name, value] : strategy_->settings()) mine.emplace_back(join_text("compress.", name), value);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    mine.emplace_back(bucket_name(i), join_text(buckets_[i].size, " elements from ", buckets_[i].begin, " on"));
  require_same(*group_, "data parallel", mine, "every rank builds the same model, with the same options");
}

std::vector<DataParallel::Bucket> DataParallel::buckets_of(const FlatParameters& parameters,
                                                           const DataParallelOptions& options) {
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  const auto element = static_cast<double>(size_of(parameters.grads().dtype()));
  std::vector<Bucket> buckets;
  std::int64_t end = parameters.total();
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

std::vector<DataParallel::Bucket> DataParallel::buckets_of(const FlatParameters& parameters,
                                                           const DataParallelOptions& options,
                                                           const std::vector<double>& arrivals) {
  const std::vector<Bucket> buckets = buckets_of(parameters, options);
  const std::vector<double> ready = ready_times(parameters, buckets, arrivals);
  std::vector<std::size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ready[a] < ready[b]; });
  std::vector<Bucket> ordered;
  for (const std::size_t i : order) ordered.push_back(buckets[i]);
  return ordered;
}

std::vector<double> DataParallel::ready_times(const FlatParameters& parameters, const std::vector<Bucket>& buckets,
                                              const std::vector<double>& arrivals) {
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  HEARTH_CHECK(UsageError, arrivals.size() == entries.size(), "data parallel: ", arrivals.size(), " arrivals of ",
               entries.size(), " parameters");
  const std::vector<std::size_t> numbers = bucket_numbers(entries.size(), buckets);
  std::vector<double> ready(buckets.size());
  for (std::size_t i = 0; i < entries.size(); ++i) ready[numbers[i]] = std::max(ready[numbers[i]], arrivals[i]);
  return ready;
}

void DataParallel::use_buckets(double bucket_mb, const std::vector<double>& arrivals) {
  HEARTH_CHECK(UsageError, sums_.empty(), "data parallel: other buckets while sums are under way; call reduce() first");
  HEARTH_CHECK(UsageError, !options_.compress, "data parallel: other buckets with compress ", strategy_->name(),
               ", whose state is that of the buckets; make a new one");
  HEARTH_CHECK(ConfigError, std::isfinite(bucket_mb) && bucket_mb > 0, "data parallel: a bucket of ", bucket_mb,
               " MiB; sizes are above 0");
  options_.bucket_mb = bucket_mb;
  buckets_ = buckets_of(*parameters_, options_, arrivals);
  number_buckets();
  agree();
}

void DataParallel::number_buckets() {
  bucket_of_ = bucket_numbers(parameters_->entries().size(), buckets_);
  arrived_.assign(bucket_of_.size(), 0);
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.parameters);
}

std::string DataParallel::bucket_name(std::size_t number) const {
  return join_text("bucket ", number + 1, " of ", buckets_.size());
}

void DataParallel::overlap_next(bool on) {
  overlap_ = on && options_.overlap;
  if (on && std::exchange(times_next_, false)) clock_.begin(arrived_.size(), buckets_.size());
}

void DataParallel::discard() {
  if (divided_) divided_->discard();
  // The gradients' memory is theirs until they are done.
  for (const Sum& sum : sums_) try {
      sum.work.wait();
    } catch (const Error&) {  // nobody asks for the sums any more
    }
  forget();
  is_settled_ = true;
}

void DataParallel::forget() {
  sums_.clear();
  std::fill(arrived_.begin(), arrived_.end(), char{0});
  for (std::size_t i = 0; i < buckets_.size(); ++i) missing_[i] = buckets_[i].parameters;
}

void DataParallel::arrived(std::size_t entry) {
  if (divided_) return divided_->arrived(entry);
  clock_.arrived(entry);
  if (!overlap_) return;
  HEARTH_CHECK(UsageError, arrived_[entry] == 0,
               "data parallel: a second backward() before reduce(), which has "
               "begun to sum the gradients of the first; call overlap_next(false) before all but the last");
  arrived_[entry] = 1;
  --missing_[bucket_of_[entry]];
  clock_.hold([&] { start_ready(); });
}

// In order, so that it is the same on all ranks.
void DataParallel::start_ready() {
  while (sums_.size() < buckets_.size() && missing_[sums_.size()] == 0) start(sums_.size());
}

Tensor DataParallel::grads_of(std::size_t bucket) const {
  const Tensor& grads = parameters_->grads();
  const auto& [begin, size, parameters] = buckets_[bucket];
  return Tensor::view(grads.storage(), {size}, {1}, grads.offset() + begin, grads.dtype(), grads.device());
}

void DataParallel::begin_step() {
  HEARTH_CHECK(UsageError, is_settled_, "data parallel: compress ", strategy_->name(),
               " does not know what became of the last update; call update_made() after it, or discard() where it was "
               "skipped");
  // What had no part in the loss is zero.
  if (strategy_->reads_all())
    for (const FlatParameters::Entry& entry : parameters_->entries()) (void)grad_of(entry.value);
  strategy_->begin_step();
}

void DataParallel::start(std::size_t number) {
  std::optional<Marker> marker;
  if (Marker::is_on()) marker.emplace(lasting_text(bucket_name(number)));
  const std::vector<FlatParameters::Entry>& entries = parameters_->entries();
  sums_.push_back({clock_.stage(number, [&] {
    if (number == 0) begin_step();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (bucket_of_[i] == number) (void)grad_of(entries[i].value);
    return strategy_->begin(number, grads_of(number));
  })});
  for (std::size_t i = 0; i < number; ++i)
    if (has_further(i)) go_on(i);
}

void DataParallel::wait(std::size_t bucket) const {
  try {
    sums_[bucket].work.wait();
  } catch (const PeerError& error) {
    throw PeerError(join_text(error.what(), "; this rank waited for the gradients of ", bucket_name(bucket)));
  }
}

void DataParallel::go_on(std::size_t bucket) {
  wait(bucket);
  const auto next = [&] { return strategy_->next(bucket, grads_of(bucket)); };
  sums_[bucket] = {clock_.stage(bucket, next), sums_[bucket].stage + 1};
}

void DataParallel::reduce() {
  if (divided_) {
    divided_->reduce();
    overlapped_ = divided_->overlapped();
    return;
  }
  clock_.computed();
  overlapped_ = static_cast<int>(sums_.size());
  while (sums_.size() < buckets_.size()) start(sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i)
    while (has_further(i)) go_on(i);
  // All of them, so that none writes any more when this throws.
  std::exception_ptr fault;
  for (std::size_t i = 0; i < sums_.size(); ++i) try {
      wait(i);
    } catch (...) {
      if (!fault) fault = std::current_exception();
    }
  for (std::size_t i = 0; i < sums_.size() && !fault; ++i) clock_.end(i, [&] { strategy_->end(i, grads_of(i)); });
  clock_.stop();
  forget();
  if (fault) std::rethrow_exception(fault);
  is_settled_ = !strategy_->is_stateful();
}

void DataParallel::update_made() {
  if (!is_settled_) strategy_->commit();
  is_settled_ = true;
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
