// SPDX-License-Identifier: Apache-2.0
// Opening tables (CSV) and arrays (NumPy) as the splits of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/registry.h"
#include "data/table/table.h"

namespace hearth::data {

/// Whether a target is numbers or a class; by itself: a class where more than a tenth of a column are other strings
/// than numbers, or an array has integers.
enum class TargetType : std::uint8_t { by_content, number, category };

/// What both have in common. Rows are not augmented, and `standardize` takes the place of `normalize`, so that neither
/// is a field.
struct TableOptions : DataOptions {
  double test_fraction = 0.1;
  TargetType target_type = TargetType::by_content;
  std::vector<std::string> classes{};
  Missing missing = Missing::error;
  bool standardize = true;
};

struct CsvOptions : TableOptions {
  std::string path, valid, test;
  std::string target;
  std::vector<std::string> columns{}, categories{}, ignore{};
  std::string delimiter = ",";
  bool header = true;
  std::string decimal = ".";
};

struct ArraysOptions : TableOptions {
  std::string path;
  std::string x, y, valid_x, valid_y, test_x, test_y;
};

HEARTH_API void describe(Fields<CsvOptions>& fields);
HEARTH_API void describe(Fields<ArraysOptions>& fields);

/// The splits; the columns are as `known` says, or else learned on the training split. Without files of their own, the
/// test and validation splits are rows drawn by split_seed. FileError or DataError, naming file, line and column.
HEARTH_API Splits csv_data(const CsvOptions& options, const std::shared_ptr<const TableFacts>& known = nullptr);
HEARTH_API Splits arrays_data(const ArraysOptions& options, const std::shared_ptr<const TableFacts>& known = nullptr);

/// One of both, as the type of the component says.
Splits table_splits(const Datasets::Component& data, const std::shared_ptr<const TableFacts>& known);

/// Rows of another file, as a model that was trained with these facts takes them: PATH.csv by the names of its columns,
/// of which the target may be missing; or PATH.npz with arrays x and, perhaps, y; or the inputs PATH.npy. Targets are
/// read `with_targets` only, so that predictions do not depend on what stands there. `data` is the configured dataset:
/// of type csv or arrays. UsageError for other data.
HEARTH_API TablePointer open_rows(const Datasets::Component& data, const std::shared_ptr<const TableFacts>& facts,
                                  const std::string& path, bool with_targets);
/// Rows in memory as a model that was trained with these facts takes them: f32 or f64 [rows, ...] in the shape of the
/// arrays, or [rows, columns] of a table of numbers; NaN is a missing value. DTypeError or ShapeError for others,
/// UsageError for a table with categories.
TablePointer rows_of_tensor(const std::shared_ptr<const TableFacts>& facts, const Tensor& rows);

}  // namespace hearth::data
