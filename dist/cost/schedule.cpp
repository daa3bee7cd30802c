// SPDX-License-Identifier: Apache-2.0
#include "dist/cost/schedule.h"

#include <algorithm>
#include <cstddef>

namespace hearth::dist {
namespace {

class Schedule {
 public:
  explicit Schedule(const std::vector<BucketCost>& buckets) : buckets_(buckets) {}

  Forecast run(double compute) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      // What strategies compute, and their waits, put off what the backward pass has still to do.
      now_ = std::max(now_, buckets_[i].ready + delay_);
      const double before = now_;
      sums_.emplace_back();
      start_next(i);
      for (std::size_t k = 0; k < i; ++k)
        if (has_further(k)) go_on(k);
      delay_ += now_ - before;
    }
    now_ = std::max(now_, compute + delay_);
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      while (has_further(i)) go_on(i);
    for (std::size_t i = 0; i < buckets_.size(); ++i) wait(i);
    for (const BucketCost& bucket : buckets_) now_ += bucket.end;
    result_.seconds = now_;
    return result_;
  }

 private:
  struct Sum {
    std::size_t started = 0;  ///< stages
    double done = 0;          ///< when the last of these is
  };

  bool has_further(std::size_t i) const { return sums_[i].started < buckets_[i].stages.size(); }
  void wait(std::size_t i) {
    result_.exposed += std::max(0.0, sums_[i].done - now_);
    now_ = std::max(now_, sums_[i].done);
  }
  void start_next(std::size_t i) {
    const BucketCost::Stage& stage = buckets_[i].stages[sums_[i].started++];
    now_ += stage.compute;
    link_free_ = std::max(link_free_, now_) + stage.transfer;
    sums_[i].done = link_free_;
    result_.communication += stage.transfer;
  }
  void go_on(std::size_t i) {
    wait(i);
    start_next(i);
  }

  const std::vector<BucketCost>& buckets_;
  std::vector<Sum> sums_;
  double now_ = 0, delay_ = 0, link_free_ = 0;
  Forecast result_;
};

}  // namespace

Forecast forecast(double compute, const std::vector<BucketCost>& buckets) { return Schedule(buckets).run(compute); }

}  // namespace hearth::dist
