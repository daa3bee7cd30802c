// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/flat_yaml.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io/printable.h"
#include "core/io/utf8.h"

namespace hearth::data {
namespace {

struct YamlLine {
  std::int64_t number = 0;
  std::size_t indent = 0;
  std::string_view text{};  // without indentation, comment and space at the end
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& source) : source_(source) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    for (std::int64_t number = 1; !text.empty(); ++number) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (utf8::find_fault(line) != line.npos) fail(number, "is no UTF-8");
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      lines_.push_back({number, indent, line.substr(indent)});
    }
  }

  FlatYaml read() {
    FlatYaml document{.source = source_};
    while (next_line()) {
      const YamlLine line = lines_[at_];
      const std::string_view text = without_comment(line);
      if (text == "---" || text.starts_with('%')) {
        ++at_;
        continue;
      }
      if (text == "...") break;
      if (line.indent > 0) fail(line.number, "is indented, and belongs to no key; begin it at the left");
      const auto [key, rest] = key_of(line.number, text);
      if (std::any_of(document.fields.begin(), document.fields.end(),
                      [&, k = std::string_view(key)](const auto& field) { return field.first == k; }))
        fail(line.number, "the key \"" + printable(key) + "\" is there twice");
      ++at_;
      FlatYamlValue value = read_value(line.number, rest);
      value.line = line.number;
      document.fields.emplace_back(key, std::move(value));
    }
    return document;
  }

 private:
  [[noreturn]] void fail(std::int64_t line, const std::string& text) const {
    throw DataError(join_text(source_, ": line ", line, ": ", text));
  }

  /// Goes to the next line that is not empty; false at the end.
  bool next_line() {
    while (at_ < lines_.size() && without_comment(lines_[at_]).empty()) ++at_;
    return at_ < lines_.size();
  }
  std::string_view without_comment(const YamlLine& line) const {
    if (!line.text.empty() && line.text.front() == '\t') fail(line.number, "a tab indents; YAML takes spaces");
    char quote = 0;
    for (std::size_t i = 0; i < line.text.size(); ++i) {
      const char c = line.text[i];
      if (quote != 0) {
        if (c == '\\' && quote == '"')
          ++i;
        else if (c == quote)
          quote = 0;
      } else if ((c == '"' || c == '\'') &&
                 (i == 0 || std::string_view(" \t[{,:").find(line.text[i - 1]) != std::string_view::npos)) {
        quote = c;
      } else if (c == '#' && (i == 0 || line.text[i - 1] == ' ' || line.text[i - 1] == '\t')) {
        return trimmed(line.text.substr(0, i));
      }
    }
    return trimmed(line.text);
  }

  /// The end of a quoted text that begins at 0; its inside goes to `into`.
  std::size_t take_quoted(std::int64_t line, std::string_view text, std::string& into) const {
    const char quote = text.front();
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i] == quote) {
        if (quote == '\'' && i + 1 < text.size() && text[i + 1] == '\'') {
          into += '\'', ++i;
          continue;
        }
        return i + 1;
      }
      if (quote == '"' && text[i] == '\\') {
        constexpr std::string_view escapes = "\"\\/nt";
        if (i + 1 == text.size() || escapes.find(text[i + 1]) == escapes.npos)
          fail(line, "an escape in double quotes that is not read; use single quotes, or none");
        const char c = text[++i];
        into += c == 'n' ? '\n' : c == 't' ? '\t' : c;
        continue;
      }
      into += text[i];
    }
    fail(line, "a quote is not closed on its line");
  }
  /// All of a text on one line.
  std::string scalar(std::int64_t line, std::string_view text) const {
    if (text.empty() || text == "~" || text == "null") return {};
    std::string value;
    if (text.front() == '"' || text.front() == '\'') {
      const std::size_t end = take_quoted(line, text, value);
      if (!trimmed(text.substr(end)).empty()) fail(line, "there is more behind a text in quotes");
      return value;
    }
    if (std::string_view("&*!@`%").find(text.front()) != std::string_view::npos)
      fail(line, join_text("anchors, aliases, tags and the like ('", text.front(),
                           "') are not read; write the value itself"));
    if (std::string_view("[]{},|>").find(text.front()) != std::string_view::npos)
      fail(line, join_text("'", text.front(), "' begins a string; put it in quotes"));
    if (text.find(": ") != text.npos)
      fail(line, "a key within a value; begin a line with it, or put the value in quotes");
    return std::string(text);
  }

  std::pair<std::string, std::string_view> key_of(std::int64_t line, std::string_view text) const {
    std::string key;
    std::size_t end = 0;
    if (text.front() == '"' || text.front() == '\'') {
      end = take_quoted(line, text, key);
    } else {
      end = text.find(": ");
      if (end == text.npos && text.ends_with(':')) end = text.size() - 1;
      if (end == text.npos) fail(line, "wanted is \"key: value\", found \"" + printable(text) + "\"");
      key = scalar(line, trimmed(text.substr(0, end)));
    }
    std::string_view rest = trimmed(text.substr(end));
    if (!rest.starts_with(':') || key.empty())
      fail(line, "wanted is \"key: value\", found \"" + printable(text) + "\"");
    return {key, trimmed(rest.substr(1))};
  }

  /// The value behind a key, whose lines that follow are next.
  FlatYamlValue read_value(std::int64_t line, std::string_view rest) {
    if (rest.starts_with('[') || rest.starts_with('{')) return flow(line, rest);
    if (rest.starts_with('|') || rest.starts_with('>')) return skip_indented(FlatYamlValue::Kind::other);
    FlatYamlValue value;
    if (!rest.empty()) {
      value.text = scalar(line, rest);
      value.kind = value.text.empty() && rest.front() != '"' && rest.front() != '\'' ? FlatYamlValue::Kind::empty
                                                                                     : FlatYamlValue::Kind::text;
      if (next_line() && lines_[at_].indent > 0)
        fail(lines_[at_].number, "goes on with the value of the line before; put all of it there, in quotes");
      return value;
    }
    if (!next_line()) return value;
    const bool is_list = lines_[at_].text.starts_with("- ") || lines_[at_].text == "-";
    // A list may begin at the indentation of its key.
    if (lines_[at_].indent == 0 && !is_list) return value;
    return block(is_list);
  }

  FlatYamlValue skip_indented(FlatYamlValue::Kind kind) {
    while (at_ < lines_.size() && (lines_[at_].indent > 0 || lines_[at_].text.empty())) ++at_;
    return {.kind = kind};
  }

  FlatYamlValue block(bool is_list) {
    const std::size_t indent = lines_[at_].indent;
    FlatYamlValue value{.kind = is_list ? FlatYamlValue::Kind::list : FlatYamlValue::Kind::map};
    const std::size_t begin = at_;
    const auto is_deeper = [&] {
      at_ = begin;
      while (at_ < lines_.size() && (lines_[at_].indent > 0 || lines_[at_].text.empty() ||
                                     lines_[at_].text.front() == '-' || lines_[at_].text.front() == '#'))
        ++at_;
      return FlatYamlValue{.kind = FlatYamlValue::Kind::other};
    };
    while (next_line()) {
      const YamlLine& line = lines_[at_];
      const std::string_view text = without_comment(line);
      if (line.indent < indent || (indent == 0 && !text.starts_with('-'))) break;
      if (line.indent > indent) return is_deeper();
      if (is_list) {
        if (!text.starts_with("- ") && text != "-") fail(line.number, "wanted is \"- text\" as on the lines before");
        const std::string_view item = trimmed(text.substr(1));
        if (item.starts_with('[') || item.starts_with('{') || item.find(": ") != item.npos || item.ends_with(':'))
          return is_deeper();
        value.items.emplace_back("", scalar(line.number, item));
      } else {
        auto [key, item] = key_of(line.number, text);
        if (item.starts_with('[') || item.starts_with('{') || item.starts_with('|') || item.starts_with('>'))
          return is_deeper();
        value.items.emplace_back(std::move(key), scalar(line.number, item));
      }
      ++at_;
    }
    return value;
  }

  /// [a, b] or {k: a}, perhaps over several lines.
  FlatYamlValue flow(std::int64_t line, std::string_view rest) {
    const bool is_list = rest.front() == '[';
    const char close = is_list ? ']' : '}';
    std::string text(rest.substr(1));
    FlatYamlValue value{.kind = is_list ? FlatYamlValue::Kind::list : FlatYamlValue::Kind::map};
    std::string_view left = trimmed(text);
    const auto more = [&] {
      while (left.empty()) {
        if (!next_line()) fail(line, join_text("the bracket that begins here is not closed by '", close, "'"));
        left = without_comment(lines_[at_++]);
      }
    };
    for (bool first = true;; first = false) {
      more();
      if (left.front() == close) break;
      if (!first) {
        if (left.front() != ',')
          fail(line, join_text("wanted is ',' or '", close, "' behind an item of the list that begins here"));
        left = trimmed(left.substr(1));
        more();
        if (left.front() == close) break;
      }
      std::string key;
      if (!is_list) {
        key = flow_scalar(line, left, ":,}");
        more();
        if (left.front() != ':') fail(line, "wanted is \"key: text\" in the map that begins here");
        left = trimmed(left.substr(1));
        more();
      }
      if (left.front() == '[' || left.front() == '{') fail(line, "lists within lists are not read");
      value.items.emplace_back(std::move(key), flow_scalar(line, left, is_list ? ",]" : ",}"));
    }
    if (!trimmed(left.substr(1)).empty()) fail(line, "there is more behind the list that begins here");
    return value;
  }
  std::string flow_scalar(std::int64_t line, std::string_view& left, std::string_view ends) const {
    if (left.front() == '"' || left.front() == '\'') {
      std::string value;
      left = trimmed(left.substr(take_quoted(line, left, value)));
      return value;
    }
    const std::size_t end = std::min(left.find_first_of(ends), left.size());
    const std::string value = scalar(line, trimmed(left.substr(0, end)));
    left = trimmed(left.substr(end));
    return value;
  }

  const std::string& source_;
  std::vector<YamlLine> lines_;
  std::size_t at_ = 0;
};

}  // namespace

const FlatYamlValue* FlatYaml::find(std::string_view key) const {
  for (const auto& [name, value] : fields)
    if (name == key) return value.kind == FlatYamlValue::Kind::empty ? nullptr : &value;
  return nullptr;
}

FlatYaml parse_flat_yaml(std::string_view text, const std::string& source) { return YamlReader(text, source).read(); }

}  // namespace hearth::data
