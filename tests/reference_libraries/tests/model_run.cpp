// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/tests/model_run.h"

#include <cstdlib>
#include <fstream>

#include "core/error.h"

namespace hearth::test {
namespace {

// Before anything opens a library, and for all tests of this program.
[[maybe_unused]] const bool environment_is_set = [] {
  ::setenv("HEARTH_CUDA_LIBRARIES", HEARTH_REFERENCE_LIBRARIES, 1);
  ::setenv("HEARTH_REFERENCE_IDLE", "1", 1);
  ::setenv("HEARTH_PLAN_TIMING", "off", 1);
  return true;
}();

void write_images(const TempDir& folder) {
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::ofstream file(folder / (std::string(name) + ".bin"), std::ios::binary);
    for (int i = 0; i < 2; ++i) file << std::string(3073, static_cast<char>(i));
  }
}

void write_text(const TempDir& folder) {
  std::ofstream file(folder / "text.txt", std::ios::binary);
  for (unsigned i = 0; i < 50257 - 5; ++i) {
    const unsigned point = i < 20000 ? 0x4e00 + i : 0x20000 + i;
    if (point >= 0x10000) file << static_cast<char>(0xf0 | point >> 18) << static_cast<char>(0x80 | (point >> 12 & 63));
    if (point < 0x10000) file << static_cast<char>(0xe0 | point >> 12);
    file << static_cast<char>(0x80 | (point >> 6 & 63)) << static_cast<char>(0x80 | (point & 63));
  }
}

}  // namespace

std::string config_of(const ModelRun& run, const TempDir& folder) {
  std::string text = join_text(R"({"seed": 1, "device": "cuda", "precision": {"level": ")", run.level,
                               R"(", "dtype": ")", run.level == "O0" ? "f32" : run.dtype, R"("}, "data": )");
  if (run.model == "gpt2") {
    write_text(folder);
    text += join_text(R"({"type": "text", "train": [")", (folder / "text.txt").string(), R"("], "length": )",
                      run.length, R"(, "tokenizer": {"type": "characters"}}, "model": {"type": "gpt", "layers": )",
                      run.layers, R"(, "heads": 12, "width": 768, "dropout": 0.0})");
  } else {
    write_images(folder);
    text += join_text(R"({"type": "cifar10", "path": ")", folder.path().string(), R"("}, "model": )",
                      run.model == "swin_t" ? R"({"type": "swin", "size": "swin_t"})"
                                            : R"({"type": "resnet", "depth": 50, "stem": "imagenet"})");
  }
  const char* const optimizer =
      run.model == "resnet50" ? R"({"type": "sgd", "lr": 0.1, "momentum": 0.9})" : R"({"type": "adamw", "lr": 0.001})";
  return join_text(text, R"(, "optimizer": )", optimizer, R"(, "train": {"batch_size": 2, "steps": 1}})");
}

}  // namespace hearth::test
