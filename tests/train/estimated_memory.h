// SPDX-License-Identifier: Apache-2.0
// A run's peak as it is estimated from small batches, and as the allocator then reports it.
#pragma once

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "core/memory/memory.h"
#include "tests/support/temp_dir.h"
#include "train/memory/step_memory.h"
#include "train/trainer.h"

namespace hearth::test {

/// A run whose config is made of parts of JSON.
struct MemoryRun {
  std::string device = "cpu";
  std::string model{};
  std::string data = R"({"type": "digits"})";
  std::string train{};      ///< further members of "train", each after a comma
  std::string top_level{};  ///< further members of the whole, likewise

  std::unique_ptr<train::Session> session(const TempDir& folder, std::int64_t batch, int steps) const {
    const std::string path = folder / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": ")" << device << R"(", "model": )" << model << R"(, "data": )"
                        << data << R"(, "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9},
      "log": {"report": false, "tensorboard": false}, "train": {"batch_size": )"
                        << batch << R"(, "steps": )" << steps << train << "}" << top_level << "}";
    return std::make_unique<train::Session>(train::load_config(path, {}));
  }

  train::MemoryNeed estimated(train::MeasuredBatches measured, std::int64_t batch) const {
    const TempDir folder;
    const auto run = session(folder, batch, 3);
    return train::StepMemory(*run, measured, run->device().type).at(batch);
  }

  /// Of a whole run: steps, an evaluation, a checkpoint.
  MemoryStatistics reported(std::int64_t batch, int steps = 3) const {
    const TempDir folder;
    const auto run = session(folder, batch, steps);
    MemoryResource& memory = memory_of(run->device());
    memory.reset_peak();
    train::RunFolder out(folder / "run");
    std::ostringstream log;
    train::Progress progress(log, false);
    train::Trainer trainer(*run, out, progress);
    (void)trainer.run("test");
    EXPECT_EQ(log.str().find("not replayed"), std::string::npos) << log.str();
    return memory.statistics();
  }

  /// Both, compared. `share` is the allowed difference, as a part of what depends on the batch.
  void expect_estimated(train::MeasuredBatches measured, std::int64_t batch, double share, int steps = 3) const {
    const train::MemoryNeed need = estimated(measured, batch);
    const auto real = static_cast<double>(reported(batch, steps).peak);
    const auto fixed = static_cast<double>(need.parameters + need.gradients + need.optimizer + need.averages);
    const auto peak = static_cast<double>(need.peak);
    EXPECT_NEAR(peak, real, share * (real - fixed)) << "batch " << batch;
    std::ostringstream difference;
    difference << "batch " << batch << " from " << measured.small << " and " << measured.large << ": estimated "
               << peak / 1e6 << " MB, reported " << real / 1e6 << " MB, of which weights " << fixed / 1e6 << " MB";
    testing::Test::RecordProperty("batch_" + std::to_string(batch), difference.str());
  }
};

inline const char* const digits_resnet = R"({"type": "resnet", "blocks": [1, 1], "stem": "small", "width": 32})";
/// As the digits, but few to evaluate on, and without a loader's threads, which prepare small batches further ahead
/// where steps are short, up to 1 MiB.
inline const char* const images_of_8 =
    R"({"type": "synthetic", "classes": 10, "height": 8, "width": 8, "channels": 1, "train_size": 256, "test_size": 8, "workers": 0})";
inline const char* const resnet50 = R"({"type": "resnet", "depth": 50, "width": 16})";
inline const char* const images_of_32 =
    R"({"type": "synthetic", "classes": 10, "height": 32, "width": 32, "channels": 3, "train_size": 64, "test_size": 2})";

}  // namespace hearth::test
