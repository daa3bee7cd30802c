// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/record.h"
#include "core/error.h"
#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"

namespace hearth::dist::data_parallel_test {
namespace {

using test::failures_of_ranks;

/// y = sum of factor * x, an op of the test's own: dist knows no other.
struct ScaledSum {
  static constexpr OpInfo info{.name = "scaled_sum"};
  double factor;
  const std::function<void()>* before_backward = nullptr;
  struct Saved {
    Shape shape;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    double sum = 0;
    for (const double value : x.to_doubles()) sum += value;
    return Tensor::full({1}, factor * sum, x.dtype());
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    if (before_backward != nullptr) (*before_backward)();
    return {Tensor::full(saved.shape, factor * dy.item(), dy.dtype())};
  }
};
struct Add {
  static constexpr OpInfo info{.name = "add_of_test"};
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return Tensor::full({1}, a.item() + b.item(), a.dtype());
  }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {dy, dy}; }
};

/// Parameters p0, p1, ... of these sizes, each element `value`.
struct Net {
  Net(const std::vector<std::int64_t>& sizes, double value, const char* prefix = "p") {
    tensors.reserve(sizes.size());
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      tensors.push_back(requires_grad(Tensor::full({sizes[i]}, value)));
      named.push_back({prefix + std::to_string(i), &tensors.back()});
    }
    flat = std::make_unique<FlatParameters>(named);
  }
  /// The sum over the parameters but `without` of (i + 1) * factor * sum(p_i).
  Tensor loss(double factor, int without = -1) const {
    Tensor sum;
    for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
      if (i == without) continue;
      const Tensor term = record(ScaledSum{(i + 1) * factor}, tensors[static_cast<std::size_t>(i)]);
      sum = sum.defined() ? record(Add{}, sum, term) : term;
    }
    return sum;
  }
  double grad(std::size_t i) const { return grad_of(tensors[i]).to_doubles()[0]; }

  std::vector<Tensor> tensors;
  std::unique_ptr<FlatParameters> flat;
};

void run_ranks(int size, const std::function<void(Collective&)>& f) {
  for (const std::string& failure : failures_of_ranks(loopback_groups(size), f)) EXPECT_EQ(failure, "");
}

TEST(DataParallel, GivesAllRanksTheValuesOfRankZero) {
  run_ranks(3, [](Collective& group) {
    Net net({5, 3}, group.rank() + 1.0);
    DataParallel parallel(group, *net.flat);
    EXPECT_EQ(net.tensors[1].to_doubles(), (std::vector<double>{1, 1, 1}));
    parallel.require_equal(net.flat->values(), "values");
  });
}

TEST(DataParallel, BucketsLieFromTheEndAndTheFirstIsSmall) {
  run_ranks(1, [](Collective& group) {
    // Each parameter takes 64 KiB.
    Net net(std::vector<std::int64_t>(10, 16384), 0);
    DataParallel parallel(group, *net.flat, {.bucket_mb = 0.25, .first_bucket_mb = 0.06});
    std::vector<std::int64_t> begins;
    for (const DataParallel::Bucket& bucket : parallel.buckets()) begins.push_back(bucket.begin / 16384);
    EXPECT_EQ(begins, (std::vector<std::int64_t>{9, 5, 1, 0}));
    EXPECT_EQ(parallel.buckets()[1].size, 4 * 16384);
  });
}

TEST(DataParallel, AParameterThatFillsABucketHasItsOwn) {
  run_ranks(1, [](Collective& group) {
    // 16 KiB, 64 KiB, then three of 4 KiB.
    Net net({4096, 16384, 1024, 1024, 1024}, 0);
    DataParallel parallel(group, *net.flat, {.bucket_mb = 0.05, .first_bucket_mb = 0.001});
    std::vector<std::pair<std::int64_t, int>> buckets;
    for (const DataParallel::Bucket& bucket : parallel.buckets()) buckets.emplace_back(bucket.size, bucket.parameters);
    EXPECT_EQ(buckets, (std::vector<std::pair<std::int64_t, int>>{{1024, 1}, {2048, 2}, {16384, 1}, {4096, 1}}));
  });
}

TEST(DataParallel, BucketsCanBeMadeAnewInTheOrderOfArrival) {
  run_ranks(2, [](Collective& group) {
    // Each parameter takes 64 KiB.
    Net net(std::vector<std::int64_t>(8, 16384), 1);
    DataParallel parallel(group, *net.flat, {.bucket_mb = 0.06, .first_bucket_mb = 0.06});
    ASSERT_EQ(parallel.buckets().size(), 8U);
    // One, then pairs; the third from the end is complete last.
    parallel.use_buckets(0.12, {4, 4, 3, 3, 9, 2, 1, 1});
    std::vector<std::int64_t> begins;
    for (const DataParallel::Bucket& bucket : parallel.buckets()) begins.push_back(bucket.begin / 16384);
    EXPECT_EQ(begins, (std::vector<std::int64_t>{7, 5, 1, 0, 3}));
    for (int step = 0; step < 2; ++step) {
      net.flat->zero_grads();
      parallel.time_next_pass();
      parallel.overlap_next(true);
      backward(net.loss(1));
      parallel.reduce();
      EXPECT_EQ(parallel.overlapped(), 5);
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(net.grad(i), 2.0 * static_cast<double>(i + 1));
      const PassTimes& times = parallel.last_pass();
      EXPECT_EQ(times.stages.size(), 5U);
      for (const double arrival : times.arrivals) EXPECT_TRUE(arrival > 0 && arrival <= times.compute);
    }
    const double timed = parallel.last_pass().compute;
    net.flat->zero_grads();
    parallel.overlap_next(true);
    backward(net.loss(1));
    parallel.reduce();
    EXPECT_EQ(parallel.last_pass().compute, timed) << "nobody asked for the time of this one";
    EXPECT_THROW(parallel.use_buckets(0, std::vector<double>(8)), ConfigError);
    EXPECT_THROW(parallel.use_buckets(1, std::vector<double>(7)), UsageError);
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] {
                   DataParallel compressed(group, *net.flat, {.compress = plain_sum({})});
                   compressed.use_buckets(1, std::vector<double>(8));
                 }),
                 "whose state is that of the buckets");
  });
}

TEST(DataParallel, RanksWithOtherArrivalsAreNamed) {
  const auto failures = failures_of_ranks(loopback_groups(2), [](Collective& group) {
    Net net(std::vector<std::int64_t>(3, 16384), 1);
    DataParallel parallel(group, *net.flat);
    const double last = group.rank() == 0 ? 1 : 9;
    parallel.use_buckets(0.06, {2, last, 3});
  });
  for (const std::string& failure : failures) EXPECT_PRED2(test::contains, failure, "bucket 2 of 3");
}

/// Keeps what all_reduce() has started.
class Watched final : public Collective {
 public:
  explicit Watched(Collective& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const char* backend() const override { return group_.backend(); }
  Work all_reduce(const Tensor& x, Reduce op, std::optional<DType> wire) override {
    started.push_back(group_.all_reduce(x, op, wire));
    return started.back();
  }
  Work reduce_scatter(const Tensor& x, const Tensor& part) override { return group_.reduce_scatter(x, part); }
  Work all_gather(const Tensor& part, const Tensor& all) override { return group_.all_gather(part, all); }
  Work broadcast(const Tensor& x, int root) override { return group_.broadcast(x, root); }
  Work all_to_all(const Tensor& x, const Tensor& y) override { return group_.all_to_all(x, y); }
  Work send(const Tensor& x, int to) override { return group_.send(x, to); }
  Work receive(const Tensor& x, int from) override { return group_.receive(x, from); }
  void barrier() override { group_.barrier(); }
  void abort(const std::string& reason) override { group_.abort(reason); }

  std::vector<Work> started;

 private:
  Collective& group_;
};

TEST(DataParallel, TheFirstBucketIsReducedBeforeTheLastOpOfTheBackwardPass) {
  run_ranks(2, [](Collective& group) {
    Watched watched(group);
    Net net({3000, 3000, 3000}, 1);
    DataParallel parallel(watched, *net.flat, {.bucket_mb = 0.001, .first_bucket_mb = 0.001});
    watched.started.clear();
    bool waited = false;
    const std::function<void()> before_last = [&] {
      ASSERT_EQ(watched.started.size(), 2U);
      watched.started[0].wait();
      waited = true;
      EXPECT_EQ(net.grad(2), 9);  // 3 * (1 + 2), the sum of both ranks
    };
    Tensor sum = record(ScaledSum{1, &before_last}, net.tensors[0]);
    for (std::size_t i : {1U, 2U})
      sum = record(Add{}, sum, record(ScaledSum{(i + 1.0) * (group.rank() + 1)}, net.tensors[i]));
    backward(sum);
    EXPECT_TRUE(waited);
    parallel.reduce();
    EXPECT_EQ(net.grad(0), 2);
  });
}

TEST(DataParallel, SumsGradientsWhileTheBackwardPassGoesOn) {
  for (const bool overlap : {true, false})
    run_ranks(2, [&](Collective& group) {
      Net net({3000, 3000, 3000}, 1);
      DataParallel parallel(group, *net.flat, {.bucket_mb = 0.001, .first_bucket_mb = 0.001, .overlap = overlap});
      ASSERT_EQ(parallel.buckets().size(), 3U);
      for (int step = 0; step < 3; ++step) {
        net.flat->zero_grads();
        backward(net.loss(group.rank() + 1 + step));
        parallel.reduce();
        EXPECT_EQ(parallel.overlapped(), overlap ? 3 : 0);
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(net.grad(i), static_cast<double>(i + 1) * (3 + 2 * step));
      }
    });
}

TEST(DataParallel, TrafficIsWhatTheBucketsSumToOnTheWire) {
  constexpr std::int64_t elements = 3008, buckets = 3;  // whole cache lines, so that nothing lies between them
  for (const std::optional<DType> wire : {std::optional<DType>{}, std::optional(DType::bf16)})
    for (const int ranks : {1, 2, 3}) {
      std::atomic<std::int64_t> sent{0};
      run_ranks(ranks, [&](Collective& group) {
        Net net(std::vector<std::int64_t>(buckets, elements), 1);
        DataParallel parallel(group, *net.flat, {.bucket_mb = 0.001, .first_bucket_mb = 0.001, .wire = wire});
        ASSERT_EQ(parallel.buckets().size(), static_cast<std::size_t>(buckets));
        const std::int64_t before = group.traffic().bytes;
        group.barrier();
        // A barrier is what the ranks compare before each collective.
        const std::int64_t comparison = group.traffic().bytes - before;
        EXPECT_EQ(comparison > 0, ranks > 1);
        backward(net.loss(1));
        parallel.reduce();
        sent += group.traffic().bytes - before - (1 + buckets) * comparison;
      });
      // Each element goes to the rank that adds it up, and its sum to all others.
      EXPECT_EQ(sent, 2 * (ranks - 1) * buckets * elements * (wire ? 2 : 4)) << ranks << " ranks";
    }
}

TEST(DataParallel, AnAccumulationSumsOnceAtItsEnd) {
  run_ranks(2, [](Collective& group) {
    Net net({300, 20}, 1);
    DataParallel parallel(group, *net.flat);
    parallel.overlap_next(false);
    backward(net.loss(1));
    backward(net.loss(2));
    parallel.overlap_next(true);
    backward(net.loss(group.rank()));
    parallel.reduce();
    EXPECT_EQ(net.grad(0), 7);
    EXPECT_EQ(net.grad(1), 14);
  });
}

TEST(DataParallel, AParameterWithoutPartInTheLossCountsAsZero) {
  // On one rank, and on all, with leftovers of the step before in its gradient.
  for (const int with_it : {0, 1})
    run_ranks(2, [&](Collective& group) {
      Net net({30, 20, 10}, 1);
      DataParallel parallel(group, *net.flat, {.bucket_mb = 1e-5, .first_bucket_mb = 1e-5});
      backward(net.loss(5));
      parallel.reduce();
      net.flat->zero_grads();
      backward(net.loss(1, group.rank() < with_it ? -1 : 1));
      parallel.reduce();
      // Before an update: must not forget the other rank's part.
      net.flat->finish_grads();
      EXPECT_EQ(net.grad(0), 2);
      EXPECT_EQ(net.grad(1), 2 * with_it);
      EXPECT_EQ(net.grad(2), 6);
    });
}

TEST(DataParallel, LowPrecisionOnTheWire) {
  run_ranks(2, [](Collective& group) {
    Net net({400}, 1);
    DataParallel parallel(group, *net.flat, {.wire = DType::bf16});
    backward(net.loss(1 + 0x1p-10));
    parallel.reduce();
    EXPECT_EQ(net.grad(0), 2);
  });
}

TEST(DataParallel, OtherParametersAreNamed) {
  const auto failure = [](const std::function<Net(int)>& net_of) {
    const std::vector<std::string> failures = failures_of_ranks(loopback_groups(3), [&](Collective& group) {
      const Net net = net_of(group.rank());
      DataParallel parallel(group, *net.flat);
    });
    EXPECT_NE(failures[0], "");
    EXPECT_NE(failures[2], "");
    return failures[1];
  };
  const std::string remedy = "; every rank builds the same model, with the same options";
  EXPECT_EQ(failure([](int rank) { return Net(std::vector<std::int64_t>(rank == 1 ? 3 : 2, 5), 0); }),
            "data parallel: rank 1 has parameters 3, rank 0 has 2; bucket 1 of 1 48 elements from 0 on, rank 0 has 32 "
            "elements from 0 on; parameter 2 \"p2\" f32 [5], rank 0 has nothing" +
                remedy);
  EXPECT_EQ(failure([](int rank) {
              return Net({5, rank == 1 ? 6 : 7}, 0);
            }),
            "data parallel: rank 1 has parameter 1 \"p1\" f32 [6], rank 0 has \"p1\" f32 [7]" + remedy);
  EXPECT_EQ(failure([](int rank) { return Net({5}, 0, rank == 2 ? "q" : "p"); }),
            "data parallel: rank 2 has parameter 0 \"q0\" f32 [5], rank 0 has \"p0\" f32 [5]" + remedy);
}

TEST(DataParallel, OtherBitsAreNamed) {
  const std::vector<std::string> failures = failures_of_ranks(loopback_groups(3), [](Collective& group) {
    Net net({5}, 0);
    DataParallel parallel(group, *net.flat);
    parallel.require_equal(Tensor::full({2}, group.rank() == 2 ? -0.0 : 0.0), "the moments");
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "the moments: rank 2 has other bits than rank 0");
}

TEST(DataParallel, ASecondBackwardBeforeReduceIsRefused) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the fault is a race: gradients are written while they are summed";
#endif
  run_ranks(1, [](Collective& group) {
    Net net({5}, 0);
    DataParallel parallel(group, *net.flat);
    backward(net.loss(1));
    EXPECT_THROW(backward(net.loss(1)), UsageError);
    EXPECT_THROW(DataParallel(group, *net.flat, {.bucket_mb = 0}), ConfigError);
    EXPECT_THROW(DataParallel(group, *net.flat, {.first_bucket_mb = -1}), ConfigError);
    EXPECT_THROW(DataParallel(group, *net.flat, {.bucket_mb = NAN}), ConfigError);
  });
}

// The sums that have begun are done before the gradients are written anew.
TEST(DataParallel, DiscardedSumsDoNotReachTheNextGradients) {
  run_ranks(2, [](Collective& group) {
    const Net net({3}, 1);
    DataParallel parallel(group, *net.flat);
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    backward(net.loss(100));
    parallel.discard();
    net.flat->zero_grads();
    backward(net.loss(1));
    parallel.reduce();
    EXPECT_EQ(net.grad(0), 2);
  });
}

TEST(DataParallel, ARankThatDiesFailsTheOthersReduce) {
  // A rank that is still comparing the parameters would fail there.
  std::barrier constructed(3);
  const std::vector<std::string> failures = failures_of_ranks(loopback_groups(3), [&](Collective& group) {
    Net net({5}, 0);
    DataParallel parallel(group, *net.flat);
    constructed.arrive_and_wait();
    if (group.rank() == 1) return group.abort("the loss is nan");
    backward(net.loss(1));
    parallel.reduce();
  });
  EXPECT_EQ(failures[0], "rank 1 gave up: the loss is nan; this rank waited for the gradients of bucket 1 of 1");
  EXPECT_EQ(failures[2], failures[0]);
}

TEST(PairwiseSum, HasTheSameBitsHoweverTheTermsAreSpread) {
  constexpr std::int64_t elements = 37;
  const auto term = [](std::int64_t index) {
    std::mt19937_64 bits(static_cast<std::uint64_t>(index));
    std::vector<float> values;
    for (std::int64_t i = 0; i < elements; ++i)
      values.push_back(std::ldexp(static_cast<float>(bits() >> 40), static_cast<int>(bits() % 40) - 40));
    return Tensor::of({elements}, values);
  };
  for (const std::int64_t terms : {1, 2, 3, 5, 8, 16, 24}) {
    std::vector<std::vector<double>> sums;
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const std::int64_t each = terms / ranks;
      if (terms % ranks != 0 || (ranks > 1 && (each & (each - 1)) != 0)) continue;
      std::mutex mutex;
      run_ranks(ranks, [&](Collective& group) {
        const Tensor sum = Tensor::zeros({elements});
        PairwiseSum pairwise(sum);
        for (int step = 0; step < 2; ++step)
          for (std::int64_t i = 0; i < each; ++i) {
            sum.copy_from(term(group.rank() * each + i));
            pairwise.add(i, each);
          }
        group.all_reduce(sum).wait();
        const std::lock_guard lock(mutex);
        sums.push_back(sum.to_doubles());
      });
    }
    for (const std::vector<double>& one : sums) EXPECT_EQ(one, sums[0]) << terms << " terms";
    // And it is the sum.
    for (std::size_t i = 0; i < elements; ++i) {
      double exact = 0;
      for (std::int64_t t = 0; t < terms; ++t) exact += term(t).to_doubles()[i];
      EXPECT_NEAR(sums[0][i], exact, 1e-6 * exact);
    }
  }
}

}  // namespace
}  // namespace hearth::dist::data_parallel_test
