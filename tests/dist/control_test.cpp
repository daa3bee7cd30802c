// SPDX-License-Identifier: Apache-2.0
#include "dist/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"

namespace hearth::dist::control_test {
namespace {

const ControlOptions two{.size = 2, .token = "secret", .beat_seconds = 0.02};

/// A server on this machine, and how its ranks reach it.
struct Group {
  explicit Group(ControlOptions chosen = two) : options(chosen), server("127.0.0.1", 0, chosen) {}
  std::unique_ptr<Control> join(int rank) const { return join(rank, options); }
  std::unique_ptr<Control> join(int rank, const ControlOptions& mine) const {
    return std::make_unique<Control>("127.0.0.1", server.port(), rank, mine, 20);
  }
  ControlOptions options;
  ControlServer server;
};

TEST(Hmac, IsThatOfRfc4231) {
  const auto hex = [](const std::string& bytes) {
    std::string text;
    for (const char c : bytes) {
      text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
      text += "0123456789abcdef"[c & 15];
    }
    return text;
  };
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Frames, AreTakenOneByOneAndLimited) {
  std::string bytes = framed(Frame::set, "abc") + framed(Frame::beat, "");
  std::string more;
  bool broken = false;
  std::vector<std::string> seen;
  for (const char c : bytes) {
    more += c;
    while (const auto frame = take_frame(more, 100, broken)) seen.push_back(frame->second);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"abc", ""}));
  EXPECT_FALSE(broken);
  for (const std::string& bad : {std::string(4, '\0'), std::string("\xff\xff\xff\xff")}) {
    std::string copy = bad;
    EXPECT_FALSE(take_frame(copy, 100, broken));
    EXPECT_TRUE(broken);
  }
}

TEST(ControlGroup, PassesValues) {
  const Group group;
  const auto a = group.join(0), b = group.join(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    a->set("where", std::string("a\0b", 3));
  });
  EXPECT_EQ(b->get("where"), std::string("a\0b", 3)) << "waits until it is set";
  later.join();
  EXPECT_EQ(a->get("where").size(), 3U);
  EXPECT_THROW(b->get("never", 0.05), PeerError);
  EXPECT_EQ(a->local_address(), "127.0.0.1");
}

TEST(ControlGroup, RanksThatLeaveFailNobody) {
  Group group;
  auto a = group.join(0), b = group.join(1);
  a.reset();
  EXPECT_EQ(b->failure(0.2), "");
  EXPECT_FALSE(group.server.wait_for_end(0));
  b.reset();
  EXPECT_TRUE(group.server.wait_for_end(5));
}

TEST(ControlGroup, ARankThatGivesUpIsNamedToAll) {
  const Group group;
  const auto a = group.join(0), b = group.join(1);
  std::string called;
  std::promise<void> told;
  a->on_failure(&a, [&](const std::string& reason) {
    called = reason;
    told.set_value();
  });
  b->give_up("the loss is nan");
  const std::string reason = a->failure(5);
  EXPECT_TRUE(reason.starts_with("rank 1 (pid ")) << reason;
  EXPECT_TRUE(reason.ends_with(") gave up: the loss is nan")) << reason;
  told.get_future().get();
  EXPECT_EQ(called, reason);
  EXPECT_EQ(b->failure(), "rank 1 gave up: the loss is nan");
  EXPECT_THROW(a->get("never"), PeerError);
  std::string late;
  a->on_failure(&a, [&](const std::string& text) { late = text; });
  EXPECT_EQ(late, reason) << "who asks late is told at once";
}

TEST(ControlGroup, ARankThatEndsBeforeItJoinsIsNamedToAll) {
  Group group;
  const auto a = group.join(0);
  group.server.ended(0, "what a rank that has joined does tells its connection");
  EXPECT_EQ(a->failure(0.2), "");
  group.server.ended(1, "rank 1 (pid 4711) ended with code 137 before it joined");
  EXPECT_EQ(a->failure(5), "rank 1 (pid 4711) ended with code 137 before it joined");
}

TEST(ControlGroup, ARankThatDiesIsNamedWithWhatItDidLast) {
  const Group group;
  const auto a = group.join(0);
  Socket b = join_by_hand(group.server.port(), request_of(1, 2), "secret");
  const std::string beat = framed(Frame::beat, "step 12");
  ASSERT_TRUE(send_fully(b, std::as_bytes(std::span(beat)), in_seconds(5)));
  const auto start = std::chrono::steady_clock::now();
  b = Socket();
  EXPECT_EQ(a->failure(5), "rank 1 (pid 77 on node9) died, last seen at step 12");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(ControlGroup, SilenceIsWarnedOfAndEndsTheGroup) {
  ControlOptions options = two;
  options.warn_seconds = 0.15;
  options.give_up_seconds = 0.6;
  const Group group(options);
  auto a = group.join(0);
  std::mutex mutex;
  std::vector<std::string> warnings;
  a->on_warning([&](const std::string& text) {
    const std::lock_guard lock(mutex);
    warnings.push_back(text);
  });
  JoinRequest request = request_of(1, 2);
  request.give_up_seconds = options.give_up_seconds;
  const Socket b = join_by_hand(group.server.port(), request, "secret");
  // Silent, there again, silent for good.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const std::string beat = framed(Frame::beat, "");
  ASSERT_TRUE(send_fully(b, std::as_bytes(std::span(beat)), in_seconds(5)));
  EXPECT_EQ(a->failure(5), "rank 1 (pid 77 on node9) gave no sign of life for 0.6 s");
  a.reset();
  EXPECT_TRUE(group.server.wait_for_end(1)) << "nobody waits for a rank that is lost";
  const std::lock_guard lock(mutex);
  ASSERT_GE(warnings.size(), 2U);
  EXPECT_EQ(warnings[0], "rank 1 (pid 77 on node9) has given no sign of life for 0.15 s");
  EXPECT_EQ(warnings[1], "rank 1 (pid 77 on node9) is there again");
}

TEST(ControlGroup, TheEndOfTheServerIsNoticed) {
  ControlOptions options = two;
  options.server = "rank 0";
  auto group = std::make_unique<Group>(options);
  const auto a = group->join(1);
  group.reset();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(a->failure(5),
            join_text("rank 0 (pid ", getpid(), " on ", host, ") died or ended; it had the server of the group"));
}

TEST(ControlGroup, ASilentServerIsNamed) {
  ControlOptions options = two;
  options.server = "rank 0";
  options.beat_seconds = 60;
  const Group group(options);
  ControlOptions mine = options;
  mine.beat_seconds = 0.02;
  mine.give_up_seconds = 0.2;
  const auto a = group.join(1, mine);
  const std::string reason = a->failure(5);
  EXPECT_TRUE(reason.starts_with("rank 0 (pid ")) << reason;
  EXPECT_TRUE(reason.ends_with(" gave no sign of life for 0.2 s")) << reason;
}

TEST(ControlGroup, RefusesWhoDoesNotFit) {
  const Group group;
  const auto a = group.join(0);
  const auto message = [&](int rank, const ControlOptions& options) {
    return test::error_message<PeerError>([&] { (void)group.join(rank, options); });
  };
  ControlOptions other = two;
  EXPECT_NE(message(0, other).find("rank 0 has joined already"), std::string::npos);
  EXPECT_NE(message(2, other).find("there is no rank 2; ranks are 0..1"), std::string::npos);
  EXPECT_NE(message(-1, other).find("there is no rank -1"), std::string::npos);
  other.size = 3;
  EXPECT_NE(message(1, other).find("expects 3 ranks, the server expects 2"), std::string::npos);
  other = two;
  other.token = "secreT";
  EXPECT_NE(message(1, other).find("give all ranks the same HEARTH_TOKEN"), std::string::npos);
  EXPECT_EQ(a->failure(0.1), "") << "who is refused harms nobody";
  EXPECT_NO_THROW(group.join(1));
}

TEST(ControlGroup, StrangersHarmNothing) {
  const Group group;
  const auto a = group.join(0);
  std::vector<Socket> held;
  for (int i = 0; i < 200; ++i) held.push_back(connect_to("127.0.0.1", group.server.port(), in_seconds(5)));
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, 'x'), std::string(4, '\0'), framed(Frame::set, "k"),
        framed(Frame::join, "short"), framed(Frame::give_up, "ha"), std::string("\xff\xff\xff\x7f", 4)}) {
    const Socket socket = connect_to("127.0.0.1", group.server.port(), in_seconds(5));
    send_fully(socket, std::as_bytes(std::span(garbage)), in_seconds(1));
  }
  // What another rank has sent once proves nothing with a new random number.
  std::string answer;
  (void)join_by_hand(group.server.port(), request_of(1, 2), "wrong", &answer);
  EXPECT_PRED2(test::contains, answer, "another token");
  const auto b = group.join(1);
  b->set("k", "v");
  EXPECT_EQ(a->get("k"), "v");
  EXPECT_EQ(a->failure(), "");
}

/// Descriptors that this process has open.
std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(ControlGroup, AReplayedRankIsNotLetIn) {
  const Group group;
  const auto a = group.join(0);
  const auto request_for = [](const std::string& hello) {
    JoinRequest request = request_of(1, 2);
    request.proof = hmac_sha256("secret", "rank" + request.signed_text(std::string_view(hello).substr(1)));
    return framed(Frame::join, request.text());
  };
  // Heard on a connection that ended before the rank was let in.
  const Socket first = connect_to("127.0.0.1", group.server.port(), in_seconds(5));
  const std::string heard = request_for(next_frame(first));
  const Socket second = connect_to("127.0.0.1", group.server.port(), in_seconds(5));
  (void)next_frame(second);
  ASSERT_TRUE(send_bytes(second, heard));
  EXPECT_PRED2(test::contains, next_frame(second), "another token");
  // The number that a rank has proved for cannot be changed.
  const Socket third = connect_to("127.0.0.1", group.server.port(), in_seconds(5));
  std::string changed = request_for(next_frame(third));
  changed[5 + nonce_size + proof_size] = 0;
  ASSERT_TRUE(send_bytes(third, changed));
  EXPECT_PRED2(test::contains, next_frame(third), "another token");
  EXPECT_EQ(a->failure(), "");
  EXPECT_NO_THROW(group.join(1));
}

TEST(ControlGroup, GarbageFromStrangersHarmsNothing) {
  const Group group;
  const auto a = group.join(0);
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const Socket socket = connect_to("127.0.0.1", group.server.port(), in_seconds(5));
    std::string bytes(random() % 700, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // Lengths that fit, and kinds that exist.
    if (i % 3 == 0 && bytes.size() > 5) bytes = framed(static_cast<Frame>("HJWRBSGVALFN"[i % 12]), bytes.substr(5));
    send_fully(socket, std::as_bytes(std::span(bytes)), in_seconds(1));
  }
  const auto b = group.join(1);
  b->set("k", "v");
  EXPECT_EQ(a->get("k"), "v");
  EXPECT_EQ(a->failure(), "");
}

// Some say nothing, some a byte now and then.
TEST(ControlGroup, HeldConnectionsAreClosedAndKeepNobodyOut) {
  const Group group;
  const auto a = group.join(0);
  const std::ptrdiff_t before = open_files();
  std::vector<Socket> held;
  for (int i = 0; i < 500; ++i) held.push_back(connect_to("127.0.0.1", group.server.port(), in_seconds(5)));
  const auto begin = std::chrono::steady_clock::now();
  const auto b = group.join(1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  // This process has both ends: its own 500, and no more than 64 of the server; some of the two ranks.
  EXPECT_LT(open_files() - before, 500 + 64 + 10);
  const std::string part = framed(Frame::join, std::string(400, 'x'));
  bool is_closed = false;
  for (std::size_t i = 0; i < 70 && !is_closed; ++i) {
    is_closed = send(held.back().descriptor(), &part[i], 1, MSG_NOSIGNAL) != 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(is_closed) << "a byte now and then keeps a connection for good";
  EXPECT_EQ(a->failure(), "");
  EXPECT_EQ(b->failure(), "");
}

// Connections are made as fast as they can be while the ranks join.
TEST(ControlGroup, AFloodOfConnectionsKeepsNoRankOut) {
  ControlOptions options = two;
  options.size = 5;
  const Group group(options);
  std::atomic<bool> stop{false};
  std::vector<std::thread> flood;
  for (int i = 0; i < 3; ++i)
    flood.emplace_back([&] {
      std::deque<Socket> held;
      while (!stop) {
        held.push_back(connect_to("127.0.0.1", group.server.port(), in_seconds(5)));
        if (held.size() > 100) held.pop_front();
      }
    });
  std::vector<std::unique_ptr<Control>> ranks;
  for (int rank = 0; rank < 5; ++rank) ranks.push_back(group.join(rank));
  ranks[4]->set("k", "v");
  EXPECT_EQ(ranks[0]->get("k"), "v");
  stop = true;
  for (std::thread& one : flood) one.join();
  for (const auto& rank : ranks) EXPECT_EQ(rank->failure(), "");
}

TEST(ControlGroup, ExtraAndLateRanksHarmNothing) {
  const Group group;
  auto a = group.join(0);
  std::mutex mutex;
  std::string warning;
  a->on_warning([&](const std::string& text) {
    const std::lock_guard lock(mutex);
    warning += text;
  });
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto b = group.join(1);
    b->meet("", 5);
    EXPECT_EQ(b->get("k"), "v");
  });
  // Two of a number, one of another job, before the last rank comes.
  EXPECT_THROW(group.join(0), PeerError);
  ControlOptions other = two;
  other.size = 4;
  EXPECT_THROW(group.join(3, other), PeerError);
  a->meet("", 5);
  EXPECT_EQ(a->who(1), join_text("rank 1 (pid ", getpid(), " on ", host_name(), ")"));
  // And after all have come.
  EXPECT_THROW(group.join(1), PeerError);
  a->set("k", "v");
  late.join();
  EXPECT_THROW(group.join(1), PeerError) << "after its end";
  EXPECT_EQ(a->failure(1.2), "");
  const std::lock_guard lock(mutex);
  EXPECT_PRED2(test::contains, warning, "a process was refused: rank 0 has joined already");
  EXPECT_PRED2(test::contains, warning, "3 processes were refused, the last: rank 1 has joined already");
}

TEST(ControlGroup, ManyWhoAreRefusedMakeALineASecond) {
  const Group group;
  const auto a = group.join(0);
  std::mutex mutex;
  std::vector<std::string> warnings;
  a->on_warning([&](const std::string& text) {
    const std::lock_guard lock(mutex);
    warnings.push_back(text);
  });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 300; ++i) EXPECT_THROW(group.join(0), PeerError);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count();
  const auto b = group.join(1);
  EXPECT_EQ(b->failure(1.2), "");
  const std::lock_guard lock(mutex);
  EXPECT_GE(warnings.size(), 2U);
  EXPECT_LE(static_cast<std::int64_t>(warnings.size()), seconds + 2);
}

TEST(ControlGroup, ARankThatStoresWithoutEndIsNamed) {
  const Group group;
  const auto a = group.join(0), b = group.join(1);
  const std::string value(60'000, 'v');
  for (int i = 0; i < 2000 && b->failure().empty(); ++i) b->set(join_text("key ", i), value);
  EXPECT_PRED2(test::contains, a->failure(5), "rank 1 (pid ");
  EXPECT_PRED2(test::contains, a->failure(), " gave the server of the group more values than it keeps");
}

TEST(ControlGroup, ARankThatDoesNotJoinIsNamedAfterTheLimit) {
  ControlOptions options = two;
  options.size = 4;
  const Group group(options);
  const auto a = group.join(0), c = group.join(2);
  const auto begin = std::chrono::steady_clock::now();
  const auto met = [&](Control& rank) { return test::error_message<PeerError>([&] { rank.meet("", 0.3); }); };
  std::string of_c;
  std::thread other([&] { of_c = met(*c); });
  const std::string of_a = met(*a);
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_PRED2(test::contains, of_a, "ranks 1, 3 did not join within 0.3 s");
  EXPECT_EQ(of_c, of_a);
}

// As `hearth launch` does not know what the run's configuration says.
TEST(ControlGroup, TheServerGivesARankUpAfterTheLimitThatTheRankTold) {
  ControlOptions of_run = two;
  of_run.give_up_seconds = 0.4;
  const Group group;
  const auto a = group.join(0, of_run);
  JoinRequest request = request_of(1, 2);
  request.give_up_seconds = 0.4;
  const Socket b = join_by_hand(group.server.port(), request, "secret");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(a->failure(5), "rank 1 (pid 77 on node9) gave no sign of life for 0.4 s");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(ControlGroup, AForeignServerIsNotTrusted) {
  // It says hello, but cannot prove that it knows the token.
  const Socket listener = listen_on("127.0.0.1", 0);
  std::thread impostor([&] {
    Socket socket;
    while (!socket) socket = Socket(accept(listener.descriptor(), nullptr, nullptr));
    const std::string frames =
        framed(Frame::hello, std::string(nonce_size, 'n')) + framed(Frame::welcome, std::string(proof_size, 'p'));
    send_fully(socket, std::as_bytes(std::span(frames)), in_seconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  const std::string message =
      test::error_message<PeerError>([&] { const Control control("127.0.0.1", port_of(listener), 0, two, 5); });
  impostor.join();
  EXPECT_NE(message.find("does not know the token"), std::string::npos) << message;
}

TEST(ControlGroup, ListensOnlyWhereAsked) {
  const Group group;
  EXPECT_THROW(connect_to("127.0.0.2", group.server.port(), in_seconds(0.1)), PeerError);
  EXPECT_THROW(ControlServer("127.0.0.1", group.server.port(), two), PeerError) << "the port is taken";
  EXPECT_THROW(ControlServer("no.such.host.invalid", 0, two), PeerError);
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("192.0.2.1"));
}

TEST(ControlGroup, NobodyListens) {
  const Socket unused = listen_on("127.0.0.1", 0);
  const int port = port_of(unused);
  shutdown(unused.descriptor(), SHUT_RDWR);
  EXPECT_NE(test::error_message<PeerError>([&] {
              const Control control("127.0.0.1", port, 0, two, 0.2);
            }).find("cannot reach 127.0.0.1 port"),
            std::string::npos);
}

}  // namespace
}  // namespace hearth::dist::control_test
