// SPDX-License-Identifier: Apache-2.0
// What the columns of a CSV file are: numbers, or names of categories.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/table/csv.h"

namespace hearth::data {

inline constexpr const char* how_to_mark_missing =
    "leave the field empty (or NA, N/A, NaN, nan, null, NULL, ?) where the value is missing";

bool is_missing(const std::string& field);

inline bool fits_f32(double number) {
  return std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max());
}

/// The number in a field that has to be one. DataError with what else would do where it is none.
double require_number(const CsvText& csv, std::size_t row, std::size_t column, const std::string& remedy);

/// Whether a column is numbers: all its fields are, or at least nine of ten, whose rest is then taken for faults.
/// DataError for the first of them, and where at least half look like numbers but are in another notation, or are mixed
/// with other words; `remedy` says what else than correcting it would do.
bool is_numbers(const CsvText& csv, std::size_t column, const std::string& remedy);

/// DataError for a column of numbers that are none: codes with a 0 in front, and an index of the rows without a name.
void refuse_codes(const CsvText& csv, std::size_t column);

/// The values of a category in some rows, sorted. DataError where they are too many, or, unless the options say that
/// the column is a category, where most differ: names and free text tell nothing of other rows.
std::vector<std::string> values_of(const CsvText& csv, std::size_t column, const std::vector<std::int64_t>& rows,
                                   bool is_declared);

}  // namespace hearth::data
