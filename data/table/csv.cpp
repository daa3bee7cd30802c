// SPDX-License-Identifier: Apache-2.0
#include "data/table/csv.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/io/utf8.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

constexpr ReadLimit table_limit{std::uint64_t{8} << 30, "tables"};

class Reader {
 public:
  Reader(const std::string& path, std::string_view text, char delimiter)
      : path_(path), text_(text), delimiter_(delimiter) {}

  bool at_end() const { return at_ == text_.size(); }
  bool at_quote() const { return !at_end() && text_[at_] == '"'; }
  std::int64_t line() const { return line_; }

  /// The fields of a row; its line break is taken too.
  std::vector<std::string> row() {
    std::vector<std::string> fields;
    while (true) {
      fields.push_back(at_quote() ? quoted() : plain());
      if (at_end()) return fields;
      const char c = text_[at_++];
      if (c == delimiter_) continue;
      if (c == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++line_;
      return fields;
    }
  }

 private:
  std::string plain() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted() {
    const std::int64_t begun = line_;
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '"') {
        if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') {
          ++at_;
          const bool ends = at_end() || text_[at_] == delimiter_ || text_[at_] == '\n' || text_[at_] == '\r';
          HEARTH_CHECK(DataError, ends, path_, ": line ", line_, ": text behind a closing quote");
          return field;
        }
        ++at_;
      }
      field += text_[at_];
    }
    throw DataError(join_text(path_, ": line ", begun, ": a quote that is not closed"));
  }

  const std::string& path_;
  std::string_view text_;
  char delimiter_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

void name_columns(CsvText& csv, std::vector<std::string> names) {
  std::set<std::string> seen;
  for (const std::string& name : names)
    HEARTH_CHECK(DataError, seen.insert(name).second, csv.path, ": two columns are named \"", name, "\"");
  csv.names = std::move(names);
}

}  // namespace

std::string CsvText::place(std::size_t row, std::size_t column) const {
  return join_text(path, ": line ", lines[row], ", column \"", names[column], "\"");
}

CsvText read_csv(const std::string& path, char delimiter, bool has_names) {
  const std::vector<std::uint8_t> bytes = read_maybe_gzip(path, table_limit);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t fault = utf8::find_fault(text);
  HEARTH_CHECK(
      DataError, fault == text.npos, path, ": line ",
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(fault, text.size())), '\n'),
      ": a byte that is no UTF-8; save the file in that encoding");
  const std::size_t zero = text.find('\0');
  HEARTH_CHECK(
      DataError, zero == text.npos, path, ": line ",
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(zero, text.size())), '\n'),
      ": a zero byte, as in a damaged file or in UTF-16; save the file in UTF-8");
  CsvText csv;
  csv.path = path;
  Reader reader(path, text, delimiter);
  while (!reader.at_end()) {
    const std::int64_t line = reader.line();
    const bool is_quoted = reader.at_quote();
    std::vector<std::string> fields = reader.row();
    if (fields.size() == 1 && fields[0].empty() && !is_quoted) continue;
    if (csv.names.empty()) {
      std::vector<std::string> names = fields;
      if (!has_names)
        for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
      name_columns(csv, std::move(names));
      if (has_names) continue;
    }
    HEARTH_CHECK(DataError, fields.size() == csv.names.size(), path, ": line ", line, ": ", fields.size(),
                 " fields in a table of ", csv.names.size(), " columns");
    csv.rows.push_back(std::move(fields));
    csv.lines.push_back(line);
  }
  HEARTH_CHECK(DataError, !csv.rows.empty(), path, ": has no rows");
  return csv;
}

}  // namespace hearth::data
