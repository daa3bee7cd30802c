// SPDX-License-Identifier: Apache-2.0
#include "dist/tcp.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "dist/tcp_mesh.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"

namespace hearth::dist {
namespace {

using test::failures_of_ranks;

TEST(Tcp, ARankThatGivesUpInTheMiddleIsNamedByAll) {
  for (const std::int64_t count : {3, 100000}) expect_giving_up_is_named("tcp", count);
}

TEST(Tcp, DisagreementNamesBothCalls) {
  const std::vector<std::string> failures = failures_of_ranks(groups_of("tcp", 2), [](Collective& group) {
    const Tensor x = Tensor::zeros({group.rank() == 1 ? 2000 : 1000});
    group.all_reduce(x).wait();
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("all_reduce of f32 [1000]"), std::string::npos) << failure;
    EXPECT_NE(failure.find("all_reduce of f32 [2000]"), std::string::npos) << failure;
  }
}

/// f(transport) on a thread for each rank of a group; what each of them throws.
std::vector<std::string> run_transports(int size, const TcpOptions& options, const std::function<void(Transport&)>& f) {
  const ControlOptions control{.size = size, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, control);
  std::vector<std::string> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Control own("127.0.0.1", server.port(), rank, control, 5);
      try {
        f(*tcp_transport(own, size, options));
      } catch (const PeerError& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
        own.give_up(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return failures;
}

TEST(Tcp, LargeMessagesPassEachOther) {
  const auto value = [](int from, std::size_t i) {
    return static_cast<std::byte>(from * 31 + static_cast<int>(i) % 251);
  };
  constexpr std::size_t bytes = 5'000'000, few = 3;
  const std::vector<std::string> failures = run_transports(3, {}, [&](Transport& transport) {
    const int rank = transport.rank();
    EXPECT_STREQ(transport.name(), "tcp");
    for (int round = 0; round < 3; ++round) {
      std::vector<std::byte> sent(bytes);
      for (std::size_t i = 0; i < bytes; ++i) sent[i] = value(rank, i);
      std::vector<std::vector<std::byte>> received;
      std::vector<Outgoing> out;
      std::vector<Incoming> in;
      for (int other = 0; other < 3; ++other) {
        if (other == rank) continue;
        received.emplace_back(bytes), received.emplace_back(few);
        out.push_back({other, sent}), out.push_back({other, std::span(sent).first(few)}), out.push_back({other, {}});
      }
      auto target = received.begin();
      for (int other = 0; other < 3; ++other)
        if (other != rank)
          in.push_back({other, *target++}), in.push_back({other, *target++}), in.push_back({other, {}});
      transport.exchange(out, in);
      target = received.begin();
      for (int other = 0; other < 3; ++other) {
        if (other == rank) continue;
        for (int message = 0; message < 2; ++message, ++target)
          for (std::size_t i = 0; i < target->size(); ++i)
            ASSERT_EQ((*target)[i], value(other, i)) << other << ' ' << i;
      }
    }
  });
  EXPECT_EQ(failures, std::vector<std::string>(3));
}

TEST(Tcp, MessagesOfAnotherLengthAreRefused) {
  const std::vector<std::string> failures = run_transports(2, {}, [&](Transport& transport) {
    std::vector<std::byte> bytes(9);
    const std::size_t size = transport.rank() == 0 ? 9 : 5;
    const Outgoing out{1 - transport.rank(), std::span(bytes).first(9)};
    const Incoming in{1 - transport.rank(), std::span(bytes).first(size)};
    transport.exchange({&out, 1}, {&in, 1});
    transport.exchange({&out, 1}, {&in, 1});
  });
  EXPECT_EQ(failures[1], "rank 1 cannot receive from rank 0: it sends 9 bytes where 5 are awaited");
  EXPECT_NE(failures[0], "");
}

TEST(Tcp, AnExchangeInWhichNothingMovesEnds) {
  std::vector<std::string> later(2);
  const std::vector<std::string> failures = run_transports(2, {.timeout_seconds = 0.3}, [&](Transport& transport) {
    std::byte byte{};
    const Incoming in{1 - transport.rank(), {&byte, 1}};
    try {
      transport.exchange({}, {&in, 1});
    } catch (const PeerError&) {
      later[static_cast<std::size_t>(transport.rank())] = transport.failure();
      transport.exchange({}, {&in, 1});
    }
  });
  EXPECT_TRUE(failures[0].ends_with("nothing has moved for 0.3 s") ||
              failures[1].ends_with("nothing has moved for 0.3 s"))
      << failures[0] << '\n'
      << failures[1];
  EXPECT_EQ(later, failures) << "what has failed stays so";
}

/// The port that a rank has told the others.
int port_of_rank(Control& control, int rank) {
  return std::atoi(control.get(join_text("tcp/", rank), 5).substr(nonce_size).c_str());
}

void reset(Socket socket) {
  const linger at_once{1, 0};
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// They connect and reset, say nothing, say something else, or what a rank would who does not know the secret.
TEST(Tcp, StrangersWhoConnectWhileRanksJoinChangeNothing) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const ControlOptions options{.size = 4, .token = "t", .beat_seconds = 0.05};
    const ControlServer server("127.0.0.1", 0, options);
    std::atomic<bool> stop{false};
    std::thread strangers([&] {
      Control control("127.0.0.1", server.port(), 3, options, 5);
      const int port = port_of_rank(control, 0);
      const std::int32_t rank = 2;
      const std::string known(reinterpret_cast<const char*>(&rank), sizeof rank);
      std::vector<Socket> silent;
      for (int round = 0; !stop && round < 100; ++round) {
        try {
          reset(connect_to("127.0.0.1", port, in_seconds(0.1)));
          silent.push_back(connect_to("127.0.0.1", port, in_seconds(0.1)));
          for (const std::string& text : {std::string(100, 'x'), known + std::string(proof_size, 'p'), known})
            (void)send_bytes(connect_to("127.0.0.1", port, in_seconds(0.1)), text);
        } catch (const PeerError&) {  // the ranks have joined, and nobody listens any more
          return;
        }
      }
    });
    std::vector<std::string> failures(3);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.emplace_back([&, rank] {
        Control control("127.0.0.1", server.port(), rank, options, 5);
        // Time for the strangers to come first.
        if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        try {
          const std::unique_ptr<Transport> transport = tcp_transport(control, 3, {.join_seconds = 10});
          std::byte mine{static_cast<unsigned char>(rank)}, theirs{};
          const Outgoing out{(rank + 1) % 3, {&mine, 1}};
          const Incoming in{(rank + 2) % 3, {&theirs, 1}};
          transport->exchange({&out, 1}, {&in, 1});
          EXPECT_EQ(static_cast<int>(theirs), (rank + 2) % 3);
        } catch (const PeerError& error) {
          failures[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    for (std::thread& rank : ranks) rank.join();
    stop = true;
    strangers.join();
    EXPECT_EQ(failures, std::vector<std::string>(3));
  }
}

// Rank 0 has told of a port at which somebody else listens.
TEST(Tcp, WhoListensInTheSteadOfARankIsRefused) {
  const ControlOptions options{.size = 2, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  const Socket listener = listen_on("127.0.0.1", 0);
  Control first("127.0.0.1", server.port(), 0, options, 5);
  first.set("tcp/0", join_text(std::string(nonce_size, 's'), port_of(listener), " 127.0.0.1"));
  std::string message;
  std::thread rank([&] {
    Control second("127.0.0.1", server.port(), 1, options, 5);
    message = test::error_message<PeerError>([&] { (void)tcp_transport(second, 2, {.join_seconds = 5}); });
  });
  Socket caller;
  while (!caller) caller = Socket(accept(listener.descriptor(), nullptr, nullptr));
  EXPECT_TRUE(send_bytes(caller, std::string(sizeof(std::int32_t) + proof_size, '\0')));
  rank.join();
  EXPECT_EQ(message, "what listens in the stead of rank 0 is no rank; let nobody else onto the ranks' subnet");
}

TEST(Tcp, ARankThatDoesNotComeIsNamed) {
  const ControlOptions options{.size = 2, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  Control control("127.0.0.1", server.port(), 0, options, 5);
  EXPECT_EQ(test::error_message<PeerError>([&] { (void)tcp_transport(control, 2, {.join_seconds = 0.3}); }),
            "rank 0 has no connection with rank 1; does the network let their ports through?");
}

TEST(Tcp, AnAddressOfNoInterfaceIsRefused) {
  const ControlOptions options{.size = 1, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  Control control("127.0.0.1", server.port(), 0, options, 5);
  EXPECT_THROW(tcp_transport(control, 1, {.address = "192.0.2.1"}), PeerError);
}

}  // namespace
}  // namespace hearth::dist
