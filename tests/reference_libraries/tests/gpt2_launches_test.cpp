// SPDX-License-Identifier: Apache-2.0
// What a training step of GPT-2 124M asks of a device where both libraries are there: launches, and calls of the
// libraries, which compute nothing here. Counted for one and for two layers of few channels, as each layer costs the
// same; what follows from the true sizes, 64 sequences of 1024 tokens, is added.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>

#include "core/cuda/counters.h"
#include "core/io/file.h"
#include "ops/attention/cuda/attention_cudnn.h"
#include "ops/dispatch/candidates.h"
#include "tests/support/temp_dir.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

std::int64_t calls_of_step(const std::string& level, std::int64_t layers) {
  const test::TempDir folder;
  {
    // More characters than one digit of the sort of token ids counts.
    std::ofstream file(folder / "text.txt", std::ios::binary);
    for (unsigned i = 0; i < 1000; ++i) {
      const unsigned point = 0x4e00 + i % 300;
      file << static_cast<char>(0xe0 | point >> 12) << static_cast<char>(0x80 | (point >> 6 & 63))
           << static_cast<char>(0x80 | (point & 63));
    }
  }
  write_file_synced(folder / "run.json", join_text(R"({"seed": 1, "device": "cuda", "precision": {"level": ")", level,
                                                   R"(", "dtype": "bf16"},
                    "data": {"type": "text", "train": [")",
                                                   (folder / "text.txt").string(),
                                                   R"("], "length": 128, "tokenizer": {"type": "characters"}},
                    "model": {"type": "gpt", "layers": )",
                                                   layers, R"(, "heads": 12, "width": 96, "dropout": 0.0},
                    "optimizer": {"type": "adamw", "lr": 0.001}, "train": {"batch_size": 2, "steps": 2}})"));
  Session session(load_config((folder / "run.json").string(), {}));
  const data::Batch batch = session.make_train_loader().next();
  // Plans are made in the first.
  (void)training_step(session, std::span(&batch, 1));
  const cuda::Counters before = cuda::counters();
  (void)training_step(session, std::span(&batch, 1));
  const cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(last_choice("attention"), "cudnn");
  EXPECT_EQ(last_choice("linear"), "cublaslt");
  return spent.launches + spent.library_calls + spent.copies_within;
}

TEST(CudaGpt2Launches, AreSixHundredAStepAtMost) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  const std::int64_t layers = 12, tokens = 1024, width = 768;
  const cuda::dnn::HeadSteps projected{tokens * 3 * width, 3 * width, 64}, own{tokens * width, width, 64};
  const cuda::dnn::AttentionGrad attention{.forward = {.batch = 64,
                                                       .heads = 12,
                                                       .queries = tokens,
                                                       .keys = tokens,
                                                       .width = 64,
                                                       .causal = true,
                                                       .q = projected,
                                                       .k = projected,
                                                       .v = projected,
                                                       .y = own},
                                           .dq = projected,
                                           .dk = projected,
                                           .dv = projected};
  EXPECT_EQ(cuda::dnn::calls_of(attention), 8);
  for (const auto& [level, most] : {std::pair("O2", 500), {"O1", 600}}) {
    const std::int64_t one = calls_of_step(level, 1), two = calls_of_step(level, 2);
    // The head's one chunk is the same on a device with 80 GB; the gradient of the token table adds up one level more.
    const std::int64_t step = one + (layers - 1) * (two - one) + layers * (cuda::dnn::calls_of(attention) - 1) + 1;
    RecordProperty(level, static_cast<int>(step));
    std::cout << level << ": " << one << " with one layer, " << two << " with two, " << step << " with twelve\n";
    EXPECT_LE(step, most) << level;
  }
}

}  // namespace
}  // namespace hearth::train
