// SPDX-License-Identifier: Apache-2.0
// `latest` and `best` where they are no links: on file systems without any, and in copies that have followed them.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/train/hook_run.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/checkpoint/trained_weights.h"

namespace hearth::train::checkpoint_links_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::HookRun;

class CheckpointLinks : public testing::Test, protected test::HookRuns {
 protected:
  static std::vector<std::string> steps(int count) { return {"train.epochs=null", join_text("train.steps=", count)}; }
  fs::path checkpoints(const std::string& name) const { return path(name + "/checkpoints"); }
  /// The same as files that name the sets.
  void make_files(const std::string& name) const {
    for (const char* link : {"latest", "best"}) {
      const fs::path at = checkpoints(name) / link;
      const std::string set = fs::read_symlink(at).string();
      fs::remove(at);
      std::ofstream(at) << set << "\n";
    }
  }
  std::string evaluated(const fs::path& path) const {
    return join_text(open_trained(path.string())->position.step, ", ", find_trained_weights(path.string())->checkpoint);
  }
};

TEST_F(CheckpointLinks, FilesThatNameASetAreRead) {
  (void)run("run", steps(6));
  std::vector<std::string> linked, named;
  const std::vector<fs::path> ways{path("run"), checkpoints("run") / "latest", checkpoints("run") / "best"};
  for (const fs::path& way : ways) linked.push_back(evaluated(way));
  make_files("run");
  for (const fs::path& way : ways) named.push_back(evaluated(way));
  EXPECT_EQ(named, linked);
  // What a file does not name is no set.
  std::ofstream(checkpoints("run") / "best") << "step-00000099\n";
  EXPECT_EQ(evaluated(path("run")), linked[2]) << "the state knows the best";
  std::ofstream(checkpoints("run") / "best") << "something else\n";
  EXPECT_EQ(set_behind(checkpoints("run") / "best"), checkpoints("run") / "best");
}

TEST_F(CheckpointLinks, ARunGoesOnWithFilesOrFollowedLinks) {
  const HookRun whole = run("whole", steps(9));
  for (const std::string kind : {"files", "folders", "one_folder"}) {
    SCOPED_TRACE(kind);
    (void)run(kind, steps(6));
    if (kind == "files") {
      make_files(kind);
    } else {
      for (const char* link : {"latest", "best"}) {
        const fs::path at = checkpoints(kind) / link, set = fs::canonical(at);
        fs::remove(at);
        fs::copy(set, at, fs::copy_options::recursive);
      }
      if (kind == "one_folder") fs::remove_all(checkpoints(kind) / checkpoint_name(6));
    }
    EXPECT_EQ(run(kind, steps(9)).metric("weights_sha256"), whole.metric("weights_sha256"));
    EXPECT_EQ(set_behind(checkpoints(kind) / "latest").filename(), checkpoint_name(9));
    EXPECT_TRUE(fs::is_symlink(checkpoints(kind) / "latest"));
    EXPECT_TRUE(file_exists(set_behind(checkpoints(kind) / "best") / "manifest.json"));
    for (const std::string& name : list_directory(checkpoints(kind))) EXPECT_FALSE(name.starts_with(".tmp")) << name;
  }
}

TEST_F(CheckpointLinks, AFolderThatIsNoCopyIsRefused) {
  (void)run("run", steps(6));
  const fs::path latest = checkpoints("run") / "latest";
  fs::remove(latest);
  fs::copy(checkpoints("run") / checkpoint_name(3), latest, fs::copy_options::recursive);
  (void)run("other", {"train.epochs=null", "train.steps=3", "seed=4"});
  fs::remove_all(checkpoints("run") / checkpoint_name(3));
  fs::copy(checkpoints("other") / checkpoint_name(3), checkpoints("run") / checkpoint_name(3));
  relink_copies(checkpoints("run"));
  EXPECT_PRED2(contains,
               test::error_message<FileError>([&] { point_to(checkpoints("run"), "latest", checkpoint_name(3)); }),
               "latest: is a folder, and no copy of a checkpoint beside it");
}

TEST_F(CheckpointLinks, WhereNoneCanBeMadeFilesNameTheSets) {
  if (test::failing_requests().empty()) GTEST_SKIP() << "the sanitizer cannot be loaded behind another library";
  const HookRun whole = run("whole", steps(9));
  const std::string config = path("whole.json");
  const auto train = [&](int count) {
    return test::run_program({"/usr/bin/env", "LD_PRELOAD=" + test::failing_requests(), "HEARTH_TEST_NO_LINKS=1",
                              test::hearth_program(), "train", config, "--out", path("run"), "--set",
                              "train.epochs=null", "--set", join_text("train.steps=", count)},
                             fs::path(config).parent_path());
  };
  for (const int count : {6, 9}) {
    const test::ProgramResult result = train(count);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const char* link : {"latest", "best"}) {
      const fs::path file = checkpoints("run") / link;
      EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file))) << file;
      EXPECT_NE(set_behind(file), file);
    }
    EXPECT_EQ(set_behind(checkpoints("run") / "latest").filename(), checkpoint_name(count));
  }
  EXPECT_EQ(info("run").at("metrics").at("weights_sha256"),
            Json(parse_json(whole.metric("weights_sha256"), "").as_string()));
}

TEST_F(CheckpointLinks, SetsThatATrainerRemovesMeanwhileAreReadAnew) {
  (void)run("run", steps(3));
  const fs::path folder = checkpoints("run");
  std::atomic<bool> done{false};
  // As a trainer that keeps one set: the next, the links, and the one before goes.
  std::thread trainer([&] {
    for (std::int64_t step = 4; !done; ++step) {
      const std::string before = set_behind(folder / "latest").filename();
      CheckpointWriter writer(folder, step);
      for (const std::string& file : list_directory(folder / before))
        if (file != "manifest.json") fs::copy(folder / before / file, writer.file(file));
      const std::string name = writer.commit();
      point_to(folder, "latest", name);
      point_to(folder, "best", name);
      prune_checkpoints(folder, 1);
    }
  });
  int wrong = 0;
  for (int i = 0; i < 200; ++i) try {
      (void)open_trained((folder / (i % 2 == 0 ? "latest" : "best")).string());
    } catch (const Error& error) {
      ++wrong;
      ADD_FAILURE() << error.what();
      break;
    }
  done = true;
  trainer.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hearth::train::checkpoint_links_test
