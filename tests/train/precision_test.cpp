// SPDX-License-Identifier: Apache-2.0
// Mixed precision of whole runs on the CPU: what is refused, skipped updates, checkpoints that cross precision, and
// the accuracy of a short training.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/profiler.h"
#include "core/profiler_spans.h"
#include "core/switches.h"
#include "ops/onednn/onednn.h"
#include "tests/ops/emulate_tiles.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/train/precision_session.h"
#include "train/cli/cli.h"
#include "train/config/auto_precision.h"
#include "train/report/metrics_log.h"

namespace hearth::train::precision_test {
namespace {

using test::contains;
using test::PrecisionRun;
using test::ProgramResult;
using test::take_steps;

const auto eager = [](Session& session) {
  return [&session](std::span<const data::Batch> batches) { return training_step(session, batches); };
};

struct Refused {
  const char* precision;
  std::vector<std::string> parts;
};

TEST(PrecisionConfig, WhatMakesNoSenseIsRefusedWithARemedy) {
  const test::TempDir folder;
  const std::vector<Refused> cases{
      {R"({"level": "O2", "dtype": "f32"})", {"O2", "low-precision dtype", "bf16 or f16"}},
      {R"({"level": "O1"})", {"O1", "low-precision dtype"}},
      {R"({"level": "O0", "dtype": "f16"})", {"O0 computes in f32", "O1 or O2 for f16"}},
      {R"({"level": "O2", "dtype": "tf32"})", {"tf32", "level O1"}},
      {R"({"level": "O0", "dtype": "tf32"})", {"O0 computes in f32"}},
      {R"({"level": "O3", "dtype": "f16"})", {"O3", "O2"}},
      {R"({"level": "O2", "dtype": "f8"})", {"f8", "allowed"}},
      {R"({"level": "O2", "dtype": "f16", "loss_scale": -2})", {"loss_scale", "> 0", "-2"}},
      {R"({"level": "O2", "dtype": "f16", "loss_scale": 0})", {"loss_scale", "> 0"}},
      {R"({"level": "O2", "dtype": "f16", "loss_scale": "dynamik"})", {"did you mean \"dynamic\""}},
      {R"({"level": "O2", "dtype": "bf16", "loss_scale": 1024})", {"bf16", "leave loss_scale out"}},
      {R"({"level": "O0", "dtype": "f32", "loss_scale": "dynamic"})", {"f32", "leave loss_scale out"}},
      {R"({"level": "O1", "dtype": "f16", "loss_scale": 8, "growth_steps": 5})", {"growth_steps", "dynamic"}},
      {R"({"level": "O1", "dtype": "bf16", "growth_steps": 5})", {"growth_steps", "f16"}},
      {R"({"level": "O1", "dtype": "bf16", "hysteresis": 2})", {"hysteresis", "f16"}},
      {R"({"level": "O1", "dtype": "f16", "loss_scale": 8, "backoff_factor": 0.5})", {"backoff_factor", "dynamic"}},
      {R"({"level": "O1", "dtype": "f16", "growth_factor": 1})", {"growth_factor", "> 1"}},
      {R"({"level": "auto", "dtype": "bf16"})", {"level auto chooses the dtype", "leave dtype"}},
      {R"({"level": "auto", "loss_scale": 8})", {"leave dtype, loss_scale"}},
      {R"({"level": "automatic"})", {"automatic", "auto"}},
      {R"({"level": "O1", "dtype": "tf32", "tf32": "on"})", {"dtype tf32 rounds all", "level O0"}},
      {R"({"level": "O1", "dtype": "tf32", "tf32": {"conv": "off"}})", {"leave the field tf32 out"}},
      {R"({"level": "O2", "dtype": "bf16", "tf32": "on"})", {"dtype bf16 does not make", "dtype f32"}},
      {R"({"level": "O1", "dtype": "f16", "tf32": {"matmul": "auto"}})", {"dtype f16 does not make"}},
      {R"({"level": "auto", "tf32": {"conv": "on"}})", {"level auto may choose bf16", "tf32 auto"}},
      {R"({"tf32": "always"})", {"always", "allowed are", "auto"}},
      {R"({"tf32": {"attention": "on"}})", {"attention", "matmul"}},
  };
  for (const Refused& refused : cases) {
    const std::string path = folder / "run.json";
    std::ofstream(path) << R"({"model": {"type": "mlp"}, "data": {"type": "digits"},
      "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"steps": 1}, "precision": )"
                        << refused.precision << "}";
    const ProgramResult result = test::run_program({test::hearth_program(), "config", "run.json"}, folder.path());
    EXPECT_EQ(result.exit_code, 2) << refused.precision;
    EXPECT_PRED2(contains, result.err, "/precision");
    for (const std::string& part : refused.parts) EXPECT_PRED2(contains, result.err, part) << refused.precision;
  }
}

/// The session of a run in level auto.
std::unique_ptr<Session> auto_session(const test::TempDir& folder, const std::string& model) {
  return PrecisionRun{.model = model}.session(folder, {R"(precision={"level": "auto"})"});
}

struct Settled {
  const char *level, *dtype, *reason;
};

void expect_settled(const Session& session, const Settled& expected) {
  EXPECT_STREQ(name_of(session.config().precision.level), expected.level);
  EXPECT_STREQ(name_of(session.config().precision.dtype), expected.dtype);
  EXPECT_EQ(session.resolved().at("precision").at("level").as_string(), expected.level);
  EXPECT_EQ(session.resolved().at("precision").at("dtype").as_string(), expected.dtype);
  EXPECT_PRED2(contains, session.precision_reason(), expected.reason);
  EXPECT_EQ(session.autocast().has_value(), std::string(expected.dtype) == "bf16");
}

TEST(AutoPrecision, TakesBf16WhereItIsMultipliedAndKnownToBeAccurate) {
  const test::TempDir folder;
  const bool here = cpu::dnn::has_hardware_bf16() || cpu::amx::unsupported().empty();
  expect_settled(*auto_session(folder, test::small_resnet),
                 here ? Settled{"O2", "bf16", "in hardware"} : Settled{"O0", "f32", "nothing here multiplies bf16"});
  const test::EmulateTiles emulate;
  expect_settled(*auto_session(folder, test::small_resnet), {"O2", "bf16", "in hardware"});
  expect_settled(*auto_session(folder, test::small_mlp), {"O0", "f32", "accuracy of model \"mlp\""});
  const auto session = auto_session(folder, test::small_resnet);
  EXPECT_NO_THROW(take_steps(*session, 0, 2, -1, -1, eager(*session)));
  session->restart();
  expect_settled(*session, {"O2", "bf16", "in hardware"});
}

TEST(AutoPrecision, TakesBf16ForTheTypesOfModelInTheTableOfPrecisionMd) {
  const std::string page = read_text(test::source_dir() + "/docs/precision.md");
  std::istringstream table(page.substr(page.find("<!-- precision_seeds begin -->")));
  std::set<std::string> compared, met;
  std::string line;
  for (int number = 0; std::getline(table, line) && !contains(line, "precision_seeds end"); ++number) {
    std::istringstream cells(line);
    std::string name, type;
    cells >> name >> name >> name >> type;
    if (number > 2) compared.insert(type);
  }
  EXPECT_GE(compared.size(), 4u);
  const test::EmulateTiles emulate;
  for (const auto& file : std::filesystem::directory_iterator(test::source_dir() + "/examples/configs")) {
    LoadedConfig loaded = load_config(file.path().string(), {R"(precision={"level": "auto"})"});
    const std::string type = loaded.config.model.type();
    settle_precision(loaded, Device());
    EXPECT_EQ(loaded.config.precision.level == PrecisionLevel::O2, compared.contains(type)) << file.path();
    met.insert(type);
  }
  EXPECT_TRUE(std::includes(met.begin(), met.end(), compared.begin(), compared.end()));
}

TEST(AutoPrecision, ConvolutionsOfAStepRunOnTiles) {
  const test::TempDir folder;
  const std::string model = R"({"type": "resnet", "blocks": [1, 1], "stem": "small", "width": 32})";
  auto emulate = std::make_optional<test::EmulateTiles>();
  const auto session = auto_session(folder, model);
  profiler::start();
  take_steps(*session, 0, 1, -1, -1, eager(*session));
  profiler::stop();
  std::map<std::string, int> calls;
  for (const profiler::Span& span : profiler::spans())
    if (std::string(span.name).starts_with("conv2d:")) ++calls[span.name];
  // Both convolutions of both blocks in three passes, the first layer in two; and the 1x1 beside a block in three.
  EXPECT_EQ(calls, (std::map<std::string, int>{{"conv2d:amx", 14}, {"conv2d:matmul", 3}}));
  // What was chosen for these problems does not outlive the emulation.
  emulate.reset();
  EXPECT_NO_THROW(take_steps(*session, 1, 2, -1, -1, eager(*session)));
}

TEST(AutoPrecision, IsSaidSavedAndResumed) {
  const test::TempDir folder;
  std::ofstream(folder / "run.json") << R"({"model": )" << test::small_mlp << R"(, "data": {"type": "digits"},
      "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"epochs": 1}, "precision": {"level": "auto"}})";
  const auto train = [&](const char* epochs) {
    return test::run_program({test::hearth_program(), "train", "run.json", "--out", "run", "--epochs", epochs},
                             folder.path());
  };
  const ProgramResult first = train("1");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_PRED2(contains, first.out + first.err, "precision O0 f32 (auto: ");
  EXPECT_EQ(read_json(folder / "run/config.json").at("precision").at("level").as_string(), "O0");
  const ProgramResult summary =
      test::run_program({test::hearth_program(), "plan", "run.json", "--precision"}, folder.path());
  EXPECT_PRED2(contains, summary.out, "precision O0 f32 (auto: ");
  EXPECT_PRED2(contains, summary.out, "low_precision  f32");
  const ProgramResult second = train("2");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_PRED2(contains, second.out + second.err, "from ");
}

class ScaledRun : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  PrecisionRun run() const {
    return {.level = std::get<0>(GetParam()), .optimizer = std::get<1>(GetParam()), .train = R"(, "ema": 0.9)"};
  }
  test::TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Levels, ScaledRun,
                         testing::Combine(testing::Values("O1", "O2"),
                                          testing::Values(R"({"type": "sgd", "lr": 0.05, "momentum": 0.9})",
                                                          R"({"type": "adamw", "lr": 0.005})",
                                                          R"({"type": "lamb", "lr": 0.01})")));

TEST_P(ScaledRun, AnInfinityCostsOneUpdateAndNothingElse) {
  const auto with = run().session(folder_), without = run().session(folder_);
  take_steps(*with, 0, 6, 3, -1, eager(*with));
  take_steps(*without, 0, 6, -1, 3, eager(*without));
  EXPECT_EQ(with->loss_scale_now.skipped, 1);
  EXPECT_EQ(with->loss_scale_now.scale, 32768);
  EXPECT_EQ(without->loss_scale_now.scale, 65536);
  // Weights and running statistics; the rest but for the scale itself.
  EXPECT_EQ(with->model_state.hash(), without->model_state.hash());
  EXPECT_EQ(with->ema->average().to_doubles(), without->ema->average().to_doubles());
  EXPECT_EQ(with->optimizer->steps(), 5);
  EXPECT_EQ(with->position.interval.samples, 5 * 8);
  EXPECT_EQ(with->position.interval.loss_sum, without->position.interval.loss_sum);
  EXPECT_EQ(with->position.interval.correct, without->position.interval.correct);
}

TEST(Precision, GivesUpAtTheFloorAndNamesAParameter) {
  const test::TempDir folder;
  for (const char* scale : {R"(, "loss_scale": "dynamic")", R"(, "loss_scale": 256)"}) {
    const auto session = PrecisionRun{.model = test::root_of_zero(), .precision = scale}.session(folder);
    const bool dynamic = contains(scale, "dynamic");
    // 16 times it can be halved.
    const int tolerated = dynamic ? 16 + 9 : 9;
    EXPECT_NO_THROW(take_steps(*session, 0, tolerated, -1, -1, eager(*session)));
    const std::string message = test::error_message<DivergedError>(
        [&] { take_steps(*session, tolerated, tolerated + 1, -1, -1, eager(*session)); });
    EXPECT_PRED2(contains, message, "overflowed 10 times in a row");
    EXPECT_PRED2(contains, message, dynamic ? "is 1, its floor" : "is 256; a dynamic one");
    EXPECT_PRED2(contains, message, "that of \"root\"");
  }
}

TEST(Precision, EachSessionOfAProcessComputesAsItsOwnConfigurationSays) {
  const test::TempDir folder;
  const PrecisionRun plain{
      .level = "O1", .dtype = "tf32", .model = test::small_mlp, .train = R"(, "repeatable": false)"};
  const PrecisionRun strict{
      .level = "O0", .dtype = "f32", .model = test::small_mlp, .train = R"(, "deterministic": true)"};
  const auto exact = strict.session(folder), loose = plain.session(folder);
  std::vector<Switches> seen;
  for (Session* const session : {exact.get(), loose.get()})
    session->model->on_forward([&](const nn::Module&, const Tensor&) { seen.push_back(switches()); });
  take_steps(*exact, 0, 1, -1, -1, eager(*exact));
  take_steps(*loose, 0, 1, -1, -1, eager(*loose));
  evaluation_step(*exact, test::noise_batch(1).to(exact->device()), Sums(exact->device()));
  ASSERT_EQ(seen.size(), 3U);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const bool is_exact = i != 1;
    EXPECT_EQ(seen[i].deterministic, is_exact) << i;
    EXPECT_EQ(seen[i].repeatable, is_exact) << i;
    EXPECT_EQ(seen[i].tf32, !is_exact) << i;
  }
  EXPECT_FALSE(cpu::deterministic()) << "of the process";
  const PrecisionRun both{.level = "O0",
                          .dtype = "f32",
                          .model = test::small_mlp,
                          .train = R"(, "deterministic": true, "repeatable": false)"};
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] { (void)both.session(folder); }),
               "deterministic needs repeatable algorithms; leave repeatable out");
}

TEST(Precision, TheProgramNamesTheParameterToo) {
  const test::TempDir folder;
  const std::string config = folder / "run.json", out = folder / "out";
  std::ofstream(config) << R"({"model": )" << test::root_of_zero() << R"(, "data": {"type": "digits"},
    "device": "cpu", "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"steps": 20, "batch_size": 16},
    "precision": {"level": "O2", "dtype": "f16", "loss_scale": 256}, "log": {"every_steps": 4}})";
  std::vector<std::string> words{"hearth", "train", config, "--out", out};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_cli(static_cast<int>(arguments.size()), arguments.data()), 5);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_PRED2(contains, said, "hearth: error: diverged: at step 12 ");
  EXPECT_PRED2(contains, said, "that of \"root\"");
}

TEST(Precision, DivergenceEndsTheProgramWithCode5) {
  const test::TempDir folder;
  std::ofstream(folder / "run.json") << R"({"model": {"type": "mlp", "hidden": [16]}, "data": {"type": "digits"},
    "optimizer": {"type": "sgd", "lr": 1e30}, "precision": {"level": "O2", "dtype": "f16"},
    "train": {"steps": 60, "batch_size": 16}})";
  const ProgramResult result = test::run_program({test::hearth_program(), "train", "run.json"}, folder.path());
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_EQ(result.last_error_line().find("hearth: error: diverged: "), 0u) << result.err;
}

TEST(Precision, CheckpointsHoldF32AndCrossPrecision) {
  const test::TempDir folder;
  const PrecisionRun o0{.level = "O0", .dtype = "f32"}, o1{.level = "O1", .dtype = "f16"},
      o1_bf16{.level = "O1", .dtype = "bf16"}, o2{}, bf16{.dtype = "bf16"};
  for (const PrecisionRun& from : {o0, o1, o1_bf16, o2, bf16}) {
    const auto saved = from.session(folder);
    take_steps(*saved, 0, 4, from.dtype == "f16" ? 2 : -1, -1, eager(*saved));
    const std::string run = folder / (from.level + from.dtype);
    save_session(*saved, run + "/checkpoints");
    const SafetensorsFile file(run + "/checkpoints/latest/model.safetensors");
    for (const TensorRecord& record : file.records()) EXPECT_EQ(record.dtype, DType::f32) << record.name;
    for (const PrecisionRun& to : {o0, o1, o1_bf16, o2, bf16}) {
      const auto loaded = to.session(folder);
      const bool same = to.level == from.level && to.dtype == from.dtype;
      if (!same) {
        EXPECT_THROW((void)restore_newest(*loaded, run), ConfigError);
      }
      ASSERT_FALSE(restore_newest(*loaded, run, {.other_precision = !same}).from.empty());
      EXPECT_EQ(loaded->model_state.hash(), saved->model_state.hash()) << from.level << " to " << to.level;
      EXPECT_EQ(loaded->optimizer->steps(), saved->optimizer->steps());
      if (to.dtype == "f16") {
        loaded->read_interval();
        EXPECT_EQ(loaded->loss_scale_now.scale, from.dtype == "f16" ? 32768 : 65536)
            << from.level << " to " << to.level;
      }
      const FlatParameters& flat = *loaded->parameters;
      // In O1 f16 products are made in f32 on the CPU.
      EXPECT_EQ(flat.low_precision().defined(), to.level == "O2" || (to.level == "O1" && to.dtype == "bf16"));
      if (flat.low_precision().defined()) {
        EXPECT_EQ(flat.low_precision().to_doubles(), flat.values().to(flat.low_precision().dtype()).to_doubles());
      }
      take_steps(*loaded, 4, 6, -1, -1, eager(*loaded));
      if (!same) continue;
      take_steps(*saved, 4, 6, -1, -1, eager(*saved));
      EXPECT_EQ(loaded->model_state.hash(), saved->model_state.hash()) << from.level;
      EXPECT_EQ(loaded->training_state.hash(), saved->training_state.hash()) << from.level;
      // Back to where the checkpoint is.
      ASSERT_FALSE(restore_newest(*saved, run).from.empty());
    }
  }
}

TEST(Precision, ASkippedUpdateAfterAResumeTellsTheSameNorm) {
  const test::TempDir folder;
  const PrecisionRun run{.train = R"(, "clip_norm": 1)"};
  const auto saved = run.session(folder), loaded = run.session(folder);
  take_steps(*saved, 0, 2, -1, -1, eager(*saved));
  save_session(*saved, folder / "run/checkpoints");
  ASSERT_FALSE(restore_newest(*loaded, folder / "run").from.empty());
  for (Session* session : {saved.get(), loaded.get()}) take_steps(*session, 2, 3, 2, -1, eager(*session));
  EXPECT_EQ(loaded->loss_scale_now.skipped, 1);
  EXPECT_EQ(loaded->grad_norm, saved->grad_norm);
  for (Session* session : {saved.get(), loaded.get()}) take_steps(*session, 3, 4, -1, -1, eager(*session));
  EXPECT_GT(saved->grad_norm, 0);
  EXPECT_EQ(loaded->grad_norm, saved->grad_norm);
}

TEST(Precision, AFixedScaleHoldsInARunThatGoesOnFromAMovingOne) {
  const test::TempDir folder;
  const auto moving = PrecisionRun{}.session(folder);
  take_steps(*moving, 0, 2, 1, -1, eager(*moving));
  save_session(*moving, folder / "run/checkpoints");
  const auto fixed = PrecisionRun{.precision = R"(, "loss_scale": 256)"}.session(folder);
  ASSERT_FALSE(restore_newest(*fixed, folder / "run", {.other_precision = true}).from.empty());
  take_steps(*fixed, 2, 3, -1, -1, eager(*fixed));
  EXPECT_EQ(fixed->loss_scale_now.scale, 256);
}

TEST(Precision, AnEvaluationMayUseAnother) {
  const test::TempDir folder;
  const auto trained = PrecisionRun{}.session(folder);
  take_steps(*trained, 0, 2, -1, -1, eager(*trained));
  save_session(*trained, folder / "run/checkpoints");
  const auto opened = open_for_evaluation(folder / "run", {R"(precision={"level": "O0", "dtype": "f32"})"});
  EXPECT_EQ(opened->model_state.hash(), trained->model_state.hash());
  const Meter narrow = evaluate(*trained, trained->data.test), wide = evaluate(*opened, opened->data.test);
  EXPECT_NEAR(narrow.loss(), wide.loss(), 0.01 * wide.loss());
  EXPECT_NE(narrow.loss(), wide.loss());
}

// Averages are what an evaluation computes with, in low-precision types too.
TEST(Precision, AveragedWeightsAreNarrowedWhereTheyAreUsed) {
  const test::TempDir folder;
  const auto session = PrecisionRun{.train = R"(, "ema": 0.9)"}.session(folder);
  take_steps(*session, 0, 3, -1, -1, eager(*session));
  const FlatParameters& flat = *session->parameters;
  const std::vector<double> before = flat.low_precision().to_doubles();
  {
    const optim::EmaScope averaged(*session->ema);
    EXPECT_EQ(flat.low_precision().to_doubles(), flat.values().to(DType::f16).to_doubles());
    EXPECT_NE(flat.low_precision().to_doubles(), before);
  }
  EXPECT_EQ(flat.low_precision().to_doubles(), before);
}

TEST(Precision, O2HoldsNarrowWeightsButNotThoseOfNorms) {
  const test::TempDir folder;
  const auto session = PrecisionRun{.dtype = "bf16"}.session(folder);
  for (const FlatParameters::Entry& entry : session->parameters->entries()) {
    const bool norm = contains(entry.name, "bn") || contains(entry.name, "downsample.1.");
    EXPECT_EQ(entry.value.dtype(), norm ? DType::f32 : DType::bf16) << entry.name;
    EXPECT_EQ(entry.master.dtype(), DType::f32);
  }
  for (const NamedTensor& buffer : session->model->buffers()) EXPECT_EQ(buffer.tensor->dtype(), DType::f32);
}

TEST(Precision, AccumulatesInF32) {
  const test::TempDir folder;
  const auto session = PrecisionRun{.dtype = "bf16", .train = R"(, "accumulate": 4)"}.session(folder);
  EXPECT_EQ(session->parameters->grads().dtype(), DType::f32);
  std::vector<data::Batch> batches;
  for (int number = 0; number < 4; ++number) batches.push_back(test::noise_batch(number));
  (void)training_step(*session, batches);
  // A gradient of bf16 has none of the lower 16 bits of f32.
  const Tensor grads = session->parameters->grads();
  std::int64_t finer = 0;
  for (const double value : grads.to_doubles())
    finer += static_cast<double>(static_cast<float>(bf16(static_cast<float>(value)))) != value;
  EXPECT_GT(finer, grads.size() / 2);
}

/// Over all digits, those of training without augmentation, after some epochs of the example's run.
double accuracy_after(const char* level, const char* dtype, int epochs, int width) {
  const std::string example = test::source_dir() + "/examples/configs/digits_resnet.json";
  Session session(
      load_config(example, {join_text("train.epochs=", epochs), join_text("model.width=", width),
                            join_text("precision={\"level\": \"", level, "\", \"dtype\": \"", dtype, "\"}")}));
  data::Loader loader = session.make_train_loader();
  for (; session.position.step < session.plan.total_steps; ++session.position.step) {
    const data::Batch batch = loader.next();
    session.position.interval.samples += training_step(session, std::span(&batch, 1)).samples;
  }
  session.read_interval();
  const Meter known = evaluate(session, session.data.train), unknown = evaluate(session, session.data.test);
  return static_cast<double>(known.correct + unknown.correct) / static_cast<double>(known.samples + unknown.samples);
}

TEST(Precision, NarrowRunsLearn) {
  EXPECT_GT(accuracy_after("O1", "f16", 3, 8), 0.8);
  EXPECT_GT(accuracy_after("O2", "bf16", 3, 8), 0.8);
}

TEST(SlowPrecision, AShortRunIsAsAccurateAsInF32) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "too slow under a sanitizer; NarrowRunsLearn covers the same code there";
#endif
  const double wide = accuracy_after("O0", "f32", 8, 16);
  EXPECT_GT(wide, 0.99);
  for (const char* level : {"O1", "O2"})
    for (const char* dtype : {"bf16", "f16"}) {
      const double narrow = accuracy_after(level, dtype, 8, 16);
      EXPECT_GE(narrow, wide - 0.003) << level << dtype;
      RecordProperty(std::string(level) + dtype, std::to_string(narrow));
    }
}

TEST(Precision, TheSummaryListsEachOpWithItsTypes) {
  const test::TempDir folder;
  const auto ops_of = [&](const char* level, const char* dtype) {
    std::ofstream(folder / "run.json") << R"({"model": )" << test::small_resnet << R"(, "data": {"type": "digits"},
      "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"steps": 1}, "precision": {"level": ")"
                                       << level << R"(", "dtype": ")" << dtype << "\"}}";
    const ProgramResult result =
        test::run_program({test::hearth_program(), "plan", "run.json", "--precision", "--json"}, folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout").at("ops").items();
  };
  const auto reads = [](const Json& op, std::size_t i) { return op.at("reads").at(i).as_string(); };
  std::map<std::string, int> count;
  for (const Json& op : ops_of("O2", "f16")) {
    const std::string name = op.at("op").as_string(), runs_in = op.at("runs_in").as_string();
    ++count[name];
    if (name == "conv2d" || name == "linear") {
      EXPECT_EQ(runs_in, "f16");
      EXPECT_EQ(reads(op, 1), "f16") << "the weight";
      EXPECT_EQ(op.at("policy").as_string(), "low_precision");
    } else if (name == "batch_norm") {
      EXPECT_EQ(runs_in, "f32");
      EXPECT_EQ(reads(op, 0) + reads(op, 1) + op.at("gives").as_string(), "f16f32f16");
      EXPECT_EQ(op.at("policy").as_string(), "as_is");
    } else if (name == "cross_entropy") {
      EXPECT_EQ(reads(op, 0) + runs_in + op.at("gives").as_string(), "f16f32f32");
    }
  }
  EXPECT_EQ(count["cast"], 1) << "the images";
  EXPECT_EQ(count["conv2d"], 6);
  EXPECT_EQ(count["batch_norm"], 6);
  EXPECT_EQ(count["cross_entropy"], 1);
  for (const Json& op : ops_of("O0", "f32")) EXPECT_EQ(op.at("runs_in").as_string(), "f32");
}

TEST(Precision, MetricsTellTheScaleAndTheSkippedSteps) {
  const test::TempDir folder;
  std::ofstream(folder / "run.json") << R"({"model": {"type": "mlp", "hidden": [16]}, "data": {"type": "digits"},
    "optimizer": {"type": "sgd", "lr": 0.1}, "precision": {"level": "O1", "dtype": "f16", "growth_steps": 3},
    "train": {"steps": 8, "batch_size": 16, "clip_norm": 5}, "log": {"every_steps": 4, "report": false}})";
  ASSERT_EQ(test::run_program({test::hearth_program(), "train", "run.json"}, folder.path()).exit_code, 0);
  std::vector<double> scales;
  for (const Json& record : read_metrics(folder / "runs/run/metrics.jsonl")) {
    if (record.at("split").as_string() != "train") continue;
    scales.push_back(record.at("loss_scale").as_number());
    EXPECT_EQ(record.at("skipped_steps").as_integer(), 0);
    EXPECT_GT(record.at("grad_norm").as_number(), 0);
    EXPECT_LT(record.at("grad_norm").as_number(), 100) << "without the scale";
  }
  EXPECT_EQ(scales, (std::vector<double>{131072, 262144}));
}

}  // namespace
}  // namespace hearth::train::precision_test
