// SPDX-License-Identifier: Apache-2.0
// What a report shows of detections, of boxes laid out by hand.
#include "train/task/report/detection_report.h"

#include <gtest/gtest.h>

#include <numeric>
#include <regex>

#include "data/images/codecs/decode.h"
#include "tests/support/base64.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::detection_report_test {
namespace {

using test::contains;

Detections detected(const std::vector<double>& corners, const std::vector<double>& scores,
                    const std::vector<std::int64_t>& labels) {
  const auto count = static_cast<std::int64_t>(labels.size());
  return {Tensor::of({count, 4}, corners), Tensor::of({count}, scores), Tensor::of({count}, labels)};
}

GroundTruth labelled(const std::vector<double>& corners, const std::vector<std::int64_t>& labels) {
  const auto count = static_cast<std::int64_t>(labels.size());
  return {Tensor::of({count, 4}, corners), Tensor::of({count}, labels)};
}

double mean_of(const Curve& curve) {
  double sum = 0;
  for (const auto& point : curve.points) sum += point.second;
  return sum / static_cast<double>(curve.points.size());
}

TEST(DetectionReport, ThePrecisionOfACurveIsThatOfItsClass) {
  // Class 1 has four boxes, class 2 two, class 0 none. A detection is of no box, one of half a box.
  CocoEvaluation all(3), second(1), third(1);
  const std::vector<double> scores{0.9, 0.8, 0.7, 0.6};
  const std::vector<double> boxes{0, 0, 10, 10, 50, 0, 60, 10, 0, 50, 10, 60},
      found_boxes{0, 0, 10, 8, 90, 90, 99, 99, 50, 0, 60, 5.2, 0, 50, 10, 60};
  for (std::int64_t image = 0; image < 2; ++image) {
    all.add(image, detected(found_boxes, scores, {1, 1, 1, 2}), labelled(boxes, {1, 1, 2}));
    const std::vector<double> first_boxes(boxes.begin(), boxes.begin() + 8),
        first_found(found_boxes.begin(), found_boxes.begin() + 12);
    second.add(image, detected(first_found, {0.9, 0.8, 0.7}, {0, 0, 0}), labelled(first_boxes, {0, 0}));
    third.add(image, detected({0, 50, 10, 60}, {0.6}, {0}), labelled({0, 50, 10, 60}, {0}));
  }
  const std::vector<Chart> charts = precision_charts(all.result(), {"none", "first", "second"});
  ASSERT_EQ(charts.size(), 2U);
  for (const Chart& chart : charts) {
    ASSERT_EQ(chart.curves.size(), 2U);
    EXPECT_EQ(chart.curves[0].name, "first (4)");
    EXPECT_EQ(chart.curves[1].name, "second (2)");
    ASSERT_EQ(chart.curves[0].points.size(), 101U);
    EXPECT_EQ(chart.curves[0].points.front().first, 0);
    EXPECT_EQ(chart.curves[0].points.back().first, 100);
  }
  const CocoResult of_second = second.result(), of_third = third.result();
  EXPECT_GT(of_second.ap_50, of_second.ap_75);
  EXPECT_DOUBLE_EQ(mean_of(charts[0].curves[0]), of_second.ap_50);
  EXPECT_DOUBLE_EQ(mean_of(charts[1].curves[0]), of_second.ap_75);
  EXPECT_DOUBLE_EQ(mean_of(charts[0].curves[1]), of_third.ap_50);
  EXPECT_DOUBLE_EQ((mean_of(charts[0].curves[0]) + mean_of(charts[0].curves[1])) / 2, all.result().ap_50);
}

TEST(DetectionReport, CurvesAreOfTheClassesWithTheMostBoxes) {
  CocoEvaluation evaluation(11);
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < 11; ++label) {
    names.push_back(join_text("class ", label));
    for (std::int64_t i = 0; i <= label; ++i)
      evaluation.add(100 * label + i, detected({}, {}, {}), labelled({0, 0, 5, 5}, {label}));
  }
  const std::vector<Chart> charts = precision_charts(evaluation.result(), names);
  ASSERT_EQ(charts[0].curves.size(), 8U);
  EXPECT_EQ(charts[0].curves.front().name, "class 10 (11)");
  EXPECT_EQ(charts[0].curves.back().name, "class 3 (4)");
}

/// Six images of 256 x 128 pixels, all of one grey, of which figures show half the pixels a side.
class DrawnErrors : public testing::Test {
 protected:
  DrawnErrors() {
    data::AnnotatedImages images;
    images.source = images.folder = folder_.path();
    images.class_names = {"cat", "dog"};
    images.category_ids = {1, 2};
    data::Image image;
    image.reshape(128, 256, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{100});
    for (int i = 0; i < 6; ++i) {
      images.images.push_back({.file = join_text(i, ".png")});
      data::write_png(folder_ / images.images.back().file, image);
    }
    part_ = std::make_shared<data::BoxDataset>(std::move(images), data::default_decode_bytes);
  }

  std::string report(const std::function<void(const UseBoxes&)>& visit) const {
    ReportSections sections;
    report_detection(*part_, visit, sections);
    return sections.html();
  }

  /// The part of a page from a heading to the next.
  static std::string section(const std::string& html, const std::string& heading) {
    const std::size_t begin = html.find("<h2>" + heading);
    EXPECT_NE(begin, std::string::npos) << heading;
    return begin == std::string::npos ? "" : html.substr(begin, html.find("</section>", begin) - begin);
  }
  static std::size_t figures_in(const std::string& html) {
    std::size_t count = 0;
    for (std::size_t at = html.find("<figure>"); at != std::string::npos; at = html.find("<figure>", at + 1)) ++count;
    return count;
  }

  test::TempDir folder_;
  std::shared_ptr<data::BoxDataset> part_;
};

TEST_F(DrawnErrors, AreCountedAndTheWorstShown) {
  const std::string html = report([](const UseBoxes& use) {
    // A dog where a cat is, with growing scores; a smaller detection of it, which is not the worst of its image.
    for (std::int64_t i = 0; i < 6; ++i) {
      const double score = 0.4 + 0.1 * static_cast<double>(i);
      use(i, detected({64, 32, 192, 96, 64, 32, 192, 94}, {score, score - 0.05}, {1, 1}),
          i == 2 ? labelled({64, 32, 192, 96, 0, 100, 20, 120}, {0, 1}) : labelled({64, 32, 192, 96}, {0}));
    }
  });
  EXPECT_PRED2(contains, html, "of their 12;");
  EXPECT_PRED2(contains, html, "as a share of 7.");
  EXPECT_PRED2(contains, html, "with a true box of another class</td><td>12</td><td>100.00 %</td>") << html;
  const std::string missed = section(html, "Largest boxes missed");
  EXPECT_EQ(figures_in(missed), 1U);
  EXPECT_PRED2(contains, missed, "<figcaption>2.png: dog, 20 x 20 pixels, IoU 0.00</figcaption>");
  const std::string wrong = section(html, "False alarms of the highest score: wrong class");
  EXPECT_EQ(figures_in(wrong), 4U);
  std::size_t at = 0;
  for (const char* caption :
       {">5.png: dog, score 0.90; true cat, 128 x 64 pixels, IoU 1.00<", ">4.png: dog, score 0.80; true cat",
        ">3.png: dog, score 0.70; true cat", ">2.png: dog, score 0.60; true cat"})
    EXPECT_NE(at = wrong.find(caption, at), std::string::npos) << caption;
  EXPECT_EQ(html.find("highest score: correct"), std::string::npos);
  EXPECT_EQ(html.find("highest score: background"), std::string::npos) << "there is none";
  // Rows are true classes: each cat is matched by a dog; one dog is missed, six detections match nothing.
  const std::string confusions = section(html, "Confusion matrix");
  const std::regex rows(R"(<th>cat</th><td></td><td[^>]*>6</td><td></td></tr>)"
                        R"(<tr><th>dog</th><td></td><td></td><td[^>]*>1</td></tr>)"
                        R"(<tr><th>background</th><td></td><td[^>]*>6</td><td></td></tr>)");
  EXPECT_TRUE(std::regex_search(confusions, rows)) << confusions;
  EXPECT_EQ(figures_in(section(html, "Boxes")), 6U);
}

TEST_F(DrawnErrors, HaveTheBoxOnTheImage) {
  const std::string html = report([](const UseBoxes& use) {
    use(0, detected({64, 32, 192, 96}, {0.9}, {1}), labelled({}, {}));
  });
  const std::string figures = section(html, "False alarms of the highest score: background");
  const std::string begin = "base64,";
  const std::size_t at = figures.find(begin) + begin.size();
  const std::string bytes = test::from_base64(figures.substr(at, figures.find('"', at) - at));
  data::Image image;
  data::decode_image({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "figure", image);
  ASSERT_EQ(image.width, 128);
  ASSERT_EQ(image.height, 64);
  const auto is_grey = [&](int y, int x) { return image.row(y)[3 * x] == 100 && image.row(y)[3 * x + 1] == 100; };
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 128; ++x) {
      const bool is_inside =
          y >= 16 && y < 48 && x >= 32 && x<96, is_within_lines = y> 16 && y < 47 && x > 32 && x < 95;
      ASSERT_EQ(is_grey(y, x), !is_inside || is_within_lines) << y << ' ' << x;
    }
}

TEST_F(DrawnErrors, MayBeAbsent) {
  const std::string html = report([](const UseBoxes& use) { use(0, detected({}, {}, {}), labelled({}, {})); });
  EXPECT_PRED2(contains, html, "<td>0</td><td></td>");
  EXPECT_EQ(html.find("<svg"), std::string::npos);
  EXPECT_EQ(html.find("Precision by recall"), std::string::npos);
}

}  // namespace
}  // namespace hearth::train::detection_report_test
