// SPDX-License-Identifier: Apache-2.0
#include "train/task/report_sections.h"

#include <gtest/gtest.h>

#include <regex>

#include "data/images/codecs/decode.h"
#include "tests/support/base64.h"
#include "tests/support/error_message.h"
#include "train/model/metrics.h"

namespace hearth::train::report_sections_test {
namespace {

using test::contains;

data::Image image_of(int height, int width, int channels) {
  data::Image image;
  image.reshape(height, width, channels);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(37 * i + i / 251);
  return image;
}

data::Image image_in(const Json& figure, std::size_t index) {
  const std::string bytes = test::from_base64(figure.at("images").at(index).as_string());
  data::Image image;
  data::decode_image({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "figure", image);
  return image;
}

TEST(HtmlEscaped, LeavesNoMarkup) {
  EXPECT_EQ(html_escaped("<a href=\"x\" title='y'>&"), "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;");
}

TEST(ReportSections, KeepsTheImagesOfAFigure) {
  const data::Image rgb = image_of(5, 7, 3);
  const Json figure = to_json({.caption = "c", .images = {rgb, image_of(2, 3, 1), image_of(4, 4, 2)}, .text = "t"});
  EXPECT_EQ(figure.at("caption").as_string(), "c");
  EXPECT_EQ(figure.at("text").as_string(), "t");
  ASSERT_EQ(figure.at("images").size(), 3U);
  EXPECT_EQ(image_in(figure, 0), rgb);
  const data::Image grey = image_in(figure, 1);
  EXPECT_EQ(grey.height, 2);
  EXPECT_EQ(grey.width, 3);
  EXPECT_EQ(grey.row(1)[3 * 1], image_of(2, 3, 1).row(1)[1]);
  EXPECT_EQ(image_in(figure, 2).row(1)[3 * 1], image_of(4, 4, 2).row(1)[2]) << "the first of two channels";
}

TEST(ReportSections, BoundsImagesAndTexts) {
  const Json figure = to_json({.images = {image_of(300, 1200, 3)}, .text = std::string(1999, 'x') + "\u00e4\u00e4"});
  const data::Image image = image_in(figure, 0);
  EXPECT_EQ(image.width, 128);
  EXPECT_EQ(image.height, 32);
  EXPECT_EQ(figure.at("text").as_string(), std::string(1999, 'x') + "...") << "no half character";
  ReportSections sections;
  sections.figures(std::vector<Figure>(50, Figure{.caption = "one"}));
  std::size_t count = 0;
  for (std::size_t at = 0; (at = sections.html().find("<figure>", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 32U);
}

TEST(ReportSections, EscapesAllText) {
  const std::string evil = "<script>\"'&";
  ConfusionMatrix matrix(2);
  matrix.add(Tensor::of<std::int64_t>({2}, {0, 1}), Tensor::of<std::int64_t>({2}, {1, 1}));
  ReportSections sections;
  sections.heading(evil);
  sections.paragraph(evil);
  sections.table({evil, evil}, {{evil, evil}});
  sections.bars({{evil, evil, 0.5}});
  sections.figures(std::vector<Figure>{{.caption = evil, .text = evil}});
  sections.figures(Json::array().push_back(
      Json::object().set("caption", evil).set("images", Json::array().push_back("\"><script>"))));
  sections.confusion(matrix, {evil, evil});
  sections.legend({evil}, {evil});
  const std::string html = sections.html();
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos) << "what is no base64 is no image";
  EXPECT_PRED2(contains, html, "&lt;script&gt;&quot;&#39;&amp;");
  EXPECT_EQ(std::count(html.begin(), html.end(), '<'), std::count(html.begin(), html.end(), '>'));
}

TEST(ReportSections, RefusesRowsThatAreNoRows) {
  ReportSections sections;
  EXPECT_PRED2(contains, test::error_message<ShapeError>([&] {
                 sections.table({"a", "b"}, {{"1", "2"}, {"3"}});
               }),
               "row 1 of a table has 1 cells under 2 headings");
}

TEST(ReportSections, PassesOverFiguresThatAreNone) {
  ReportSections sections;
  sections.figures(Json());
  sections.figures(Json::array());
  sections.figures(Json("text"));
  EXPECT_EQ(sections.html(), "");
  sections.figures(Json::array().push_back(3).push_back(Json::object().set("images", 1).set("caption", 2)));
  EXPECT_PRED2(contains, sections.html(), "<figcaption></figcaption>");
}

TEST(ReportSections, ShowsCountsOfEachPair) {
  ConfusionMatrix matrix(3);
  matrix.add(Tensor::of<std::int64_t>({5}, {0, 0, 1, 1, 1}), Tensor::of<std::int64_t>({5}, {0, 0, 0, 1, 2}));
  ReportSections sections;
  sections.confusion(matrix, {"cat", "dog", "owl"});
  const std::string html = std::regex_replace(sections.html(), std::regex(" style=\"[^\"]*\""), "");
  EXPECT_PRED2(contains, html, "<tr><th>cat</th><td>2</td><td>1</td><td></td></tr>");
  EXPECT_PRED2(contains, html, "<tr><th>dog</th><td></td><td>1</td><td></td></tr>");
  EXPECT_PRED2(contains, html, "<tr><th>owl</th><td></td><td>1</td><td></td></tr>");
}

TEST(ReportSections, OfManyClassesShowsTheMostFrequentConfusions) {
  ConfusionMatrix matrix(40);
  const auto add = [&](std::int64_t predicted, std::int64_t label, std::int64_t times) {
    matrix.add(Tensor::full({times}, predicted, DType::i64), Tensor::full({times}, label, DType::i64));
  };
  add(7, 7, 9);
  add(3, 39, 2);
  add(5, 4, 6);
  ReportSections sections;
  sections.confusion(matrix, {});
  EXPECT_PRED2(contains, sections.html(),
               "<tr><td>4</td><td>5</td><td>6</td></tr><tr><td>39</td><td>3</td><td>2</td></tr>");
  EXPECT_EQ(sections.html().find("<td>9</td>"), std::string::npos) << "what is right is no confusion";
}

}  // namespace
}  // namespace hearth::train::report_sections_test
