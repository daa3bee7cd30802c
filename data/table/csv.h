// SPDX-License-Identifier: Apache-2.0
// Text in comma-separated values (RFC 4180).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth::data {

/// The fields of a file, row by row.
struct CsvText {
  std::string path;
  std::vector<std::string> names;  ///< of the columns
  std::vector<std::vector<std::string>> rows;
  std::vector<std::int64_t> lines;  ///< in which each row begins, from 1
  char decimal = '.';               ///< of its numbers

  /// "FILE: line 3, column \"age\"", for messages.
  std::string place(std::size_t row, std::size_t column) const;
};

/// Reads a file, perhaps compressed by gzip: UTF-8, fields with the delimiter, a quote or a line break in quotes,
/// quotes in them doubled. The first row has the names, or there are none and they are "0", "1", ... Empty lines are
/// passed over. DataError, naming file and line, for a row of more or fewer fields than the first, a quote that is not
/// closed, bytes that are no UTF-8, two columns of one name, and a file without rows.
CsvText read_csv(const std::string& path, char delimiter, bool has_names);

}  // namespace hearth::data
