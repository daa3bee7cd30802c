// SPDX-License-Identifier: Apache-2.0
#include "dist/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "tests/dist/groups.h"

namespace hearth::dist::shared_memory_test {
namespace {

/// f(transport of the rank, why there is none) on a thread for each rank.
void run_transports(int size, const std::function<void(Transport*, const std::string&)>& f,
                    const SharedMemoryOptions& options = {}) {
  const ControlOptions control{.size = size, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, control);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Control own("127.0.0.1", server.port(), rank, control, 10);
      std::string why;
      const std::unique_ptr<Transport> transport = shared_memory_transport(own, size, why, options);
      f(transport.get(), why);
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::byte> bytes_of(int from, int to, std::size_t size) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 31 + i / 251 + from * 7U + to * 3U);
  return all;
}

TEST(SharedMemory, MovesMessagesOfAllSizesManyTimesRoundTheRing) {
  for (const int size : {1, 2, 3, 5})
    run_transports(size, [&](Transport* transport, const std::string& why) {
      ASSERT_NE(transport, nullptr) << why;
      EXPECT_STREQ(transport->name(), "shared memory");
      const int rank = transport->rank();
      // 5 MB pass a ring of 1 MiB several times; others end in the middle of it.
      for (const std::size_t length : {1U, 0U, 77U, 1048575U, 5000001U, 3U}) {
        std::vector<std::vector<std::byte>> to(static_cast<std::size_t>(size)), from(static_cast<std::size_t>(size));
        std::vector<Outgoing> out;
        std::vector<Incoming> in;
        for (int other = 0; other < size; ++other) {
          if (other == rank) continue;
          auto& sent = to[static_cast<std::size_t>(other)] = bytes_of(rank, other, length);
          auto& received = from[static_cast<std::size_t>(other)] = std::vector<std::byte>(length);
          out.push_back({other, sent});
          in.push_back({other, received});
        }
        transport->exchange(out, in);
        for (int other = 0; other < size; ++other)
          if (other != rank) {
            EXPECT_EQ(from[static_cast<std::size_t>(other)], bytes_of(other, rank, length));
          }
      }
    });
}

TEST(SharedMemory, ARankThatGivesUpInTheMiddleIsNamedByAll) {
  for (const std::int64_t count : {3, 10000000}) expect_giving_up_is_named("shared memory", count);
}

TEST(SharedMemory, ARankThatTakesNothingIsNamed) {
  run_transports(2,
                 [](Transport* transport, const std::string& why) {
                   ASSERT_NE(transport, nullptr) << why;
                   if (transport->rank() == 1) return (void)usleep(600'000);
                   const std::vector<std::byte> much(std::size_t{4} << 20);
                   const Outgoing out{1, much};
                   try {
                     transport->exchange({&out, 1}, {});
                     ADD_FAILURE() << "nobody took it";
                   } catch (const PeerError& error) {
                     EXPECT_STREQ(error.what(), "rank 0 cannot send to rank 1: it took nothing for 0.2 s");
                   }
                   std::byte one;
                   const Incoming in{1, {&one, 1}};
                   try {
                     transport->exchange({}, {&in, 1});
                     ADD_FAILURE() << "nobody sent it";
                   } catch (const PeerError& error) {
                     EXPECT_STREQ(error.what(), "rank 0 cannot receive from rank 1: nothing came for 0.2 s");
                   }
                 },
                 {.timeout_seconds = 0.2});
}

/// What this process calls its place, and the size of the segment of two ranks.
std::pair<std::string, std::size_t> real_offer() {
  const ControlOptions options{.size = 2, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  std::string place;
  std::size_t size = 0;
  const auto join = [&](int rank) {
    Control own("127.0.0.1", server.port(), rank, options, 10);
    std::string why;
    const std::unique_ptr<Transport> transport = shared_memory_transport(own, 2, why);
    EXPECT_NE(transport, nullptr) << why;
    if (rank != 0) return;
    std::istringstream(own.get("memory of 0")) >> place;
    std::ifstream maps("/proc/self/maps");
    for (std::string text; std::getline(maps, text);)
      if (text.find("hearth ranks") != std::string::npos)
        size = std::stoull(text.substr(text.find('-') + 1), nullptr, 16) - std::stoull(text, nullptr, 16);
  };
  std::thread second(join, 1);
  join(0);
  second.join();
  return {place, size};
}

// A process of that number may be another one, on a machine that is a copy of this one.
TEST(SharedMemory, AnOfferOfSomethingElseIsRefused) {
  const auto [place, size] = real_offer();
  ASSERT_GT(size, std::size_t{1} << 20);
  const int program = open("/proc/self/exe", O_RDONLY), same_size = memfd_create("other", 0);
  ASSERT_EQ(ftruncate(same_size, static_cast<off_t>(size)), 0);
  const std::string cannot_see = "rank 1 cannot see the memory of rank 0";
  for (const auto& [text, expected] : {
           std::pair(join_text("elsewhere ", getpid(), ' ', same_size, " 1 2"),
                     std::string("rank 1 is on another machine, or in another container, than rank 0")),
           std::pair(join_text(place, ' ', getpid(), ' ', program, " 1 2"), cannot_see),
           std::pair(join_text(place, ' ', getpid(), ' ', same_size, " 1 2"), cannot_see),
           std::pair(join_text(place, ' ', getpid(), ' ', same_size, " 0 0"), cannot_see),
           std::pair(join_text(place, ' ', getpid(), " 100000 1 2"), cannot_see),
           std::pair(std::string("rubbish"), std::string("rank 1 is on another machine, or in another container, than "
                                                         "rank 0")),
       }) {
    const ControlOptions options{.size = 2, .token = "t", .beat_seconds = 0.05};
    const ControlServer server("127.0.0.1", 0, options);
    Control first("127.0.0.1", server.port(), 0, options, 10), second("127.0.0.1", server.port(), 1, options, 10);
    first.set("memory of 0", text);
    first.set("memory/0", "");
    std::string why;
    EXPECT_EQ(shared_memory_transport(second, 2, why), nullptr);
    EXPECT_EQ(why, expected) << text;
  }
  close(program);
  close(same_size);
}

TEST(SharedMemory, ARankThatDiesBeforeItSaysYesIsNamed) {
  const ControlOptions options{.size = 2, .token = "t", .beat_seconds = 0.05};
  const ControlServer server("127.0.0.1", 0, options);
  Control first("127.0.0.1", server.port(), 0, options, 10);
  auto second = std::make_unique<Control>("127.0.0.1", server.port(), 1, options, 10);
  std::thread ends([&] {
    (void)second->get("memory of 0");
    second->give_up("no memory");
  });
  std::string why;
  try {
    (void)shared_memory_transport(first, 2, why);
    ADD_FAILURE() << "rank 1 never answered";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("gave up: no memory"), std::string::npos) << error.what();
  }
  ends.join();
}

}  // namespace
}  // namespace hearth::dist::shared_memory_test
