// SPDX-License-Identifier: Apache-2.0
// Batches of sequences of about equal length, up to a number of positions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/loading/batch_maker.h"

namespace hearth::data {

struct BucketOptions {
  std::int64_t tokens_per_batch = 0;    ///< positions of a batch, with padding; 0: rows as the loader's options say
  std::vector<std::int64_t> buckets{};  ///< lengths up to which rows go together, in order; empty: every multiple
  std::int64_t multiple = 8;            ///< of lengths, and of rows where there are that many
};

/// Which samples a batch has. Each sample belongs to the bucket of its padded length; an epoch shuffles the samples
/// within buckets, sorts stretches of them, cuts them into batches, and shuffles the batches.
class LengthBuckets {
 public:
  using LengthOf = std::function<std::int64_t(std::int64_t sample)>;

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
  /// Samples that are padded alike.
  struct Bucket {
    std::vector<std::int64_t> samples{};
    std::int64_t rows = 0;   ///< of its batches, but for the last
    std::int64_t taken = 0;  ///< rows of an epoch
  };
  /// Which samples a batch has: a stretch of a bucket's order.
  struct Cut {
    std::size_t bucket;
    std::int64_t first, rows;
  };
  struct Plan {
    std::vector<Cut> cuts;
    std::vector<std::vector<std::int64_t>> orders;  // of each bucket
  };

  bool by_tokens() const { return chosen_.tokens_per_batch > 0; }
  void fill_buckets(std::int64_t samples, const LengthOf& padded_by);
  void cut_buckets();
  void sort(std::vector<std::int64_t>& order, std::int64_t first, std::int64_t count) const;
  Plan plan_of(std::uint64_t epoch) const;
  ByEpoch<Plan>::Pointer plan_at(std::int64_t epoch) const {
    return plans_.of(epoch, [&] { return plan_of(static_cast<std::uint64_t>(epoch)); });
  }
  static std::vector<std::int64_t> stretch(const std::vector<std::int64_t>& order, const Cut& cut);

  LengthOf sorted_by_;
  BucketOptions chosen_;
  const LoaderOptions& options_;
  std::vector<Bucket> buckets_;
  std::vector<Cut> cuts_;  // in order
  std::int64_t samples_ = 0;
  ByEpoch<Plan> plans_;
};

}  // namespace hearth::data
