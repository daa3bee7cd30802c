// SPDX-License-Identifier: Apache-2.0
// Which addresses the sockets of a group listen on, as the kernel's tables have them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <atomic>
#include <set>

#include "core/error.h"
#include "tests/dist/groups.h"
#include "tests/support/listening.h"

namespace hearth::dist::listening_test {
namespace {

using Listening = std::multiset<std::string>;

Listening listening() {
  Listening addresses;
  for (const auto& [address, port] : test::listening()) addresses.insert(address);
  return addresses;
}

/// What is listened on now that was not before.
Listening since(const Listening& before) {
  Listening now = listening();
  for (const std::string& address : before) {
    const auto found = now.find(address);
    if (found != now.end()) now.erase(found);
  }
  return now;
}

/// An address of this machine that is not its loopback; "" where it has none.
std::string outward_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  freeifaddrs(all);
  return found;
}

struct Seen {
  std::set<std::string> ever;  ///< from the moment that the ranks join
  Listening then;              ///< while they work
};

/// What two ranks, threads of this process, listen on that meet at `address`.
Seen of_group(const std::string& address, bool shared_memory) {
  const Listening before = listening();
  // A free port, as rank 0 has to be told one.
  const int port = port_of(listen_on(address, 0));
  std::vector<std::unique_ptr<Collective>> groups(2);
  std::atomic<int> joined{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      groups[static_cast<std::size_t>(rank)] =
          join_processes({.rank = rank, .size = 2, .address = address, .port = port, .token = "secret"},
                         {.shared_memory = shared_memory});
      ++joined;
    });
  Seen seen;
  while (joined < 2)
    for (const std::string& one : since(before)) seen.ever.insert(one);
  for (std::thread& thread : threads) thread.join();
  seen.then = since(before);
  seen.ever.insert(seen.then.begin(), seen.then.end());
  for (const std::string& failure :
       test::failures_of_ranks(std::move(groups), [](Collective& group) { group.barrier(); }))
    EXPECT_EQ(failure, "");
  EXPECT_EQ(since(before), Listening{}) << "after the end";
  return seen;
}

void expect_only(const std::string& address, const Seen& seen) {
  EXPECT_EQ(seen.ever, std::set<std::string>{address});
  EXPECT_EQ(seen.then, Listening{address}) << "the server of rank 0 and nothing else";
}

TEST(Listening, TheTablesShowWhatThisProcessListensOn) {
  const Listening before = listening();
  const Socket four = listen_on("127.0.0.3", 0), all = listen_on("0.0.0.0", 0);
  EXPECT_EQ(since(before), (Listening{"127.0.0.3", "0.0.0.0"}));
  try {
    const Socket six = listen_on("::1", 0);
    EXPECT_EQ(since(before), (Listening{"127.0.0.3", "0.0.0.0", "::1"}));
  } catch (const PeerError&) {  // no IPv6 here
  }
}

TEST(Listening, AGroupOnLoopbackListensThereOnly) {
  expect_only("127.0.0.1", of_group("127.0.0.1", true));
  expect_only("127.0.0.1", of_group("127.0.0.1", false));
}

TEST(Listening, AGroupOnAnInterfaceListensThereOnly) {
  const std::string address = outward_address();
  if (address.empty()) GTEST_SKIP() << "this machine has loopback only";
  expect_only(address, of_group(address, true));
  expect_only(address, of_group(address, false));
}

TEST(Listening, OnAllInterfacesOnlyWhereThatIsAskedFor) {
  EXPECT_THROW(listen_on("", 0), PeerError) << "no address is not every address";
  EXPECT_EQ(of_group("0.0.0.0", true).then, Listening{"0.0.0.0"});
}

}  // namespace
}  // namespace hearth::dist::listening_test
