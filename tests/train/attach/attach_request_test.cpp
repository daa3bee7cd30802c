// SPDX-License-Identifier: Apache-2.0
// Requests to a run: what is read, and that nothing else is.
#include "train/attach/attach_request.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace hearth::train::attach_request_test {
namespace {

using test::contains;

TEST(AttachRequest, ReadsWhatItWrites) {
  EXPECT_EQ(parse_request("status").kind, AttachRequest::Kind::status);
  const AttachRequest trace{.kind = AttachRequest::Kind::trace, .steps = 12, .id = "a7"};
  EXPECT_EQ(to_line(trace), "trace 12 a7\n");
  const AttachRequest read = parse_request("trace 12 a7");
  EXPECT_EQ(read.kind, AttachRequest::Kind::trace);
  EXPECT_EQ(read.steps, 12);
  EXPECT_EQ(read.id, "a7");
}

TEST(AttachRequest, RefusesAllElseByName) {
  for (const char* line : {"", "stat", "status ", "Status", "trace", "traces 5 a", "trace\t5 a"})
    EXPECT_PRED2(contains, test::error_message<UsageError>([&] { (void)parse_request(line); }), "takes the requests")
        << line;
  for (const char* line : {"trace ", "trace x a", "trace 0 a", "trace -5 a", "trace 1001 a", "trace 5.5e9 a",
                           "trace 99999999999999999999 a", "trace  5 a"})
    EXPECT_PRED2(contains, test::error_message<UsageError>([&] { (void)parse_request(line); }),
                 std::string(line) == "trace 5.5e9 a" ? "an ID" : "number of steps")
        << line;
  for (const char* line : {"trace 5", "trace 5 ", "trace 5a", "trace 5 a b", "trace 5 ../x", "trace 5 \"a\""})
    EXPECT_PRED2(contains, test::error_message<UsageError>([&] { (void)parse_request(line); }), "an ID") << line;
  EXPECT_PRED2(contains,
               test::error_message<UsageError>([] { (void)parse_request("trace 5 " + std::string(1000, 'a')); }),
               "takes the requests");
}

// Whatever is read is a request that says the same.
TEST(AttachRequest, RandomBytesAreRefusedOrReadRight) {
  std::mt19937 random(7);
  const std::string seeds[] = {"status", "trace 5 a1b2", "trace 1000 Z"};
  int read = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string line = seeds[random() % 3];
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % (line.size() + 1);
      switch (random() % 3) {
        case 0:
          line.insert(at, 1, static_cast<char>(random() % 256));
          break;
        case 1:
          line.erase(at, 1);
          break;
        default:
          line = line.substr(0, at) + line;
      }
    }
    try {
      const AttachRequest request = parse_request(line);
      ++read;
      EXPECT_LE(line.size(), longest_request);
      if (request.kind == AttachRequest::Kind::status) {
        EXPECT_EQ(line, "status");
      }
      if (request.kind == AttachRequest::Kind::trace) {
        EXPECT_GE(request.steps, 1);
        EXPECT_LE(request.steps, most_traced_steps);
        const AttachRequest again = parse_request(to_line(request).substr(0, to_line(request).size() - 1));
        EXPECT_EQ(again.steps, request.steps);
        EXPECT_EQ(again.id, request.id);
      }
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(read, 10000);
  EXPECT_LT(read, 190000);
}

}  // namespace
}  // namespace hearth::train::attach_request_test
