// SPDX-License-Identifier: Apache-2.0
// Collectives of CUDA tensors by NCCL: values, the order of sums and of streams, what is refused, and failures.
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/error.h"
#include "ops/ops.h"
#include "tests/reference_libraries/nccl/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"

namespace hearth::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Orders, CudaNccl, testing::Values("eager", "lazy", "7"));

/// What rank r holds before a sum; of all magnitudes, so that another order of adding gives other bits.
Tensor numbers_of(int rank, std::int64_t count, DType dtype, Device device = {}) {
  std::mt19937_64 bits(static_cast<std::uint64_t>(rank) * 977 + 3);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const double magnitude = std::ldexp(1.0, static_cast<int>(bits() % 20) - 10);
    numbers.push_back(magnitude * (static_cast<double>(bits() >> 11) * 0x1p-52 - 1));
  }
  return Tensor::of({count}, numbers).to(dtype).to(device);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device{}), y = b.to(Device{});
  return x.dtype() == y.dtype() && x.byte_size() == y.byte_size() &&
         std::memcmp(x.bytes(), y.bytes(), x.byte_size()) == 0;
}

/// The same collective of a loopback group.
std::vector<Tensor> on_the_host(int size, const std::function<Tensor(Collective&)>& f) {
  std::vector<Tensor> results(static_cast<std::size_t>(size));
  for (const std::string& failure : failures_of_ranks(dist::loopback_groups(size), [&](Collective& group) {
         results[static_cast<std::size_t>(group.rank())] = f(group);
       }))
    EXPECT_EQ(failure, "");
  return results;
}

/// f of the NCCL group gives the bits that it gives of the loopback group.
void expect_the_bits_of_the_host(int size, const std::function<Tensor(Collective&)>& f) {
  const std::vector<Tensor> expected = on_the_host(size, f);
  std::mutex mutex;
  run_ranks(size, [&](Collective& group) {
    const Tensor result = f(group);
    ASSERT_EQ(result.device(), gpu(group.rank()));
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(same_bits(result, expected[static_cast<std::size_t>(group.rank())])) << "rank " << group.rank();
  });
}

TEST_P(CudaNccl, SumsHaveTheBitsOfTheHostsGroups) {
  for (const int size : {1, 2, 3, 4})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{37}, std::int64_t{3001}}) {
        SCOPED_TRACE(join_text(size, " ranks, ", dtype, " [", count, "]"));
        expect_the_bits_of_the_host(size, [&](Collective& group) {
          const Tensor x = numbers_of(group.rank(), count, dtype, group.device());
          group.all_reduce(x).wait();
          return x;
        });
      }
}

TEST_P(CudaNccl, LowPrecisionOnTheWireSumsInF32) {
  for (const int size : {1, 2, 4})
    for (const DType wire : {DType::bf16, DType::f16})
      expect_the_bits_of_the_host(size, [&](Collective& group) {
        const Tensor x = numbers_of(group.rank(), 1000, DType::f32, group.device());
        group.all_reduce(x, Reduce::sum, wire).wait();
        return x;
      });
}

TEST_P(CudaNccl, MinimaMaximaAndIntegers) {
  for (const Reduce op : {Reduce::sum, Reduce::min, Reduce::max})
    for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::f32, DType::f16, DType::bf16}) {
      if (op == Reduce::sum && is_floating(dtype)) continue;
      expect_the_bits_of_the_host(3, [&](Collective& group) {
        const Tensor x = mul(numbers_of(group.rank(), 100, DType::f64).abs(), 0.2).to(dtype).to(group.device());
        group.all_reduce(x, op).wait();
        return x;
      });
    }
}

TEST_P(CudaNccl, GathersScattersAndBroadcasts) {
  for (const int size : {1, 2, 4}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      expect_the_bits_of_the_host(size, [&](Collective& group) {
        const Tensor x = numbers_of(group.rank(), 35 * size, dtype, group.device());
        const Tensor part = Tensor::empty({35}, dtype, group.device());
        group.reduce_scatter(x, part).wait();
        return part;
      });
    expect_the_bits_of_the_host(size, [&](Collective& group) {
      const Tensor all = Tensor::empty({35 * size}, DType::f16, group.device());
      group.all_gather(numbers_of(group.rank(), 35, DType::f16, group.device()), all).wait();
      return all;
    });
    expect_the_bits_of_the_host(size, [&](Collective& group) {
      const Tensor x = numbers_of(group.rank(), 35, DType::f64, group.device());
      group.broadcast(x, size - 1).wait();
      return x;
    });
  }
}

TEST_P(CudaNccl, ExchangesPiecesAndMessages) {
  for (const int size : {1, 2, 3})
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{5}, std::int64_t{3001}})
      expect_the_bits_of_the_host(size, [&](Collective& group) {
        const Tensor x = numbers_of(group.rank(), count * size, DType::bf16, group.device());
        const Tensor y = Tensor::empty_like(x);
        group.all_to_all(x, y).wait();
        return y;
      });
  // Round a ring, where rank 0 receives first.
  expect_the_bits_of_the_host(3, [&](Collective& group) {
    Tensor x = numbers_of(group.rank(), 3001, DType::f32, group.device());
    for (int round = 0; round < 2; ++round) {
      const Tensor y = Tensor::empty_like(x);
      const auto send = [&] { return group.send(x, (group.rank() + 1) % 3); };
      const auto receive = [&] { return group.receive(y, (group.rank() + 2) % 3); };
      const Work first = group.rank() == 0 ? receive() : send();
      const Work second = group.rank() == 0 ? send() : receive();
      first.wait();
      second.wait();
      x = y;
    }
    return x;
  });
}

// Ranks 0 and 1 exchange messages while rank 2 is elsewhere.
TEST_P(CudaNccl, MessagesConcernTwoRanks) {
  run_ranks(3, [&](Collective& group) {
    const Tensor x = Tensor::full({700}, group.rank() + 1, DType::f32, group.device());
    if (group.rank() == 0) {
      group.send(x, 1).wait();
      group.receive(x, 1).wait();
      EXPECT_EQ(x.to(Device{}).data<const float>()[699], 2);
      group.send(x, 2).wait();
    } else if (group.rank() == 1) {
      const Tensor y = Tensor::empty_like(x);
      group.receive(y, 0).wait();
      group.send(x, 0).wait();
      EXPECT_EQ(y.to(Device{}).data<const float>()[0], 1);
    } else {
      group.receive(x, 0).wait();
      EXPECT_EQ(x.to(Device{}).data<const float>()[0], 2);
    }
    group.all_reduce(x).wait();
  });
}

TEST_P(CudaNccl, AMessageOfAnotherSizeIsNamed) {
  for (const std::string& failure : failures_of_ranks(nccl_groups(2), [](Collective& group) {
         const Tensor x = Tensor::zeros({group.rank() == 1 ? 5 : 6}, DType::f32, group.device());
         if (group.rank() == 0) {
           group.send(x, 1).wait();
           group.barrier();
         } else {
           group.receive(x, 0).wait();
         }
       })) {
    EXPECT_NE(failure.find("rank 0 calls send of f32 [6] to rank 1, its message number 1 there"), failure.npos)
        << failure;
    EXPECT_NE(failure.find("rank 1 calls receive of f32 [5] from rank 0"), failure.npos) << failure;
  }
}

TEST_P(CudaNccl, WithoutOrderNcclAdds) {
  controls().all_reduces = controls().point_to_points = 0;
  std::vector<Tensor> results(4);
  run_ranks(4,
            [&](Collective& group) {
              const Tensor x = numbers_of(group.rank(), 1000, DType::f32, group.device());
              group.all_reduce(x).wait();
              results[static_cast<std::size_t>(group.rank())] = x.to(Device{});
            },
            {.ordered = false});
  EXPECT_EQ(controls().all_reduces, 4);
  EXPECT_EQ(controls().point_to_points, 0);
  const Tensor expected = on_the_host(4, [](Collective& group) {
    const Tensor x = numbers_of(group.rank(), 1000, DType::f32);
    group.all_reduce(x).wait();
    return x;
  })[0];
  for (const Tensor& result : results) {
    EXPECT_TRUE(same_bits(result, results[0]));
    for (std::int64_t i = 0; i < 1000; ++i)
      EXPECT_NEAR(result.data<const float>()[i], expected.data<const float>()[i], 1e-3);
  }
  // The reference adds in another order than Hearth, so that the tests above prove whose order it was.
  EXPECT_FALSE(same_bits(results[0], expected));
}

TEST_P(CudaNccl, TensorsOfTheHostGoByTheHost) {
  run_ranks(2, [&](Collective& group) {
    const Tensor x = Tensor::full({3}, group.rank() + 1.0);
    group.all_reduce(x).wait();
    EXPECT_EQ(x.data<const float>()[2], 3);
  });
  EXPECT_EQ(controls().all_reduces + controls().point_to_points + controls().others, 0);
}

// The collective comes after what was queued before it, and what is queued after wait() comes after the collective; the
// host waits for neither.
TEST_P(CudaNccl, KeepsTheOrderOfStreamsWithoutTheHost) {
  const std::int64_t before = cuda::counters().waits;
  std::vector<Tensor> results(2);
  run_ranks(2, [&](Collective& group) {
    Tensor x = Tensor::full({500}, 1, DType::f32, group.device());
    for (int i = 0; i < 20; ++i) {
      x.fill_(i + group.rank());
      const Work work = group.all_reduce(x);
      // Meanwhile: memory that comes and goes.
      const Tensor other = mul(Tensor::full({500}, 3, DType::f32, group.device()), 2.0);
      work.wait();
      work.wait();
      x = mul(x, 2.0);
    }
    results[static_cast<std::size_t>(group.rank())] = x;
  });
  EXPECT_EQ(cuda::counters().waits, before);
  for (const Tensor& x : results) {
    const Tensor host = x.to(Device{});
    for (std::int64_t i = 0; i < 500; ++i) ASSERT_EQ(host.data<const float>()[i], 2 * (19 + 20));
  }
}

// Nobody waits for the sum: its memory is given back all the same, and not used before the sum is there.
TEST_P(CudaNccl, WorkThatNobodyWaitsFor) {
  run_ranks(2, [&](Collective& group) {
    for (int i = 0; i < 5; ++i) {
      (void)group.all_reduce(Tensor::full({700}, 1, DType::f32, group.device()), Reduce::sum, DType::bf16);
      const Tensor next = Tensor::full({700}, 5, DType::f32, group.device());
      EXPECT_EQ(next.to(Device{}).data<const float>()[699], 5);
    }
  });
}

TEST_P(CudaNccl, IsRecordedAndReplayed) {
  run_ranks(2, [&](Collective& group) {
    cuda::Stream& stream = cuda::stream_of(group.device());
    const Tensor x = Tensor::full({1000}, 1, DType::f32, group.device());
    const Tensor y = Tensor::full({100}, 1, DType::f32, group.device());
    cuda::Arena arena(group.device());
    const auto step = [&] {
      const Work first = group.all_reduce(x), second = group.all_reduce(y, Reduce::sum, DType::bf16);
      first.wait();
      second.wait();
      x.copy_from(mul(x, 0.75));
    };
    arena.run(step);  // x: 1.5
    arena.run(step);  // x: 2.25
    const cuda::Graph graph = cuda::Graph::record(stream, arena, step);
    EXPECT_EQ(x.to(Device{}).data<const float>()[0], 2.25F);
    for (int i = 0; i < 3; ++i) graph.launch(stream);
    EXPECT_EQ(x.to(Device{}).data<const float>()[999], 2.25F * 1.5F * 1.5F * 1.5F);
    EXPECT_EQ(y.to(Device{}).data<const float>()[99], 32);
    arena.run(step);
    EXPECT_EQ(y.to(Device{}).data<const float>()[99], 64);
  });
}

TEST_P(CudaNccl, DisagreementNamesBothCalls) {
  for (const std::string& failure : failures_of_ranks(nccl_groups(3), [](Collective& group) {
         group.all_reduce(Tensor::zeros({group.rank() == 1 ? 5 : 6}, DType::f32, group.device())).wait();
       })) {
    EXPECT_NE(failure.find("the ranks disagree: rank "), failure.npos) << failure;
    EXPECT_NE(failure.find("rank 1 calls all_reduce of f32 [5] (sum), its collective number 1"), failure.npos)
        << failure;
    EXPECT_NE(failure.find("calls all_reduce of f32 [6] (sum)"), failure.npos) << failure;
  }
  EXPECT_EQ(controls().communicators, 0);
}

TEST_P(CudaNccl, EveryKindOfDisagreementIsNamed) {
  using Calls = std::function<void(Collective&)>;
  const auto zeros = [](Collective& group, std::int64_t size, DType dtype = DType::f32) {
    return Tensor::zeros({size}, dtype, group.device());
  };
  const std::pair<Calls, Calls> cases[] = {
      {[&](Collective& g) { g.all_reduce(zeros(g, 4)).wait(); },
       [&](Collective& g) { g.all_reduce(zeros(g, 4), Reduce::max).wait(); }},
      {[&](Collective& g) { g.all_reduce(zeros(g, 4)).wait(); },
       [&](Collective& g) { g.all_reduce(zeros(g, 4), Reduce::sum, DType::bf16).wait(); }},
      {[&](Collective& g) { g.all_reduce(zeros(g, 4)).wait(); },
       [&](Collective& g) { g.all_reduce(zeros(g, 4, DType::f64)).wait(); }},
      {[&](Collective& g) { g.broadcast(zeros(g, 4)).wait(); },
       [&](Collective& g) { g.broadcast(zeros(g, 4), 1).wait(); }},
      {[&](Collective& g) { g.broadcast(zeros(g, 4)).wait(); },
       [&](Collective& g) { g.all_gather(zeros(g, 2), zeros(g, 4)).wait(); }},
      {[&](Collective& g) { g.broadcast(zeros(g, 4)).wait(); }, [&](Collective& g) { g.barrier(); }}};
  for (const auto& [first, second] : cases)
    for (const std::string& failure : failures_of_ranks(
             nccl_groups(2), [&](Collective& group) { group.rank() == 0 ? first(group) : second(group); }))
      EXPECT_NE(failure.find("the ranks disagree: rank "), failure.npos) << failure;
}

// A rank waits for a sum that another does not come to.
TEST_P(CudaNccl, ARankThatGivesUpIsNamedWhileOthersWait) {
  const std::vector<std::string> failures = failures_of_ranks(nccl_groups(3), [](Collective& group) {
    const Tensor x = Tensor::zeros({100}, DType::f32, group.device());
    group.all_reduce(x).wait();
    if (group.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.abort("the test ends it");
      group.all_reduce(x).wait();
      return;
    }
    group.all_reduce(x).wait();
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "rank 2 gave up: the test ends it");
  EXPECT_EQ(controls().aborted, 3);
  EXPECT_EQ(controls().communicators, 0);
}

// Replays compare nothing on the host: those that wait do so on the device, until NCCL is aborted.
TEST_P(CudaNccl, AReplayThatWaitsForARankThatGaveUpEnds) {
  const std::vector<std::string> failures = failures_of_ranks(nccl_groups(2), [](Collective& group) {
    cuda::Stream& stream = cuda::stream_of(group.device());
    const Tensor x = Tensor::zeros({100}, DType::f32, group.device());
    cuda::Arena arena(group.device());
    const auto step = [&] { group.all_reduce(x).wait(); };
    arena.run(step);
    const cuda::Graph graph = cuda::Graph::record(stream, arena, step);
    if (group.rank() == 0) {
      graph.launch(stream);
      stream.wait();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.abort("the test ends it");
    }
    while (true) {
      group.all_reduce(x).wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "rank 1 gave up: the test ends it");
}

TEST_P(CudaNccl, AnAsynchronousErrorIsNamed) {
  const std::vector<std::string> failures = failures_of_ranks(nccl_groups(2), [](Collective& group) {
    const Tensor x = Tensor::zeros({100}, DType::f32, group.device());
    group.all_reduce(x).wait();
    if (group.rank() == 1) controls().async_error[1] = 6;  // ncclRemoteError
    while (true) {
      group.all_reduce(x).wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  for (const std::string& failure : failures)
    EXPECT_EQ(failure.find("rank 1 gave up: NCCL: remote process exited or there was a network error"), 0U) << failure;
  EXPECT_EQ(controls().aborted, 2);
}

TEST_P(CudaNccl, ACallThatNcclRefusesIsNamed) {
  const std::vector<std::string> failures = failures_of_ranks(nccl_groups(2), [](Collective& group) {
    const Tensor x = Tensor::zeros({100}, DType::i32, group.device());
    group.all_reduce(x).wait();
    if (group.rank() == 1) controls().refuses = 1;
    while (true) group.all_reduce(x).wait();
  });
  for (const std::string& failure : failures)
    EXPECT_EQ(failure.find("rank 1 gave up: NCCL: ncclAllReduce: unhandled system error: refused"), 0U) << failure;
}

TEST_P(CudaNccl, AfterAFailureAllFails) {
  const std::vector<std::string> failures = failures_of_ranks(nccl_groups(2), [](Collective& group) {
    const Tensor x = Tensor::zeros({4}, DType::f32, group.device());
    group.abort("the test ends it");
    std::string first;
    for (int i = 0; i < 3; ++i) {
      const std::string message = error_message<PeerError>([&] { group.all_reduce(x).wait(); });
      if (first.empty()) first = message;
      EXPECT_NE(message.find("gave up: the test ends it"), message.npos) << message;
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST_P(CudaNccl, ARankThatCannotBeginDoesNotKeepTheOthers) {
  controls().refuses = 1;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_message<std::runtime_error>([] { (void)nccl_groups(3); }),
            "rank 1 gave up: NCCL: ncclCommInitRank: unhandled system error: refused, as the test asks");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "the library waits for 30";
}

TEST_P(CudaNccl, TwoRanksOnOneDeviceAreRefused) {
  std::vector<std::unique_ptr<Collective>> hosts = dist::loopback_groups(2);
  std::vector<std::string> why(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back(
        [&, i] { why[i] = error_message<DeviceError>([&] { (void)dist::nccl_group(std::move(hosts[i]), gpu(1)); }); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : why)
    EXPECT_NE(text.find("ranks 0 and 1 have the same GPU; NCCL needs one for each rank"), text.npos) << text;
}

TEST_P(CudaNccl, AnOldLibraryIsRefused) {
  controls().version = 21212;
  const std::string why = dist::why_no_nccl();
  EXPECT_NE(why.find("is version 2.12.12; 2.14 or newer is needed"), why.npos) << why;
  EXPECT_NE(error_message<DeviceError>([] {
              (void)dist::nccl_group(std::move(dist::loopback_groups(1)[0]), gpu(0));
            }).find("2.14 or newer"),
            std::string::npos);
}

TEST_P(CudaNccl, BadArguments) {
  run_ranks(1, [](Collective& group) {
    const Device device = group.device();
    const auto zeros = [&](const Shape& shape, DType dtype = DType::f32) {
      return Tensor::zeros(shape, dtype, device);
    };
    EXPECT_THROW(group.all_reduce(Tensor()), UsageError);
    EXPECT_THROW(group.all_reduce(zeros({2}, DType::boolean)), DTypeError);
    EXPECT_THROW(group.all_reduce(zeros({2}, DType::f64), Reduce::sum, DType::bf16), DTypeError);
    EXPECT_THROW(group.all_reduce(zeros({2}), Reduce::sum, DType::f64), DTypeError);
    EXPECT_THROW(group.all_reduce(zeros({2, 3}).transpose(0, 1)), ShapeError);
    EXPECT_THROW(group.reduce_scatter(zeros({3}), zeros({2})), ShapeError);
    EXPECT_THROW(group.reduce_scatter(zeros({2}, DType::boolean), zeros({2}, DType::boolean)), DTypeError);
    EXPECT_THROW(group.all_gather(zeros({2}), zeros({2}, DType::f64)), ShapeError);
    EXPECT_THROW(group.broadcast(zeros({2}), 1), IndexError);
  });
}

}  // namespace
}  // namespace hearth::test
