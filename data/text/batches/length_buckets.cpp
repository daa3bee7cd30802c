// SPDX-License-Identifier: Apache-2.0
#include "data/text/batches/length_buckets.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "data/loading/order.h"

namespace hearth::data {

LengthBuckets::LengthBuckets(std::int64_t samples, LengthOf padded_by, LengthOf sorted_by, BucketOptions chosen,
                             const LoaderOptions& options, const std::string& source, const char* what)
    : sorted_by_(std::move(sorted_by)), chosen_(std::move(chosen)), options_(options) {
  HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
  HEARTH_CHECK(ConfigError, chosen_.multiple >= 1 && chosen_.tokens_per_batch >= 0, what, ": multiple ",
               chosen_.multiple, ", tokens_per_batch ", chosen_.tokens_per_batch, " cannot be");
  HEARTH_CHECK(ConfigError, std::is_sorted(chosen_.buckets.begin(), chosen_.buckets.end()), what,
               ": the buckets are not in order");
  HEARTH_CHECK(DataError, samples < (std::int64_t{1} << 32), source, ": ", samples, " ", what,
               "; at most 2^32 - 1 can be addressed");
  fill_buckets(samples, padded_by);
  cut_buckets();
  HEARTH_CHECK(DataError, !cuts_.empty(), source, ": ", samples, " ", what,
               " give no whole batch; use a smaller batch");
}

void LengthBuckets::fill_buckets(std::int64_t samples, const LengthOf& padded_by) {
  if (!by_tokens()) {
    Bucket all;
    for (std::int64_t sample = 0; sample < samples; ++sample) all.samples.push_back(sample);
    all.rows = options_.batch_size;
    buckets_.push_back(std::move(all));
    return;
  }
  std::map<std::int64_t, Bucket> by_length;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t length = padded_by(sample);
    const auto named = std::lower_bound(chosen_.buckets.begin(), chosen_.buckets.end(), length);
    by_length[rounded_up(named != chosen_.buckets.end() ? *named : length, chosen_.multiple)].samples.push_back(sample);
  }
  for (auto& [length, bucket] : by_length) {
    bucket.rows = std::max<std::int64_t>(1, chosen_.tokens_per_batch / length);
    if (bucket.rows > chosen_.multiple) bucket.rows = bucket.rows / chosen_.multiple * chosen_.multiple;
    sort(bucket.samples, 0, static_cast<std::int64_t>(bucket.samples.size()));
    buckets_.push_back(std::move(bucket));
  }
}

void LengthBuckets::cut_buckets() {
  const std::int64_t multiple = chosen_.multiple;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto all = static_cast<std::int64_t>(buckets_[b].samples.size());
    for (std::int64_t first = 0; first < all; first += buckets_[b].rows) {
      std::int64_t rows = std::min(buckets_[b].rows, all - first);
      // What an epoch leaves out here is drawn anew in each; a bucket that gives no batch otherwise is one.
      const bool is_part = options_.drop_last && rows < buckets_[b].rows;
      if (is_part && !(by_tokens() && first == 0 && rows < multiple))
        rows = by_tokens() ? rows / multiple * multiple : 0;
      if (rows == 0) continue;
      cuts_.push_back({b, first, rows});
      buckets_[b].taken += rows;
      samples_ += rows;
    }
  }
}

std::vector<std::int64_t> LengthBuckets::stretch(const std::vector<std::int64_t>& order, const Cut& cut) {
  const auto first = order.begin() + static_cast<std::ptrdiff_t>(cut.first);
  return {first, first + static_cast<std::ptrdiff_t>(cut.rows)};
}

std::vector<std::int64_t> LengthBuckets::samples_of(std::int64_t epoch, std::int64_t index) const {
  const auto number = static_cast<std::size_t>(index);
  if (!options_.shuffle) return stretch(buckets_[cuts_[number].bucket].samples, cuts_[number]);
  const auto plan = plan_at(epoch);
  const Cut& cut = plan->cuts[number];
  return stretch(plan->orders[cut.bucket], cut);
}

void LengthBuckets::sort(std::vector<std::int64_t>& order, std::int64_t first, std::int64_t count) const {
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
  std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(count),
                   [&](std::int64_t a, std::int64_t b) { return sorted_by_(a) < sorted_by_(b); });
}

LengthBuckets::Plan LengthBuckets::plan_of(std::uint64_t epoch) const {
  Plan plan;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<std::int64_t> order = buckets_[b].samples;
    Random random = random_of(options_.seed, Purpose::order, epoch, static_cast<std::uint32_t>(b) + 1);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    if (by_tokens()) {
      const std::int64_t taken = buckets_[b].taken, chunk = buckets_[b].rows * batches_sorted;
      for (std::int64_t first = 0; first < taken; first += chunk) sort(order, first, std::min(chunk, taken - first));
    }
    plan.orders.push_back(std::move(order));
  }
  for (const std::int64_t cut : shuffled_order(per_epoch(), options_.seed, epoch))
    plan.cuts.push_back(cuts_[static_cast<std::size_t>(cut)]);
  return plan;
}

}  // namespace hearth::data
