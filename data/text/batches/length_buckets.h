// SPDX-License-Identifier: Apache-2.0
// Batches of sequences of about equal length, up to a number of positions.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/loading/batch_maker.h"

namespace hearth::data {

struct BucketOptions {
  std::int64_t tokens_per_batch = 0;    ///< positions of a batch, with padding; 0: rows as the loader's options say
  std::vector<std::int64_t> buckets{};  ///< lengths up to which rows go together, in order; empty: every multiple
  std::int64_t multiple = 8;            ///< of lengths, and of rows where there are that many
};

using LengthOf = std::function<std::int64_t(std::int64_t sample)>;

/// Sorts samples by length; equal ones stay in their order. Asks for each length once, and for memory only where a
/// stretch is longer than those before it.
class LengthSort {
 public:
  explicit LengthSort(const LengthOf& length) : length_(length) {}
  void operator()(std::span<std::int64_t> samples);

 private:
  struct Row {
    std::int64_t length, position, sample;
  };
  const LengthOf& length_;
  std::vector<Row> rows_;
};

/// Which samples a batch has. Each sample belongs to the bucket of its padded length; an epoch shuffles the samples
/// within buckets, sorts stretches of them, cuts them into batches, and shuffles the batches.
/// A plan is two flat arrays, whatever the number of batches. The constructor counts; the thread that needs the first
/// plan sorts the buckets.
class LengthBuckets {
 public:
  /// `padded_by` is the length that decides about the bucket, `sorted_by` the one that stretches are sorted by. `what`
  /// names the samples, for messages. ConfigError for a batch size below 1; DataError where there is no batch.
  LengthBuckets(std::int64_t samples, LengthOf padded_by, LengthOf sorted_by, BucketOptions chosen,
                const LoaderOptions& options, const std::string& source, const char* what);

  std::int64_t per_epoch() const { return static_cast<std::int64_t>(cuts_.size()); }
  std::int64_t samples_per_epoch() const { return samples_; }
  /// Works out an epoch ahead of its time, as BatchMaker::plan().
  void plan(std::int64_t epoch) const {
    if (options_.shuffle) (void)plan_at(epoch);
  }
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const;

 private:
  /// Samples that are padded alike: a stretch of an order of all samples, bucket after bucket.
  struct Bucket {
    std::int64_t length = 0;  ///< padded
    std::int64_t first = 0, count = 0;
    std::int64_t rows = 0;   ///< of its batches, but for the last
    std::int64_t taken = 0;  ///< rows of an epoch
  };
  /// The samples of a batch: a stretch of the order.
  struct Cut {
    std::int64_t first, rows;
  };
  struct Plan {
    std::vector<std::int64_t> order;  // of all samples
    std::vector<std::int64_t> cuts;   // of each batch, as index into cuts_
  };

  bool by_tokens() const { return chosen_.tokens_per_batch > 0; }
  std::int64_t padded_length(std::int64_t sample) const;
  void count_buckets();
  void cut_buckets();
  /// The order of an epoch that is not shuffled; worked out at the first call.
  const std::vector<std::int64_t>& base_order() const;
  void sort_buckets(std::vector<std::int64_t>& order) const;
  Plan plan_of(std::uint64_t epoch) const;
  ByEpoch<Plan>::Pointer plan_at(std::int64_t epoch) const {
    return plans_.of(epoch, [&] { return plan_of(static_cast<std::uint64_t>(epoch)); });
  }

  std::int64_t size_;
  LengthOf padded_by_, sorted_by_;
  BucketOptions chosen_;
  const LoaderOptions& options_;
  std::vector<Bucket> buckets_;
  std::vector<Cut> cuts_;  // in order
  std::int64_t samples_ = 0;
  mutable std::once_flag base_made_;
  mutable std::vector<std::int64_t> base_;
  ByEpoch<Plan> plans_;
};

}  // namespace hearth::data
