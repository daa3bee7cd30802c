// SPDX-License-Identifier: Apache-2.0
#include "dist/gloo.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"

#if HEARTH_HAS_GLOO
namespace hearth::dist {
namespace {

using test::failures_of_ranks;

TEST(Gloo, ARankThatGivesUpInTheMiddleIsNamedByAll) {
  for (const std::int64_t count : {3, 100000}) {
    const std::vector<std::string> failures = failures_of_ranks(groups_of("gloo", 3), [&](Collective& group) {
      group.barrier();
      if (group.rank() == 2) return group.abort("no memory");
      const Tensor x = Tensor::zeros({count});
      group.all_reduce(x).wait();
    });
    EXPECT_EQ(failures[2], "");
    for (int rank = 0; rank < 2; ++rank) {
      const std::string& failure = failures[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(failure.starts_with("rank 2 (pid ")) << failure;
      EXPECT_NE(failure.find("gave up: no memory"), std::string::npos) << failure;
    }
  }
}

TEST(Gloo, DisagreementNamesBothCalls) {
  const std::vector<std::string> failures = failures_of_ranks(groups_of("gloo", 2), [](Collective& group) {
    const Tensor x = Tensor::zeros({group.rank() == 1 ? 2000 : 1000});
    group.all_reduce(x).wait();
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("all_reduce of f32 [1000]"), std::string::npos) << failure;
    EXPECT_NE(failure.find("all_reduce of f32 [2000]"), std::string::npos) << failure;
  }
}

// As a stranger would have who has connected to rank 0 before rank 1: a proof of something else.
TEST(Gloo, AConnectionThatProvesNothingIsRefused) {
  std::string message;
  for (int attempt = 0; attempt < 20 && message.empty(); ++attempt) {
    const ControlOptions options{.size = 3, .token = "t", .beat_seconds = 0.05};
    const ControlServer server("127.0.0.1", 0, options);
    std::atomic<bool> stop{false};
    std::thread misleads([&] {
      Control control("127.0.0.1", server.port(), 2, options, 5);
      while (!stop) {
        control.set("gloo proof/0", "of somebody else");
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    const auto connect = [&](int rank) {
      Control control("127.0.0.1", server.port(), rank, options, 5);
      try {
        (void)gloo_transport(control, 2, {.join_seconds = 5});
      } catch (const PeerError& error) {
        if (rank == 0) message = error.what();
      }
    };
    std::thread other(connect, 1);
    connect(0);
    other.join();
    stop = true;
    misleads.join();
  }
  EXPECT_EQ(message,
            "another process than rank 1 has connected to rank 0 in its stead; let nobody else onto the ranks' subnet");
}

TEST(Gloo, AnAddressOfNoInterfaceIsRefused) {
  const ControlOptions options{.size = 1, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  Control control("127.0.0.1", server.port(), 0, options, 5);
  EXPECT_THROW(gloo_transport(control, 1, {.address = "192.0.2.1"}), PeerError);
}

}  // namespace
}  // namespace hearth::dist
#else
namespace hearth::dist {
namespace {

TEST(Gloo, ABuildWithoutItSaysWhyTheRanksNeedIt) {
  const ControlOptions options{.size = 1, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  Control control("127.0.0.1", server.port(), 0, options, 5);
  EXPECT_EQ(test::error_message<UsageError>([&] { gloo_transport(control, 1, {.reason = "rank 1 is elsewhere"}); }),
            "dist: the ranks need Gloo: rank 1 is elsewhere; this build of Hearth has none, install libgloo-dev and "
            "build again");
}

}  // namespace
}  // namespace hearth::dist
#endif
