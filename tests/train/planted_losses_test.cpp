// SPDX-License-Identifier: Apache-2.0
// Slow runs with one planted cause each: the report, or `hearth plan --audit`, names it first, and what to change. Runs
// are real where this machine can be slow in that way; another machine's counters are files. Those of a GPU are in
// tests/reference_libraries/tests/planted_device_losses_test.cpp.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <random>

#include "core/build.h"
#include "core/cpu/cores.h"
#include "data/images/codecs/image.h"
#include "hearth.h"
#include "tests/support/variable_scope.h"
#include "tests/train/cli_program.h"
#include "train/plan/audit.h"
#include "train/profile/process_use.h"
#include "train/report/bottlenecks.h"

namespace hearth::train::planted_losses_test {
namespace {

Bottleneck first_of(const RunRecords& run) {
  const std::vector<Bottleneck> all = bottlenecks(run);
  return all.empty() ? Bottleneck{.cause = "none", .text = ""} : all[0];
}

class PlantedLoss : public Cli {
 protected:
  /// The first that the report of a run names. `words` begin with "train" or "launch".
  Bottleneck first_loss(const std::vector<std::string>& words, const std::string& config,
                        const std::map<std::string, std::string>& environment = {}) {
    write("run.json", config);
    std::vector<std::unique_ptr<test::VariableScope>> scopes;
    for (const auto& [name, value] : environment)
      scopes.push_back(std::make_unique<test::VariableScope>(name.c_str(), value));
    std::vector<std::string> all = words;
    all.insert(all.end(), {"run.json", "--out", "slow"});
    const ProgramResult result = hearth(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Bottleneck first = first_of(read_run(path("slow")));
    const std::string page = read_text(path("slow/report.html"));
    const std::size_t section = page.find("<h2>Where time was lost</h2>");
    EXPECT_NE(section, page.npos);
    const std::size_t begin = page.find("<p", section);
    EXPECT_PRED2(contains, page.substr(begin, page.find("</p>", begin) - begin), ">" + first.cause + ": ");
    return first;
  }

  /// The first finding of `hearth plan --audit`.
  Json first_finding(const std::string& config) {
    write("run.json", config);
    const ProgramResult result = hearth({"plan", "run.json", "--audit", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "findings").at(0);
  }

  void write_file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(path(name).parent_path());
    std::ofstream(path(name)) << text;
  }
  /// A run of 10 s whose second line of metrics has what a meter sees between two states of made-up counters.
  Bottleneck first_loss_by_counters(const std::map<std::string, std::string>& before,
                                    const std::map<std::string, std::string>& after) {
    for (const auto& [name, text] : before) write_file("machine/" + name, text);
    ProcessMeter meter(path("machine"));
    RunRecords run{.info = Json::object(), .config = Json::object(), .metrics = {}};
    for (const auto& files : {before, after}) {
      for (const auto& [name, text] : files) write_file("machine/" + name, text);
      Json line = Json::object().set("step", 5).set("split", "train");
      line.set("phase_seconds", Json::object().set("forward", 2).set("backward", 3));
      meter.write(line);
      run.metrics.push_back(std::move(line));
    }
    return first_of(run);
  }
};

const std::string small_resnet = R"({"name": "slow", "seed": 3, "device": "cpu",
  "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 16},
  "data": {"type": "digits", "workers": 1}, "optimizer": {"type": "sgd", "lr": 0.01},
  "train": {"batch_size": 32, "epochs": 4}, "eval": {"every_epochs": 9}, "checkpoint": {"every_epochs": 9},
  "log": {"every_steps": 10, "tensorboard": false}})";

TEST_F(PlantedLoss, SlowDecoding) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  // Noise, which is slow to unpack.
  std::mt19937 random(5);
  for (int i = 0; i < 24; ++i) {
    data::Image image;
    image.reshape(700, 700, 3);
    for (std::uint8_t& value : image.pixels) value = static_cast<std::uint8_t>(random() % 32);
    const std::filesystem::path file = path(join_text("images/train/", i % 2 == 0 ? "cats" : "dogs", "/", i, ".png"));
    std::filesystem::create_directories(file.parent_path());
    data::write_png(file, image);
  }
  const Bottleneck first = first_loss({"train"}, R"({"name": "slow", "seed": 3, "device": "cpu",
    "model": {"type": "mlp", "hidden": [8]}, "optimizer": {"type": "sgd", "lr": 0.01},
    "data": {"type": "image_folder", "path": "images", "workers": 1, "augment": {"image_size": 16}},
    "train": {"batch_size": 4, "epochs": 6}, "eval": {"every_epochs": 9}, "checkpoint": {"every_epochs": 9},
    "log": {"every_steps": 6, "tensorboard": false}})",
                                      {{"HEARTH_THREADS", "1"}});
  EXPECT_EQ(first.cause, "input") << first.text;
  EXPECT_TRUE(first.measured);
  EXPECT_PRED2(contains, first.text, " of their time for batches; decode takes ");
  if (cpu::available_cores() > 1) {
    EXPECT_PRED2(contains, first.text, "add workers (data.workers 2");
  }
  EXPECT_PRED2(contains, first.text, "hearth data pack --resize 256");
}

TEST_F(PlantedLoss, AHeadThatIsNotAligned) {
  const Json first = first_finding(R"({"device": "cpu", "model": {"type": "mlp", "hidden": [512]},
    "data": {"type": "synthetic", "classes": 1001, "height": 8, "width": 8, "channels": 1, "train_size": 64,
             "test_size": 8},
    "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 32, "steps": 3}})");
  EXPECT_EQ(first.at("kind").as_string(), "sizes") << to_text(first);
  EXPECT_PRED2(contains, first.at("what").as_string(), "1001 output features: no multiple of 16");
  EXPECT_PRED2(contains, first.at("remedy").as_string(), "1008 output features");
}

/// A linear layer; its input is brought into another order and back, for nothing.
struct Copying : nn::Module {
  nn::Linear out;
  Copying(std::int64_t features, std::int64_t classes) : out(features, classes) { register_module("out", out); }
  Tensor forward(const Tensor& images) override {
    Tensor x = flatten(images);
    for (int i = 0; i < 4; ++i) x = transpose(transpose(x, {1, 0}).contiguous(), {1, 0}).contiguous();
    return out(x);
  }
};

TEST_F(PlantedLoss, ANeedlessCopy) {
  models::add("copying", [](const models::InputInfo& input) {
    return std::make_unique<Copying>(input.features(), input.classes);
  });
  write("run.json", R"({"device": "cpu", "model": {"type": "copying"}, "optimizer": {"type": "sgd", "lr": 0.1},
    "data": {"type": "synthetic", "classes": 16, "height": 32, "width": 32, "channels": 4, "train_size": 64,
             "test_size": 8}, "train": {"batch_size": 32, "steps": 3}})");
  Session session(load_config(path("run.json").string(), {}));
  const AuditFinding first = audit_of(session, Device{}).at(0);
  EXPECT_EQ(first.kind, "transpose") << first.what;
  EXPECT_PRED2(contains, first.what, "copies an operand, axes 1, 0 in memory");
  EXPECT_PRED2(contains, first.remedy, "contiguous operands");
  EXPECT_EQ(first.calls, 8);
}

TEST_F(PlantedLoss, APortableKernel) {
  const Bottleneck first =
      first_loss({"train"}, small_resnet, {{"HEARTH_PICK", "conv2d:im2col"}, {"HEARTH_THREADS", "1"}});
  EXPECT_EQ(first.cause, "portable kernel") << first.text;
  EXPECT_PRED2(contains, first.text, "the portable kernel conv2d:im2col took");
  EXPECT_PRED2(contains, first.text, "HEARTH_PICK");
}

TEST_F(PlantedLoss, TooManyThreads) {
  const int cores = cpu::available_cores();
  const Bottleneck first =
      first_loss({"train", "--epochs", "1"}, small_resnet, {{"HEARTH_THREADS", std::to_string(8 * cores)}});
  EXPECT_EQ(first.cause, "threads") << first.text;
  EXPECT_PRED2(contains, first.text, join_text(8 * cores, " threads compute on ", cores));
  EXPECT_PRED2(contains, first.text, join_text("set HEARTH_THREADS to ", cores));
}

TEST_F(PlantedLoss, SmallBuckets) {
  const Bottleneck first = first_loss({"launch", "-n", "2", "--", "train"},
                                      R"({"name": "slow", "seed": 3, "device": "cpu",
    "model": {"type": "mlp", "hidden": [384, 384, 384]}, "optimizer": {"type": "sgd", "lr": 0.01},
    "data": {"type": "digits", "workers": 1}, "dist": {"backend": "tcp", "bucket_mb": 0.002, "first_bucket_mb": 0.002},
    "train": {"batch_size": 32, "epochs": 4}, "eval": {"every_epochs": 9}, "checkpoint": {"every_epochs": 9},
    "log": {"every_steps": 10, "tensorboard": false}})",
                                      {{"HEARTH_THREADS", "1"}});
  EXPECT_EQ(first.cause, "communication") << first.text;
  EXPECT_TRUE(first.measured);
  EXPECT_PRED2(contains, first.text, "small buckets of 0.002 MB: set dist.bucket_mb to 10");
}

/// /proc/self/stat with so many pages read back from disk.
std::string with_faults(int faults) { return join_text("7 (a (b) c) R 1 7 7 0 -1 4194304 900 0 ", faults, " 0 5 5\n"); }

TEST_F(PlantedLoss, MemoryNearSwap) {
  const std::map<std::string, std::string> machine{
      {"proc/self/statm", "500000 250000 0 0 0 0 0\n"},
      {"proc/meminfo", "MemTotal: 4000000 kB\nMemFree: 1000 kB\nMemAvailable: 20000 kB\n"},
      {"proc/self/status", "Name: hearth\nVmRSS: 1000000 kB\nVmSwap: 300000 kB\n"}};
  auto before = machine, after = machine;
  before["proc/self/stat"] = with_faults(10);
  after["proc/self/stat"] = with_faults(6010);
  const Bottleneck first = first_loss_by_counters(before, after);
  EXPECT_EQ(first.cause, "memory") << first.text;
  EXPECT_PRED2(contains, first.text, "6000 pages came back from disk while steps ran, with 20.48 MB of memory left");
  EXPECT_PRED2(contains, first.text, "307.2 MB of the run in swap");
  EXPECT_PRED2(contains, first.text, "lower train.batch_size, data.workers or data.cache_mb");
  // As many pages of files that are read first, with memory left, are no shortage.
  for (auto* files : {&before, &after}) {
    (*files)["proc/meminfo"] = "MemTotal: 4000000 kB\nMemAvailable: 2000000 kB\n";
    (*files)["proc/self/status"] = "VmSwap: 0 kB\n";
  }
  EXPECT_EQ(first_loss_by_counters(before, after).cause, "none");
}

TEST_F(PlantedLoss, MemoryOfAnotherNode) {
  const char *near = "sys/devices/system/node/node0/numastat", *far = "sys/devices/system/node/node1/numastat";
  const Bottleneck first = first_loss_by_counters({{near, "other_node 10\n"}, {far, "other_node 20\n"}},
                                                  {{near, "other_node 10\n"}, {far, "other_node 90000020\n"}});
  EXPECT_EQ(first.cause, "NUMA") << first.text;
  EXPECT_PRED2(contains, first.text, "pages a second lay on another NUMA node");
  EXPECT_PRED2(contains, first.text, "numactl --cpunodebind=0 --membind=0");
}

}  // namespace
}  // namespace hearth::train::planted_losses_test
