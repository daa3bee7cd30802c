// SPDX-License-Identifier: Apache-2.0
#include "data/table/table_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "data/class_names.h"
#include "data/loading/order.h"
#include "data/table/csv_columns.h"
#include "data/table/npy.h"

namespace hearth::data {
namespace {

constexpr double missing_value = std::numeric_limits<double>::quiet_NaN();

using FactsPointer = std::shared_ptr<const TableFacts>;

CsvText read(const CsvOptions& options, const std::string& path) {
  CsvText csv = read_csv(path, options.delimiter[0], options.header);
  csv.decimal = options.decimal[0];
  return csv;
}

std::optional<std::int64_t> index_in(const std::vector<std::string>& sorted, const std::string& value) {
  const auto at = std::ranges::lower_bound(sorted, value);
  if (at == sorted.end() || *at != value) return std::nullopt;
  return at - sorted.begin();
}

std::size_t column_named(const CsvText& csv, const std::string& name, const char* key) {
  const auto at = std::ranges::find(csv.names, name);
  std::string known;
  for (const std::string& one : csv.names) known += (known.empty() ? "\"" : ", \"") + one + "\"";
  HEARTH_CHECK(DataError, at != csv.names.end(), csv.path, ": has no column \"", name, "\"", key, "; it has ", known);
  return static_cast<std::size_t>(at - csv.names.begin());
}

/// The columns that are inputs, in the order of the options or of the table.
std::vector<std::size_t> input_columns(const CsvText& csv, const CsvOptions& options) {
  std::vector<std::size_t> inputs;
  for (const std::string& name : options.columns) inputs.push_back(column_named(csv, name, " of data.columns"));
  if (inputs.empty()) {
    for (std::size_t i = 0; i < csv.names.size(); ++i)
      if (csv.names[i] != options.target && std::ranges::count(options.ignore, csv.names[i]) == 0) inputs.push_back(i);
  }
  for (const auto* names : {&options.ignore, &options.categories})
    for (const std::string& name : *names)
      (void)column_named(csv, name, names == &options.ignore ? " of data.ignore" : " of data.categories");
  for (const std::string& name : options.columns) {
    HEARTH_CHECK(ConfigError, std::ranges::count(options.columns, name) == 1, "/data/columns: \"", name,
                 "\" is named twice");
    HEARTH_CHECK(ConfigError, std::ranges::count(options.ignore, name) == 0, "/data/ignore: \"", name,
                 "\" is among data.columns; name it in one of them");
  }
  HEARTH_CHECK(ConfigError, std::ranges::count(options.categories, options.target) == 0, "/data/categories: \"",
               options.target, "\" is the target; set data.target_type to \"category\"");
  HEARTH_CHECK(DataError, !inputs.empty(), csv.path, ": no column is left for the inputs");
  for (const std::size_t input : inputs)
    HEARTH_CHECK(ConfigError, csv.names[input] != options.target, "/data/columns: \"", options.target,
                 "\" is the target");
  return inputs;
}

/// What the table tells but for what is computed of its numbers.
TableFacts facts_of_csv(const CsvText& csv, const CsvOptions& options, const std::vector<std::int64_t>& train) {
  TableFacts facts;
  facts.target = options.target;
  std::int64_t width = 0;
  for (const std::size_t at : input_columns(csv, options)) {
    Column column{.name = csv.names[at]};
    const bool is_declared = std::ranges::count(options.categories, column.name) > 0;
    column.is_category =
        is_declared ||
        !is_numbers(csv, at,
                    join_text(how_to_mark_missing, ", or name the column in data.categories if its values are names"));
    if (column.is_category)
      column.values = values_of(csv, at, train, is_declared);
    else if (options.columns.empty())
      refuse_codes(csv, at);
    width += column.is_category ? static_cast<std::int64_t>(column.values.size()) : 1;
    facts.columns.push_back(std::move(column));
  }
  facts.shape = {width};
  HEARTH_CHECK(DataError, width > 0, csv.path, ": the inputs have no values");
  const std::size_t target = column_named(csv, options.target, " of data.target");
  const bool is_class = options.target_type == TargetType::category ||
                        (options.target_type == TargetType::by_content &&
                         !is_numbers(csv, target, "or set data.target_type to \"category\" if its values are classes"));
  if (is_class)
    facts.classes = options.classes.empty() ? values_of(csv, target, train, options.target_type == TargetType::category)
                                            : distinct_classes(options.classes);
  if (is_class && options.classes.empty())
    refuse_alike_classes(csv.path, facts.classes, "name all in data.classes if they are two");
  return facts;
}

/// A field of an input column; a missing one stays so where it may be missing: by the policy of what is still to be
/// learned, or else where the column knows what stands for it.
double input_of(const CsvText& csv, std::size_t row, std::size_t at, const Column& column,
                std::optional<Missing> to_learn) {
  const std::string& field = csv.rows[row][at];
  if (is_missing(field)) {
    HEARTH_CHECK(DataError, to_learn ? *to_learn != Missing::error : column.fill.has_value(), csv.place(row, at),
                 ": a value is missing; fill it, or train with data.missing \"mean\" or \"most_frequent\", or without "
                 "the column, by data.ignore");
    return missing_value;
  }
  if (column.is_category) return static_cast<double>(index_in(column.values, field).value_or(-1));
  return require_number(csv, row, at, how_to_mark_missing);
}

RawRows rows_of(const CsvText& csv, const TableFacts& facts, bool has_target,
                std::optional<Missing> to_learn = std::nullopt) {
  RawRows rows;
  rows.count = static_cast<std::int64_t>(csv.rows.size());
  std::vector<std::size_t> inputs;
  for (const Column& column : facts.columns) inputs.push_back(column_named(csv, column.name, ""));
  const std::size_t target = has_target ? column_named(csv, facts.target, " of the target") : 0;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      rows.inputs.push_back(input_of(csv, row, inputs[i], facts.columns[i], to_learn));
    if (!has_target) continue;
    const std::string& field = csv.rows[row][target];
    if (facts.classes.empty()) {
      rows.targets.push_back(
          static_cast<float>(require_number(csv, row, target, "or leave the row out: a target is never missing")));
    } else {
      const auto at = std::ranges::find(facts.classes, field);
      HEARTH_CHECK(DataError, at != facts.classes.end(), csv.place(row, target), ": \"", field, "\" is none of the ",
                   facts.classes.size(), " classes; a training names all of them in data.classes");
      rows.labels.push_back(at - facts.classes.begin());
    }
  }
  return rows;
}

/// Rows of each split that are drawn from one table.
struct Drawn {
  std::vector<std::int64_t> train, valid, test;
};

Drawn draw(std::int64_t rows, double valid, double test, std::uint64_t seed, const std::string& source) {
  const auto order = shuffled_order(rows, seed, 0);
  const auto share = [&](double fraction) {
    return fraction > 0 ? std::max<std::int64_t>(1, std::llround(fraction * static_cast<double>(rows))) : 0;
  };
  const auto middle = order.begin() + std::min(share(test), rows),
             end = middle + std::min(share(valid), order.end() - middle);
  Drawn drawn{{end, order.end()}, {middle, end}, {order.begin(), middle}};
  for (auto* part : {&drawn.train, &drawn.valid, &drawn.test}) std::ranges::sort(*part);
  HEARTH_CHECK(DataError, !drawn.train.empty(), source, ": ", rows,
               " rows leave none for training; make valid_fraction "
               "and test_fraction smaller");
  return drawn;
}

/// The splits of a table that was read, whose facts are all known.
class SplitMaker {
 public:
  explicit SplitMaker(FactsPointer facts) : facts_(std::move(facts)) {}
  DatasetPointer operator()(RawRows rows, const std::string& source) const {
    if (rows.count == 0) return nullptr;
    fill_missing(rows, *facts_, source);
    return std::make_shared<TableDataset>(source, facts_, std::move(rows));
  }

 private:
  FactsPointer facts_;
};

template <class T>
void describe_tables(Fields<T>& fields) {
  fields.number("valid_fraction", &DataOptions::valid_fraction, {.min = 0, .below = 1},
                "Share of the rows held out for validation where no file is given for that.");
  fields.number("test_fraction", &TableOptions::test_fraction, {.min = 0, .below = 1},
                "Share of the rows held out for testing where no file is given for that.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of the choice of those rows.");
  describe_reading(fields);
  fields.choice(
      "target_type", &TableOptions::target_type,
      {{"auto", TargetType::by_content}, {"number", TargetType::number}, {"category", TargetType::category}},
      "Numbers for regression, or a class. auto: a class where more than half of the column are no numbers, or the "
      "array has integers.");
  fields.text("classes", &TableOptions::classes, {}, "Names by label; [] for what the training split has, sorted.");
  fields.choice("missing", &TableOptions::missing,
                {{"error", Missing::error}, {"mean", Missing::mean}, {"most_frequent", Missing::most_frequent}},
                "What a missing input becomes, as learned on the training split; the mean of categories is the most "
                "frequent one. error: it ends the run.");
  fields.boolean("standardize", &TableOptions::standardize,
                 "Numbers among the inputs become (number - mean) / deviation, as learned on the training split.");
}

NumpyArray read_part(const ArraysOptions& options, const std::string& name) {
  if (options.path.ends_with(".npz")) return read_numpy(options.path, name);
  return read_numpy(options.path.empty() ? name : (std::filesystem::path(options.path) / name).string());
}

TableFacts facts_of_arrays(const NumpyArray& x, const NumpyArray& y, const ArraysOptions& options) {
  HEARTH_CHECK(DataError, x.shape.size() >= 2 && x.shape.size() <= 4, x.name, ": an array of ", x.shape.size(),
               " axes; [rows, ...] with 2 to 4 axes is read");
  TableFacts facts;
  facts.shape.assign(x.shape.begin() + 1, x.shape.end());
  const std::int64_t channels = facts.shape.back();
  HEARTH_CHECK(DataError, x.rows() > 0 && channels > 0 && !x.values.empty(), x.name, ": an array without elements");
  facts.columns.resize(static_cast<std::size_t>(channels));
  const bool is_class =
      options.target_type == TargetType::category || (options.target_type == TargetType::by_content && y.is_integer);
  if (!is_class) {
    facts.targets = y.rows() > 0 ? static_cast<std::int64_t>(y.values.size()) / y.rows() : 1;
    return facts;
  }
  const double greatest = y.values.empty() ? 0 : *std::ranges::max_element(y.values);
  HEARTH_CHECK(DataError, greatest >= 0 && greatest < 1e6, y.name, ": the greatest label is ", greatest,
               "; classes are numbered from 0, below a million; set data.target_type to \"number\" for regression");
  facts.classes = options.classes.empty() ? numbered_classes(static_cast<std::int64_t>(greatest) + 1)
                                          : distinct_classes(options.classes);
  return facts;
}

/// "FILE: x: row 3, place [0, 2], counted from 0,", for messages.
std::string place_of(const NumpyArray& array, std::size_t element) {
  const std::size_t width = array.values.size() / static_cast<std::size_t>(array.rows());
  std::string place;
  std::size_t rest = element % width;
  for (std::size_t axis = array.shape.size(); axis-- > 1;) {
    const auto extent = static_cast<std::size_t>(array.shape[axis]);
    place = join_text(rest % extent, place.empty() ? "" : ", ", place);
    rest /= extent;
  }
  if (array.shape.size() > 2) place = "[" + place + "]";
  return join_text(array.name, ": row ", element / width, place.empty() ? "" : ", place ", place, ", counted from 0,");
}

constexpr const char* outside_f32 = " is outside the range of f32, -3.4e38 to 3.4e38; correct or rescale it";

/// DataError for an infinite input, or a missing one that may not be: by the policy of what is still to be learned, or
/// else where the column does not know what stands for it.
void require_inputs(const NumpyArray& x, const TableFacts& facts, std::optional<Missing> to_learn) {
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    if (fits_f32(x.values[i])) continue;
    HEARTH_CHECK(DataError, std::isnan(x.values[i]), place_of(x, i), " is ", x.values[i], ", which", outside_f32);
    const Column& column = facts.columns[i % facts.columns.size()];
    HEARTH_CHECK(DataError, to_learn ? *to_learn != Missing::error : column.fill.has_value(), place_of(x, i),
                 " is NaN, which is a missing value; fill it, or train with data.missing \"mean\" or "
                 "\"most_frequent\"");
  }
}

void require_targets(const NumpyArray& y) {
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    HEARTH_CHECK(DataError, !std::isnan(y.values[i]), place_of(y, i),
                 " is NaN, and a target is never missing; fill it, or leave the row out");
    HEARTH_CHECK(DataError, fits_f32(y.values[i]), place_of(y, i), " is ", y.values[i], ", which", outside_f32);
  }
}

void add_targets(const NumpyArray& y, const TableFacts& facts, RawRows& rows) {
  if (facts.classes.empty()) {
    HEARTH_CHECK(DataError, static_cast<std::int64_t>(y.values.size()) == rows.count * facts.targets, y.name,
                 ": targets of another size than those of the training split, ", facts.targets);
    require_targets(y);
    rows.targets.assign(y.values.begin(), y.values.end());
    return;
  }
  HEARTH_CHECK(DataError, static_cast<std::int64_t>(y.values.size()) == rows.count, y.name,
               ": a class is one number a row, and there are ", y.values.size(), " for ", rows.count, " rows");
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double label = y.values[i];
    HEARTH_CHECK(DataError,
                 label >= 0 && label < static_cast<double>(facts.classes.size()) && label == std::floor(label),
                 place_of(y, i), " is ", label, ", and the labels of ", facts.classes.size(), " classes are 0 to ",
                 facts.classes.size() - 1,
                 "; correct it, or name all classes in data.classes, or set data.target_type to \"number\" for "
                 "regression");
    rows.labels.push_back(static_cast<std::int64_t>(label));
  }
}

/// Rows in the order of the arrays.
RawRows rows_of(NumpyArray x, const NumpyArray* y, const TableFacts& facts,
                std::optional<Missing> to_learn = std::nullopt) {
  HEARTH_CHECK(DataError,
               x.shape.size() == facts.shape.size() + 1 &&
                   std::equal(facts.shape.begin(), facts.shape.end(), x.shape.begin() + 1),
               x.name, ": rows of another shape than those of the training split");
  RawRows rows;
  rows.count = x.rows();
  require_inputs(x, facts, to_learn);
  HEARTH_CHECK(DataError, y == nullptr || y->rows() == x.rows(), x.name, ": ", x.rows(), " rows of inputs and ",
               y == nullptr ? 0 : y->rows(), " of targets");
  if (y != nullptr) add_targets(*y, facts, rows);
  rows.inputs = std::move(x.values);
  return rows;
}

}  // namespace

void describe(Fields<CsvOptions>& fields) {
  describe_tables(fields);
  fields.text("path", &CsvOptions::path, "File of comma-separated values, perhaps .gz.").required();
  fields.text("valid", &CsvOptions::valid, "File of the validation split; empty: rows by valid_fraction.");
  fields.text("test", &CsvOptions::test, "File of the test split; empty: rows by test_fraction.");
  fields.text("target", &CsvOptions::target, "Column that is predicted.").required();
  fields.text("columns", &CsvOptions::columns, {}, "Columns that are inputs; []: all but the target and the ignored.");
  fields.text(
      "categories", &CsvOptions::categories, {},
      "Columns whose values are names of categories, though they are numbers or mostly differ. Columns of which more "
      "than half are other strings are categories anyway.");
  fields.text("ignore", &CsvOptions::ignore, {}, "Columns that are passed over.");
  fields.text("delimiter", &CsvOptions::delimiter, "Character between fields; \"\\t\" for tabs.");
  fields.choice("decimal", &CsvOptions::decimal, {".", ","},
                "What stands before the fraction of a number. Separators of thousands are not read.");
  fields.boolean("header", &CsvOptions::header, "Whether the first row has names; without, they are 0, 1, ...");
  fields.rule([](const CsvOptions& o) {
    return o.delimiter.size() != 1    ? "delimiter is one character"
           : o.delimiter == o.decimal ? "decimal and delimiter are two characters; tables with a decimal comma have "
                                        "\";\" or \"\\t\" between fields"
                                      : "";
  });
}

void describe(Fields<ArraysOptions>& fields) {
  describe_tables(fields);
  fields.text("path", &ArraysOptions::path,
              "A .npz file, of which the keys below name arrays; or the folder of the .npy files that they name.");
  fields.text("x", &ArraysOptions::x, "Inputs: [rows, C], [rows, T, C] or [rows, H, W, C].").required();
  fields.text("y", &ArraysOptions::y, "Targets: integers [rows] are classes, other numbers [rows] or [rows, T].")
      .required();
  fields.text("valid_x", &ArraysOptions::valid_x, "Inputs of the validation split; empty: rows by valid_fraction.");
  fields.text("valid_y", &ArraysOptions::valid_y, "Its targets.");
  fields.text("test_x", &ArraysOptions::test_x, "Inputs of the test split; empty: rows by test_fraction.");
  fields.text("test_y", &ArraysOptions::test_y, "Its targets.");
  fields.rule([](const ArraysOptions& o) {
    return o.valid_x.empty() != o.valid_y.empty() || o.test_x.empty() != o.test_y.empty()
               ? "valid_x and valid_y, test_x and test_y are given together"
               : "";
  });
}

Splits csv_data(const CsvOptions& options, const FactsPointer& known) {
  const CsvText csv = read(options, options.path);
  const Drawn drawn =
      draw(static_cast<std::int64_t>(csv.rows.size()), options.valid.empty() ? options.valid_fraction : 0,
           options.test.empty() ? options.test_fraction : 0, options.split_seed, options.path);
  TableFacts facts = known ? *known : facts_of_csv(csv, options, drawn.train);
  const RawRows rows = rows_of(csv, facts, true, known ? std::nullopt : std::optional(options.missing));
  RawRows train = chosen(rows, drawn.train);
  if (!known) learn_columns(train, options.missing, options.standardize, facts);
  const auto shared = std::make_shared<const TableFacts>(std::move(facts));
  const SplitMaker make(shared);
  const auto file = [&](const std::string& path) { return make(rows_of(read(options, path), *shared, true), path); };
  return {make(std::move(train), options.path),
          options.valid.empty() ? make(chosen(rows, drawn.valid), options.path) : file(options.valid),
          options.test.empty() ? make(chosen(rows, drawn.test), options.path) : file(options.test)};
}

Splits arrays_data(const ArraysOptions& options, const FactsPointer& known) {
  NumpyArray x = read_part(options, options.x);
  const NumpyArray y = read_part(options, options.y);
  const std::string source = x.name;
  TableFacts facts = known ? *known : facts_of_arrays(x, y, options);
  const RawRows rows = rows_of(std::move(x), &y, facts, known ? std::nullopt : std::optional(options.missing));
  const Drawn drawn = draw(rows.count, options.valid_x.empty() ? options.valid_fraction : 0,
                           options.test_x.empty() ? options.test_fraction : 0, options.split_seed, source);
  RawRows train = chosen(rows, drawn.train);
  if (!known) learn_columns(train, options.missing, options.standardize, facts);
  const auto shared = std::make_shared<const TableFacts>(std::move(facts));
  const SplitMaker make(shared);
  const auto file = [&](const std::string& x_name, const std::string& y_name) {
    NumpyArray inputs = read_part(options, x_name);
    const NumpyArray targets = read_part(options, y_name);
    const std::string from = inputs.name;
    return make(rows_of(std::move(inputs), &targets, *shared), from);
  };
  return {make(std::move(train), source),
          options.valid_x.empty() ? make(chosen(rows, drawn.valid), source) : file(options.valid_x, options.valid_y),
          options.test_x.empty() ? make(chosen(rows, drawn.test), source) : file(options.test_x, options.test_y)};
}

Splits table_splits(const Datasets::Component& data, const FactsPointer& known) {
  if (const auto* const csv = data.options<CsvOptions>()) return csv_data(*csv, known);
  const auto* const arrays = data.options<ArraysOptions>();
  HEARTH_CHECK(UsageError, arrays != nullptr, "data: ", data.type(), " is no table");
  return arrays_data(*arrays, known);
}

TablePointer open_rows(const Datasets::Component& data, const FactsPointer& facts, const std::string& path,
                       bool with_targets) {
  RawRows rows;
  if (const auto* const csv = data.options<CsvOptions>()) {
    const CsvText text = read(*csv, path);
    rows = rows_of(text, *facts, with_targets && std::ranges::count(text.names, facts->target) > 0);
  } else {
    HEARTH_CHECK(UsageError, data.options<ArraysOptions>() != nullptr, path, ": the run was trained on no table");
    const bool is_archive = path.ends_with(".npz");
    NumpyArray x = read_numpy(path, "x");
    const std::optional<NumpyArray> y =
        with_targets && is_archive && has_array(path, "y") ? std::optional(read_numpy(path, "y")) : std::nullopt;
    rows = rows_of(std::move(x), y ? &*y : nullptr, *facts);
  }
  fill_missing(rows, *facts, path);
  return std::make_shared<TableDataset>(path, facts, std::move(rows));
}

TablePointer rows_of_tensor(const FactsPointer& facts, const Tensor& rows) {
  for (const Column& column : facts->columns)
    HEARTH_CHECK(UsageError, !column.is_category, "rows: the column \"", column.name,
                 "\" has names of categories, which a tensor does not hold; write the rows into a CSV file");
  HEARTH_CHECK(DTypeError, rows.dtype() == DType::f32 || rows.dtype() == DType::f64, "rows: ", describe(rows),
               "; give numbers as f32 or f64");
  HEARTH_CHECK(ShapeError,
               rows.rank() == static_cast<int>(facts->shape.size()) + 1 &&
                   std::equal(facts->shape.begin(), facts->shape.end(), rows.shape().begin() + 1),
               "rows: ", describe(rows), "; the run's rows are ", Shape(facts->shape), ", behind the number of rows");
  NumpyArray x{.name = "rows", .shape = {rows.shape().begin(), rows.shape().end()}, .values = rows.to_doubles()};
  RawRows raw = rows_of(std::move(x), nullptr, *facts);
  fill_missing(raw, *facts, "rows");
  return std::make_shared<TableDataset>("rows", facts, std::move(raw));
}

}  // namespace hearth::data
