// SPDX-License-Identifier: Apache-2.0
// Line charts as inline SVG.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/export.h"

namespace hearth::train {

/// Classes c0, c1, ... of the style sheet; further curves begin again.
constexpr std::size_t curve_colours = 8;

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x ascending; points that are not finite are left out
  std::optional<std::size_t> colour{};            ///< by its position in the chart where it has none
};

/// How the y axis is divided.
enum class Scale {
  linear,
  from_zero,    ///< linear, and the axis begins at 0
  logarithmic,  ///< values that are not above 0 are left out
};

struct Chart {
  std::string title;
  std::string x_label;
  bool percent = false;  ///< values are shares, shown times 100
  Scale scale = Scale::linear;
  std::vector<Curve> curves{};
  bool legend = true;           ///< names of the curves above the chart
  std::vector<double> marks{};  ///< x of dashed lines, as of evaluations; those beside the curves are left out
};

/// An <svg> element whose colours come from the page's style sheet: classes c0, c1, ... for the curves. Long curves are
/// thinned to what can be seen. Empty if no curve has a point.
HEARTH_API std::string to_svg(const Chart& chart);
/// The charts that have a point, side by side in a <div>.
HEARTH_API std::string charts_html(const std::vector<Chart>& charts);

/// Round values within [low, high]: about `count` multiples of 1, 2 or 5 times a power of ten.
HEARTH_API std::vector<double> axis_ticks(double low, double high, int count);
/// At most `most` points (at least 4) that look the same when drawn: of each stretch the lowest and the highest.
HEARTH_API std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points,
                                                          std::size_t most);
/// A number on an axis: "0.05", "1500", "12.5k", "3M".
HEARTH_API std::string tick_text(double value);

}  // namespace hearth::train
