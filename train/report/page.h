// SPDX-License-Identifier: Apache-2.0
// What the pages of a run and of several runs have in common: the frame, and metrics read from records.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "train/task/report/plot.h"

namespace hearth::train {

/// The page up to its heading; end_page() ends it.
void begin_page(std::ostream& out, const std::string& title);
void end_page(std::ostream& out);
/// The <svg> elements of the charts that have a point.
void write_charts(std::ostream& out, const std::vector<Chart>& charts);

/// A value as text: strings without quotes, the rest as JSON.
std::string text_of(const Json& value);
/// A member; "" or nothing where it is absent, null or no number.
std::string text_at(const Json& object, std::string_view key);
std::optional<double> number_at(const Json& object, std::string_view key);
/// With so many significant digits.
std::string rounded(double value, int digits);
/// "20.48 MB".
std::string bytes_text(double bytes);

/// A number that records of metrics have.
struct Metric {
  std::string key;
  std::string title;  ///< "learning rate"
  bool percent = false;
  bool from_zero = false;    ///< as a curve, which otherwise is logarithmic where it spans much
  bool of_training = false;  ///< tells how the training goes, not how good the model is
  /// A value: "93.12 %", "0.41235".
  std::string text(double value) const;
};
/// The metrics that some of the records have: those known here in a fixed order, with others between quality and
/// training.
std::vector<Metric> metrics_in(const std::vector<Json>& records);
/// An empty chart of a metric over the epochs, and the axis that suits its curves.
Chart chart_of(const Metric& metric);
void choose_scale(Chart& chart, const Metric& metric);
/// The points of a split's records.
std::vector<std::pair<double, double>> points_of(const std::vector<Json>& records, const std::string& split,
                                                 const std::string& key);

/// The split that chooses the best checkpoint.
std::string deciding_split(const std::vector<Json>& records);
/// The last record of a split, or null.
const Json* last_of(const std::vector<Json>& records, const std::string& split);

}  // namespace hearth::train
