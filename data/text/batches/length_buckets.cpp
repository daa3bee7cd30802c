// SPDX-License-Identifier: Apache-2.0
#include "data/text/batches/length_buckets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "data/loading/order.h"

namespace hearth::data {
namespace {

std::span<std::int64_t> part(std::vector<std::int64_t>& order, std::int64_t first, std::int64_t count) {
  return std::span(order).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

void LengthSort::operator()(std::span<std::int64_t> samples) {
  rows_.clear();
  rows_.reserve(samples.size());
  for (const std::int64_t sample : samples)
    rows_.push_back({length_(sample), static_cast<std::int64_t>(rows_.size()), sample});
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return a.length != b.length ? a.length < b.length : a.position < b.position;
  });
  std::transform(rows_.begin(), rows_.end(), samples.begin(), [](const Row& row) { return row.sample; });
}

LengthBuckets::LengthBuckets(std::int64_t samples, LengthOf padded_by, LengthOf sorted_by, BucketOptions chosen,
                             const LoaderOptions& options, const std::string& source, const char* what)
    : size_(samples),
      padded_by_(std::move(padded_by)),
      sorted_by_(std::move(sorted_by)),
      chosen_(std::move(chosen)),
      options_(options) {
  HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
  HEARTH_CHECK(ConfigError, chosen_.multiple >= 1 && chosen_.tokens_per_batch >= 0, what, ": multiple ",
               chosen_.multiple, ", tokens_per_batch ", chosen_.tokens_per_batch, " cannot be");
  HEARTH_CHECK(ConfigError, std::is_sorted(chosen_.buckets.begin(), chosen_.buckets.end()), what,
               ": the buckets are not in order");
  HEARTH_CHECK(DataError, samples < (std::int64_t{1} << 32), source, ": ", samples, " ", what,
               "; at most 2^32 - 1 can be addressed");
  count_buckets();
  cut_buckets();
  HEARTH_CHECK(DataError, !cuts_.empty(), source, ": ", samples, " ", what,
               " give no whole batch; use a smaller batch");
}

std::int64_t LengthBuckets::padded_length(std::int64_t sample) const {
  if (!by_tokens()) return 0;
  const std::int64_t length = padded_by_(sample);
  const auto named = std::lower_bound(chosen_.buckets.begin(), chosen_.buckets.end(), length);
  return rounded_up(named != chosen_.buckets.end() ? *named : length, chosen_.multiple);
}

void LengthBuckets::count_buckets() {
  std::map<std::int64_t, std::int64_t> counts;
  if (by_tokens())
    for (std::int64_t sample = 0; sample < size_; ++sample) ++counts[padded_length(sample)];
  else if (size_ > 0)
    counts[0] = size_;
  std::int64_t first = 0;
  for (const auto& [length, count] : counts) {
    Bucket bucket{.length = length, .first = first, .count = count, .rows = options_.batch_size};
    if (by_tokens()) bucket.rows = std::max<std::int64_t>(1, chosen_.tokens_per_batch / length);
    if (by_tokens() && bucket.rows > chosen_.multiple) bucket.rows = bucket.rows / chosen_.multiple * chosen_.multiple;
    buckets_.push_back(bucket);
    first += count;
  }
}

void LengthBuckets::cut_buckets() {
  const std::int64_t multiple = chosen_.multiple;
  for (Bucket& bucket : buckets_) {
    for (std::int64_t first = 0; first < bucket.count; first += bucket.rows) {
      std::int64_t rows = std::min(bucket.rows, bucket.count - first);
      // What an epoch leaves out here is drawn anew in each; a bucket that gives no batch otherwise is one.
      const bool is_part = options_.drop_last && rows < bucket.rows;
      if (is_part && !(by_tokens() && first == 0 && rows < multiple))
        rows = by_tokens() ? rows / multiple * multiple : 0;
      if (rows == 0) continue;
      cuts_.push_back({bucket.first + first, rows});
      bucket.taken += rows;
      samples_ += rows;
    }
  }
}

const std::vector<std::int64_t>& LengthBuckets::base_order() const {
  std::call_once(base_made_, [&] {
    base_.resize(static_cast<std::size_t>(size_));
    std::iota(base_.begin(), base_.end(), std::int64_t{0});
    if (by_tokens()) sort_buckets(base_);
  });
  return base_;
}

void LengthBuckets::sort_buckets(std::vector<std::int64_t>& order) const {
  std::vector<std::int64_t> next;
  for (const Bucket& bucket : buckets_) next.push_back(bucket.first);
  for (std::int64_t sample = 0; sample < size_; ++sample) {
    const auto bucket = std::lower_bound(buckets_.begin(), buckets_.end(), padded_length(sample),
                                         [](const Bucket& a, std::int64_t length) { return a.length < length; });
    order[static_cast<std::size_t>(next[static_cast<std::size_t>(bucket - buckets_.begin())]++)] = sample;
  }
  LengthSort sort(sorted_by_);
  for (const Bucket& bucket : buckets_) sort(part(order, bucket.first, bucket.count));
}

std::vector<std::int64_t> LengthBuckets::samples_of(std::int64_t epoch, std::int64_t index) const {
  const auto number = static_cast<std::size_t>(index);
  const auto plan = options_.shuffle ? plan_at(epoch) : nullptr;
  const Cut& cut = cuts_[plan ? static_cast<std::size_t>(plan->cuts[number]) : number];
  const auto first = (plan ? plan->order : base_order()).begin() + static_cast<std::ptrdiff_t>(cut.first);
  return {first, first + static_cast<std::ptrdiff_t>(cut.rows)};
}

LengthBuckets::Plan LengthBuckets::plan_of(std::uint64_t epoch) const {
  Plan plan{base_order(), shuffled_order(per_epoch(), options_.seed, epoch)};
  LengthSort sort(sorted_by_);
  std::uint32_t number = 0;
  for (const Bucket& bucket : buckets_) {
    const std::span<std::int64_t> order = part(plan.order, bucket.first, bucket.count);
    Random random = random_of(options_.seed, Purpose::order, epoch, ++number);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    if (!by_tokens()) continue;
    const std::int64_t chunk = bucket.rows * batches_sorted;
    for (std::int64_t first = 0; first < bucket.taken; first += chunk)
      sort(order.subspan(static_cast<std::size_t>(first),
                         static_cast<std::size_t>(std::min(chunk, bucket.taken - first))));
  }
  return plan;
}

}  // namespace hearth::data
