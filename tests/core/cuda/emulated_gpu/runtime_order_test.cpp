// SPDX-License-Identifier: Apache-2.0
// Faults of ordering that a real GPU mostly hides, each beside its correct form: the correct one gives the same bits
// under every policy, the faulty one is found by the lazy policy or by one of a few seeds.
#include "tests/core/cuda/emulated_gpu/runtime_fixture.h"

namespace hearth::cuda::emulate::test::runtime_order_test {
namespace {

enum class Form { correct, faulty };
using Scenario = std::vector<float> (*)(Form);
constexpr std::size_t n = 37;

std::vector<float> wait_between_streams(Form form) {
  const Floats x(n), y(n);
  const Queue producer, consumer;
  set(producer, x, 3);
  if (form == Form::correct) order(producer, consumer);
  affine(consumer, y, 2, x, 1);
  std::vector<float> result(n);
  EXPECT_OK(cudaMemcpyAsync(result.data(), y.at, y.bytes(), cudaMemcpyDeviceToHost, consumer.raw));
  return result;
}

// A caching allocator that hands a freed block to another stream.
std::vector<float> block_given_to_second_stream(Form form) {
  const Floats block(n), first(n), second(n);
  const Queue a, b;
  set(a, block, 3);
  affine(a, first, 2, block, 0);
  if (form == Form::correct) order(a, b);
  set(b, block, 100);
  affine(b, second, 2, block, 0);
  std::vector<float> both = fetch(first);
  const std::vector<float> rest = fetch(second);
  both.insert(both.end(), rest.begin(), rest.end());
  return both;
}

std::vector<float> staging_refilled(Form form) {
  const Floats x(3 * n);
  const PinnedFloats staging(n);
  const Queue queue;
  const Event copied;
  for (std::size_t part = 0; part < 3; ++part) {
    for (std::size_t i = 0; i < n; ++i) staging.at[i] = static_cast<float>(part * n + i);
    EXPECT_OK(cudaMemcpyAsync(x.at + part * n, staging.at, staging.bytes(), cudaMemcpyHostToDevice, queue.raw));
    EXPECT_OK(cudaEventRecord(copied.raw, queue.raw));
    if (form == Form::correct) {
      EXPECT_OK(cudaEventSynchronize(copied.raw));
    }
  }
  return fetch(x);
}

std::vector<float> result_read_early(Form form) {
  const Floats x(n);
  const PinnedFloats result(n);
  const Queue queue;
  set(queue, x, 3);
  EXPECT_OK(cudaMemcpyAsync(result.at, x.at, x.bytes(), cudaMemcpyDeviceToHost, queue.raw));
  if (form == Form::correct) {
    EXPECT_OK(cudaStreamSynchronize(queue.raw));
  }
  return {result.at, result.at + n};
}

// Memory that is given back in the order of one stream while another still uses it.
std::vector<float> freed_in_wrong_stream(Form form) {
  const Floats y(n);
  const Queue a, b;
  float* block = nullptr;
  EXPECT_OK(cudaMallocAsync(reinterpret_cast<void**>(&block), n * sizeof(float), a.raw));
  EXPECT_OK(cudaMemsetAsync(block, 0, n * sizeof(float), a.raw));
  order(a, b);
  EXPECT_EQ(cudaMemcpyAsync(y.at, block, y.bytes(), cudaMemcpyDeviceToDevice, b.raw), cudaSuccess);
  if (form == Form::correct) order(b, a);
  cudaFreeAsync(block, a.raw);
  if (cudaDeviceSynchronize() != cudaSuccess) return {};
  return fetch(y);
}

// A loss scale, a learning rate: what changes between replays must lie on the device.
std::vector<float> value_frozen_into_graph(Form form) {
  const Floats weight(n), rate(1), one(1);
  const Queue queue;
  set(queue, weight, 0);
  set(queue, rate, 0);
  float host_rate = 0.5F;
  EXPECT_OK(cudaStreamBeginCapture(queue.raw, cudaStreamCaptureModeGlobal));
  enqueue_work(queue.raw, "update", [w = weight.at, from_device = rate.at, host_rate, form] {
    for (std::size_t i = 0; i < n; ++i) w[i] -= form == Form::correct ? *from_device : host_rate;
  });
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_OK(cudaStreamEndCapture(queue.raw, &graph));
  EXPECT_OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int step = 0; step < 4; ++step, host_rate /= 2) {
    EXPECT_OK(cudaMemcpyAsync(rate.at, &host_rate, sizeof host_rate, cudaMemcpyHostToDevice, queue.raw));
    EXPECT_OK(cudaGraphLaunch(exec, queue.raw));
  }
  const std::vector<float> result = fetch(weight);
  EXPECT_OK(cudaGraphExecDestroy(exec));
  EXPECT_OK(cudaGraphDestroy(graph));
  return result;
}

// A step that forks inside a capture: two branches of work that meet again.
std::vector<float> forked_graph(Form form) {
  const Floats x(n), left(n), right(n), sum(n);
  const Queue main, side;
  set(main, x, 1);
  EXPECT_OK(cudaStreamBeginCapture(main.raw, cudaStreamCaptureModeGlobal));
  affine(main, x, 2, x, 1);
  order(main, side);
  affine(main, left, 3, x, 0);
  affine(side, right, 5, x, 0);
  if (form == Form::correct) order(side, main);
  enqueue_work(main.raw, "add", [s = sum.at, l = left.at, r = right.at] {
    for (std::size_t i = 0; i < n; ++i) s[i] = l[i] + r[i];
  });
  if (form == Form::faulty) order(side, main);  // joined, but too late
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_OK(cudaStreamEndCapture(main.raw, &graph));
  EXPECT_OK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_OK(cudaGraphDestroy(graph));
  for (int step = 0; step < 2; ++step) EXPECT_OK(cudaGraphLaunch(exec, main.raw));
  const std::vector<float> result = fetch(sum);
  EXPECT_OK(cudaGraphExecDestroy(exec));
  return result;
}

struct Case {
  const char* name;
  Scenario scenario;
  bool eager_finds, lazy_finds;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr Case cases[] = {
    {"wait_between_streams", wait_between_streams, false, true},
    {"block_given_to_second_stream", block_given_to_second_stream, false, false},
    {"staging_refilled", staging_refilled, false, true},
    {"result_read_early", result_read_early, false, true},
    {"freed_in_wrong_stream", freed_in_wrong_stream, false, true},
    {"value_frozen_into_graph", value_frozen_into_graph, true, true},
    {"forked_graph", forked_graph, false, false},
};

class RuntimeOrder : public RuntimeTest, public testing::WithParamInterface<Case> {
 protected:
  std::vector<float> run(const StreamPolicy& policy, Form form) const {
    use_streams(policy);
    return GetParam().scenario(form);
  }
};

TEST_P(RuntimeOrder, CorrectFormGivesTheSameBitsUnderEveryPolicy) {
  const std::vector<float> expected = run(stream_policy_named("eager"), Form::correct);
  ASSERT_FALSE(expected.empty());
  for (const float value : expected) ASSERT_EQ(value, value) << "not a number";
  for (const StreamPolicy& policy : all_policies())
    EXPECT_TRUE(same_bits(run(policy, Form::correct), expected)) << name_of(policy);
}

TEST_P(RuntimeOrder, FaultyFormIsFound) {
  const std::vector<float> expected = run(stream_policy_named("eager"), Form::correct);
  EXPECT_EQ(!same_bits(run(stream_policy_named("eager"), Form::faulty), expected), GetParam().eager_finds);
  EXPECT_EQ(!same_bits(run(stream_policy_named("lazy"), Form::faulty), expected), GetParam().lazy_finds);
  int found = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    found += !same_bits(run({StreamPolicy::Kind::seeded, seed}, Form::faulty), expected);
  EXPECT_GE(found, 1);
  RecordProperty("seeds_that_find_it", found);
}

INSTANTIATE_TEST_SUITE_P(Faults, RuntimeOrder, testing::ValuesIn(cases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(RuntimeTest, PageableSourcesAreReadAtTheCall) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    const Floats x(n);
    const Queue queue;
    std::vector<float> host(n, 1.0F);
    EXPECT_OK(cudaMemcpyAsync(x.at, host.data(), x.bytes(), cudaMemcpyHostToDevice, queue.raw));
    host.assign(n, 2.0F);
    EXPECT_EQ(fetch(x), std::vector<float>(n, 1.0F)) << name_of(policy);
  }
}

TEST_F(RuntimeTest, CopiesToPageableMemoryMakeTheHostWait) {
  use_streams(stream_policy_named("lazy"));
  const Floats x(n);
  const Queue queue;
  set(queue, x, 1);
  std::vector<float> host(n);
  EXPECT_OK(cudaMemcpyAsync(host.data(), x.at, x.bytes(), cudaMemcpyDeviceToHost, queue.raw));
  EXPECT_EQ(host[n - 1], 1.0F + static_cast<float>(n - 1));
}

TEST_F(RuntimeTest, LazyRunsOnlyWhatIsWaitedFor) {
  use_streams(stream_policy_named("lazy"));
  int ran_a = 0, ran_b = 0;
  const Queue a, b;
  enqueue_work(a.raw, "a", [&] { ++ran_a; });
  enqueue_work(b.raw, "b", [&] { ++ran_b; });
  EXPECT_EQ(ran_a, 0);
  EXPECT_OK(cudaStreamSynchronize(b.raw));
  EXPECT_EQ(ran_a, 0);
  EXPECT_EQ(ran_b, 1);
  order(a, b);
  EXPECT_OK(cudaStreamSynchronize(b.raw));
  EXPECT_EQ(ran_a, 1);
}

TEST_F(RuntimeTest, AnEventStandsForItsLatestRecordingAtTheCall) {
  use_streams(stream_policy_named("lazy"));
  const Queue a, b;
  const Event event;
  std::string order_seen;
  EXPECT_OK(cudaStreamWaitEvent(b.raw, event.raw, 0));  // never recorded: nothing to wait for
  EXPECT_OK(cudaEventQuery(event.raw));
  enqueue_work(a.raw, "first", [&] { order_seen += '1'; });
  EXPECT_OK(cudaEventRecord(event.raw, a.raw));
  EXPECT_OK(cudaStreamWaitEvent(b.raw, event.raw, 0));
  enqueue_work(a.raw, "second", [&] { order_seen += '2'; });
  EXPECT_OK(cudaEventRecord(event.raw, a.raw));
  enqueue_work(b.raw, "third", [&] { order_seen += '3'; });
  EXPECT_OK(cudaStreamSynchronize(b.raw));
  EXPECT_EQ(order_seen, "13");
  EXPECT_OK(cudaEventSynchronize(event.raw));
  EXPECT_EQ(order_seen, "132");
}

TEST_F(RuntimeTest, PollingMakesProgress) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    const Queue queue;
    const Event event;
    int ran = 0;
    for (int i = 0; i < 5; ++i) enqueue_work(queue.raw, "count", [&] { ++ran; });
    EXPECT_OK(cudaEventRecord(event.raw, queue.raw));
    int polls = 0;
    while (cudaEventQuery(event.raw) == cudaErrorNotReady) ASSERT_LT(++polls, 100);
    EXPECT_EQ(ran, 5) << name_of(policy);
    cudaGetLastError();
    for (int i = 0; i < 5; ++i) enqueue_work(queue.raw, "count", [&] { ++ran; });
    while (cudaStreamQuery(queue.raw) == cudaErrorNotReady) ASSERT_LT(++polls, 100);
    EXPECT_EQ(ran, 10) << name_of(policy);
    cudaGetLastError();
  }
}

TEST_F(RuntimeTest, TheDefaultStreamIsOrderedWithBlockingStreamsOnly) {
  use_streams(stream_policy_named("lazy"));
  const Queue blocking(cudaStreamDefault), apart;
  std::string order_seen;
  enqueue_work(apart.raw, "apart", [&] { order_seen += 'x'; });
  enqueue_work(blocking.raw, "before", [&] { order_seen += '1'; });
  enqueue_work(nullptr, "default", [&] { order_seen += '2'; });
  EXPECT_OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(order_seen, "12");
  enqueue_work(nullptr, "default", [&] { order_seen += '2'; });
  enqueue_work(blocking.raw, "behind", [&] { order_seen += '3'; });
  EXPECT_OK(cudaStreamSynchronize(blocking.raw));
  EXPECT_EQ(order_seen, "1223");
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(order_seen, "1223x");
}

TEST_F(RuntimeTest, ADestroyedStreamStillRunsWhatItHolds) {
  use_streams(stream_policy_named("lazy"));
  int ran = 0;
  {
    const Queue queue;
    enqueue_work(queue.raw, "count", [&] { ++ran; });
  }
  { const Queue another; }
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(ran, 1);
}

TEST_F(RuntimeTest, AFullQueueMakesTheHostWait) {
  use_streams(stream_policy_named("lazy"));
  const Queue queue;
  int ran = 0;
  for (int i = 0; i < 12000; ++i) enqueue_work(queue.raw, "count", [&] { ++ran; });
  EXPECT_GT(ran, 3000);
  EXPECT_LT(ran, 12000);
  EXPECT_OK(cudaStreamSynchronize(queue.raw));
  EXPECT_EQ(ran, 12000);
}

TEST_F(RuntimeTest, SeedsRepeat) {
  const auto trace = [](std::uint64_t seed) {
    use_streams({StreamPolicy::Kind::seeded, seed});
    const Queue a, b;
    std::string seen;
    for (int i = 0; i < 10; ++i) {
      enqueue_work(a.raw, "a", [&] { seen += 'a'; });
      enqueue_work(b.raw, "b", [&] { seen += 'b'; });
    }
    cudaDeviceSynchronize();
    return seen;
  };
  EXPECT_EQ(trace(5), trace(5));
  EXPECT_NE(trace(5), trace(6));
}

TEST_F(RuntimeTest, ElapsedTimeIsBetweenTheMarks) {
  const Queue queue;
  const Event start(cudaEventDefault), end(cudaEventDefault), untimed;
  EXPECT_OK(cudaEventRecord(start.raw, queue.raw));
  EXPECT_OK(cudaEventRecord(end.raw, queue.raw));
  EXPECT_OK(cudaEventRecord(untimed.raw, queue.raw));
  EXPECT_OK(cudaStreamSynchronize(queue.raw));
  float milliseconds = -1;
  EXPECT_OK(cudaEventElapsedTime(&milliseconds, start.raw, end.raw));
  EXPECT_GE(milliseconds, 0);
  EXPECT_STATUS(cudaEventElapsedTime(&milliseconds, start.raw, untimed.raw), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace hearth::cuda::emulate::test::runtime_order_test
