// SPDX-License-Identifier: Apache-2.0
#include "dist/host_group.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "core/error.h"
#include "dist/agreement.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"
#include "tests/support/slow_groups.h"

namespace hearth::dist::host_group_test {
namespace {

using test::failures_of_ranks;

/// As failures_of_ranks(), where nothing may fail.
void run_ranks(int size, const std::function<void(Collective&)>& f, const std::string& backend = "loopback") {
  for (const std::string& failure : failures_of_ranks(groups_of(backend, size), f)) EXPECT_EQ(failure, "");
}

/// What rank r holds before a sum; of all magnitudes, so that another order of adding gives other bits.
template <class T>
std::vector<T> numbers_of(int rank, std::int64_t count) {
  std::mt19937_64 bits(static_cast<std::uint64_t>(rank) * 977 + 3);
  std::vector<T> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const double magnitude = std::ldexp(1.0, static_cast<int>(bits() % 20) - 10);
    numbers.push_back(static_cast<T>(magnitude * (static_cast<double>(bits() >> 11) * 0x1p-52 - 1)));
  }
  return numbers;
}

/// The sum by pairs of neighbours, as collective.h promises.
template <class T>
T sum_by_pairs(std::vector<T> row) {
  while (row.size() > 1) {
    std::vector<T> half;
    for (std::size_t i = 0; i < row.size(); i += 2)
      half.push_back(i + 1 < row.size() ? static_cast<T>(row[i] + row[i + 1]) : row[i]);
    row = half;
  }
  return row[0];
}

struct Case {
  const char* backend;
  int ranks;
  std::int64_t count;
};
class HostGroups : public testing::TestWithParam<Case> {};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* backend : {"loopback", "shared memory", "tcp", "shared memory and tcp"})
    for (const auto& [ranks, count] : {std::pair<int, std::int64_t>{1, 5},
                                       {2, 1},
                                       {2, 5000},
                                       {3, 112},
                                       {3, 113},
                                       {4, 40000},
                                       {5, 3001},
                                       {8, 20},
                                       {8, 1000}})
      all.push_back({backend, ranks, count});
  return all;
}

TEST_P(HostGroups, SumsByPairsOfRanksWithTheSameBitsEverywhere) {
  const auto [backend, ranks, count] = GetParam();
  std::vector<std::vector<float>> of_ranks;
  for (int r = 0; r < ranks; ++r) of_ranks.push_back(numbers_of<float>(r, count));
  std::vector<float> expected;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::vector<float> row;
    for (const std::vector<float>& one : of_ranks) row.push_back(one[i]);
    expected.push_back(sum_by_pairs(row));
  }
  std::mutex mutex;
  std::vector<float> first;
  run_ranks(
      ranks,
      [&, count = count](Collective& group) {
        const Tensor x = Tensor::of({count}, numbers_of<float>(group.rank(), count));
        group.all_reduce(x).wait();
        const float* values = x.data<const float>();
        for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(values[i], expected[i]) << i;
        const std::lock_guard lock(mutex);
        if (first.empty()) first.assign(values, values + count);
        EXPECT_EQ(std::vector<float>(values, values + count), first);
      },
      backend);
}

TEST_P(HostGroups, GathersScattersAndBroadcasts) {
  const auto [backend, ranks, count] = GetParam();
  run_ranks(
      ranks,
      [n = count](Collective& group) {
        const int rank = group.rank(), size = group.size();
        const Tensor part = Tensor::full({n}, rank + 0.5), all = Tensor::zeros({n * size});
        group.all_gather(part, all).wait();
        for (std::int64_t i = 0; i < n * size; ++i)
          ASSERT_EQ(all.data<const float>()[i], static_cast<float>(i / n) + 0.5F);

        const Tensor sum = Tensor::zeros({n});
        group.reduce_scatter(all, sum).wait();
        for (std::int64_t i = 0; i < n; ++i)
          ASSERT_EQ(sum.data<const float>()[i], static_cast<float>(size) * (static_cast<float>(rank) + 0.5F));

        for (int root = 0; root < size; ++root) {
          const Tensor x = Tensor::full({n}, rank == root ? 7.0 + root : -1.0, DType::f64);
          group.broadcast(x, root).wait();
          for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(x.data<const double>()[i], 7.0 + root);
        }
      },
      backend);
}

TEST_P(HostGroups, EveryRankHasItsPieceOfEachOther) {
  const auto [backend, ranks, count] = GetParam();
  run_ranks(
      ranks,
      [n = count](Collective& group) {
        const int rank = group.rank(), size = group.size();
        const Tensor x = Tensor::zeros({n * size}, DType::i64), y = Tensor::zeros({n * size}, DType::i64);
        const auto value = [&](int from, int to, std::int64_t i) { return (from * size + to) * n + i; };
        for (int to = 0; to < size; ++to)
          for (std::int64_t i = 0; i < n; ++i) x.data<std::int64_t>()[to * n + i] = value(rank, to, i);
        group.all_to_all(x, y).wait();
        for (int from = 0; from < size; ++from)
          for (std::int64_t i = 0; i < n; ++i)
            ASSERT_EQ(y.data<const std::int64_t>()[from * n + i], value(from, rank, i)) << from;
      },
      backend);
}

// Every rank sends to all others before it receives anything, with collectives before and behind.
TEST_P(HostGroups, MessagesArriveInOrder) {
  const auto [backend, ranks, count] = GetParam();
  run_ranks(
      ranks,
      [n = count](Collective& group) {
        const int rank = group.rank(), size = group.size();
        const Tensor sum = Tensor::full({3}, 1), after = sum.clone();
        std::vector<Work> works{group.all_reduce(sum)};
        std::vector<Tensor> received;
        for (int round = 0; round < 3; ++round)
          for (int other = 0; other < size; ++other)
            if (other != rank) works.push_back(group.send(Tensor::full({n}, 100 * round + rank), other));
        for (int other = size; other-- > 0;)
          for (int round = 0; round < 3 && other != rank; ++round) {
            received.push_back(Tensor::zeros({n}));
            works.push_back(group.receive(received.back(), other));
          }
        works.push_back(group.all_reduce(after));
        for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
        auto next = received.begin();
        for (int other = size; other-- > 0;)
          for (int round = 0; round < 3 && other != rank; ++round, ++next)
            for (std::int64_t i = 0; i < n; ++i)
              ASSERT_EQ(next->data<const float>()[i], static_cast<float>(100 * round + other));
        EXPECT_EQ(sum.to_doubles(), std::vector<double>(3, size));
        EXPECT_EQ(after.to_doubles(), std::vector<double>(3, size));
      },
      backend);
}

INSTANTIATE_TEST_SUITE_P(All, HostGroups, testing::ValuesIn(cases()), [](const auto& one) {
  std::string name = join_text(one.param.backend, "_ranks", one.param.ranks, "_elements", one.param.count);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(HostGroup, MinimaMaximaAndIntegers) {
  run_ranks(3, [](Collective& group) {
    const std::int64_t r = group.rank();
    const Tensor low = Tensor::of<std::int64_t>({2}, {r, 10 - r}), high = low.clone(), sum = low.clone();
    const Work works[] = {group.all_reduce(low, Reduce::min), group.all_reduce(high, Reduce::max),
                          group.all_reduce(sum)};
    for (const Work& work : works) work.wait();
    EXPECT_EQ(low.to_doubles(), (std::vector<double>{0, 8}));
    EXPECT_EQ(high.to_doubles(), (std::vector<double>{2, 10}));
    EXPECT_EQ(sum.to_doubles(), (std::vector<double>{3, 27}));
  });
}

TEST(HostGroup, LowPrecisionOnTheWireSumsInF32) {
  // 1 + 2^-7 + 2^-7 ...: in bf16 each addend would be lost beside 256.
  constexpr std::int64_t count = 600;
  run_ranks(4, [&](Collective& group) {
    const Tensor x = Tensor::full({count}, group.rank() == 0 ? 256.0 : 1.0);
    group.all_reduce(x, Reduce::sum, DType::bf16).wait();
    // 259 lies between 258 and 260 in bf16: ties to even.
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(x.data<const float>()[i], 260.0F);
    const Tensor small = Tensor::full({3}, group.rank() == 0 ? 256.0 : 1.0);
    group.all_reduce(small, Reduce::sum, DType::bf16).wait();
    EXPECT_EQ(small.to_doubles(), (std::vector<double>{260, 260, 260}));
  });
}

TEST(HostGroup, ManyCollectivesAtOnceKeepTheirOrder) {
  run_ranks(3, [](Collective& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      tensors.push_back(Tensor::full({i % 2 == 0 ? 3 : 2000}, i));
      works.push_back(group.all_reduce(tensors.back()));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(tensors[static_cast<std::size_t>(i)].to_doubles()[1], 3 * i);
    group.barrier();
  });
}

TEST(HostGroup, DisagreementNamesBothCalls) {
  const std::vector<std::string> failures = failures_of_ranks(loopback_groups(3), [](Collective& group) {
    group.barrier();
    const Tensor x = Tensor::zeros({group.rank() == 1 ? 101 : 100});
    group.all_reduce(x).wait();
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("all_reduce of f32 [101] (sum), its collective number 2"), std::string::npos) << failure;
    EXPECT_NE(failure.find("all_reduce of f32 [100]"), std::string::npos) << failure;
    EXPECT_NE(failure.find("the ranks disagree: rank "), std::string::npos) << failure;
  }
}

TEST(HostGroup, EveryKindOfDisagreementIsNamed) {
  const std::function<void(Collective&)> others[] = {
      [](Collective& group) { group.all_reduce(Tensor::zeros({4}, DType::f64)).wait(); },
      [](Collective& group) { group.all_reduce(Tensor::zeros({4}), Reduce::max).wait(); },
      [](Collective& group) { group.all_reduce(Tensor::zeros({4}), Reduce::sum, DType::bf16).wait(); },
      [](Collective& group) { group.broadcast(Tensor::zeros({4})).wait(); },
      [](Collective& group) { group.all_gather(Tensor::zeros({2}), Tensor::zeros({4})).wait(); },
      [](Collective& group) { group.reduce_scatter(Tensor::zeros({4}), Tensor::zeros({2})).wait(); },
      [](Collective& group) { group.all_to_all(Tensor::zeros({4}), Tensor::zeros({4})).wait(); },
      [](Collective& group) { group.barrier(); },
  };
  for (const auto& other : others)
    for (const std::string& failure : failures_of_ranks(loopback_groups(2), [&](Collective& group) {
           if (group.rank() == 0)
             group.all_reduce(Tensor::zeros({4})).wait();
           else
             other(group);
         }))
      EXPECT_NE(failure.find("the ranks disagree: rank"), std::string::npos) << failure;
  for (const std::string& failure : failures_of_ranks(
           loopback_groups(2), [](Collective& group) { group.broadcast(Tensor::zeros({4}), group.rank()).wait(); }))
    EXPECT_NE(failure.find("from rank 1"), std::string::npos) << failure;
}

// Rank 0 sends f32 [5000]; rank 1 calls something else.
TEST(HostGroup, AMessageThatIsNotAwaitedIsNamed) {
  const std::function<void(Collective&)> others[] = {
      [](Collective& group) { group.receive(Tensor::zeros({5001}), 0).wait(); },
      [](Collective& group) { group.receive(Tensor::zeros({2}), 0).wait(); },
      [](Collective& group) { group.receive(Tensor::zeros({5000}, DType::i32), 0).wait(); },
      [](Collective& group) {
        group.receive(Tensor::zeros({50, 100}), 0).wait();
      },
      [](Collective& group) { group.all_reduce(Tensor::zeros({5000})).wait(); },
      [](Collective& group) { group.barrier(); },
  };
  for (const char* backend : {"loopback", "shared memory", "tcp", "shared memory and tcp"})
    for (const auto& other : others) {
      const std::vector<std::string> failures = failures_of_ranks(groups_of(backend, 2), [&](Collective& group) {
        set_status(group, join_text("step ", group.rank() + 6));
        if (group.rank() == 1) return other(group);
        // Until it hears of it.
        while (true) group.send(Tensor::zeros({5000}), 1).wait();
      });
      for (const std::string& failure : failures) {
        EXPECT_PRED2(test::contains, failure, "the ranks disagree: rank 0 ");
        EXPECT_PRED2(test::contains, failure,
                     "calls send of f32 [5000] to rank 1 at step 6, its message number 1 there; rank 1 ");
      }
    }
}

TEST(HostGroup, ACollectiveInPlaceOfAMessageIsNamed) {
  for (const std::string& failure : failures_of_ranks(loopback_groups(2), [](Collective& group) {
         group.barrier();
         if (group.rank() == 1) return group.receive(Tensor::zeros({3}), 0).wait();
         group.all_reduce(Tensor::zeros({3})).wait();
       })) {
    EXPECT_PRED2(test::contains, failure, "rank 0 calls all_reduce of f32 [3] (sum), its collective number 2");
    EXPECT_PRED2(test::contains, failure, "rank 1 calls receive of f32 [3] from rank 0, its message number 1 there");
  }
}

// Rank 0 waits for a message of rank 1, or with a large one for it.
TEST(HostGroup, ARankWithoutAMessageIsNamed) {
  for (const char* backend : {"loopback", "shared memory", "tcp", "shared memory and tcp"})
    for (const bool sends : {false, true}) {
      const std::vector<std::string> failures = failures_of_ranks(groups_of(backend, 3), [&](Collective& group) {
        group.barrier();
        if (group.rank() == 1) return group.abort("no memory");
        if (group.rank() == 2) return group.barrier();
        const Tensor x = Tensor::zeros({20'000'000});
        (sends ? group.send(x, 1) : group.receive(x, 1)).wait();
      });
      for (const int rank : {0, 2}) {
        EXPECT_PRED2(test::contains, failures[static_cast<std::size_t>(rank)], "rank 1 ");
        EXPECT_PRED2(test::contains, failures[static_cast<std::size_t>(rank)], "gave up: no memory");
      }
    }
}

TEST(HostGroup, OneProcessHasNobodyToSendTo) {
  Collective& alone = one_process();
  const Tensor x = Tensor::full({3}, 2), y = Tensor::zeros({3});
  alone.all_to_all(x, y).wait();
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(test::error_message<IndexError>([&] { (void)alone.send(x, 0); }),
            "send: rank 0 is no other one of 1 ranks; this is rank 0");
  EXPECT_THROW(alone.receive(x, 1), IndexError);
  EXPECT_THROW(alone.all_to_all(x, x), UsageError);
}

TEST(HostGroup, ARankThatLeavesOrGivesUpIsNamed) {
  for (const bool gives_up : {false, true})
    for (const std::int64_t count : {3, 5000}) {
      const std::vector<std::string> failures = failures_of_ranks(loopback_groups(3), [&](Collective& group) {
        group.barrier();
        if (group.rank() == 2) {
          if (gives_up) group.abort("no memory");
          return;
        }
        group.all_reduce(Tensor::zeros({count})).wait();
      });
      EXPECT_EQ(failures[2], "");
      for (int rank = 0; rank < 2; ++rank)
        EXPECT_PRED2(test::contains, failures[static_cast<std::size_t>(rank)],
                     gives_up ? "rank 2 gave up: no memory" : "rank 2 has left the group");
    }
}

TEST(HostGroup, AfterAFailureAllFails) {
  const std::vector<std::string> failures = failures_of_ranks(loopback_groups(2), [](Collective& group) {
    if (group.rank() == 1) return;
    const Work first = group.all_reduce(Tensor::zeros({3}));
    const Work second = group.broadcast(Tensor::zeros({3}));
    EXPECT_THROW(first.wait(), PeerError);
    EXPECT_THROW(second.wait(), PeerError);
    EXPECT_THROW(first.wait(), PeerError) << "a second time";
    group.barrier();
  });
  EXPECT_PRED2(test::contains, failures[0], "rank 1 has left the group");
}

TEST(HostGroup, TrafficHasWhatWasWaitedFor) {
  constexpr auto each = std::chrono::milliseconds(20);
  for (const std::string& failure : failures_of_ranks(test::slow_groups(2, each), [](Collective& group) {
         const Tensor x = Tensor::zeros({3000});
         group.all_reduce(x).wait();
         const Traffic waited = group.traffic();
         // The calls are compared, then pieces are exchanged, and sums of them.
         EXPECT_GE(waited.seconds, 0.06);
         EXPECT_GE(waited.exposed_seconds, 0.05);
         const Work work = group.all_reduce(x);
         while (!work.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
         work.wait();
         const Traffic hidden = group.traffic() - waited;
         EXPECT_GE(hidden.seconds, 0.06);
         EXPECT_LT(hidden.exposed_seconds, 0.01);
         EXPECT_EQ(hidden.bytes, waited.bytes);
       }))
    EXPECT_EQ(failure, "");
}

TEST(HostGroup, TrafficHasMessages) {
  for (const std::string& failure : failures_of_ranks(loopback_groups(2), [](Collective& group) {
         const Tensor x = Tensor::zeros({3000});
         group.barrier();
         std::vector<CollectiveSpan> spans;
         group.record_spans(&spans);
         const Traffic before = group.traffic();
         (group.rank() == 0 ? group.send(x, 1) : group.receive(x, 0)).wait();
         const Traffic traffic = group.traffic() - before;
         group.record_spans(nullptr);
         EXPECT_GT(traffic.seconds, 0);
         EXPECT_EQ(traffic.bytes >= 12000 && traffic.bytes < 13000, group.rank() == 0);
         ASSERT_EQ(spans.size(), 1U);
         EXPECT_STREQ(spans[0].what, group.rank() == 0 ? "send" : "receive");
         EXPECT_EQ(spans[0].bytes, traffic.bytes);
       }))
    EXPECT_EQ(failure, "");
}

TEST(HostGroup, BadArguments) {
  EXPECT_THROW(loopback_groups(0), UsageError);
  run_ranks(2, [](Collective& group) {
    EXPECT_THROW(group.all_reduce(Tensor()), UsageError);
    EXPECT_THROW(group.all_reduce(Tensor::zeros({2}, DType::boolean)), DTypeError);
    EXPECT_THROW(group.all_reduce(Tensor::zeros({2}, DType::f64), Reduce::sum, DType::bf16), DTypeError);
    EXPECT_THROW(group.all_reduce(Tensor::zeros({2}), Reduce::sum, DType::f64), DTypeError);
    const Tensor every_other = Tensor::view(Tensor::zeros({4}).storage(), {2}, {2}, 0, DType::f32, Device{});
    EXPECT_THROW(group.all_reduce(every_other), ShapeError);
    EXPECT_THROW(group.broadcast(Tensor::zeros({2}), 2), IndexError);
    EXPECT_THROW(group.broadcast(Tensor::zeros({2}), -1), IndexError);
    EXPECT_THROW(group.all_gather(Tensor::zeros({2}), Tensor::zeros({3})), ShapeError);
    EXPECT_THROW(group.reduce_scatter(Tensor::zeros({3}), Tensor::zeros({2})), ShapeError);
    EXPECT_THROW(group.reduce_scatter(Tensor::zeros({4}), Tensor::zeros({2}, DType::f64)), ShapeError);
    EXPECT_THROW(group.all_to_all(Tensor::zeros({4}), Tensor::zeros({2})), ShapeError);
    EXPECT_THROW(group.all_to_all(Tensor::zeros({3}), Tensor::zeros({3})), ShapeError);
    EXPECT_THROW(group.all_to_all(Tensor::zeros({4}), Tensor::zeros({4}, DType::f64)), ShapeError);
    const Tensor six = Tensor::zeros({6});
    const auto four_from = [&](std::int64_t begin) {
      return Tensor::view(six.storage(), {4}, {1}, begin, DType::f32, Device{});
    };
    EXPECT_THROW(group.all_to_all(four_from(0), four_from(2)), UsageError);
    EXPECT_THROW(group.send(Tensor(), 1 - group.rank()), UsageError);
    EXPECT_THROW(group.send(every_other, 1 - group.rank()), ShapeError);
    EXPECT_THROW(group.send(six, 2), IndexError);
    EXPECT_THROW(group.receive(six, -1), IndexError);
    EXPECT_THROW(group.receive(six, group.rank()), IndexError);
    group.barrier();
  });
}

TEST(HostGroup, LackOfMemoryIsToldInWords) {
  EXPECT_EQ(failure_text(std::bad_alloc()), "the system is out of memory on its machine");
  EXPECT_EQ(failure_text(DataError("a.png: damaged")), "a.png: damaged");
}

}  // namespace
}  // namespace hearth::dist::host_group_test
