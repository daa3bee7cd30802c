// SPDX-License-Identifier: Apache-2.0
// The names that profilers see of steps: phases, and ops with the paths of their modules, of every reference model, for
// eager and recorded steps and for ranks.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/build.h"
#include "core/profiler.h"
#include "core/profiler_spans.h"
#include "core/text_stream.h"
#include "dist/process_group.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"
#if HEARTH_HAS_CUDA
#include "core/cuda/ranges.h"
#include "tests/support/nvtx_sink.h"
#endif

namespace hearth::train::markers_test {
namespace {

struct ReferenceModel {
  const char *name, *model, *data;
};

constexpr const char* digits = R"({"type": "digits"})";
constexpr const char* text = R"({"type": "text", "train": ["text.txt"], "length": 6,
  "tokenizer": {"type": "characters"}})";
constexpr const char* masked = R"({"type": "text", "train": ["text.txt"], "length": 6, "mask_probability": 0.3,
  "tokenizer": {"type": "bpe", "vocabulary": 300}})";
constexpr const char* pairs = R"({"type": "parallel_text", "train": ["text.txt", "text.txt"],
  "tokenizer": {"type": "bpe", "vocabulary": 300}})";

constexpr ReferenceModel models[] = {
    {"mlp", R"({"type": "mlp", "hidden": [16]})", digits},
    {"resnet", R"({"type": "resnet", "blocks": [1, 1], "stem": "small", "width": 8})", digits},
    {"vgg", R"({"type": "vgg", "depth": 11, "batch_norm": true, "width": 8, "head": "small"})",
     R"({"type": "digits", "augment": {"image_size": 32}})"},
    {"swin", R"({"type": "swin", "depths": [2, 1], "heads": [1, 2], "width": 8, "patch": 2, "window": 2})", digits},
    {"gpt", R"({"type": "gpt", "layers": 2, "heads": 2, "width": 16})", text},
    {"bert", R"({"type": "bert", "layers": 1, "heads": 2, "width": 16})", masked},
    {"transformer", R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 16,
      "hidden": 32})",
     pairs}};

void PrintTo(const ReferenceModel& model, std::ostream* out) { *out << model.name; }

class Markers : public testing::TestWithParam<std::tuple<ReferenceModel, DeviceType>> {
 protected:
  void SetUp() override {
    if (device_count(std::get<1>(GetParam())) == 0) GTEST_SKIP() << "there is no such device";
    std::ofstream file(folder_ / "text.txt");
    for (int i = 0; i < 60; ++i) file << "the hen of house " << i * i << " lays eggs.\n";
  }

  std::unique_ptr<Session> session(Collective* group = nullptr) const {
    const auto& [reference, device] = GetParam();
    std::string data = reference.data;
    for (std::size_t at = 0; (at = data.find("text.txt", at)) != data.npos; at += 1)
      data.replace(at, 8, folder_ / "text.txt"), at += std::string(folder_ / "text.txt").size() - 1;
    const std::string path = folder_ / join_text("run", group == nullptr ? 0 : group->rank(), ".json");
    std::ofstream(path) << R"({"name": "run", "seed": 3, "device": ")" << (device == DeviceType::cuda ? "cuda" : "cpu")
                        << R"(", "model": )" << reference.model << R"(, "data": )" << data
                        << R"(, "optimizer": {"type": "sgd", "lr": 0.01}, "train": {"batch_size": 4, "steps": 9}})";
    return std::make_unique<Session>(load_config(path, {}), group);
  }

  /// A step as a trainer takes it.
  template <class Step>
  static void take(Session& session, data::Loader& loader, Step&& step) {
    const PhaseMeter::StepScope phases(session.phases);
    session.phases.enter(Phase::data);
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < session.ranks->pieces(); ++i) batches.push_back(loader.next());
    (void)session.ranks->begin_step(batches, session.loss, {});
    (void)step(batches);
    ++session.position.step;
  }

  test::TempDir folder_;
};

std::set<std::string> paths_of(Session& session, bool with_parameters) {
  std::set<std::string> paths;
  session.model->for_each_module([&](nn::Module& module) {
    bool has_some = !with_parameters;
    const std::string path = module.path();
    for (const NamedTensor& parameter : session.model->parameters()) {
      const std::size_t end = parameter.name.rfind('.');
      has_some = has_some || (end != std::string::npos && parameter.name.substr(0, end) == path);
    }
    if (has_some) paths.insert(path.empty() ? "(model)" : path);
  });
  return paths;
}

/// Ops of modules, as ranges are called, and the modules of forward and backward passes.
struct Seen {
  std::set<std::string> phases, layers, backward;
  explicit Seen(const std::vector<profiler::Span>& spans) {
    for (const profiler::Span& span : spans) {
      if (span.op == nullptr) phases.insert(span.name);
      if (span.layer != nullptr) (span.backward ? backward : layers).insert(span.layer);
    }
  }
};

TEST_P(Markers, NameModulesByTheirPaths) {
  const auto run = session();
  data::Loader loader = run->make_train_loader();
  profiler::start();
  take(*run, loader, [&](std::span<const data::Batch> batches) { return training_step(*run, batches); });
  profiler::stop();
  const Seen seen(profiler::spans());
  for (const char* phase : {"data", "copy", "forward", "backward", "update", "other"})
    EXPECT_TRUE(seen.phases.contains(phase)) << phase;
  const std::set<std::string> all = paths_of(*run, false);
  for (const std::set<std::string>& layers : {seen.layers, seen.backward})
    for (const std::string& layer : layers) EXPECT_TRUE(all.contains(layer)) << layer;
  // What has weights computes under its name, or a module around it does so with its weights.
  for (const std::string& layer : paths_of(*run, true)) {
    std::string around = layer;
    while (!around.empty() && !seen.layers.contains(around))
      around = around.rfind('.') == std::string::npos ? "" : around.substr(0, around.rfind('.'));
    EXPECT_TRUE(!around.empty() || seen.layers.contains("(model)")) << layer;
  }
  EXPECT_GE(seen.backward.size(), seen.layers.size() / 2);
}

TEST_P(Markers, RecordedStepsHaveThoseOfEagerSteps) {
  if (std::get<1>(GetParam()) != DeviceType::cuda) GTEST_SKIP() << "only CUDA devices record steps";
  const auto run = session();
  data::Loader loader = run->make_train_loader();
  const auto captured = make_captured_step(*run);
  std::vector<Seen> seen;
  constexpr int eager_step = 1, recorded_step = 2, steps = 4;
  for (int i = 0; i < steps; ++i) {
    profiler::start();
    take(*run, loader, [&](std::span<const data::Batch> batches) { return captured->run(batches); });
    profiler::stop();
    seen.emplace_back(profiler::spans());
  }
  if (captured->nodes() == 0) GTEST_SKIP() << "batches differ in their shapes";
  EXPECT_EQ(seen[recorded_step].layers, seen[eager_step].layers);
  EXPECT_EQ(seen[recorded_step].backward, seen[eager_step].backward);
  // A replay is one launch.
  EXPECT_TRUE(seen[steps - 1].layers.empty());
  EXPECT_TRUE(seen[steps - 1].phases.contains("copy"));
}

#if HEARTH_HAS_CUDA
TEST_P(Markers, RangesAreBalancedAndHaveTheSameNames) {
  const auto run = session();
  data::Loader loader = run->make_train_loader();
  take(*run, loader, [&](std::span<const data::Batch> batches) { return training_step(*run, batches); });
  const bool before = cuda::marks_ranges();
  (void)test::NvtxSink::instance().take();
  cuda::mark_ranges(true);
  profiler::start();
  take(*run, loader, [&](std::span<const data::Batch> batches) { return training_step(*run, batches); });
  // Ranges are closed by what throws.
  EXPECT_THROW(take(*run, loader,
                    [&](std::span<const data::Batch>) -> StepResult {
                      enter(*run, Phase::forward);
                      const OriginScope origin = OriginScope::of_op("failing");
                      throw DataError("a step that fails");
                    }),
               DataError);
  profiler::stop();
  cuda::mark_ranges(before);
  const std::set<std::string> without_gradient{"row_lengths", "segment_positions", "sort"};
  const std::set<std::string> data_stages{"read", "decode", "augment", "assemble"};
  std::set<std::string> ranges;
  std::int64_t depth = 0;
  for (const std::string& range : test::NvtxSink::instance().take()) {
    depth += range == "end" ? -1 : 1;
    ASSERT_GE(depth, 0);
    ranges.insert(range);
  }
  EXPECT_EQ(depth, 0);
  for (const profiler::Span& span : profiler::spans()) {
    // Stages of the loader are no ranges: workers change them with each sample.
    if (span.thread != profiler::this_thread() || data_stages.contains(span.name)) continue;
    if (span.op != nullptr && std::string_view(span.op) != span.name) continue;
    const std::string name = span.op == nullptr ? span.name : join_text(Origin{span.op, span.layer, span.backward});
    // Ops that have no gradient have no range of their own.
    if (span.op != nullptr && without_gradient.contains(span.op)) continue;
    EXPECT_TRUE((span.op != nullptr && span.layer == nullptr) || ranges.contains(name)) << name;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(ReferenceModels, Markers,
                         testing::Combine(testing::ValuesIn(models),
                                          testing::Values(DeviceType::cpu, DeviceType::cuda)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) +
                                  (std::get<1>(parameter.param) == DeviceType::cuda ? "Cuda" : "Cpu");
                         });

using RankMarkers = Markers;
TEST_P(RankMarkers, BucketsAndCollectivesAreNamed) {
  std::vector<CollectiveSpan> collectives;
  profiler::start();
  for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(2), [&](Collective& group) {
         const auto run = session(&group);
         data::Loader loader = run->make_train_loader();
         take(*run, loader, [&](std::span<const data::Batch> batches) { return training_step(*run, batches); });
         run->ranks->trace().end();
         if (group.rank() == 0) collectives = run->ranks->trace().collectives();
       }))
    EXPECT_EQ(failure, "");
  profiler::stop();
  const Seen seen(profiler::spans());
  EXPECT_TRUE(seen.phases.contains("bucket 1 of 1"));
  EXPECT_TRUE(seen.phases.contains("communication"));
  ASSERT_FALSE(collectives.empty());
  EXPECT_STREQ(collectives[0].what, "all_reduce");
}
INSTANTIATE_TEST_SUITE_P(Resnet, RankMarkers,
                         testing::Combine(testing::Values(models[1]), testing::Values(DeviceType::cpu)));

}  // namespace
}  // namespace hearth::train::markers_test
