// SPDX-License-Identifier: Apache-2.0
#include "train/bench/data_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/build.h"
#include "data/packing/pack_text.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/bench/disk_speed.h"

namespace hearth::train::data_bench_test {
namespace {

using test::contains;

LoadedConfig config_of(const test::TempDir& folder, const std::string& data) {
  const std::string text = R"({"name": "small", "model": {"type": "mlp", "hidden": [4]}, "data": )" + data +
                           R"(, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 4, "epochs": 1}})";
  return load_config(folder.write("run.json", {text.begin(), text.end()}), {});
}

/// Class folders of PNG files.
void write_images(const std::filesystem::path& root) {
  for (int i = 0; i < 12; ++i) {
    data::Image image;
    image.reshape(40, 50, 3);
    for (std::size_t p = 0; p < image.pixels.size(); ++p)
      image.pixels[p] = static_cast<std::uint8_t>(p * p + static_cast<std::size_t>(i));
    const std::filesystem::path folder = root / (i % 2 == 0 ? "cat" : "dog");
    std::filesystem::create_directories(folder);
    data::write_png((folder / (std::to_string(i) + ".png")).string(), image);
  }
}

TEST(DataBench, MeasuresStagesAndLimitsOfImageFiles) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "a build without libpng";
  const test::TempDir folder;
  write_images(folder.path() / "images");
  const LoadedConfig loaded =
      config_of(folder, R"({"type": "image_folder", "path": ")" + (folder.path() / "images").string() +
                            R"(", "workers": 1, "augment": {"image_size": 32}})");
  const DataBench measured = bench_data(loaded, Device{}, 0.1);
  std::set<std::string> stages;
  for (const BenchCase& stage : measured.stages) {
    stages.insert(stage.name);
    EXPECT_GT(stage.timing.median_ms, 0) << stage.name;
    EXPECT_DOUBLE_EQ(stage.items, 4);
  }
  EXPECT_EQ(stages, (std::set<std::string>{"data/small/read", "data/small/decode", "data/small/augment",
                                           "data/small/assemble"}));
  EXPECT_EQ(measured.pipeline.unit, "images/s");
  EXPECT_EQ(measured.pipeline.shape, "[4, 32, 32, 3]");
  EXPECT_GT(measured.samples_per_s, 0);
  // Where the system gives the worker no time, no stage is slow.
  EXPECT_TRUE(measured.bottleneck.stage == measured.use.loader.times.longest() ||
              contains(measured.bottleneck.blame, "batches come late"))
      << measured.bottleneck.blame;
  const DataLimits& limits = measured.limits;
  ASSERT_TRUE(limits.decode && limits.disk_warm);
  EXPECT_GT(*limits.decode, 0);
  EXPECT_GT(limits.bytes_a_sample, 100);
  EXPECT_DOUBLE_EQ(limits.lowest(), std::min({limits.threads, *limits.decode, *limits.disk_warm}));

  const std::vector<Json> lines = to_json(measured);
  ASSERT_EQ(lines.size(), 5u);
  for (const Json& line : lines)
    for (const char* key : {"schema", "case", "hearth", "peers", "ceilings", "percent_of_limit", "ok", "note"})
      EXPECT_NE(line.find(key), nullptr) << key;
  EXPECT_EQ(lines[0].at("case").at("name").as_string(), "data/small");
  EXPECT_EQ(lines[0].at("bottleneck").as_string(), name_of(measured.bottleneck.stage));
  EXPECT_DOUBLE_EQ(lines[0].at("limits").at("decode").as_number(), *limits.decode);
  EXPECT_NEAR(lines[0].at("percent_of_limit").as_number(), 100 * measured.samples_per_s / limits.lowest(), 1e-9);
  const std::string text = to_text(measured);
  for (const char* part :
       {"images/s with 1 worker", "decoding alone", "from memory", "MB/s", "bottleneck: ", " of 1 worker"})
    EXPECT_PRED2(contains, text, part);
}

TEST(DataBench, DataInMemoryHasNoLimitsOfFiles) {
  const test::TempDir folder;
  const DataBench measured = bench_data(config_of(folder, R"({"type": "digits", "workers": 0})"), Device{}, 0.05);
  EXPECT_FALSE(measured.limits.decode || measured.limits.disk_warm || measured.limits.disk_cold);
  EXPECT_DOUBLE_EQ(measured.limits.lowest(), measured.limits.threads);
  EXPECT_TRUE(to_json(measured)[0].at("limits").at("decode").is_null());
  const std::string text = to_text(measured);
  EXPECT_FALSE(contains(text, "alone from") || contains(text, "decoding alone")) << text;
  EXPECT_PRED2(contains, text, "with no workers");
}

TEST(DataBench, PackedTextIsMeasuredBesideTheText) {
  const test::TempDir folder;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += join_text("line ", i * i, "\tthe other side of ", i, "\n");
  folder.write("pairs.tsv", {lines.begin(), lines.end()});
  const LoadedConfig loaded =
      config_of(folder, R"({"type": "parallel_text", "workers": 0, "longest": 64, "max_ratio": 9, "multiple": 4,
                            "valid_fraction": 0.2, "train": [")" +
                            (folder / "pairs.tsv").string() + R"("]})");
  const std::string out = folder / "packed";
  const LoadedConfig packed = packed_config(loaded, out);
  (void)data::pack_text(loaded.config.data, out);
  EXPECT_EQ(packed.config.name, "small/packed");
  const DataBench loose = bench_data(loaded, Device{}, 0.05), of_pack = bench_data(packed, Device{}, 0.05);
  EXPECT_EQ(loose.epoch_samples, 160);
  EXPECT_EQ(of_pack.epoch_samples, 160) << "the split of the run";
  EXPECT_GT(loose.open_seconds, 0);
  EXPECT_LT(loose.first_epoch_per_s(), loose.samples_per_s);
  EXPECT_NEAR(1 / loose.first_epoch_per_s(), 1 / loose.samples_per_s + loose.open_seconds / 160, 1e-12);
  const PackedSpeedup speedup = speedup_of(of_pack, loose);
  EXPECT_DOUBLE_EQ(speedup.first_epoch, of_pack.first_epoch_per_s() / loose.first_epoch_per_s());
  EXPECT_DOUBLE_EQ(speedup.later_epochs, of_pack.samples_per_s / loose.samples_per_s);
  const Json line = to_json(of_pack)[0];
  EXPECT_EQ(line.at("case").at("name").as_string(), "data/small/packed");
  EXPECT_DOUBLE_EQ(line.at("open_seconds").as_number(), of_pack.open_seconds);
  EXPECT_DOUBLE_EQ(line.at("first_epoch_samples_per_s").as_number(), of_pack.first_epoch_per_s());
  EXPECT_PRED2(contains, to_text(of_pack), "opening the data: ");
  // What is packed, and what is no text.
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { (void)packed_config(packed, out); }), "packed already");
  const LoadedConfig digits = config_of(folder, R"({"type": "digits"})");
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { (void)packed_config(digits, out); }),
               "\"digits\" is not packed to be measured");
}

TEST(DataBench, CopiesToADeviceArePinnedAndPageable) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const test::TempDir folder;
  const DataBench measured =
      bench_data(config_of(folder, R"({"type": "digits", "workers": 0})"), {DeviceType::cuda, 0}, 0.05);
  std::map<std::string, std::string> copies;
  for (const BenchCase& stage : measured.stages)
    if (contains(stage.name, "/copy")) {
      copies[stage.name] = stage.implementation;
      EXPECT_GT(stage.timing.median_ms, 0) << stage.name;
    }
  EXPECT_EQ(copies, (std::map<std::string, std::string>{{"data/small/copy", "1 thread"},
                                                        {"data/small/copy_pageable", "pageable memory"},
                                                        {"data/small/copy_pinned", "pinned memory"}}));
  EXPECT_PRED2(contains, to_text(measured), "from pageable memory");
}

TEST(DiskSpeed, ReadsWhatItIsGiven) {
  const test::TempDir folder;
  std::vector<std::string> all;
  std::filesystem::create_directories(folder.path() / "below");
  for (int i = 0; i < 10; ++i)
    all.push_back(folder.write(i % 2 == 0 ? join_text("below/", i) : join_text(i),
                               std::vector<std::uint8_t>(static_cast<std::size_t>(1000 * (i + 1)), 7)));
  const std::string root = folder.path().string();
  std::vector<std::string> found = some_files(root, 1 << 20);
  EXPECT_EQ(some_files(root, 1 << 20), found) << "one order";
  EXPECT_EQ(std::set(found.begin(), found.end()), std::set(all.begin(), all.end()));
  EXPECT_LT(some_files(root, 5000).size(), 6u);
  EXPECT_EQ(some_files(all[0], 1), std::vector<std::string>{all[0]});
  EXPECT_EQ(some_files(root + "/absent", 1), std::vector<std::string>{});

  for (const int threads : {1, 3}) {
    const DiskSpeed speed = read_speed(found, threads);
    EXPECT_EQ(speed.bytes, 55'000u);
    EXPECT_GT(speed.warm_seconds, 0);
    const double held = drop_from_memory(found);
    EXPECT_TRUE(held >= 0 && held <= 1) << held;
    if (held > 0.5) {
      EXPECT_FALSE(speed.cold_seconds) << "what is still in memory is not read from the disk";
    }
  }
  found.push_back(root + "/absent");
  EXPECT_THROW((void)read_speed(found, 2), FileError);
}

}  // namespace
}  // namespace hearth::train::data_bench_test
