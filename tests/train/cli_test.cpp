// SPDX-License-Identifier: Apache-2.0
// The program as scripts meet it: exit codes, the last line of the error stream, and what goes to which stream.
#include <gtest/gtest.h>

#include "core/build.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "core/io/safetensors.h"
#include "tests/support/places.h"
#include "tests/train/cli_program.h"
#include "train/config/run_config.h"

namespace hearth::train::cli_test {
namespace {

const std::string sources = test::source_dir();

TEST_F(Cli, version_and_help) {
  const ProgramResult version = hearth({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.find("hearth "), 0u);
  const ProgramResult help = hearth({"help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"train", "eval", "predict", "schema", "config", "plan", "summary", "bench", "tune",
                              "weights", "devices", "doctor"}) {
    EXPECT_PRED2(contains, help.err, std::string("\n  ") + command + " ");
    const ProgramResult one = hearth({"help", command});
    EXPECT_EQ(one.exit_code, 0) << command;
    EXPECT_PRED2(contains, one.err, std::string("hearth ") + command);
    EXPECT_EQ(hearth({command, "--help"}).err, one.err);
  }
  EXPECT_PRED2(contains, help.err, "HEARTH_THREADS");
  expect_failure(hearth({}), 2, "usage", {"no command is given"});
}

TEST_F(Cli, unknown_words_are_usage_faults_with_the_nearest_known_one) {
  expect_failure(hearth({"trian", "run.json"}), 2, "usage", {"trian", "\"train\""});
  expect_failure(hearth({"help", "evall"}), 2, "usage", {"evall", "\"eval\""});
  expect_failure(hearth({"train", "run.json", "--st", "a=1"}), 2, "usage", {"--st", "--set"});
  expect_failure(hearth({"train"}), 2, "usage", {"CONFIG.json"});
  expect_failure(hearth({"train", "run.json", "--out"}), 2, "usage", {"--out", "DIR"});
  expect_failure(hearth({"weights", "inspekt", "x"}), 2, "usage", {"inspekt"});
}

TEST_F(Cli, common_keys_need_no_section) {
  write("run.json", good_config);
  const auto value = [&](const std::vector<std::string>& words, const char* section, const char* key) {
    std::vector<std::string> all{"config", "run.json", "--json"};
    all.insert(all.end(), words.begin(), words.end());
    return to_text(parse_json(hearth(all).out, "config").at(section).at(key));
  };
  EXPECT_EQ(value({"--set", "lr=0.25"}, "optimizer", "lr"), "0.25");
  EXPECT_EQ(value({"--set", "batch_size=7"}, "train", "batch_size"), "7");
  EXPECT_EQ(value({"--set", "epochs=null", "--set", "steps=9"}, "train", "steps"), "9");
  expect_failure(hearth({"config", "run.json", "--set", "momentum=0.5"}), 2, "config", {"\"optimizer.momentum\""});

  const ProgramResult trained =
      hearth({"train", "run.json", "--epochs", "2", "--lr", "0.125", "--batch-size", "900", "--seed", "5"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json config = read_json(path("runs/small/config.json").string());
  EXPECT_EQ(to_text(config.at("train").at("epochs")), "2");
  EXPECT_EQ(to_text(config.at("optimizer").at("lr")), "0.125");
  EXPECT_EQ(to_text(config.at("train").at("batch_size")), "900");
  EXPECT_EQ(to_text(config.at("seed")), "5");
  expect_failure(hearth({"train", "run.json", "--lr", "fast"}), 2, "config", {"optimizer.lr=fast", "a number >= 0"});
}

TEST_F(Cli, a_size_of_a_network_is_not_its_type) {
  expect_failure(config_with("\"mlp\", \"hidden\": [16]", "\"swin_mini\""), 2, "config",
                 {R"(did you mean {"type": "swin", "size": "swin_mini"}?)"});
  write("run.json", good_config);
  expect_failure(hearth({"train", "run.json", "--dry-run", "--set", R"(model={"type": "swin", "size": "swin_mini"})"}),
                 2, "config", {"8 x 8 pixels", "use a window of at most 2"});
}

TEST_F(Cli, no_message_moves_the_cursor) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"train", "\x1b[31mno.json"},
                                                {"trian\x1b[31m"},
                                                {"eval", "\x1b[31m"},
                                                {"train", "x", "--\x1b"}}) {
    const ProgramResult result = hearth(words);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_FALSE(contains(result.err, "\x1b")) << result.err;
    EXPECT_PRED2(contains, result.err, "\\x1b");
  }
  write_safetensors(path("w.safetensors").string(), {{"a\x1b[31m\nb", DType::u8, {0}, {}}}, {});
  EXPECT_PRED2(contains, hearth({"weights", "inspect", "w.safetensors"}).out, "a\\x1b[31m\\nb ");
}

TEST_F(Cli, the_good_config_is_good) {
  write("run.json", good_config);
  const ProgramResult result = hearth({"config", "run.json", "--json", "--set", "optimizer.lr=0.25"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json resolved = parse_json(result.out, "stdout");
  EXPECT_EQ(resolved.at("optimizer").at("lr").as_number(), 0.25);
  EXPECT_EQ(resolved.at("optimizer").at("nesterov").as_boolean(), false) << "defaults are filled in";
  EXPECT_EQ(resolved.at("loss").at("type").as_string(), "cross_entropy");
}

TEST_F(Cli, a_null_component_is_as_one_left_out) {
  const ProgramResult nulls = config_with("\"small\",", "\"small\", \"loss\": null, \"schedule\": null,");
  EXPECT_EQ(nulls.exit_code, 0) << nulls.err;
  const ProgramResult with = hearth({"config", "run.json", "--json"});
  write("run.json", good_config);
  EXPECT_EQ(parse_json(with.out, "nulls"), parse_json(hearth({"config", "run.json", "--json"}).out, "plain"));
  expect_failure(config_with("{\"type\": \"digits\", \"workers\": 1}", "null"), 2, "config", {"/data"});
}

TEST_F(Cli, unknown_keys_are_refused_at_every_depth) {
  expect_failure(config_with("\"name\"", "\"nmae\""), 2, "config", {"run.json:2:3", "/nmae", "\"name\""});
  expect_failure(config_with("\"momentum\"", "\"momentun\""), 2, "config",
                 {"run.json:5:43", "/optimizer/momentun", "\"momentum\""});
  expect_failure(config_with("\"workers\": 1", "\"augment\": {\"paded_crop\": 1}"), 2, "config",
                 {"run.json:4:42", "/data/augment/paded_crop", "\"padded_crop\""});
}

TEST_F(Cli, wrong_types_and_values_are_refused_with_what_is_allowed) {
  expect_failure(config_with("0.1", "\"fast\""), 2, "config", {"run.json:5:38", "/optimizer/lr", "number", "fast"});
  expect_failure(config_with("0.9", "1.5"), 2, "config", {"run.json:5:55", "/optimizer/momentum", "< 1", "1.5"});
  expect_failure(config_with("64", "0"), 2, "config", {"run.json:6:27", "/train/batch_size", ">= 1"});
  expect_failure(config_with("64", "1.5"), 2, "config", {"run.json:6:27", "/train/batch_size", "integer"});
  expect_failure(config_with("\"mlp\"", "\"mpl\""), 2, "config", {"run.json:3:21", "/model/type", "\"mlp\""});
  expect_failure(config_with("\"epochs\": 1", "\"epochs\": 1, \"steps\": 2"), 2, "config", {"/train", "not both"});
  expect_failure(config_with(", \"epochs\": 1", ""), 2, "config", {"/train", "epochs or steps"});
  expect_failure(config_with("\"epochs\": 1", "\"epochs\": 1, \"lr_scaling\": {\"rule\": \"linear\"}"), 2, "config",
                 {"/train/lr_scaling", "reference_batch"});
  expect_failure(config_with("\"epochs\": 1", "\"epochs\": 1, \"lr_scaling\": {\"reference_batch\": 64}"), 2, "config",
                 {"/train/lr_scaling", "linear or sqrt"});
  expect_failure(config_with("\"sgd\", \"lr\": 0.1, \"momentum\": 0.9", "\"lars\", \"momentum\": 0"), 2, "config",
                 {"/optimizer", "lars needs momentum above 0"});
  expect_failure(config_with("\"optimizer\": {\"type\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9},", ""), 2, "config",
                 {"/optimizer", "required"});
}

TEST_F(Cli, text_that_is_not_json_is_refused_with_its_place) {
  expect_failure(config_with("\"epochs\": 1}", "\"epochs\": 1,}"), 2, "config", {"run.json:6:43", "/train"});
  expect_failure(config_with("\"name\": \"small\",", "\"name\": \"a\", \"name\": \"b\","), 2, "config",
                 {"run.json:2:16", "name"});
  expect_failure(config_with("\"small\",", "\"small\""), 2, "config", {"run.json:3:3"});
}

TEST_F(Cli, all_faults_are_listed_before_the_last_line) {
  std::string text = good_config;
  text.replace(text.find("\"name\""), 6, "\"nmae\"");
  text.replace(text.find("0.9"), 3, "1.9");
  write("run.json", text);
  const ProgramResult result = hearth({"config", "run.json"});
  expect_failure(result, 2, "config", {"1 more"});
  EXPECT_PRED2(contains, result.err, "/nmae");
  EXPECT_PRED2(contains, result.err, "/optimizer/momentum");
}

TEST_F(Cli, overrides_are_as_strict_as_files) {
  write("run.json", good_config);
  expect_failure(hearth({"config", "run.json", "--set", "optimizer.lrr=1"}), 2, "config", {"--set", "lrr", "\"lr\""});
  expect_failure(hearth({"config", "run.json", "--set", "optimizer.lr=much"}), 2, "config", {"/optimizer/lr", "much"});
  expect_failure(hearth({"config", "run.json", "--set", "optimizer.lr"}), 2, "config", {"optimizer.lr"});
}

TEST_F(Cli, data_that_is_no_configuration_is_named_for_what_it_is) {
  for (const auto& [name, content, said] :
       {std::array{"t.csv", "a,b\n1,2\n", "t.csv is a table; give a configuration that reads it"},
        std::array{"t.tsv.gz", "x", "is a table"}, std::array{"a.npy", "x", "is an array of NumPy's"},
        std::array{"t.parquet", "x", "parquet files are not read"},
        std::array{"c.json", R"({"images": [], "annotations": []})", "is COCO's list of images and annotations"},
        std::array{"r.json", "{", "r.json"}}) {
    write(name, content);
    const ProgramResult result = hearth({"data", "inspect", name});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_PRED2(contains, result.last_error_line(), said);
  }
}

TEST_F(Cli, files_and_data_that_are_missing_have_their_own_code) {
  expect_failure(hearth({"train", "absent.json"}), 3, "file", {"absent.json"});
  expect_failure(hearth({"weights", "inspect", "absent.safetensors"}), 3, "file", {"absent.safetensors"});
  std::string text = good_config;
  text.replace(text.find("{\"type\": \"digits\", \"workers\": 1}"), 32,
               R"({"type": "cifar10", "path": "/nonexistent/cifar"})");
  write("run.json", text);
  const ProgramResult result = hearth({"train", "run.json", "--dry-run"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_PRED2(contains, result.last_error_line(), "/nonexistent/cifar");
}

TEST_F(Cli, a_device_that_is_not_here_is_refused) {
  write("run.json", good_config);
  expect_failure(hearth({"train", "run.json", "--dry-run", "--device", "cuda:99"}), 4, "device", {"cuda:99"});
}

TEST_F(Cli, schema_describes_every_key) {
  const ProgramResult result = hearth({"schema"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json schema = parse_json(result.out, "stdout");
  for (const char* key : {"name", "seed", "device", "model", "data", "loss", "optimizer", "schedule", "precision",
                          "train", "eval", "checkpoint", "log", "dist"})
    EXPECT_NE(schema.at("properties").find(key), nullptr) << key;
}

TEST_F(Cli, the_reference_page_is_the_one_in_the_tree) {
  const ProgramResult result = hearth({"schema", "--markdown"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, read_text(sources + "/docs/configuration.md"))
      << "run: hearth schema --markdown > docs/configuration.md";
}

TEST_F(Cli, tune_finds_batches_that_fit) {
  write("run.json", good_config);
  const ProgramResult tuned = hearth({"tune", "batch", "run.json", "--most", "20", "--steps", "1", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json result = parse_json(tuned.out, "tune");
  EXPECT_EQ(result.at("largest_batch_size").as_integer(), 20);
  const auto& tried = result.at("tried").items();
  ASSERT_GE(tried.size(), 3u) << "two doublings without gain end it";
  bool known = false;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    EXPECT_LE(tried[i].at("batch_size").as_integer(), 20);
    EXPECT_GT(tried[i].at("per_s").as_number(), 0);
    known = known || tried[i].at("batch_size") == result.at("fastest_batch_size");
  }
  EXPECT_TRUE(known);
  expect_failure(hearth({"tune", "batch"}), 2, "usage", {"CONFIG.json"});
  expect_failure(hearth({"tune", "width", "run.json"}), 2, "usage", {"width", "batch or lr"});
  expect_failure(hearth({"tune", "batch", "run.json", "--most", "0"}), 2, "usage", {"--most", "at least 1"});
}

TEST_F(Cli, tune_estimates_the_largest_batch_that_fits) {
  write("run.json",
        R"({"device": "cpu", "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
    "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 32}, "train": {"batch_size": 64, "steps": 2}})");
  const auto limited = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/env", "HEARTH_MEMORY_LIMIT_MB=8", test::hearth_program()});
    return test::run_program(words, path(""));
  };
  const ProgramResult tuned = limited({"tune", "batch", "run.json", "--steps", "1", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const std::int64_t largest = parse_json(tuned.out, "tune").at("largest_batch_size").as_integer();
  EXPECT_GT(largest, 8);
  EXPECT_LT(largest, 1000) << "all digits";
  const auto train = [&](std::int64_t batch) {
    return limited({"train", "run.json", "--resume", "never", "--set", "train.batch_size=" + std::to_string(batch)});
  };
  EXPECT_EQ(train(largest).exit_code, 0);
  EXPECT_EQ(train(largest + largest / 4).exit_code, 4);
}

TEST_F(Cli, tune_begins_at_two_where_one_sample_is_refused) {
  // The last stage is one value a channel.
  write("run.json", R"({"device": "cpu", "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1},
    "model": {"type": "resnet", "blocks": [1, 1, 1, 1], "stem": "small", "width": 4}, "train": {"steps": 2}})");
  const ProgramResult tuned = hearth({"tune", "batch", "run.json", "--most", "2", "--steps", "1", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_PRED2(contains, tuned.err, "is refused: batch_norm");
  const Json result = parse_json(tuned.out, "tune");
  EXPECT_EQ(result.at("largest_batch_size").as_integer(), 2);
  EXPECT_EQ(result.at("tried").items().size(), 1u);
  expect_failure(hearth({"tune", "batch", "run.json", "--most", "1"}), 2, "shape", {"batch_norm", "1 values"});
}

TEST_F(Cli, every_shipped_config_is_accepted) {
  std::size_t count = 0;
  for (const std::string& name : list_directory(sources + "/examples/configs")) {
    if (!name.ends_with(".json")) continue;
    EXPECT_NO_THROW(load_config(sources + "/examples/configs/" + name, {})) << name;
    ++count;
  }
  EXPECT_GE(count, 4u);
}

TEST_F(Cli, options_of_another_subcommand_are_refused) {
  write("run.json", good_config);
  for (const char* option : {"--filter=x", "--scale=2", "--check"})
    expect_failure(hearth({"bench", "step", "run.json", option}), 2, "usage", {"bench step", "is not for it"});
  expect_failure(hearth({"bench", "step", "run.json", "--serve", "--json"}), 2, "usage", {"--serve: --json"});
  expect_failure(hearth({"bench", "step", "run.json", "--image-size", "32"}), 2, "usage", {"--random-data"});
  expect_failure(hearth({"bench", "ops", "run.json"}), 2, "usage", {"bench ops", "run.json"});
  for (const char* option : {"--set=a=1", "--steps=3", "--profile", "--trace=x"})
    expect_failure(hearth({"bench", "ops", option}), 2, "usage", {"bench ops", "is not for it", "--filter"});
  expect_failure(hearth({"bench", "ops", "--check", "--filter", "no_such_case"}), 2, "usage",
                 {"no_such_case", "matches no case"});
  for (const char* option : {"--steps=3", "--filter=x", "--profile"})
    expect_failure(hearth({"bench", "data", "run.json", option}), 2, "usage", {"bench data", "is not for it"});
  expect_failure(hearth({"bench", "data"}), 2, "usage", {"bench data CONFIG.json"});
  expect_failure(hearth({"bench", "disk", "run.json"}), 2, "usage", {"step, ops, data or dist"});
  expect_failure(hearth({"data", "verify", "run.json", "folder"}), 2, "usage", {"data verify", "folder"});
  expect_failure(hearth({"bench", "step", "run.json", "--device", "cuda:99"}), 4, "device", {"cuda:99"});
}

TEST_F(Cli, a_bench_times_all_batches_of_a_step) {
  write("run.json", good_config);
  const auto step = [&](const char* accumulate) {
    const ProgramResult result = hearth({"bench", "step", "run.json", "--json", "--steps", "1", "--device", "cpu",
                                         "--set", std::string("train.accumulate=") + accumulate});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "bench");
  };
  const auto flops = [](const Json& json) {
    return json.at("hearth").at("tflops").as_number() * json.at("hearth").at("ms").as_number();
  };
  const Json one = step("1"), four = step("4");
  EXPECT_EQ(one.at("case").at("batch").as_integer(), 64);
  EXPECT_EQ(four.at("case").at("batch").as_integer(), 256);
  EXPECT_NEAR(flops(four) / flops(one), 4, 0.01);
  EXPECT_GT(four.at("loss").as_number(), 0.1);
  const Json& own = four.at("hearth");
  EXPECT_NEAR(own.at("per_s").as_number() * own.at("ms").as_number() / 1e3, 256, 1e-6);
}

TEST_F(Cli, results_that_cannot_be_written_are_a_fault) {
  const std::string program = test::hearth_program();
  for (const char* words : {" --version", " schema", " devices --json"}) {
    const ProgramResult result =
        test::run_program({"/bin/sh", "-c", "\"" + program + "\"" + words + " >/dev/full"}, path(""));
    EXPECT_EQ(result.exit_code, 3) << words;
    EXPECT_PRED2(contains, result.last_error_line(), "hearth: error: file: standard output") << words;
  }
}

TEST_F(Cli, standard_streams_that_are_closed_are_no_files) {
  const std::string program = "\"" + test::hearth_program() + "\"";
  write("pack.json", R"({"model": {"type": "mlp", "hidden": [4]}, "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"batch_size": 4, "steps": 1},
    "data": {"type": "synthetic", "train_size": 40, "test_size": 10, "height": 4, "width": 4}})");
  const ProgramResult packed =
      test::run_program({"/bin/sh", "-c", program + " data pack pack.json packed <&- 2>&-"}, path(""));
  EXPECT_EQ(packed.exit_code, 0) << packed.out;
  const ProgramResult verified = test::run_program({"/bin/sh", "-c", program + " data verify packed"}, path(""));
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  // What cannot be printed is told by the exit code.
  EXPECT_EQ(test::run_program({"/bin/sh", "-c", program + " --version >&- 2>&-"}, path("")).exit_code, 3);
}

TEST_F(Cli, a_class_without_samples_is_a_warning) {
  EXPECT_EQ(
      config_with(R"({"type": "digits", "workers": 1})",
                  R"({"type": "synthetic", "classes": 5, "height": 4, "width": 4, "train_size": 50, "test_size": 1})")
          .exit_code,
      0);
  const ProgramResult verified = hearth({"data", "verify", "run.json", "--json"});
  ASSERT_EQ(verified.exit_code, 0) << verified.err;
  const Json part = parse_json(verified.out, "verify").at("test");
  EXPECT_EQ(part.at("problems").as_integer(), 0);
  EXPECT_EQ(part.at("warnings").as_integer(), 4);
  EXPECT_PRED2(contains, to_text(part.at("first_warnings")), "has no sample");
}

TEST_F(Cli, train_names_images_left_out_and_stops_where_images_have_come) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  namespace fs = std::filesystem;
  const auto put = [&](const std::string& name) {
    fs::create_directories(path(name).parent_path());
    fs::copy_file(sources + "/tests/golden/images/rgb.png", path(name));
  };
  for (const char* name : {"a/1.png", "a/2.png", "a/3.png", "b/1.png", "b/2.png", "b/3.png", "a/x.gif", "loose.png"})
    put(std::string("images/train/") + name);
  put("images/test/a/1.png");
  write("run.json", R"({"device": "cpu", "model": {"type": "mlp", "hidden": [4]},
    "data": {"type": "image_folder", "path": "images", "workers": 0, "augment": {"image_size": 8}},
    "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 2, "steps": 2}, "log": {"report": false}})");
  const ProgramResult first = hearth({"train", "run.json"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_PRED2(contains, first.err, "warning   images/train/a/x.gif: gif files are not read");
  EXPECT_PRED2(contains, first.err, "warning   images/train/loose.png: lies outside of the class folders");
  const ProgramResult inspected = hearth({"data", "inspect", "run.json"});
  EXPECT_PRED2(contains, inspected.out, "warnings: 2");
  EXPECT_PRED2(contains, inspected.out, "x.gif");

  put("images/train/b/4.png");
  const std::vector<std::string> again{"train", "run.json", "--set", "train.steps=4"};
  expect_failure(hearth(again), 3, "data", {"the train split has 7 samples, was 6; \"b\" 4, was 3", "--changed-data"});
  std::vector<std::string> told = again;
  told.push_back("--changed-data");
  const ProgramResult gone_on = hearth(told);
  EXPECT_EQ(gone_on.exit_code, 0) << gone_on.err;
  EXPECT_PRED2(contains, gone_on.err, "warning: the data has changed: the train split has 7 samples");
  EXPECT_PRED2(contains, gone_on.err, "resumed at step 2");
  EXPECT_EQ(hearth({"train", "run.json", "--set", "train.steps=6"}).exit_code, 0);
}

TEST_F(Cli, dry_run_prints_the_plan_and_writes_nothing) {
  write("run.json", good_config);
  const ProgramResult result = hearth({"train", "run.json", "--dry-run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_PRED2(contains, result.err, "mlp");
  EXPECT_FALSE(file_exists(path("runs")));
}

TEST_F(Cli, the_learning_rate_follows_the_batch) {
  write("run.json", good_config);
  const auto plan = [&](const std::string& rule, const std::string& reference) {
    const ProgramResult result =
        hearth({"train", "run.json", "--dry-run", "--set", "train.accumulate=4", "--set",
                "train.lr_scaling={\"rule\": \"" + rule + "\", \"reference_batch\": " + reference + "}"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_PRED2(contains, hearth({"train", "run.json", "--dry-run"}).err, "rate      0.1, constant\n");
  EXPECT_PRED2(contains, plan("linear", "64"),
               "rate      0.4 = 0.1 x 4, linear from 64 to 256 samples an update, constant\n");
  EXPECT_PRED2(contains, plan("sqrt", "64"), "rate      0.2 = 0.1 x 2, sqrt from 64 to 256 samples");
  const ProgramResult resolved = hearth({"config", "run.json", "--json"});
  EXPECT_EQ(parse_json(resolved.out, "stdout").at("train").at("lr_scaling").at("rule").as_string(), "none");

  const ProgramResult trained =
      hearth({"train", "run.json", "--set", "train.lr_scaling={\"rule\": \"linear\", \"reference_batch\": 32}"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_PRED2(contains, read_text(path("runs/small/metrics.jsonl")), "\"lr\":0.2");
}

TEST_F(Cli, a_group_that_matches_nothing_is_refused) {
  expect_failure(config_with("0.9", "0.9, \"groups\": [{\"type\": \"by_name\"}]"), 2, "config",
                 {"/optimizer/groups/0/match"});
  (void)config_with("0.9", "0.9, \"groups\": [{\"type\": \"by_name\", \"match\": [\"layers.*.wieght\"]}]");
  expect_failure(hearth({"train", "run.json", "--dry-run"}), 2, "config",
                 {"\"layers.*.wieght\"", "the nearest are \"", ".weight\""});
}

TEST_F(Cli, a_profile_of_kernels_needs_a_device) {
  write("run.json", good_config);
  const ProgramResult result = hearth({"train", "run.json", "--device", "cpu", "--set", "log.profile=true", "--set",
                                       "train.steps=2", "--set", "train.epochs=null"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_PRED2(contains, result.err, "profile: steps are not watched kernel by kernel: ");
}

TEST_F(Cli, train_eval_and_predict) {
  write("run.json", good_config);
  const ProgramResult trained = hearth({"train", "run.json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.out, "");
  EXPECT_EQ(trained.err.find('\x1b'), std::string::npos) << "no colours outside a terminal";
  const std::string run = path("runs/small");
  const Json info = read_json(run + "/run.json");
  EXPECT_EQ(info.at("status").as_string(), "finished");
  for (const char* name : {"config.json", "metrics.jsonl", "report.html", "checkpoints/latest/model.safetensors",
                           "checkpoints/latest/manifest.json", "checkpoints/best/model.safetensors"})
    EXPECT_TRUE(file_exists(run + "/" + name)) << name;

  const ProgramResult evaluated = hearth({"eval", "runs/small", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const Json metrics = parse_json(evaluated.out, "stdout");
  EXPECT_EQ(metrics.at("loss").as_number(), info.at("metrics").at("loss").as_number());
  EXPECT_EQ(metrics.at("accuracy").as_number(), info.at("metrics").at("accuracy").as_number());

  const ProgramResult again = hearth({"train", "run.json"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_PRED2(contains, again.err, "finished before");
  expect_failure(hearth({"predict", "runs/small", "absent.png"}), 3, "file", {"absent.png"});
}

}  // namespace
}  // namespace hearth::train::cli_test
