// SPDX-License-Identifier: Apache-2.0
// What holds for every family of models, in every precision, on the CPU and on a CUDA device, real or emulated: steps
// whose blocks are computed again, steps that are recorded and replayed, and runs that are resumed in the middle end
// with the same bits, averages and loss scales included.
#include <gtest/gtest.h>

#include <functional>

#include "core/cpu/parallel.h"
#include "tests/support/kept_threads.h"
#include "tests/train/precision_session.h"

namespace hearth::train::families_test {
namespace {

struct Family {
  const char *name, *model;
  bool of_text;
};

/// Each drops in every way that it can: the second time the same.
constexpr Family families[] = {
    {"resnet", R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})", false},
    {"gpt", R"({"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0.1})", true},
    {"swin", R"({"type": "swin", "depths": [2, 1], "heads": [1, 2], "width": 8, "patch": 2, "window": 2,
      "dropout": 0.1, "attention_dropout": 0.1, "drop_path": 0.2, "absolute_positions": true})",
     false},
};

struct Precision {
  const char *level, *dtype;
};
// A sanitizer looks at what is done, not at what comes out.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr Precision precisions[] = {{"O1", "f16"}, {"O2", "bf16"}};
#else
constexpr Precision precisions[] = {{"O0", "f32"}, {"O1", "bf16"}, {"O1", "f16"}, {"O2", "bf16"}, {"O2", "f16"}};
#endif

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }
void PrintTo(const Precision& precision, std::ostream* out) { *out << precision.level << ' ' << precision.dtype; }

using Case = std::tuple<Family, Precision, DeviceType>;

class Families : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t middle = 3, steps = 6;

  static bool is_scaled() { return std::get<1>(GetParam()).dtype == std::string("f16"); }

  std::unique_ptr<Session> session(const std::vector<std::string>& overrides = {}) const {
    const auto& [family, precision, device] = GetParam();
    test::PrecisionRun run{.level = precision.level,
                           .dtype = precision.dtype,
                           .device = device == DeviceType::cuda ? "cuda" : "cpu",
                           .model = family.model,
                           .train = R"(, "ema": 0.9, "clip_norm": 0.5)",
                           .batch_size = 4};
    // A scale that doubles each time until gradients overflow.
    if (is_scaled()) run.precision = R"(, "growth_steps": 1)";
    if (family.of_text) {
      const std::string text = folder_ / "text.txt";
      std::ofstream file(text);
      for (int i = 0; i < 40; ++i) file << "the hen of house " << i * i << " lays eggs.\n";
      run.data = R"({"type": "text", "train": [")" + text + R"("], "length": 6, "tokenizer": {"type": "characters"}})";
    }
    return run.session(folder_, overrides);
  }

  using Step = std::function<StepResult(std::span<const data::Batch>)>;
  static Step eager(Session& session) {
    return [&session](std::span<const data::Batch> batches) { return training_step(session, batches); };
  }
  /// Steps from where the session is to before `end`. Where half of all are done the sums are read, as before a
  /// checkpoint.
  static void go_on(Session& session, std::int64_t end, const Step& step) {
    data::Loader loader = session.make_train_loader();
    loader.seek(0, session.position.step);
    while (session.position.step < end) {
      const data::Batch batch = loader.next();
      session.position.interval.samples += step(std::span(&batch, 1)).samples;
      if (++session.position.step == middle) session.read_interval();
    }
    session.read_interval();
  }
  static void expect_same_bits(const Session& found, const Session& plain, const char* way) {
    EXPECT_EQ(found.model_state.hash(), plain.model_state.hash()) << way;
    EXPECT_EQ(found.training_state.hash(), plain.training_state.hash()) << way;
    EXPECT_EQ(found.ema->average().to_doubles(), plain.ema->average().to_doubles()) << way;
  }

  test::TempDir folder_;
};

TEST_P(Families, EveryWayToTrainEndsWithTheSameBits) {
  if (device_count(std::get<2>(GetParam())) == 0) GTEST_SKIP() << "there is no such device";
  const auto plain = session();
  go_on(*plain, steps, eager(*plain));
  EXPECT_GT(plain->position.interval.loss_sum, 0);
  EXPECT_EQ(plain->loss_scale_now.skipped > 0, is_scaled()) << "nothing overflowed";
  EXPECT_NE(plain->ema->average().to_doubles(), plain->parameters->values().to_doubles());

  const auto recomputed = session({"model.recompute=true"});
  go_on(*recomputed, steps, eager(*recomputed));
  expect_same_bits(*recomputed, *plain, "recomputed");

  {
    const auto stopped = session();
    go_on(*stopped, middle, eager(*stopped));
    save_session(*stopped, folder_ / "run/checkpoints");
    go_on(*stopped, middle + 1, eager(*stopped));
  }
  const auto resumed = session();
  ASSERT_FALSE(restore_newest(*resumed, folder_ / "run").from.empty());
  ASSERT_EQ(resumed->position.step, middle);
  go_on(*resumed, steps, eager(*resumed));
  expect_same_bits(*resumed, *plain, "resumed");

  if (std::get<2>(GetParam()) != DeviceType::cuda) return;
  const auto replayed = session();
  const auto captured = make_captured_step(*replayed);
  go_on(*replayed, steps, [&](auto batches) { return captured->run(batches); });
  EXPECT_EQ(captured->unsupported_reason(), "");
  EXPECT_GT(captured->nodes(), 0);
  expect_same_bits(*replayed, *plain, "replayed");
}

TEST_P(Families, OneToEightThreadsEndWithTheSameBitsInDeterministicMode) {
  if (std::get<2>(GetParam()) != DeviceType::cpu) GTEST_SKIP() << "threads are those of the CPU";
  const test::KeptThreads kept;
  std::unique_ptr<Session> first;
  for (int threads = 1; threads <= 8; ++threads) {
    cpu::set_threads(threads);
    auto run = session({"train.deterministic=true"});
    go_on(*run, middle, eager(*run));
    if (first) expect_same_bits(*run, *first, join_text(threads, " threads").c_str());
    if (!first) first = std::move(run);
  }
}

std::string name_of(const testing::TestParamInfo<Case>& tried) {
  const auto& [family, precision, device] = tried.param;
  return join_text(family.name, "_", precision.level, "_", precision.dtype,
                   device == DeviceType::cuda ? "_cuda" : "_cpu");
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Combine(testing::ValuesIn(families), testing::ValuesIn(precisions),
                                          testing::Values(DeviceType::cpu, DeviceType::cuda)),
                         name_of);

}  // namespace
}  // namespace hearth::train::families_test
