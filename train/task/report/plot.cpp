// SPDX-License-Identifier: Apache-2.0
#include "train/task/report/plot.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>

#include "core/text_stream.h"
#include "train/task/report/html_text.h"

namespace hearth::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double chart_width = 560, chart_height = 280;
constexpr double chart_left = 58, chart_right = 14, chart_top = 32, chart_bottom = 40;
constexpr std::size_t max_points = 400;
constexpr std::size_t max_markers = 40;

struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  std::vector<double> ticks = {};

  bool empty() const { return low > high; }
  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen_if_flat() {
    if (high > low) return;
    const double pad = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= pad;
    high += pad;
  }
};

// The distance of round values that cuts `range` into about `count` parts.
double tick_step(double range, int count) {
  const double raw = range / std::max(1, count);
  if (!(raw > 0) || !std::isfinite(raw)) return 0;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

// Ends at the ticks outside the data, so that no curve runs along the edge.
void divide_linear(Axis& axis, double most) {
  axis.widen_if_flat();
  const double step = tick_step(axis.high - axis.low, 5);
  axis.low = std::floor(axis.low / step + 1e-9) * step;
  axis.high = std::min(most, std::ceil(axis.high / step - 1e-9) * step);
  axis.ticks = axis_ticks(axis.low, axis.high, 5);
}

// Decades, and 2 and 5 times them where there are few. The axis is in log10 of the values.
void divide_logarithmic(Axis& axis) {
  axis.widen_if_flat();
  const bool few = axis.high - axis.low < 2.5;
  for (double decade = std::floor(axis.low); decade <= axis.high; ++decade)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = decade + std::log10(factor);
      if ((few || factor == 1.0) && tick >= axis.low - 1e-9 && tick <= axis.high + 1e-9) axis.ticks.push_back(tick);
    }
}

std::string number(double value) {
  TextStream out;
  out << std::fixed << std::setprecision(1) << value;
  return out.str();
}

// The chart's points in the units of its axes.
std::vector<Points> shown_points(const Chart& chart) {
  std::vector<Points> result;
  for (const Curve& curve : chart.curves) {
    Points points;
    for (const auto& [x, value] : curve.points) {
      if (!std::isfinite(x) || !std::isfinite(value)) continue;
      if (chart.scale == Scale::logarithmic && value <= 0) continue;
      const double share = chart.percent ? 100 * value : value;
      points.emplace_back(x, chart.scale == Scale::logarithmic ? std::log10(share) : share);
    }
    result.push_back(thinned(points, max_points));
  }
  return result;
}

std::size_t colour_of(const Chart& chart, std::size_t curve) {
  return chart.curves[curve].colour.value_or(curve) % curve_colours;
}

class Canvas {
 public:
  Canvas(std::ostream& out, const Chart& chart, Axis x, Axis y)
      : out_(out), chart_(chart), x_(std::move(x)), y_(std::move(y)) {}

  void axes() const {
    for (const double tick : y_.ticks) {
      const std::string at = number(py(tick));
      out_ << "<line class=\"grid\" x1=\"" << chart_left << "\" x2=\"" << chart_width - chart_right << "\" y1=\"" << at
           << "\" y2=\"" << at << "\"/><text x=\"" << chart_left - 6 << "\" y=\"" << number(py(tick) + 4)
           << "\" text-anchor=\"end\">" << value_text(tick) << "</text>";
    }
    for (const double tick : x_.ticks)
      out_ << "<text x=\"" << number(px(tick)) << "\" y=\"" << chart_height - chart_bottom + 16
           << "\" text-anchor=\"middle\">" << tick_text(tick) << "</text>";
    out_ << "<text x=\"" << (chart_left + chart_width - chart_right) / 2 << "\" y=\"" << chart_height - 6
         << "\" text-anchor=\"middle\">" << html_escaped(chart_.x_label) << "</text>";
  }

  void mark(double x) const {
    out_ << "<line class=\"mark\" x1=\"" << number(px(x)) << "\" x2=\"" << number(px(x)) << "\" y1=\"" << chart_top
         << "\" y2=\"" << chart_height - chart_bottom << "\"/>";
  }

  void curve(const Points& points, std::size_t colour) const {
    out_ << "<polyline class=\"c" << colour << "\" points=\"";
    for (const auto& [x, y] : points) out_ << number(px(x)) << "," << number(py(y)) << " ";
    out_ << "\"/>";
    if (points.size() > max_markers) return;
    for (const auto& [x, y] : points)
      out_ << "<circle class=\"c" << colour << "\" r=\"2.5\" cx=\"" << number(px(x)) << "\" cy=\"" << number(py(y))
           << "\"><title>" << html_escaped(chart_.x_label) << " " << tick_text(x) << ": " << value_text(y)
           << "</title></circle>";
  }

 private:
  double px(double x) const {
    return chart_left + (x - x_.low) / (x_.high - x_.low) * (chart_width - chart_left - chart_right);
  }
  double py(double y) const {
    return chart_height - chart_bottom - (y - y_.low) / (y_.high - y_.low) * (chart_height - chart_top - chart_bottom);
  }
  std::string value_text(double y) const {
    return tick_text(chart_.scale == Scale::logarithmic ? std::pow(10, y) : y) + (chart_.percent ? " %" : "");
  }

  std::ostream& out_;
  const Chart& chart_;
  Axis x_, y_;
};

void write_legend(std::ostream& out, const Chart& chart) {
  double at = chart_width - chart_right;
  for (std::size_t i = chart.curves.size(); i-- > 0;) {
    const std::string& name = chart.curves[i].name;
    out << "<text class=\"l" << colour_of(chart, i) << "\" x=\"" << at << "\" y=\"18\" text-anchor=\"end\">"
        << html_escaped(name) << "</text>";
    at -= 14 + 7.0 * static_cast<double>(name.size());
  }
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double step = tick_step(high - low, count);
  if (step == 0) return {low};
  std::vector<double> ticks;
  // Multiples by number, not by adding up, so that 0 is 0 and the last one is not lost to rounding.
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push_back(i * step);
  return ticks;
}

Points thinned(const Points& points, std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t stretches = most / 2;
  Points result;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / stretches);
    auto [low, high] =
        std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (high < low) std::swap(low, high);
    result.push_back(*low);
    if (low != high) result.push_back(*high);
  }
  return result;
}

std::string tick_text(double value) {
  TextStream out;
  const double size = std::abs(value);
  out << std::setprecision(4);
  if (size >= 1e6 && size < 1e9)
    out << value / 1e6 << "M";
  else if (size >= 1e4 && size < 1e6)
    out << value / 1e3 << "k";
  else
    out << (size < 1e-12 ? 0 : value);
  return out.str();
}

std::string to_svg(const Chart& chart) {
  const std::vector<Points> curves = shown_points(chart);
  Axis x, y;
  for (const Points& points : curves)
    for (const auto& point : points) {
      x.cover(point.first);
      y.cover(point.second);
    }
  if (x.empty()) return "";
  x.cover(0);
  x.widen_if_flat();
  x.ticks = axis_ticks(x.low, x.high, 7);
  if (chart.scale == Scale::logarithmic) {
    divide_logarithmic(y);
  } else {
    if (chart.scale == Scale::from_zero) y.cover(0);
    if (chart.scale == Scale::from_zero && y.high == y.low) y.high = 1;
    divide_linear(y, chart.percent ? std::max(100.0, y.high) : std::numeric_limits<double>::infinity());
  }
  TextStream out;
  out << "<svg viewBox=\"0 0 " << chart_width << " " << chart_height << "\" role=\"img\" aria-label=\""
      << html_escaped(chart.title) << "\"><text class=\"title\" x=\"" << chart_left << "\" y=\"18\">"
      << html_escaped(chart.title) << "</text>";
  const Canvas canvas(out, chart, x, y);
  canvas.axes();
  for (const double mark : chart.marks)
    if (mark >= x.low && mark <= x.high) canvas.mark(mark);
  for (std::size_t i = curves.size(); i-- > 0;) canvas.curve(curves[i], colour_of(chart, i));
  if (chart.legend) write_legend(out, chart);
  out << "</svg>";
  return out.str();
}

std::string charts_html(const std::vector<Chart>& charts) {
  std::string html = "<div class=\"charts\">";
  for (const Chart& chart : charts)
    if (const std::string svg = to_svg(chart); !svg.empty()) html += join_text("<div>", svg, "</div>");
  return html + "</div>";
}

}  // namespace hearth::train
