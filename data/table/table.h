// SPDX-License-Identifier: Apache-2.0
// Tables and arrays as datasets: samples of numbers and categories, "x", with numbers or a class, "labels". What their
// columns are like is learned on the training split, and a checkpoint keeps it, so that rows of other files become the
// same inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/sample_dataset.h"

namespace hearth::data {

/// What to do about a value that is missing.
enum class Missing : std::uint8_t { error, mean, most_frequent };

/// How a column of a row becomes inputs of a model: a number minus `mean`, by `deviation`; a category as one input for
/// each known value, of which its own is 1 (all are 0 for an unknown one).
struct Column {
  std::string name{};  ///< empty in arrays
  bool is_category = false;
  double mean = 0;
  double deviation = 1;
  std::vector<std::string> values{};  ///< of a category, sorted
  std::optional<double> fill{};       ///< what a missing value becomes: a number, or the index of a category's value
};

/// What a model takes for granted of a table.
struct TableFacts {
  std::vector<Column> columns{};       ///< of the inputs; of arrays one for each place of the last axis
  std::vector<std::int64_t> shape{};   ///< of the inputs of a sample, as the model gets them
  std::string target{};                ///< column of the target; empty in arrays
  std::vector<std::string> classes{};  ///< of the target; none where it is numbers
  std::int64_t targets = 1;            ///< numbers of a sample's target

  bool operator==(const TableFacts&) const = default;
};
bool operator==(const Column& a, const Column& b);

Json to_json(const TableFacts& facts);
/// ConfigError for what to_json() does not give.
TableFacts table_facts_of(const Json& json);

/// Rows as they were read: numbers, and indices of categories' values (-1 for an unknown one); NaN where missing. In
/// f64, so that what numbers far from 0 differ by outlasts the subtraction of their mean.
struct RawRows {
  std::int64_t count = 0;
  std::vector<double> inputs{};
  std::vector<float> targets{};        ///< numbers
  std::vector<std::int64_t> labels{};  ///< or classes; neither where the target is not there
};

class HEARTH_API TableDataset : public SampleDataset {
 public:
  TableDataset(std::string source, std::shared_ptr<const TableFacts> facts, RawRows rows);
  std::int64_t size() const override { return rows_.count; }
  /// "x", f32 of facts().shape; "labels", i64 [] for a class, f32 [targets] for numbers, nothing where there are none.
  TensorSample read(std::int64_t index, Random& random) const override;
  TensorSample example() const override;
  const std::string& source() const override { return source_; }
  const std::vector<std::string>& class_names() const override { return facts_->classes; }
  void identify(std::int64_t index, Sha256& digest) const override;

  const TableFacts& facts() const { return *facts_; }
  const std::shared_ptr<const TableFacts>& shared_facts() const { return facts_; }
  bool has_targets() const { return !rows_.labels.empty() || !rows_.targets.empty(); }
  const RawRows& rows() const { return rows_; }

 private:
  std::string source_;
  std::shared_ptr<const TableFacts> facts_;
  RawRows rows_;
};

using TablePointer = std::shared_ptr<const TableDataset>;

/// Fills in what the columns' values tell: means, deviations (1 where all are equal; both as they are without
/// `standardize`), and what missing values become. Sums are in f64, in order, of differences to the first value.
void learn_columns(const RawRows& rows, Missing missing, bool standardize, TableFacts& facts);
/// Puts in the place of each missing input what the column says. DataError, naming `source` and column, where it says
/// nothing, as the training split has no value of it; and for a number that is so far from the training split's that it
/// is outside f32's range as an input.
void fill_missing(RawRows& rows, const TableFacts& facts, const std::string& source);
/// Chosen rows, in the given order.
RawRows chosen(const RawRows& rows, const std::vector<std::int64_t>& which);

/// "numbers size, age; categories colour (3 values)", of a table's inputs; empty for arrays, whose columns have no
/// names.
std::string named_columns(const TableFacts& facts);
/// Counts, columns and the balance of classes, for `hearth data inspect`.
Json describe_table(const TableDataset& table);

}  // namespace hearth::data
