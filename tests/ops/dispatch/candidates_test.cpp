// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/candidates.h"

#include <gtest/gtest.h>

#include "core/tensor.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "tests/support/error_message.h"
#include "tests/support/warnings.h"

namespace hearth::test::candidates_test {
namespace {

int asked = 0;

std::string only_even(const int& problem) {
  ++asked;
  return problem % 2 == 0 ? "" : "odd numbers are not taken";
}
std::string only_small(const int& problem) { return problem < 100 ? "" : "numbers from 100 are not taken"; }

Candidates<int, int(int)>& numbers() {
  static Candidates<int, int(int)> list("test_numbers", {{"half", only_even, [](int x) { return x / 2; }},
                                                         {"same", only_small, [](int x) { return x; }}});
  return list;
}

TEST(CandidatesChoice, FirstThatSupportsTheProblem) {
  EXPECT_EQ(numbers().choose(8).run(8), 4);
  EXPECT_EQ(last_choice("test_numbers"), "half");
  EXPECT_EQ(numbers().choose(7).run(7), 7);
  EXPECT_EQ(last_choice("test_numbers"), "same");
  EXPECT_STREQ(numbers().choose(7).label, "test_numbers:same");
  EXPECT_EQ(candidate_names("test_numbers"), (std::vector<std::string>{"half", "same"}));
}

TEST(CandidatesChoice, IsMadeOncePerProblem) {
  (void)numbers().choose(44);
  const int before = asked;
  (void)numbers().choose(44);
  EXPECT_EQ(asked, before);
}

TEST(CandidatesChoice, NoneLeftGivesEveryReason) {
  try {
    (void)numbers().choose(101);
    FAIL() << "nothing takes 101";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    for (const char* part : {"test_numbers", "half: odd", "same: numbers from 100"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(CandidatesPin, OnALibraryThatIsAbsentIsADeviceError) {
  static Candidates<int, int(int)> list(
      "test_libraries", {{"vendor", [](const int&) { return std::string("no library"); }, [](int x) { return -x; },
                          [] { return std::string("libvendor.so is not to be found; install it"); }},
                         {"own", only_small, [](int x) { return x; }}});
  EXPECT_EQ(list.choose(8).run(8), 8) << "without a pin the next one runs";
  const ForceCandidate force("test_libraries", "vendor");
  const std::string text = error_message<DeviceError>([&] { (void)list.choose(8); });
  for (const char* part : {"test_libraries: forced to vendor", "libvendor.so", "install it", "HEARTH_PICK"})
    EXPECT_PRED2(contains, text, part);
}

TEST(CandidatesPin, HoldsForItsLifetime) {
  {
    const ForceCandidate force("test_numbers", "same");
    EXPECT_EQ(numbers().choose(8).run(8), 8);
    {
      const ForceCandidate inner("test_numbers", "half");
      EXPECT_EQ(numbers().choose(8).run(8), 4);
      EXPECT_THROW(numbers().choose(9), UsageError);
    }
    EXPECT_EQ(numbers().choose(8).run(8), 8);
  }
  EXPECT_EQ(numbers().choose(8).run(8), 4);
}

TEST(CandidatesPin, ReachesWhatIsSlower) {
  static Candidates<int, int(int)> list(
      "test_speeds", {{"first", only_small, [](int x) { return -x; }, nullptr,
                       [](const int& problem) { return std::string(problem < 10 ? "" : "slower from 10 on"); }},
                      {"second", only_small, [](int x) { return x; }}});
  EXPECT_EQ(list.choose(5).run(5), -5);
  EXPECT_EQ(list.choose(50).run(50), 50);
  const ForceCandidate force("test_speeds", "first");
  EXPECT_EQ(list.choose(50).run(50), -50);
  EXPECT_THROW(list.choose(101), UsageError);
}

TEST(CandidatesPin, UnknownNamesAreRefused) {
  const ForceCandidate force("test_numbers", "third");
  EXPECT_THROW(numbers().choose(8), ConfigError);
  EXPECT_THROW(ForceCandidate("test_numbers", ""), UsageError);
}

TEST(CandidatesPin, NameOfAnotherDeviceLeavesThisOneAlone) {
  // A list of one device does not know the other's, which may not be made yet, or not be in this build.
  static Candidates<int, int(int)> here("window_attention", {{"portable", only_small, [](int x) { return x; }}});
  const ForceCandidate force("window_attention", "mma");
  EXPECT_EQ(here.choose(8).run(8), 8);
  static Candidates<int, int(int)> there("window_attention", {{"mma", only_small, [](int x) { return -x; }}});
  EXPECT_EQ(there.choose(8).run(8), -8);
  EXPECT_EQ(last_choice("window_attention"), "mma");
  const ForceCandidate unknown("window_attention", "nowhere");
  EXPECT_THROW(here.choose(8), ConfigError);
}

TEST(CandidatesPin, NamesOfTheLibraryAreListed) {
  EXPECT_THROW((Candidates<int, int(int)>("matmul", {{"unlisted", only_small, [](int x) { return x; }}})),
               InternalError);
}

TEST(CandidatesPin, ReachesTheOps) {
  const Tensor x = Tensor::full({2, 3}, 1);
  for (const std::string name : {"onednn", "gemm"}) {
    const ForceCandidate force("linear", name);
    try {
      EXPECT_EQ(linear(x, Tensor::full({4, 3}, 1), Tensor()).to_doubles(), std::vector<double>(8, 3.0));
      EXPECT_EQ(last_choice("linear"), name);
    } catch (const UsageError& error) {
      // A build without the library.
      EXPECT_EQ(name, "onednn") << error.what();
    }
  }
  const ForceCandidate force("matmul", "onednn");
  EXPECT_THROW(matmul(Tensor::zeros({2, 2}, DType::f64), Tensor::zeros({2, 2}, DType::f64)), UsageError);
}

TEST(CandidatesPin, OfTheEnvironmentNamesOpsOfTheLibraryOnce) {
  EXPECT_TRUE(detail::forced_of("").empty());
  const detail::Forced forced = detail::forced_of("conv2d:portable,linear:mma,window_attention:mma");
  EXPECT_EQ(forced, (detail::Forced{{"conv2d", "portable"}, {"linear", "mma"}, {"window_attention", "mma"}}));
  const auto message = [](const char* text) {
    return error_message<ConfigError>([&] { (void)detail::forced_of(text); });
  };
  EXPECT_PRED2(contains, message("linear:mma,conv:portable"), "\"conv\" has several");
  EXPECT_PRED2(contains, message("conv:portable"), "did you mean \"conv2d\"?");
  EXPECT_PRED2(contains, message("test_numbers:half"), "attention, conv2d, cross_entropy, linear");
  EXPECT_PRED2(contains, message("conv2d:cudn"), "did you mean \"cudnn\"?");
  EXPECT_PRED2(contains, message("attention:onednn"), "attention has no implementation \"onednn\"");
  for (const char* text : {"conv2d:cudnn", "conv2d:stem", "conv2d:winograd", "attention:cudnn", "matmul:amx",
                           "attention:rows", "attention:avx512_bf16", "window_attention:avx512_bf16"})
    EXPECT_EQ(detail::forced_of(text).size(), 1U) << "on whatever device";
  EXPECT_PRED2(contains, message("matmul:mma,matmul:portable"), "matmul is forced twice");
  for (const char* text : {"conv2d", ":portable", "conv2d:", "conv2d:portable,,", ","})
    EXPECT_PRED2(contains, message(text), "it must read op:implementation");
}

/// A library that cannot run what it says it supports, from 10 on.
Candidates<int, int(int)>& with_library() {
  static Candidates<int, int(int)> list("test_plans", {{"vendor", only_small,
                                                        [](int x) {
                                                          if (x >= 10) throw PlanError("no plan runs");
                                                          return -x;
                                                        },
                                                        [] { return std::string(); }},
                                                       {"own", only_small, [](int x) { return x; }}});
  return list;
}

int run_with_library(int problem) {
  int result = 0;
  with_library().run(problem, [&](auto* run) { result = run(problem); });
  return result;
}

TEST(CandidatesRun, APlanThatFailsIsLeftForItsProblemAlone) {
  const ChoiceLog log;
  int first = 0, again = 0, other = 0;
  const std::string told =
      warnings_of([&] { first = run_with_library(20), again = run_with_library(20), other = run_with_library(5); });
  EXPECT_EQ(first, 20);
  EXPECT_EQ(again, 20);
  EXPECT_EQ(other, -5);
  EXPECT_EQ(told, "test_plans: vendor is not used for 20: no plan runs; the next implementation runs it\n");
  EXPECT_EQ(log.runs(), (ChoiceLog::Runs{{{"test_plans:own", "20"}, 2}, {{"test_plans:vendor", "5"}, 1}}));
}

TEST(CandidatesRun, AForcedPlanThatFailsIsADeviceError) {
  const ForceCandidate force("test_plans", "vendor");
  for (int i = 0; i < 2; ++i) {
    const std::string text = error_message<DeviceError>([] { (void)run_with_library(30); });
    EXPECT_PRED2(contains, text, "test_plans:vendor, 30: no plan runs");
  }
}

TEST(CandidatesPin, UnknownOpHasNoChoice) {
  EXPECT_EQ(last_choice("no_such_op"), "");
  EXPECT_TRUE(candidate_names("no_such_op").empty());
}

}  // namespace
}  // namespace hearth::test::candidates_test
