// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run tell of their communication.
#include "train/run/communication.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>

#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/slow_groups.h"
#include "tests/support/temp_dir.h"
#include "train/report/metrics_log.h"
#include "train/trainer.h"

namespace hearth::train {
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
  const Run alone = train("alone", {});
  ASSERT_EQ(alone.lines.size(), 2U);
  for (const JsonMember& member : alone.lines[0].members()) EXPECT_FALSE(member.key.starts_with("communication_"));
  EXPECT_FALSE(contains(alone.console, "comm wait"));
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

}  // namespace
}  // namespace hearth::train
