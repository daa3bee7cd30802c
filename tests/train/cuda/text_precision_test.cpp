// SPDX-License-Identifier: Apache-2.0
// Transformers in mixed precision on a CUDA device, real or emulated: replayed steps give the bits of eager ones, and
// no conversion stands alone but those listed in docs/precision.md.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "core/cuda/counters.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"
#include "train/step/captured_step.h"

namespace hearth::train::text_precision_test {
namespace {

constexpr const char* gpt = R"({"type": "gpt", "layers": 2, "heads": 2, "width": 16, "dropout": 0.1})";
constexpr const char* transformer =
    R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 16, "hidden": 32})";
constexpr const char* bert = R"({"type": "bert", "layers": 2, "heads": 2, "width": 16, "hidden": 32})";

class CudaTextPrecision : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
    std::ofstream text(folder_ / "text.txt"), pairs(folder_ / "pairs.tsv");
    for (int i = 0; i < 40; ++i) {
      text << "the hen of house " << i * i << " lays eggs.\n";
      pairs << "hen " << i << (i % 2 == 0 ? "" : " of the long house") << "\tnumber " << i * 7 << '\n';
    }
  }

  std::unique_ptr<Session> session(const std::string& model, const std::string& level, const std::string& dtype,
                                   const std::vector<std::string>& overrides = {}) {
    const bool translates = model == transformer;
    const std::string file = (folder_ / (translates ? "pairs.tsv" : "text.txt")).string();
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cuda", "model": )" << model << R"(, "data": {"type": ")"
                        << (translates ? "parallel_text" : "text") << R"(", "train": [")" << file << R"("], "test": [")"
                        << file << "\"]" << (translates ? R"(, "tokens_per_batch": 96)" : R"(, "length": 12)")
                        << (model == bert ? R"(, "mask_probability": 0.3)" : "")
                        << R"(, "tokenizer": {"type": "characters"}}, "optimizer": {"type": "adamw", "lr": 0.005},
      "precision": {"level": ")"
                        << level << R"(", "dtype": ")" << dtype << R"("}, "train": {"batch_size": 4, "steps": 100}})";
    return std::make_unique<Session>(load_config(path, overrides));
  }
  test::TempDir folder_;
};

TEST_F(CudaTextPrecision, ReplayedStepsGiveTheBitsOfEagerOnes) {
  struct Run {
    const char *model, *level, *dtype;
  };
  for (const auto& [model, level, dtype] : {Run{bert, "O0", "f32"}, {bert, "O2", "bf16"}, {transformer, "O0", "f32"}}) {
    SCOPED_TRACE(join_text(model, " ", level, " ", dtype));
    const auto one = session(model, level, dtype), other = session(model, level, dtype);
    data::Loader loader = one->make_train_loader();
    const auto captured = make_captured_step(*other);
    // Masks and padding (a GPT is in families_test.cpp): how many labels count changes, and of pairs the shape.
    for (int step = 0; step < (model == transformer ? 12 : 4); ++step) {
      const data::Batch batch = loader.next();
      (void)training_step(*one, std::span(&batch, 1));
      (void)captured->run(std::span(&batch, 1));
      ++one->position.step;
      ++other->position.step;
    }
    EXPECT_EQ(captured->unsupported_reason(), "");
    EXPECT_GE(captured->graphs(), model == transformer ? 2 : 1);
    EXPECT_EQ(one->model_state.hash(), other->model_state.hash());
    one->read_interval();
    other->read_interval();
    EXPECT_GT(one->position.interval.loss_sum, 0);
    EXPECT_EQ(one->position.interval.loss_sum, other->position.interval.loss_sum);
  }
}

TEST_F(CudaTextPrecision, ReplayedStepsWithAChunkedHeadGiveTheBitsOfEagerOnes) {
  for (const auto& [level, dtype] : {std::pair("O1", "f16"), {"O2", "bf16"}})
    for (const char* model : {gpt, bert}) {
      const auto one = session(model, level, dtype, {"train.chunked_head=true"});
      const auto other = session(model, level, dtype, {"train.chunked_head=true"});
      ASSERT_NE(one->chunked, nullptr);
      data::Loader first = one->make_train_loader(), second = other->make_train_loader();
      const auto captured = make_captured_step(*other);
      for (int step = 0; step < 4; ++step) {
        const data::Batch a = first.next(), b = second.next();
        (void)training_step(*one, std::span(&a, 1));
        (void)captured->run(std::span(&b, 1));
        ++one->position.step;
        ++other->position.step;
      }
      EXPECT_EQ(captured->unsupported_reason(), "");
      EXPECT_TRUE(captured->nodes() > 0 || model == bert);
      EXPECT_EQ(one->model_state.hash(), other->model_state.hash()) << level << dtype << model;
    }
}

TEST_F(CudaTextPrecision, RecomputedLayersOfATranslatorGiveTheSameBits) {
  for (const auto& [level, dtype] : {std::pair("O1", "f16"), {"O2", "bf16"}}) {
    const auto plain = session(transformer, level, dtype);
    const auto again = session(transformer, level, dtype, {"model.recompute=true"});
    data::Loader loader = plain->make_train_loader();
    for (int step = 0; step < 3; ++step) {
      const data::Batch batch = loader.next();
      for (Session* run : {plain.get(), again.get()}) {
        (void)training_step(*run, std::span(&batch, 1));
        ++run->position.step;
      }
    }
    EXPECT_EQ(again->model_state.hash(), plain->model_state.hash()) << level << dtype;
  }
}

TEST_F(CudaTextPrecision, NothingIsConvertedAloneInABlock) {
  // The same model with one block more converts as often in O2. In O1 the sum of the residuals is f32, so that what the
  // second part adds is upcast, forward and backward; norms write what the product behind them reads.
  const std::string deeper = std::string(gpt).replace(std::string(gpt).find("\"layers\": 2"), 11, "\"layers\": 3");
  for (const char* level : {"O1", "O2"}) {
    std::vector<std::int64_t> counts;
    for (const std::string& model : {std::string(gpt), deeper}) {
      const auto run = session(model, level, "bf16");
      data::Loader loader = run->make_train_loader();
      const data::Batch batch = loader.next();
      (void)training_step(*run, std::span(&batch, 1));
      const cuda::Counters before = cuda::counters();
      (void)training_step(*run, std::span(&batch, 1));
      counts.push_back((cuda::counters() - before).conversions);
    }
    EXPECT_EQ(counts[1] - counts[0], level == std::string("O2") ? 0 : 2) << level;
    EXPECT_LE(counts[0], 3 + 2 * (counts[1] - counts[0])) << level << ": of tokens, positions and their gradients";
  }
}

TEST_F(CudaTextPrecision, ATranslatorTrainsInEveryPrecision) {
  for (const auto& [level, dtype] : {std::pair("O1", "f16"), {"O2", "bf16"}}) {
    const auto run = session(transformer, level, dtype);
    data::Loader loader = run->make_train_loader();
    const data::Batch batch = loader.next();
    std::vector<double> losses;
    for (int step = 0; step < 8; ++step) {
      run->clear_interval();
      (void)training_step(*run, std::span(&batch, 1));
      ++run->position.step;
      run->read_interval();
      losses.push_back(run->position.interval.loss_sum);
    }
    EXPECT_GT(losses.front(), 0);
    EXPECT_LT(losses.back(), losses.front()) << level << dtype;
  }
}

}  // namespace
}  // namespace hearth::train::text_precision_test
