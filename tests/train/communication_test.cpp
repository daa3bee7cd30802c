// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run tell of their communication.
#include "train/profile/communication.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include "core/io/file.h"
#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/slow_groups.h"
#include "tests/support/temp_dir.h"
#include "train/report/metrics_log.h"
#include "train/report/timeline.h"
#include "train/trainer.h"

namespace hearth::train::communication_test {
namespace {

using std::chrono::milliseconds;
using test::contains;
using Groups = std::vector<std::unique_ptr<Collective>>;

constexpr const char* small_run = R"({
  "name": "run", "device": "cpu", "seed": 3, "model": {"type": "mlp", "hidden": [16]},
  "data": {"type": "digits", "workers": 0, "valid_fraction": 0.1}, "optimizer": {"type": "sgd", "lr": 0.1},
  "train": {"batch_size": 16, "steps": 6}, "log": {"every_steps": 3, "report": false, "tensorboard": false}})";

class Communication : public testing::Test {
 protected:
  struct Run {
    std::vector<Json> lines;  ///< of training metrics
    std::string console;      ///< of rank 0
  };
  /// Trains with the ranks of `groups`, or, where there are none, in one process.
  Run train(const std::string& out, Groups groups, const std::vector<std::string>& overrides = {},
            const std::function<void(Session&)>& prepare = {}) const {
    const std::string config = folder_ / "run.json";
    std::ofstream(config) << small_run;
    std::ostringstream console;
    const auto run = [&](Collective* group) {
      Session session(load_config(config, overrides), group);
      if (prepare) prepare(session);
      const bool writes = group == nullptr || group->rank() == 0;
      RunFolder folder(folder_ / out, writes);
      std::ostream nowhere(nullptr);
      Progress progress(writes ? console : nowhere, false);
      Trainer(session, folder, progress).run("test");
    };
    if (groups.empty()) run(nullptr);
    for (const std::string& failure :
         test::failures_of_ranks(std::move(groups), [&](Collective& group) { run(&group); }))
      EXPECT_EQ(failure, "");
    Run done{{}, console.str()};
    for (const Json& record : read_metrics(folder_ / (out + "/metrics.jsonl")))
      if (record.at("split").as_string() == "train") done.lines.push_back(record);
    return done;
  }

  test::TempDir folder_;
};

double number(const Json& line, const char* key) { return line.at(key).as_number(); }

TEST_F(Communication, OneProcessHasNone) {
  for (const int ranks : {0, 1}) {
    const std::string out = "alone" + std::to_string(ranks);
    const Run alone = train(out, ranks == 0 ? Groups() : dist::loopback_groups(ranks));
    ASSERT_EQ(alone.lines.size(), 2U);
    for (const JsonMember& member : alone.lines[1].members())
      EXPECT_FALSE(member.key.starts_with("communication_") || member.key == "scaling_efficiency") << member.key;
    EXPECT_FALSE(contains(alone.console, "comm wait"));
    EXPECT_FALSE(file_exists(folder_ / (out + "/step_trace.json")));
  }
}

TEST_F(Communication, BytesAreThoseOfTheGradients) {
  std::mutex mutex;
  std::int64_t gradients = 0, comparison = 0;
  const Run two = train("two", dist::loopback_groups(2), {}, [&](Session& session) {
    const std::int64_t before = session.ranks->group().traffic().bytes;
    session.ranks->group().barrier();
    const std::lock_guard lock(mutex);
    comparison = session.ranks->group().traffic().bytes - before;
    gradients = static_cast<std::int64_t>(session.parameters->grads().byte_size());
  });
  ASSERT_EQ(two.lines.size(), 2U);
  // One of two ranks sends one half for the sum, and the sum of the other half. What the ranks tell each other before
  // a step has the size of a comparison.
  EXPECT_GT(gradients, 4 * 64 * 16);
  for (const Json& line : two.lines) {
    EXPECT_EQ(line.at("communication_bytes").as_integer(), gradients + 2 * comparison);
    EXPECT_GT(number(line, "communication_seconds"), 0);
    EXPECT_LE(number(line, "communication_wait"), 1);
  }
  EXPECT_TRUE(contains(two.console, "comm wait ")) << two.console;
}

TEST_F(Communication, ASlowConnectionIsExposed) {
  const Run quick = train("quick", dist::loopback_groups(2)),
            slow = train("slow", test::slow_groups(2, milliseconds(15)));
  for (const Json& line : slow.lines) {
    // What is told before a step, the comparison, the pieces and their sums: four exchanges.
    EXPECT_GE(number(line, "communication_seconds"), 0.06);
    EXPECT_GE(number(line, "communication_exposed"), 0.05);
    EXPECT_GT(number(line, "communication_wait"), 0.5);
    EXPECT_LT(number(line, "communication_hidden"), 0.5);
  }
  EXPECT_LT(number(quick.lines[1], "communication_exposed"), number(slow.lines[1], "communication_exposed"));
  EXPECT_EQ(quick.lines[1].at("communication_bytes"), slow.lines[1].at("communication_bytes"));
}

TEST_F(Communication, ScalingIsTheBusyPartOfAllRanksTime) {
  const auto of = [&](const std::string& out, Groups groups) {
    return number(train(out, std::move(groups)).lines[1], "scaling_efficiency");
  };
  const double quick = of("quick", dist::loopback_groups(2)), slow = of("slow", test::slow_groups(2, milliseconds(15)));
  EXPECT_GT(slow, 0);
  EXPECT_LT(slow, 0.5);
  EXPECT_LT(slow, quick);
  EXPECT_LE(quick, 1);
}

/// Sleeps in every step of one rank.
struct Sleeping : Hook {
  void before_step(Session&, std::span<const data::Batch>) override { std::this_thread::sleep_for(milliseconds(30)); }
};

TEST_F(Communication, ASlowRankIsNamedOnce) {
  // After 5 steps, a second of steps that take 30 ms or more.
  const Run run = train("straggler", dist::loopback_groups(3), {"train.steps=50"}, [](Session& session) {
    if (session.ranks->rank() == 1) session.add_hook("sleep", std::make_unique<Sleeping>());
  });
  const std::size_t at = run.console.find("warning: rank 1 is slow: ");
  ASSERT_NE(at, std::string::npos) << run.console;
  EXPECT_EQ(run.console.find("is slow", run.console.find("is slow") + 1), std::string::npos) << run.console;
  const std::string line = run.console.substr(at, run.console.find('\n', at) - at);
  EXPECT_GE(std::stod(line.substr(line.find("slow: ") + 6)), 30) << line;
  // Rank 0 waits for it.
  EXPECT_GT(number(run.lines.back(), "communication_exposed"), 0.015);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(Communication, TheReportShowsTheStepOfEachRank) {
  (void)train("traced", dist::loopback_groups(2), {"log.report=true"});
  const Json trace = read_json(folder_ / "traced/step_trace.json");
  EXPECT_EQ(trace.at("step").as_integer(), 6);
  ASSERT_EQ(trace.at("ranks").size(), 2U);
  for (const Json& rank : trace.at("ranks").items()) {
    std::vector<std::string> computed;
    double before = 0;
    for (const Json& span : rank.at("compute").items()) {
      computed.push_back(span.items()[0].as_string());
      EXPECT_GE(span.items()[1].as_number(), before);
      before = span.items()[2].as_number();
    }
    EXPECT_EQ(computed,
              (std::vector<std::string>{"copy", "other", "forward", "backward", "communication", "update", "other"}));
    // The gradients are one bucket.
    ASSERT_EQ(rank.at("communication").size(), 1U);
    const std::vector<Json>& sum = rank.at("communication").items()[0].items();
    EXPECT_EQ(sum[0].as_string(), "all_reduce");
    EXPECT_GE(sum[1].as_number(), rank.at("compute").items()[3].items()[1].as_number())
        << "not before the backward pass";
    EXPECT_LE(sum[2].as_number(), before);
    EXPECT_GT(sum[3].as_integer(), 4 * 64 * 16);
  }
  const std::string page = read_text(folder_ / "traced/report.html");
  for (const char* part : {"A step by rank", "Step 6, 2 ranks", ">rank 0 computes<", ">rank 1 computes<"})
    EXPECT_TRUE(contains(page, part)) << part;
  EXPECT_EQ(count(page, ">communicates<"), 2U);
  for (const char* part : {"<title>forward, ", "<title>backward, ", "<title>update, ", "<title>all_reduce, "})
    EXPECT_EQ(count(page, part), 2U) << part;
  EXPECT_TRUE(contains(page, ">scaling efficiency<"));
  (void)train("alone", {}, {"log.report=true"});
  EXPECT_FALSE(file_exists(folder_ / "alone/step_trace.json"));
  EXPECT_FALSE(contains(read_text(folder_ / "alone/report.html"), "A step by rank"));
}

TEST(Timeline, ShowsTheFirstRanksAndNothingOfOtherJson) {
  Json ranks = Json::array();
  for (int i = 0; i < 20; ++i)
    ranks.push_back(
        parse_json(R"({"compute": [["back<ward", 0, 2.5]], "communication": [["all_reduce", 1, 2, 10]]})", "rank"));
  const std::string svg = timeline_svg(Json::object().set("ranks", ranks));
  EXPECT_EQ(count(svg, "<title>back&lt;ward, 0 to 2.5 ms</title>"), max_lanes);
  EXPECT_EQ(count(svg, "<title>all_reduce, 1 to 2 ms, 10 bytes</title>"), max_lanes);
  for (const char* other :
       {"{}", R"({"ranks": 3})", R"({"ranks": []})", R"({"ranks": [{"compute": [["a", "b", 1], 3]}]})"})
    EXPECT_EQ(timeline_svg(parse_json(other, "trace")), "") << other;
}

TEST(StragglerWatch, FindsWhoIsSlowerThanTheMedianRank) {
  using Found = std::vector<int>;
  const auto found = [](StragglerWatch& watch, const std::vector<double>& busy, std::size_t steps) {
    Found ranks;
    std::vector<StepTimes> times;
    for (const double seconds : busy) times.push_back({1, seconds});
    for (std::size_t i = 0; i < steps; ++i)
      for (const auto& one : watch.add(times)) {
        ranks.push_back(one.rank);
        EXPECT_EQ(one.seconds, busy[static_cast<std::size_t>(one.rank)]);
      }
    return ranks;
  };
  constexpr std::size_t once = StragglerWatch::steps_before + StragglerWatch::window;
  StragglerWatch alike, of_two, of_four, late;
  EXPECT_EQ(found(alike, {0.1, 0.12, 0.129}, 200), Found{});
  EXPECT_EQ(found(of_two, {0.1, 0.14}, once - 1), Found{});
  EXPECT_EQ(found(of_two, {0.1, 0.14}, 1), Found{1});
  EXPECT_EQ(found(of_two, {0.1, 0.14}, 100), Found{}) << "it was named";
  EXPECT_EQ(found(of_four, {0.3, 0.1, 0.2, 0.1}, once), (Found{0, 2}));
  EXPECT_EQ(found(late, {0.1, 0.1}, 100), Found{});
  // A few slow steps are none.
  EXPECT_EQ(found(late, {0.1, 0.5}, 9), Found{});
  EXPECT_EQ(found(late, {0.1, 0.1}, 100), Found{});
  EXPECT_EQ(found(late, {0.5, 0.1}, 2 * StragglerWatch::window), Found{0});
  // Of short steps a second is looked at.
  StragglerWatch brief;
  const std::vector<StepTimes> short_steps{{0.01, 0.001}, {0.01, 0.009}};
  std::size_t until = 0;
  while (brief.add(short_steps).empty() && until < 1000) ++until;
  EXPECT_NEAR(static_cast<double>(until), StragglerWatch::steps_before + 100, 1);
  StragglerWatch unmeasured;
  const std::vector<StepTimes> none(2);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(unmeasured.add(none).empty());
}

}  // namespace
}  // namespace hearth::train::communication_test
