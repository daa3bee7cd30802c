// SPDX-License-Identifier: Apache-2.0
#include "train/task/report_sections.h"

#include <algorithm>
#include <iomanip>

#include "core/io/utf8.h"
#include "core/text_stream.h"
#include "data/images/transforms/resize.h"
#include "train/model/metrics.h"

namespace hearth::train {
namespace {

constexpr int longest_side = 128;
constexpr std::size_t longest_text = 2000;
constexpr std::size_t max_rows = 1000;
constexpr std::size_t max_figures = 32;
constexpr std::int64_t largest_square = 30;
constexpr std::size_t max_confusions = 20;
// Of an image in base64: more than 128 x 128 pixels of four channels ever take.
constexpr std::size_t largest_image = 100'000;

std::string base64(const std::vector<std::uint8_t>& bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

bool is_base64(const std::string& text) {
  return !text.empty() && text.size() <= largest_image && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
           c == '=';
  });
}

/// The beginning of a text, whole characters.
std::string cut(const std::string& text) {
  if (text.size() <= longest_text) return text;
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t next = end + std::max<std::size_t>(1, utf8::character_at(text, end).bytes);
    if (next > longest_text) break;
    end = next;
  }
  return text.substr(0, end) + "...";
}

std::string text_in(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

}  // namespace

data::Image as_shown(const data::Image& image) {
  data::Image visible = image;
  if (image.channels != 1 && image.channels != 3 && image.channels != 4) {
    visible.reshape(image.height, image.width, 1);
    for (std::size_t i = 0; i < visible.pixels.size(); ++i)
      visible.pixels[i] = image.pixels[i * static_cast<std::size_t>(image.channels)];
  }
  const int side = std::max(visible.height, visible.width);
  if (side <= longest_side) return visible;
  const auto shrunk = [&](int length) { return std::max(1, length * longest_side / side); };
  data::Image small;
  data::resize(visible, {0, 0, visible.height, visible.width}, shrunk(visible.height), shrunk(visible.width), small);
  return small;
}

std::string percent_text(double share) {
  TextStream out;
  out << std::fixed << std::setprecision(2) << 100 * share << " %";
  return out.str();
}

Json to_json(const Figure& figure) {
  Json images = Json::array();
  for (const data::Image& image : figure.images) {
    const std::string text = base64(data::encode_png(as_shown(image)));
    if (!text.empty()) images.push_back(text);
  }
  Json result = Json::object();
  result.set("caption", cut(figure.caption));
  if (!figure.text.empty()) result.set("text", cut(figure.text));
  if (images.size() > 0) result.set("images", std::move(images));
  return result;
}

void ReportSections::heading(std::string_view text) {
  body_ += join_text(is_open_ ? "</section>" : "", "<section><h2>", html_escaped(text), "</h2>");
  is_open_ = true;
}

void ReportSections::paragraph(std::string_view text) {
  body_ += join_text("<p class=\"sub\">", html_escaped(text), "</p>");
}

void ReportSections::table(const std::vector<std::string>& headings,
                           const std::vector<std::vector<std::string>>& rows) {
  TextStream out;
  out << "<div class=\"scroll\"><table class=\"numbers named\"><tr>";
  for (const std::string& heading : headings) out << "<th>" << html_escaped(heading) << "</th>";
  out << "</tr>";
  for (std::size_t i = 0; i < std::min(rows.size(), max_rows); ++i) {
    HEARTH_CHECK(ShapeError, rows[i].size() == headings.size(), "report: row ", i, " of a table has ", rows[i].size(),
                 " cells under ", headings.size(), " headings");
    out << "<tr>";
    for (const std::string& cell : rows[i]) out << "<td>" << html_escaped(cell) << "</td>";
    out << "</tr>";
  }
  out << "</table></div>";
  body_ += out.str();
  if (rows.size() > max_rows) paragraph(join_text("the first ", max_rows, " of ", rows.size()));
}

void ReportSections::bars(const std::vector<Bar>& bars) {
  TextStream out;
  out << std::fixed << std::setprecision(1) << "<table class=\"bars\">";
  for (const Bar& bar : bars)
    out << "<tr><td>" << html_escaped(bar.name) << "</td><td>" << html_escaped(bar.value)
        << "</td><td><div style=\"width:" << 100 * std::clamp(bar.share, 0.0, 1.0) << "%\"></div></td></tr>";
  out << "</table>";
  body_ += out.str();
}

void ReportSections::charts(const std::vector<Chart>& charts) { body_ += charts_html(charts); }

void ReportSections::figures(std::span<const Figure> figures) {
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(figures.size(), max_figures); ++i) list.push_back(to_json(figures[i]));
  this->figures(list);
}

void ReportSections::figures(const Json& figures) {
  if (!figures.is_array() || figures.size() == 0) return;
  TextStream out;
  out << "<div class=\"figures\">";
  std::size_t count = 0;
  for (const Json& figure : figures.items()) {
    if (!figure.is_object() || count++ >= max_figures) continue;
    const std::string text = cut(text_in(figure, "text")), caption = cut(text_in(figure, "caption"));
    out << (text.empty() ? "<figure>" : "<figure class=\"wide\">");
    if (const Json* const images = figure.find("images"); images != nullptr && images->is_array()) {
      out << "<div>";
      for (const Json& image : images->items())
        if (image.is_string() && is_base64(image.as_string()))
          out << "<img alt=\"" << html_escaped(caption) << "\" src=\"data:image/png;base64," << image.as_string()
              << "\">";
      out << "</div>";
    }
    if (!text.empty()) out << "<pre>" << html_escaped(text) << "</pre>";
    out << "<figcaption>" << html_escaped(caption) << "</figcaption></figure>";
  }
  out << "</div>";
  body_ += out.str();
}

namespace {

std::string name_of_class(const std::vector<std::string>& names, std::int64_t label) {
  const auto index = static_cast<std::size_t>(label);
  return index < names.size() ? names[index] : join_text(label);
}

std::string square_of(const ConfusionMatrix& matrix, const std::vector<std::string>& names) {
  TextStream out;
  out << std::setprecision(3) << "<div class=\"scroll\"><table class=\"confusion\"><tr><th>label \\ predicted</th>";
  for (std::int64_t label = 0; label < matrix.classes(); ++label)
    out << "<th>" << html_escaped(name_of_class(names, label)) << "</th>";
  out << "</tr>";
  for (std::int64_t label = 0; label < matrix.classes(); ++label) {
    out << "<tr><th>" << html_escaped(name_of_class(names, label)) << "</th>";
    std::int64_t all = 0;
    for (std::int64_t other = 0; other < matrix.classes(); ++other) all += matrix.count(label, other);
    for (std::int64_t other = 0; other < matrix.classes(); ++other) {
      const std::int64_t count = matrix.count(label, other);
      out << "<td";
      // Shades that both colour schemes can be read on; a rare mistake can still be seen.
      if (count > 0)
        out << " style=\"background:rgba(" << (label == other ? "43,138,62," : "217,72,15,")
            << 0.12 + 0.5 * static_cast<double>(count) / static_cast<double>(all) << ")\"";
      out << ">" << (count > 0 ? join_text(count) : "") << "</td>";
    }
    out << "</tr>";
  }
  out << "</table></div>";
  return out.str();
}

}  // namespace

void ReportSections::confusion(const ConfusionMatrix& matrix, const std::vector<std::string>& names) {
  if (matrix.classes() <= largest_square) {
    body_ += square_of(matrix, names);
    return;
  }
  struct Confusion {
    std::int64_t count, label, predicted;
  };
  std::vector<Confusion> all;
  for (std::int64_t label = 0; label < matrix.classes(); ++label)
    for (std::int64_t predicted = 0; predicted < matrix.classes(); ++predicted)
      if (const std::int64_t count = matrix.count(label, predicted); count > 0 && label != predicted)
        all.push_back({count, label, predicted});
  std::stable_sort(all.begin(), all.end(), [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < std::min(all.size(), max_confusions); ++i)
    rows.push_back(
        {name_of_class(names, all[i].label), name_of_class(names, all[i].predicted), join_text(all[i].count)});
  if (!rows.empty()) table({"label", "predicted", "samples"}, rows);
}

void ReportSections::legend(const std::vector<std::string>& names, const std::vector<std::string>& colours) {
  TextStream out;
  out << "<p class=\"sub\">";
  for (std::size_t i = 0; i < std::min(names.size(), colours.size()); ++i)
    out << "<span class=\"swatch\" style=\"background:" << html_escaped(colours[i]) << "\"></span>"
        << html_escaped(names[i]) << " ";
  out << "</p>";
  body_ += out.str();
}

void ReportSections::append(const ReportSections& other) {
  body_ = html() + other.html();
  is_open_ = false;
}

std::string ReportSections::html() const { return is_open_ ? body_ + "</section>" : body_; }

}  // namespace hearth::train
