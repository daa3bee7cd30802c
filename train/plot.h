// SPDX-License-Identifier: Apache-2.0
// Line charts as inline SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hearth::train {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x ascending; points that are not finite are left out
};

struct Chart {
  std::string title;
  std::string x_label;
  bool percent = false;      ///< values are shares, shown times 100
  bool logarithmic = false;  ///< y axis in decades; values must be above 0
  std::vector<Curve> curves;
};

/// An <svg> element whose colours come from the page's style sheet: classes c0, c1, ... for the curves.
/// Empty if no curve has a point.
std::string to_svg(const Chart& chart);

/// Round values that cover [low, high]: about `count` multiples of 1, 2 or 5 times a power of ten.
std::vector<double> axis_ticks(double low, double high, int count);

/// Text with &, <, > and quotes escaped for HTML.
std::string html_escaped(const std::string& text);

}  // namespace hearth::train
