// SPDX-License-Identifier: Apache-2.0
#include "train/report/report.h"
#include "train/report/device_section.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/grouping_locale.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::report_test {
namespace {

using test::contains;

Json record(int step, const std::string& split, double loss, double accuracy) {
  Json result = Json::object();
  result.set("step", step).set("epoch", step / 10.0).set("split", split).set("loss", loss).set("accuracy", accuracy);
  result.set("throughput", split == "train" ? 2000 : 9000).set("unit", "images/s");
  if (split == "train") result.set("lr", 0.1);
  return result;
}

std::vector<Json> sample_records() {
  std::vector<Json> records;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    records.push_back(record(10 * epoch - 5, "train", 2.0 / epoch, 0.1 * epoch));
    records.push_back(record(10 * epoch, "valid", 2.1 / epoch, epoch == 4 ? 0.9712 : 0.15 * epoch));
  }
  return records;
}

Json sample_info() {
  return parse_json(
      R"({"name":"n","status":"finished","started":"2026-01-31T10:00:00Z","seconds":200,"machine":{"threads":2},
          "metrics":{"step":50,"loss":0.42,"accuracy":0.75,"best_step":40,"best_accuracy":0.9712}})",
      "info");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST(Report, shows_curves_metrics_facts_and_config) {
  const Json config = Json::object().set("name", "digits").set("seed", 3);
  const std::string page = report_html(sample_info(), config, sample_records());
  for (const char* part : {"<title>digits</title>", "class=\"status finished\"", "ran 3m 20s", "97.12 %", "0.42",
                           "machine threads", "&quot;seed&quot;: 3", ">loss<", ">accuracy<", ">learning rate<",
                           ">images per second<", "prefers-color-scheme: dark", "@media print"})
    EXPECT_PRED2(contains, page, part);
  EXPECT_EQ(count(page, "<svg"), 4u) << "no gradient norm was logged, so there is no chart of it";
  EXPECT_EQ(count(page, "<polyline"), 6u) << "loss and accuracy of both splits, rate and throughput of training only";
  EXPECT_PRED2(contains, page, "Dashed lines: evaluations.");
  EXPECT_GT(count(page, "class=\"mark\""), 0u);
  EXPECT_EQ(count(page, "class=\"mark\"") % 2, 0u) << "in the charts of rate and throughput";
  EXPECT_EQ(count(page, "<tr class=\"best\">"), 1u);
  EXPECT_PRED2(contains, page, "<tr class=\"best\"><td>40</td>");
}

TEST(Report, has_the_devices_own_times_of_a_step) {
  const Json profile = parse_json(
      R"({"milliseconds": 48.5, "gap_milliseconds": 1.5, "limits": {"source": "measured"},
          "kernels": [{"name": "map<f>", "count": 3, "us": 5000, "bytes": 2e9, "flops": 0, "percent_of_limit": 62.5}]})",
      "profile");
  const std::string section = device_section(profile);
  for (const char* text : {"A step on the device", "48.5 ms", "1.5 ms", "measured", "map&lt;f&gt;", ">2000<", ">62.5<"})
    EXPECT_NE(section.find(text), std::string::npos) << text << " in " << section;
  EXPECT_EQ(device_section(Json::object()), "");
  EXPECT_EQ(device_section(parse_json(R"({"milliseconds": "x", "gap_milliseconds": 1})", "profile")), "");
}

TEST(Report, is_the_same_in_every_locale) {
  const std::string here = report_html(sample_info(), Json::object(), sample_records());
  const test::GroupingLocale elsewhere;
  EXPECT_EQ(report_html(sample_info(), Json::object(), sample_records()), here);
}

TEST(Report, of_a_text_tells_what_texts_are_judged_by) {
  std::vector<Json> records;
  const auto add = [&](int step, const std::string& split, double loss, double accuracy) {
    Json line = record(step, split, loss, accuracy);
    line.set("unit", "tokens/s").set("perplexity", std::exp(loss));
    if (split != "train") line.set("bits_per_character", loss / std::log(2.0));
    records.push_back(line);
  };
  // The least loss is not where most next pieces are right.
  add(5, "train", 2, 0.3);
  add(10, "valid", 1.5, 0.40);
  add(15, "train", 1, 0.5);
  add(20, "valid", 1.75, 0.44);
  add(20, "test", 1.8, 0.42);
  const Json info = parse_json(R"({"metrics": {"step": 20, "loss": 1.75, "accuracy": 0.44, "best_step": 10,
                                   "best_loss": 1.5, "best_accuracy": 0.4,
                                   "best_by": "valid loss"}})",
                               "info");
  const std::string page = report_html(info, Json::object(), records);
  EXPECT_EQ(count(page, "<tr class=\"best\">"), 1u);
  EXPECT_PRED2(contains, page, "<tr class=\"best\"><td>10</td>");
  for (const char* part :
       {"<b>1.5</b><span>best loss", "<b>1.75</b><span>final loss", "<b>5.755</b><span>final perplexity",
        "<b>2.525</b><span>final bits a character", "<b>1.8</b><span>test loss", ">perplexity</text>",
        ">bits a character</text>", "<th>perplexity</th>", "tokens per second"})
    EXPECT_PRED2(contains, page, part);
  EXPECT_EQ(page.find("best accuracy"), std::string::npos);
}

TEST(Report, tells_the_test_part_from_the_one_that_judges) {
  std::vector<Json> records{record(10, "valid", 1, 0.5), record(20, "valid", 0.5, 0.625),
                            record(20, "test", 0.6, 0.6125)};
  const Json info = Json::object().set("metrics", Json::object().set("best_step", 20).set("best_accuracy", 0.625));
  const std::string page = report_html(info, Json::object(), records);
  EXPECT_PRED2(contains, page, "<b>61.25 %</b><span>test accuracy");
  EXPECT_PRED2(contains, page, "<tr class=\"best\"><td>20</td><td>2</td><td>valid</td>");
  EXPECT_EQ(count(page, "<tr class=\"best\">"), 1u);
  EXPECT_EQ(report_html(sample_info(), Json::object(), sample_records()).find("test accuracy"), std::string::npos);
}

TEST(Report, says_where_nothing_judges) {
  const std::vector<Json> records{record(10, "test", 1, 0.5), record(20, "test", 0.5, 0.625)};
  const Json info = Json::object().set("metrics", Json::object().set("best_step", 20).set("accuracy", 0.625));
  const std::string page = report_html(info, Json::object(), records);
  EXPECT_PRED2(contains, page, "There is no valid split: the best checkpoint is the last one");
  EXPECT_PRED2(contains, page, "<b>62.50 %</b><span>final test accuracy");
  EXPECT_EQ(count(page, "<tr class=\"best\">"), 0u);
  EXPECT_EQ(report_html(sample_info(), Json::object(), sample_records()).find("no valid split"), std::string::npos);
}

TEST(Report, gives_a_split_one_colour_in_every_chart) {
  std::vector<Json> records{record(5, "train", 2, 0.3), record(10, "valid", 1.5, 0.4), record(10, "test", 1.75, 0.44)};
  for (std::size_t i : {1u, 2u}) records[i].set("bits_per_character", 2.5);
  records[2].set("perplexity", 6);
  // One point is no curve.
  EXPECT_EQ(report_html(sample_info(), Json::object(), records).find("<svg"), std::string::npos);
  for (std::size_t i = 0; i < 3; ++i) {
    Json later = records[i];
    records.push_back(later.set("epoch", 9));
  }
  const std::string page = report_html(sample_info(), Json::object(), records);
  const std::regex legend(R"re(<text class="l(.)"[^>]*>(train|valid|test)<)re");
  std::map<std::string, std::set<std::string>> colours;
  std::size_t entries = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), legend), end; at != end; ++at, ++entries)
    colours[(*at)[2]].insert((*at)[1]);
  EXPECT_EQ(entries, 11u) << "loss and accuracy of three, bits of two, perplexity, rate and throughput of one";
  EXPECT_EQ(colours,
            (std::map<std::string, std::set<std::string>>{{"train", {"0"}}, {"valid", {"1"}}, {"test", {"2"}}}));
}

TEST(Report, needs_nothing_from_elsewhere) {
  const std::string page = report_html(sample_info(), Json::object(), sample_records());
  for (const char* part : {"<script", "http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
}

TEST(Report, escapes_what_a_config_says) {
  const Json config = Json::object().set("name", "<script>alert(1)</script>");
  const std::string page = report_html(Json::object().set("status", "\"><b>"), config, {});
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("\"><b>"), std::string::npos);
}

TEST(Report, of_a_run_that_just_began_is_a_page) {
  const std::string page = report_html(Json::object(), Json::object(), {});
  EXPECT_EQ(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("Evaluations"), std::string::npos);
  EXPECT_PRED2(contains, page, "</html>");
}

TEST(Report, survives_losses_that_are_not_numbers) {
  Json odd = record(60, "test", 1, 0.5);
  odd.set("loss", nullptr);
  std::vector<Json> records = sample_records();
  records.push_back(odd);
  records.push_back(Json::object().set("split", "test"));
  EXPECT_PRED2(contains, report_html(sample_info(), Json::object(), records), "not finite");
}

TEST(Report, of_many_evaluations_shows_some_and_always_best_and_last) {
  std::vector<Json> records;
  for (int epoch = 1; epoch <= 400; ++epoch)
    records.push_back(record(epoch, "valid", 1.0 / epoch, epoch == 33 ? 0.99 : 0.5));
  const Json info = Json::object().set("metrics", Json::object().set("best_step", 33));
  const std::string page = report_html(info, Json::object(), records);
  EXPECT_LE(count(page, "<td>valid</td>"), 41u);
  EXPECT_PRED2(contains, page, "<tr class=\"best\"><td>33</td>");
  EXPECT_PRED2(contains, page, "<tr><td>400</td>");
}

TEST(Report, is_written_from_a_folder) {
  const test::TempDir folder;
  write_file_synced(folder / "config.json", "{\"name\":\"from_disk\"}");
  write_file_synced(folder / "metrics.jsonl", to_text(record(10, "valid", 1, 0.5)) + "\n");
  write_report(folder.path().string());
  EXPECT_PRED2(contains, read_text(folder / "report.html"), "from_disk");
  write_file_synced(folder / "run.json", to_text(sample_info()));
  write_report(folder.path().string());
  EXPECT_PRED2(contains, read_text(folder / "report.html"), "status finished");
  // A run that goes on does not tell its best step there.
  write_report(folder.path().string(), 10);
  EXPECT_PRED2(contains, read_text(folder / "report.html"), "<tr class=\"best\"><td>10</td>");
}

TEST(Report, shows_every_number_that_a_task_measures) {
  std::vector<Json> records = sample_records();
  for (Json& line : records)
    if (line.at("split").as_string() == "valid") line.set("mean_iou", 0.625).set("fid", 12.25);
  const std::string page = report_html(sample_info(), Json::object(), records);
  for (const char* part : {"<b>62.50 %</b><span>final mean IoU", "<b>12.25</b><span>final fid", "<th>mean IoU</th>",
                           "<th>fid</th>", ">mean IoU</text>", ">fid</text>"})
    EXPECT_PRED2(contains, page, part);
}

TEST(Report, shows_samples_of_some_evaluations_and_of_the_last) {
  std::vector<Json> records;
  for (int epoch = 1; epoch <= 30; ++epoch) {
    Json line = record(epoch, "valid", 1, 0.5);
    const Json figure = Json::object().set("caption", "<b>").set("text", "words of " + std::to_string(epoch));
    records.push_back(line.set("figures", Json::array().push_back(figure)));
  }
  const std::string page = report_html(sample_info(), Json::object(), records);
  EXPECT_PRED2(contains, page, "<h2>Samples over time</h2>");
  EXPECT_EQ(count(page, "<pre>words of "), 8u);
  EXPECT_PRED2(contains, page, "<pre>words of 1</pre>");
  EXPECT_PRED2(contains, page, "<pre>words of 30</pre>");
  EXPECT_EQ(page.find("<b></figcaption>"), std::string::npos);
}

TEST(Report, ShowsThePhasesOfStepsThatTakeTime) {
  std::vector<Json> records;
  for (int i = 1; i <= 3; ++i)
    records.push_back(parse_json(join_text(R"({"step": )", i, R"(, "epoch": )", i, R"(, "split": "train", "loss": 1,
      "phase_seconds": {"data": 0, "forward": 1, "backward": )",
                                           i, "}}"),
                                 "record"));
  const std::string page = report_html(sample_info(), Json::object(), records);
  const std::size_t chart = page.find("time of a step by phase");
  ASSERT_NE(chart, page.npos);
  EXPECT_NE(page.find(">forward</text>", chart), page.npos);
  EXPECT_NE(page.find("<title>epoch 3: 75 %", chart), page.npos) << "backward";
  EXPECT_EQ(page.find(">data</text>", chart), page.npos) << "too little to see";
}

TEST(Report, shows_where_time_and_memory_went) {
  Json info = sample_info();
  info.set("profile", parse_json(R"({"seconds": {"forward": 8, "evaluation": 2},
    "step_milliseconds": {"the whole step": 4, "linear<i>": 1}, "bytes": {"parameters": 2500000}})",
                                 "profile"));
  const std::string page = report_html(info, Json::object(), sample_records());
  for (const char* part : {"<td>forward</td><td>8 s</td><td><div style=\"width:100.0%\">",
                           "<td>evaluation</td><td>2 s</td><td><div style=\"width:25.0%\">",
                           "<td>linear&lt;i&gt;</td><td>1 ms</td>", "<td>parameters</td><td>2.5 MB</td>"})
    EXPECT_PRED2(contains, page, part);
  EXPECT_EQ(page.find("profile"), std::string::npos) << "it is no fact of the table";
  info.set("profile", "none");
  EXPECT_EQ(report_html(info, Json::object(), {}).find("Memory"), std::string::npos);
}

void write_run(const test::TempDir& folder, const std::string& name, const Json& config,
               const std::vector<Json>& records) {
  make_directories(folder / name);
  write_file_synced(folder / (name + "/config.json"), to_text(config));
  std::string lines;
  for (const Json& line : records) lines += to_text(line) + "\n";
  write_file_synced(folder / (name + "/metrics.jsonl"), lines);
  write_file_synced(folder / (name + "/run.json"), to_text(sample_info()));
}

Json config_of(double lr, const std::string& loss) {
  return Json::object()
      .set("name", "run of " + loss)
      .set("optimizer", Json::object().set("type", "sgd").set("lr", lr))
      .set("loss", Json::object().set("type", loss));
}

TEST(Comparison, shows_curves_final_metrics_and_differences) {
  const test::TempDir folder;
  write_run(folder, "first", config_of(0.1, "<ce>"), sample_records());
  std::vector<Json> other = sample_records();
  for (Json& line : other) line.set("accuracy", 0.4375);
  other.push_back(record(50, "test", 0.5, 0.3125));
  write_run(folder, "second&", config_of(0.2, "<ce>"), other);
  const std::string page = comparison_html({folder / "first", folder / "second&/"});
  for (const char* part :
       {"<title>2 runs</title>", "<span class=\"swatch k0\"></span>first ",
        "<span class=\"swatch k1\"></span>second&amp; ",
        "<td>first</td><td>finished</td><td>3m 20s</td><td>50</td><td>40</td><td>valid</td><td>0.42</td><td>75.00 "
        "%</td>",
        "<td>second&amp;</td><td>finished</td><td>3m 20s</td><td>50</td><td>40</td><td>test</td><td>0.5</td>"
        "<td>31.25 %</td>",
        "<th>key</th><th>first</th><th>second&amp;</th>", "<td>optimizer.lr</td><td>0.1</td><td>0.2</td>",
        ">loss, training</text>", ">accuracy, evaluations</text>", ">learning rate</text>"})
    EXPECT_PRED2(contains, page, part);
  EXPECT_EQ(page.find("loss.type"), std::string::npos) << "that is the same in both";
  EXPECT_EQ(count(page, "<svg"), 6u) << "loss and accuracy of two splits, rate and throughput";
  EXPECT_EQ(count(page, "<polyline"), 12u);
  EXPECT_EQ(page.find("do not compare"), std::string::npos);
  for (const char* part : {"<script", "http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
}

TEST(Comparison, of_different_tasks_shows_what_each_has) {
  const test::TempDir folder;
  write_run(folder, "a/run", config_of(0.1, "x"), sample_records());
  std::vector<Json> tokens = sample_records();
  for (Json& line : tokens) line.set("unit", "tokens/s").set("perplexity", 7.5);
  write_run(folder, "b/run", config_of(0.1, "<y>"), tokens);
  write_run(folder, "c/run", config_of(0.1, "x"), {});
  const std::string page = comparison_html({folder / "a/run", folder / "b/run", folder / "c/run"});
  EXPECT_PRED2(contains, page, "losses do not compare");
  EXPECT_PRED2(contains, page, "<td>loss.type</td><td>x</td><td>&lt;y&gt;</td><td>x</td>");
  EXPECT_PRED2(contains, page, "a/run</td>") << "one name would stand for all";
  EXPECT_PRED2(contains, page, ">throughput</text>");
  EXPECT_PRED2(contains, page, "<td>valid</td><td>0.42</td><td>7.5</td><td>75.00 %</td>");
  EXPECT_PRED2(contains, page, "<td>valid</td><td>0.42</td><td></td><td>75.00 %</td>");
}

TEST(Comparison, refuses_what_is_no_run) {
  const test::TempDir folder;
  write_run(folder, "a", Json::object(), {});
  write_file_synced(folder / "config.json", "{}");
  EXPECT_PRED2(contains, test::error_message<FileError>([&] {
                 (void)comparison_html({folder / "a", folder / ""});
               }),
               "holds no run: there is no metrics.jsonl");
  EXPECT_PRED2(contains, test::error_message<FileError>([&] {
                 (void)comparison_html({folder / "a", folder / "z"});
               }),
               "holds no run: there is no config.json");
  EXPECT_THROW((void)comparison_html({}), UsageError);
  EXPECT_THROW((void)comparison_html({folder / "a"}), UsageError);
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] {
                 (void)comparison_html(std::vector<std::string>(17, folder / "a"));
               }),
               "17 runs to compare; give 2 to 16");
}

}  // namespace
}  // namespace hearth::train::report_test
