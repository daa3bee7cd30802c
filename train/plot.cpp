// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/plot.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace hearth::train {
namespace {

constexpr double width = 560, height = 280;
constexpr double left = 58, right = 14, top = 30, bottom = 40;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
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

std::string number(double value, int digits = 2) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string tick_text(double value) {
  std::ostringstream out;
  if (std::abs(value) >= 10000 && std::fmod(value, 1000) == 0)
    out << value / 1000 << "k";
  else
    out << std::setprecision(4) << (std::abs(value) < 1e-12 ? 0 : value);
  return out.str();
}

class Canvas {
 public:
  Canvas(Range x, Range y) : x_(x), y_(y) {}
  double px(double x) const { return left + (x - x_.low) / (x_.high - x_.low) * (width - left - right); }
  double py(double y) const { return height - bottom - (y - y_.low) / (y_.high - y_.low) * (height - top - bottom); }

 private:
  Range x_, y_;
};

double shown(const Chart& chart, double value) {
  if (chart.logarithmic) return std::log10(value);
  return chart.percent ? 100 * value : value;
}

bool is_drawable(const Chart& chart, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!chart.logarithmic || point.second > 0);
}

void draw_axes(std::ostream& out, const Chart& chart, const Canvas& canvas, const Range& x, const Range& y) {
  for (const double tick : axis_ticks(y.low, y.high, 5)) {
    const std::string at = number(canvas.py(tick));
    const std::string label = chart.logarithmic ? tick_text(std::pow(10, tick)) : tick_text(tick);
    out << "<line class=\"grid\" x1=\"" << left << "\" x2=\"" << width - right << "\" y1=\"" << at << "\" y2=\"" << at
        << "\"/><text x=\"" << left - 6 << "\" y=\"" << number(canvas.py(tick) + 4) << "\" text-anchor=\"end\">"
        << label << (chart.percent ? " %" : "") << "</text>";
  }
  for (const double tick : axis_ticks(x.low, x.high, 7))
    out << "<text x=\"" << number(canvas.px(tick)) << "\" y=\"" << height - bottom + 16 << "\" text-anchor=\"middle\">"
        << tick_text(tick) << "</text>";
  out << "<text x=\"" << (left + width - right) / 2 << "\" y=\"" << height - 6 << "\" text-anchor=\"middle\">"
      << html_escaped(chart.x_label) << "</text>";
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double raw = (high - low) / std::max(1, count);
  if (!(raw > 0) || !std::isfinite(raw)) return {low};
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string to_svg(const Chart& chart) {
  Range x, y;
  for (const Curve& curve : chart.curves)
    for (const auto& point : curve.points)
      if (is_drawable(chart, point)) {
        x.cover(point.first);
        y.cover(shown(chart, point.second));
      }
  if (x.low > x.high) return "";
  x.widen_if_flat();
  y.widen_if_flat();
  const Canvas canvas(x, y);
  std::ostringstream out;
  out << "<svg viewBox=\"0 0 " << width << " " << height << "\" role=\"img\" aria-label=\"" << html_escaped(chart.title)
      << "\"><text class=\"title\" x=\"" << left << "\" y=\"18\">" << html_escaped(chart.title) << "</text>";
  draw_axes(out, chart, canvas, x, y);
  double legend_x = width - right;
  for (std::size_t i = chart.curves.size(); i-- > 0;) {
    const Curve& curve = chart.curves[i];
    out << "<polyline class=\"c" << i << "\" points=\"";
    std::size_t drawn = 0;
    for (const auto& point : curve.points)
      if (is_drawable(chart, point)) {
        out << number(canvas.px(point.first)) << "," << number(canvas.py(shown(chart, point.second))) << " ";
        ++drawn;
      }
    out << "\"/>";
    if (drawn <= 40)
      for (const auto& point : curve.points)
        if (is_drawable(chart, point))
          out << "<circle class=\"c" << i << "\" r=\"2.5\" cx=\"" << number(canvas.px(point.first)) << "\" cy=\""
              << number(canvas.py(shown(chart, point.second))) << "\"/>";
    out << "<text class=\"l" << i << "\" x=\"" << legend_x << "\" y=\"18\" text-anchor=\"end\">"
        << html_escaped(curve.name) << "</text>";
    legend_x -= 14 + 7.0 * static_cast<double>(curve.name.size());
  }
  out << "</svg>";
  return out.str();
}

}  // namespace hearth::train
