// SPDX-License-Identifier: Apache-2.0
#include "dist/gloo.h"

#include <gtest/gtest.h>

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
