// SPDX-License-Identifier: Apache-2.0
// Memory that the system grants: what is available on the machine, and what is left of the limits of control groups.
#include "core/cpu/free_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "tests/core/cpu/system_files.h"

namespace hearth::cpu::free_memory_test {
namespace {

constexpr std::int64_t on_machine = std::int64_t{1000000} << 10;

/// A machine with that much available.
struct System : test::SystemFiles {
  explicit System(const std::string& membership) : SystemFiles(membership) {
    file("proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable:    1000000 kB\nBuffers: 5 kB");
  }
  System& group(const std::string& folder, const std::string& limit, const std::string& used) {
    file("sys/fs/cgroup/" + folder + "memory.max", limit).file("sys/fs/cgroup/" + folder + "memory.current", used);
    return *this;
  }
  std::int64_t free() const { return free_memory(root()); }
};

TEST(FreeMemory, IsWhatTheMachineHasAvailable) {
  EXPECT_EQ(System("0::/").free(), on_machine);
  EXPECT_EQ(System("nonsense").free(), on_machine);
  EXPECT_GT(free_memory(), 0);
  EXPECT_GT(free_memory("/nonexistent"), 0) << "all of the memory there is";
}

TEST(FreeMemory, IsNoMoreThanTheLimitsOfTheProcess) {
  System system("0::/");
  // 100 pages, 40 of data.
  system.file("proc/self/statm", "100 7 7 7 0 40 0");
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto left_within = [&](int resource, rlim_t bytes) {
    rlimit before{};
    EXPECT_EQ(getrlimit(resource, &before), 0);
    const rlimit limit{bytes, before.rlim_max};
    EXPECT_EQ(setrlimit(resource, &limit), 0);
    const auto left = limited_memory(system.root());
    const std::int64_t free = system.free();
    EXPECT_EQ(setrlimit(resource, &before), 0);
    EXPECT_EQ(free, std::min(on_machine, left.value_or(on_machine)));
    return left.value_or(-1);
  };
  // Within limits that leave the test itself all it needs.
  const std::int64_t much = std::int64_t{1} << 45;
  EXPECT_EQ(left_within(RLIMIT_AS, much), much - 100 * page);
  EXPECT_EQ(left_within(RLIMIT_DATA, much), much - 40 * page);
  system.file("proc/self/statm", "nonsense");
  EXPECT_EQ(left_within(RLIMIT_AS, much), -1);
}

TEST(FreeMemory, IsNoMoreThanAGroupAndThoseAboveHaveLeft) {
  System system("0::/outer/job");
  EXPECT_EQ(system.group("outer/job/", "max", "400000000").free(), on_machine);
  EXPECT_EQ(system.group("outer/job/", "500000000", "400000000").free(), 100000000);
  EXPECT_EQ(system.group("outer/", "300000000", "250000000").free(), 50000000);
  EXPECT_EQ(system.group("", "300000000", "260000000").free(), 40000000) << "the mount of a container";
  EXPECT_EQ(system.group("", "100", "260000000").free(), 0);
}

TEST(FreeMemory, CountsFilesThatCanBeReadAgainAsFree) {
  System system("0::/");
  system.group("", "500000000", "400000000").file("sys/fs/cgroup/memory.stat", "anon 7\ninactive_file 30000000\nx 1");
  EXPECT_EQ(system.free(), 130000000);
  system.file("sys/fs/cgroup/memory.stat", "inactive_file 30000000\nactive_file 50000000");
  EXPECT_EQ(system.free(), 180000000) << "of late use or not";
  system.file("sys/fs/cgroup/memory.stat", "inactive_file 900000000");
  EXPECT_EQ(system.free(), 500000000) << "never more than the limit";
}

TEST(FreeMemory, FollowsTheLimitsOfTheFirstInterface) {
  const auto left = [](const std::string& limit) {
    System system("5:cpu:/a\n4:memory:/a");
    const std::string folder = "sys/fs/cgroup/memory/a/memory.";
    system.file(folder + "limit_in_bytes", limit).file(folder + "usage_in_bytes", "90000000");
    system.file(folder + "stat", "inactive_file 1\ntotal_inactive_file 20000000");
    return system.free();
  };
  EXPECT_EQ(left("100000000"), 30000000);
  EXPECT_EQ(left("9223372036854771712"), on_machine) << "how that interface says that there is none";
}

TEST(FreeMemory, TellsWhetherAGroupLimitsTheProcess) {
  System system("0::/job");
  EXPECT_EQ(group_memory(system.root()), std::nullopt);
  EXPECT_EQ(group_memory(system.group("job/", "max", "5").root()), std::nullopt);
  EXPECT_EQ(group_memory(system.group("job/", "9216000000", "5").root()), std::nullopt) << "all that the machine has";
  EXPECT_EQ(group_memory(system.group("job/", "500000000", "400000000").root()),
            std::optional<std::int64_t>(100000000));
}

TEST(FreeMemory, PassesOverFilesThatSayNothing) {
  EXPECT_EQ(System("0::/").group("", "", "5").free(), on_machine);
  EXPECT_EQ(System("0::/").group("", "5", "").free(), on_machine);
}

}  // namespace
}  // namespace hearth::cpu::free_memory_test
