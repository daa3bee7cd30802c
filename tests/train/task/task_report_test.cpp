// SPDX-License-Identifier: Apache-2.0
// What tasks show of a model in the report of a run.
#include <gtest/gtest.h>

#include <regex>

#include "data/sample_dataset.h"
#include "models/nn/linear.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/report/report.h"
#include "train/session.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"
#include "train/task/report_sections.h"

namespace hearth::train::task_report_test {
namespace {

using test::contains;

std::unique_ptr<Session> session_of(const test::TempDir& folder, const std::string& parts) {
  const std::string text = "{" + parts + R"(, "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"steps": 60, "batch_size": 8, "ema": 0.5}, "eval": {"batch_size": 7}})";
  return std::make_unique<Session>(load_config(folder.write("run.json", {text.begin(), text.end()}), {}));
}

void train(Session& session, int steps) {
  data::Loader loader = session.make_train_loader();
  for (int i = 0; i < steps; ++i, ++session.position.step) {
    const std::vector<data::Batch> batches{loader.next()};
    (void)training_step(session, batches);
  }
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// The numbers of the confusion matrix, row by row.
std::vector<std::vector<std::int64_t>> confusion_in(const std::string& html) {
  const std::size_t begin = html.find("<table class=\"confusion\">"), end = html.find("</table>", begin);
  const std::string table = html.substr(begin, end - begin);
  std::vector<std::vector<std::int64_t>> rows;
  const std::regex row("<tr><th>[^<]*</th>((?:<td[^>]*>[0-9]*</td>)+)"), cell("<td[^>]*>([0-9]*)</td>");
  for (std::sregex_iterator at(table.begin(), table.end(), row), none; at != none; ++at) {
    const std::string cells = (*at)[1];
    rows.emplace_back();
    for (std::sregex_iterator one(cells.begin(), cells.end(), cell); one != none; ++one)
      rows.back().push_back((*one)[1].length() > 0 ? std::stoll((*one)[1]) : 0);
  }
  return rows;
}

TEST(TaskReport, OfClassesCountsEachSampleAndShowsMistakes) {
  const test::TempDir folder;
  const auto session = session_of(
      folder, R"("model": {"type": "mlp"}, "data": {"type": "digits", "valid_fraction": 0.1, "workers": 0})");
  train(*session, 30);
  const std::string state = session->training_state.hash();
  const std::string html = model_sections(*session);
  EXPECT_EQ(session->training_state.hash(), state);
  EXPECT_TRUE(session->model->is_training());
  const auto rows = confusion_in(html);
  ASSERT_EQ(rows.size(), 10U);
  std::int64_t correct = 0, all = 0;
  for (std::size_t label = 0; label < 10; ++label)
    for (std::size_t predicted = 0; predicted < 10; ++predicted) {
      all += rows[label].at(predicted);
      correct += label == predicted ? rows[label].at(predicted) : 0;
    }
  const Meter meter = evaluate(*session, session->data.valid);
  EXPECT_EQ(all, meter.samples);
  EXPECT_EQ(correct, meter.correct) << "with the averaged weights, as evaluations have them";
  EXPECT_GT(all, correct);
  constexpr std::int64_t shown = 8;  // of the training
  EXPECT_EQ(count(html, "<img "), static_cast<std::size_t>(shown + std::min<std::int64_t>(16, all - correct)));
  EXPECT_PRED2(contains, html, "The model of step 30 on all " + std::to_string(all) + " samples of the valid split.");
  for (const char* part : {"<th>F1</th>", "<h2>Worst mistakes</h2>", "data:image/png;base64,", "<h2>Layers</h2>",
                           "<td>(model)</td>", "<td>[1, 10]</td>"})
    EXPECT_PRED2(contains, html, part);
}

TEST(TaskReport, LooksAtTheFirstSamplesOfTheSplitThatIsNamed) {
  const test::TempDir folder;
  const auto session = session_of(folder, R"("model": {"type": "mlp"}, "data": {"type": "digits", "workers": 0})");
  const std::string html = model_sections(*session, {.split = "train", .most = 21});
  std::int64_t all = 0;
  for (const auto& row : confusion_in(html))
    for (const std::int64_t cell : row) all += cell;
  EXPECT_EQ(all, 21);
  EXPECT_PRED2(contains, html, "on the first 21 of ");
  EXPECT_PRED2(contains, html, " samples of the train split.");
  EXPECT_THROW((void)model_sections(*session, {.split = "validation"}), UsageError);
  EXPECT_PRED2(contains, test::error_message<DataError>([&] { (void)model_sections(*session, {.split = "valid"}); }),
               "no valid split");
  EXPECT_THROW((void)model_sections(*session, {.most = 0}), UsageError);
}

/// Two shades as classes of pixels; the first row does not count.
struct Halves : data::SampleDataset {
  std::int64_t size() const override { return 10; }
  data::TensorSample read(std::int64_t i, Random&) const override {
    std::vector<float> pixels;
    std::vector<std::int64_t> labels;
    for (std::int64_t p = 0; p < 16; ++p) {
      const std::int64_t shade = p % 4 < i % 4 ? 1 : 0;
      pixels.push_back(static_cast<float>(shade) - 0.5F);
      labels.push_back(p < 4 ? data::ignored_label : shade);
    }
    return {{"images", Tensor::of({4, 4, 1}, pixels)}, {"labels", Tensor::of({4, 4}, labels)}};
  }
  const std::vector<std::string>& class_names() const override { return names; }
  std::vector<std::string> names{"dark", "<light>"};
};

struct HalvesOptions : data::DataOptions {};
void describe(Fields<HalvesOptions>& fields) { data::describe_common(fields); }

TEST(TaskReport, OfSegmentationShowsMasksBesideTheTruth) {
  data::add<HalvesOptions>("report_test_halves", [](const HalvesOptions&) -> data::Splits {
    return {std::make_shared<Halves>(), nullptr, std::make_shared<Halves>()};
  });
  models::add("report_test_pixels", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
    return std::make_unique<nn::Linear>(input.channels, input.classes);
  });
  const test::TempDir folder;
  const auto session = session_of(folder, R"("model": {"type": "report_test_pixels"}, "task": {"type": "segmentation"},
    "data": {"type": "report_test_halves", "workers": 0})");
  train(*session, 400);
  const std::string html = model_sections(*session);
  EXPECT_EQ(count(html, "<img "), 3U * (4 + 4)) << "input, mask and truth of the first four and the worst four";
  const auto rows = confusion_in(html);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0][0] + rows[0][1] + rows[1][0] + rows[1][1], 10 * 12) << "pixels that count";
  EXPECT_EQ(rows[0][1] + rows[1][0], 0) << "by then it has learnt them";
  for (const char* part : {"<h2>Masks</h2>", "<h2>Worst masks</h2>", "sample 3: 100.00 % of the pixels are correct",
                           "&lt;light&gt;", "class=\"swatch\""})
    EXPECT_PRED2(contains, html, part);
  // The mask of a model that is right is the truth.
  const std::regex image("base64,([^\"]*)\"");
  std::vector<std::string> images;
  for (std::sregex_iterator at(html.begin(), html.end(), image), none; at != none; ++at) images.push_back((*at)[1]);
  ASSERT_EQ(images.size(), 24U);
  EXPECT_NE(images[0], images[1]);
}

TEST(TaskReport, OfALanguageModelHasSamples) {
  const test::TempDir folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "abc<>";
  const std::string path = folder.write("a.txt", {text.begin(), text.end()});
  const auto of = [&](const std::string& more) {
    return session_of(folder, R"("model": {"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0},
      "data": {"type": "text", "length": 16, "valid_fraction": 0.1, "workers": 0, "train": [")" +
                                  path + "\"]" + more + "}");
  };
  const auto session = of("");
  train(*session, 5);
  const auto samples_of_valid = [&] {
    const EvaluationScope as_in_evaluations(*session);
    return session->task->samples(*session, session->data.valid);
  };
  const std::vector<Figure> samples = samples_of_valid();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_FALSE(samples[0].text.empty());
  EXPECT_LE(samples[0].text.size(), 120U);
  EXPECT_PRED2(contains, samples[0].caption, "after the prompt \"");
  EXPECT_EQ(samples_of_valid()[1].text, samples[1].text);
  const std::string html = model_sections(*session, {.samples = true});
  EXPECT_PRED2(contains, html, "<h2>Samples</h2>");
  EXPECT_PRED2(contains, html, "<pre>" + html_escaped(samples[0].text) + "</pre>");
  EXPECT_EQ(model_sections(*session).find("<h2>Samples</h2>"), std::string::npos);
  EXPECT_TRUE(session->model->is_training());
}

}  // namespace
}  // namespace hearth::train::task_report_test
