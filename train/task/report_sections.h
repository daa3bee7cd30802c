// SPDX-License-Identifier: Apache-2.0
// Sections of a run's report: headings, tables and figures, as HTML that needs no other file. Tasks add theirs in
// Task::report().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json_text.h"
#include "data/images/codecs/image.h"
#include "train/task/report/html_text.h"
#include "train/task/report/plot.h"

namespace hearth::train {

class ConfusionMatrix;

/// Images side by side, a text, or both, with a caption.
struct Figure {
  std::string caption{};
  std::vector<data::Image> images{};  ///< of two channels or more than four, the first is shown
  std::string text{};
};

/// An image as figures show it: with channels that a PNG can have, and no side longer than 128 pixels. What is drawn on
/// it later is seen as it was drawn.
HEARTH_API data::Image as_shown(const data::Image& image);

/// A figure as metrics.jsonl keeps it: "caption", "text", and "images", PNG files in base64. Images are shrunk to at
/// most 128 pixels a side, captions and sequences cut to 2000 bytes. A build without libpng leaves images out.
HEARTH_API Json to_json(const Figure& figure);

class HEARTH_API ReportSections {
 public:
  /// What stands under a heading forms a section.
  void heading(std::string_view text);
  void paragraph(std::string_view text);
  /// Rows of cells, as many as there are headings (ShapeError). At most 1000 rows are shown. The first column is text,
  /// the others are aligned as numbers.
  void table(const std::vector<std::string>& headings, const std::vector<std::vector<std::string>>& rows);
  /// A line for each part of a whole: its name, its value in words, and a bar as long as its share (0 to 1).
  struct Bar {
    std::string name;
    std::string value;
    double share = 0;
  };
  void bars(const std::vector<Bar>& bars);
  /// Side by side; those without a point are left out.
  void charts(const std::vector<Chart>& charts);
  /// At most 32 of them.
  void figures(std::span<const Figure> figures);
  /// The same of what to_json() gave; others are left out.
  void figures(const Json& figures);
  /// Up to 30 classes: the counts as a square, a row for each label. Otherwise the 20 most frequent confusions.
  void confusion(const ConfusionMatrix& matrix, const std::vector<std::string>& names);
  /// Classes with the colours that images or curves show them in: "#rrggbb", "var(--c0)".
  void legend(const std::vector<std::string>& names, const std::vector<std::string>& colours);

  /// The sections of another, after these.
  void append(const ReportSections& other);

  /// All sections so far.
  std::string html() const;

 private:
  std::string body_;
  bool is_open_ = false;
};

/// "12.34 %", of a share of 1.
HEARTH_API std::string percent_text(double share);

}  // namespace hearth::train
