// SPDX-License-Identifier: Apache-2.0
// A run that goes on in the middle of an epoch reads nothing of what the epoch had before: counted in the source of the
// files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/build.h"
#include "data/images/image_dataset.h"
#include "data/packing/pack_records.h"
#include "data/source/record_file.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"
#include "train/trainer.h"

namespace hearth::train::resume_reads_test {
namespace {

std::shared_ptr<test::MemorySource> store() {
  static const auto added = [] {
    auto made = std::make_shared<test::MemorySource>();
    data::sources().add("counted", made);
    return made;
  }();
  return added;
}

// Epochs are longer than small batches are prepared ahead.
class ResumeReads : public testing::Test {
 protected:
  std::vector<std::string> settings(std::int64_t steps) const {
    return {"train.steps=" + std::to_string(steps), "data.path=\"" + path_ + "\""};
  }
  void write_config(const std::string& data) const {
    std::ofstream(folder_ / "run.json") << R"({
      "name": "run", "device": "cpu", "seed": 3, "model": {"type": "mlp", "hidden": [4]}, "data": )"
                                        << data << R"(, "optimizer": {"type": "sgd", "lr": 0.01},
      "train": {"batch_size": 4, "steps": 1}, "eval": {"every_epochs": 1000},
      "log": {"report": false, "tensorboard": false}})";
  }
  /// Goes on with the run, or begins it.
  void run(std::int64_t steps) const {
    std::ostringstream out;
    Session session(load_config(folder_ / "run.json", settings(steps)));
    RunFolder folder(folder_ / "out");
    Progress progress(out, false);
    Trainer trainer(session, folder, progress);
    if (!trainer.resume(folder.path())) folder.clear();
    (void)trainer.run("a test");
    EXPECT_EQ(session.position.step, steps);
  }
  /// The training samples of the first batches.
  std::vector<std::set<std::int64_t>> batches(std::int64_t count) const {
    const Session session(load_config(folder_ / "run.json", settings(count)));
    data::Loader loader = session.make_train_loader();
    EXPECT_GT(loader.batches_per_epoch(), count) << "within one epoch";
    std::vector<std::set<std::int64_t>> all;
    for (std::int64_t i = 0; i < count; ++i) {
      const data::Batch batch = loader.next();
      all.emplace_back(batch.samples.begin(), batch.samples.end());
    }
    return all;
  }
  /// From 5 steps to 7; `read()` tells which training samples were read in between.
  template <class Read>
  void expect_nothing_skipped_is_read(const Read& read) const {
    const std::vector<std::set<std::int64_t>> planned = batches(7);
    run(5);
    store()->clear_counts();
    run(7);
    const std::set<std::int64_t> found = read();
    for (std::size_t batch = 0; batch < 7; ++batch)
      for (const std::int64_t sample : planned[batch])
        EXPECT_EQ(found.count(sample), batch < 5 ? 0u : 1u) << "sample " << sample << " of batch " << batch;
  }

  test::TempDir folder_;
  std::string path_;
};

TEST_F(ResumeReads, OfRecords) {
  path_ = "counted://records";
  const data::DataSplits made = data::make_data(
      parse_json(R"({"type": "synthetic", "train_size": 320, "test_size": 4, "height": 4, "width": 4})", "test"));
  data::pack_records(made, folder_ / "packed", {.records_per_file = 80});
  store()->put_folder(folder_ / "packed", path_);
  write_config(R"({"type": "records", "path": "", "workers": 3, "prefetch": 1})");
  expect_nothing_skipped_is_read([&] {
    std::set<std::int64_t> samples;
    for (std::int64_t number = 0; number < 4; ++number) {
      const std::string name = "train-0000" + std::to_string(number) + ".ffr";
      const data::RecordFile file(folder_ / ("packed/" + name));
      for (const auto& [read, offset] : store()->log())
        for (std::int64_t record = 0; record < file.size(); ++record)
          if (read == path_ + "/" + name && offset == file.offset(record)) samples.insert(80 * number + record);
    }
    return samples;
  });
}

TEST_F(ResumeReads, OfImageFiles) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  path_ = "counted://images";
  data::Image image;
  image.reshape(5, 4, 3);
  for (const char* split : {"train", "test"})
    for (int i = 0; i < 320; ++i) {
      for (std::size_t k = 0; k < image.pixels.size(); ++k)
        image.pixels[k] = static_cast<std::uint8_t>(k * 5 + static_cast<std::size_t>(i));
      const std::string name = join_text("images/", split, i % 2 == 0 ? "/cat/" : "/dog/", 100 + i, ".png");
      std::filesystem::create_directories((folder_ / name).parent_path());
      data::write_png(folder_ / name, image);
    }
  store()->put_folder(folder_ / "images", path_);
  write_config(R"({"type": "image_folder", "path": "", "workers": 3, "prefetch": 1, "augment": {"image_size": 4}})");
  expect_nothing_skipped_is_read([&] {
    const data::DataSplits data = data::make_data(
        parse_json(R"({"type": "image_folder", "path": ")" + path_ + R"(", "augment": {"image_size": 4}})", "test"));
    std::set<std::int64_t> samples;
    for (std::int64_t i = 0; i < data.train->size(); ++i)
      if (store()->reads_of(path_ + "/train/" + data.train->images()->sample_name(i)) > 0) samples.insert(i);
    return samples;
  });
}

}  // namespace
}  // namespace hearth::train::resume_reads_test
