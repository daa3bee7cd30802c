// SPDX-License-Identifier: Apache-2.0
// A short run on the digits within this process, with hooks of the test's own.
#pragma once

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tests/support/temp_dir.h"
#include "train/report/metrics_log.h"
#include "train/trainer.h"

namespace hearth::test {

/// 3 steps an epoch.
inline const char* const run_config = R"({
  "name": "run", "device": "cpu", "seed": 3, "model": {"type": "mlp", "hidden": [16]},
  "data": {"type": "digits", "workers": 0, "valid_fraction": 0.1},
  "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
  "train": {"batch_size": 400, "epochs": 4, "deterministic": true},
  "log": {"every_steps": 2, "report": false, "tensorboard": false}
})";

/// What a run came to.
struct HookRun {
  train::TrainResult result;
  std::string console;
  std::string hashes;  ///< of the weights and of the rest of the state

  std::string metric(const std::string& key) const {
    const Json* const found = result.metrics.find(key);
    return found == nullptr ? "" : to_text(*found);
  }
};

class HookRuns {
 public:
  /// Continues the run in `name`, or begins it. `overrides` as of --set.
  HookRun run(const std::string& name, const std::vector<std::string>& overrides = {},
              const std::function<void(train::Session&)>& prepare = {}) const {
    const std::string config = folder_ / (name + ".json");
    std::ofstream(config) << run_config;
    std::ostringstream out;
    train::Session session(train::load_config(config, overrides));
    if (prepare) prepare(session);
    train::RunFolder folder(path(name));
    train::Progress progress(out, false);
    train::Trainer trainer(session, folder, progress);
    if (!trainer.resume(folder.path())) folder.clear();
    HookRun done{trainer.run("a test"), "", ""};
    done.console = out.str();
    done.hashes = done.metric("weights_sha256") + done.metric("state_sha256");
    return done;
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  Json info(const std::string& name) const { return read_json(path(name + "/run.json")); }
  std::vector<Json> metrics(const std::string& name) const {
    return train::read_metrics(path(name + "/metrics.jsonl"));
  }

 private:
  TempDir folder_;
};

}  // namespace hearth::test
