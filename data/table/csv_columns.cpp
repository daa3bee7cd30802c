// SPDX-License-Identifier: Apache-2.0
#include "data/table/csv_columns.h"

#include <optional>
#include <set>

#include "core/error.h"
#include "data/table/notation.h"

namespace hearth::data {
namespace {

constexpr std::size_t most_values = 10'000;
constexpr const char* ways_out = "name it in data.categories if its values are names, or in data.ignore";

/// DataError for a column of which at least half look like numbers, but not nine of ten are: what writes numbers in
/// another way, or marks missing ones by other words, is no category.
void refuse_other_numbers(const CsvText& csv, std::size_t column, std::size_t numbers, std::size_t others) {
  std::size_t look_alike = 0;
  std::optional<std::size_t> first;
  const char* looks = nullptr;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    const std::string& field = csv.rows[row][column];
    if (is_missing(field) || number_of(field, csv.decimal)) continue;
    const char* const notation = other_notation(field);
    look_alike += notation != nullptr;
    if (!first || (looks == nullptr && notation != nullptr)) first = row, looks = notation;
  }
  if (!first || numbers + look_alike < others - look_alike) return;
  const std::string place = join_text(csv.place(*first, column), ": \"", csv.rows[*first][column], "\"");
  const std::string share =
      join_text("; of ", numbers + others, " values of the column ", numbers, " are plain numbers");
  HEARTH_CHECK(DataError, looks != nullptr, place, " is no number; ", how_to_mark_missing, ", or correct it, or ",
               ways_out, share);
  const bool has_comma = csv.decimal == '.' && number_of(csv.rows[*first][column], ',').has_value();
  throw DataError(
      join_text(place, " looks like ", looks, ", which is not read as a number; ",
                has_comma ? "set data.decimal to \",\" if the comma stands before the fraction, or write " : "write ",
                "the column in plain numbers, as in -1234.5, or ", ways_out, share));
}

}  // namespace

bool is_missing(const std::string& field) {
  static const std::set<std::string> texts{"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"};
  return texts.contains(std::string(trimmed_field(field)));
}

double require_number(const CsvText& csv, std::size_t row, std::size_t column, const std::string& remedy) {
  const std::string& field = csv.rows[row][column];
  const std::optional<double> number = number_of(field, csv.decimal);
  HEARTH_CHECK(DataError, number.has_value(), csv.place(row, column), ": \"", field, "\" is no number; correct it, ",
               remedy);
  HEARTH_CHECK(DataError, fits_f32(*number), csv.place(row, column), ": \"", field,
               "\" is outside the range of f32, -3.4e38 to 3.4e38; correct or rescale it, ", remedy);
  return *number;
}

bool is_numbers(const CsvText& csv, std::size_t column, const std::string& remedy) {
  std::size_t numbers = 0, others = 0;
  std::optional<std::size_t> first_fault;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    const std::string& field = csv.rows[row][column];
    if (is_missing(field)) continue;
    const std::optional<double> number = number_of(field, csv.decimal);
    ++(number ? numbers : others);
    if (!first_fault && (!number || !fits_f32(*number))) first_fault = row;
  }
  if (numbers < 9 * others) {
    refuse_other_numbers(csv, column, numbers, others);
    return false;
  }
  if (!first_fault) return true;
  const std::string share =
      others == 0 ? "" : join_text("; ", numbers, " of the ", numbers + others, " values of the column are numbers");
  (void)require_number(csv, *first_fault, column, remedy + share);
  return true;
}

void refuse_codes(const CsvText& csv, std::size_t column) {
  constexpr std::size_t fewest = 20;
  const std::string& name = csv.names[column];
  const bool is_unnamed = name.empty() || name.starts_with("Unnamed: ");
  bool counts = csv.rows.size() >= fewest && is_unnamed;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    const std::string_view field = trimmed_field(csv.rows[row][column]);
    const bool is_code = field.size() > 1 && field[0] == '0' && field[1] >= '0' && field[1] <= '9';
    HEARTH_CHECK(DataError, !is_code, csv.place(row, column), ": \"", field,
                 "\" begins with 0 as codes do, and would be read as a number; ", ways_out,
                 ", or name all inputs in data.columns if it is a number");
    const auto number = number_of(field, csv.decimal), first = number_of(csv.rows[0][column], csv.decimal);
    counts = counts && number && first && *number == *first + static_cast<double>(row);
  }
  HEARTH_CHECK(
      DataError, !counts, csv.path, ": column ", column + 1,
      is_unnamed ? " has no name and counts the rows, as the index does that pandas writes" : " counts the rows",
      "; name it in data.ignore (\"", name, "\"), or all inputs in data.columns");
}

std::vector<std::string> values_of(const CsvText& csv, std::size_t column, const std::vector<std::int64_t>& rows,
                                   bool is_declared) {
  constexpr std::size_t fewest = 20;
  std::set<std::string> values;
  std::size_t count = 0;
  for (const std::int64_t row : rows) {
    const std::string& field = csv.rows[static_cast<std::size_t>(row)][column];
    if (is_missing(field)) continue;
    values.insert(field), ++count;
    HEARTH_CHECK(DataError, values.size() <= most_values, csv.path, ": column \"", csv.names[column],
                 "\" has more than ", most_values,
                 " different strings, which are no categories; name it in data.ignore");
  }
  HEARTH_CHECK(DataError, is_declared || count < fewest || 2 * values.size() <= count, csv.path, ": column \"",
               csv.names[column], "\" has ", values.size(), " different strings in ", count,
               " rows, as names, ids and free text do, which tell nothing of other rows; name it in data.ignore, or in "
               "data.categories if they are categories");
  return {values.begin(), values.end()};
}

}  // namespace hearth::data
