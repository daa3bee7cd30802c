// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/page_script.h"

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace hearth::test {
namespace {

bool starts(const std::string& text, const std::string& beginning) { return text.rfind(beginning, 0) == 0; }

/// A word of shell between single quotes.
std::string quoted(const std::string& text) { return "'" + std::regex_replace(text, std::regex("'"), "'\\''") + "'"; }

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

class PageScript {
 public:
  PageScript(const std::string& name, const std::string& page) : name_(name) {
    std::istringstream in(page);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  std::string make() {
    bool blank = true;
    for (at_ = 0; at_ < lines_.size(); ++at_) {
      const std::string& line = lines_[at_];
      if (starts(line, "```")) {
        block(line.substr(3));
      } else if (starts(line, "<!--")) {
        comment();
      } else if (directives_.count("rows") != 0 && starts(line, "|")) {
        table();
      } else if (blank && starts(line, "    ") && !in_list_) {
        fail("an indented block; put it between ``` lines that name its language");
      } else {
        prose(line);
      }
      blank = trimmed(line).empty();
    }
    if (!directives_.empty()) fail("a comment of the tests without a block behind it");
    if (!row_calls_.empty()) run_rows();
    script_ << "finished=yes\n";
    return script_.str();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(name_ + ":" + std::to_string(at_ + 1) + ": " + what);
  }
  void mark() { script_ << "at " << quoted(name_ + ":" + std::to_string(at_ + 1)) << "\n"; }

  /// Reads a comment to its end; keeps what it tells of the next block.
  void comment() {
    const std::size_t first = at_;
    std::string text;
    for (; at_ < lines_.size(); ++at_) {
      text += lines_[at_] + "\n";
      if (lines_[at_].find("-->") != std::string::npos) break;
    }
    if (at_ == lines_.size()) {
      at_ = first;
      fail("a comment without an end");
    }
    static const std::regex form(R"(<!-- test (\w+):([^]*)-->\s*)");
    std::smatch found;
    if (!std::regex_match(text, found, form)) {
      if (starts(text, "<!-- test")) fail("not a comment of the tests: " + text);
      return;
    }
    const std::string kind = found[1], value = found[2];
    if (kind == "setup") {
      mark();
      script_ << trimmed(value) << "\n";
      return;
    }
    static const std::vector<std::string> known{"file", "before", "after", "quote", "output", "skip", "rows"};
    if (std::find(known.begin(), known.end(), kind) == known.end()) fail("unknown comment of the tests: " + kind);
    if (trimmed(value).empty()) fail("nothing is said by \"test " + kind + "\"");
    directives_[kind] = kind == "before" || kind == "after" ? value : trimmed(value);
  }

  void block(const std::string& language) {
    mark();
    std::string text;
    const std::size_t first = at_;
    for (++at_; at_ < lines_.size() && lines_[at_] != "```"; ++at_) text += lines_[at_] + "\n";
    if (at_ == lines_.size()) {
      at_ = first;
      fail("a block without an end");
    }
    run(language, text, first);
    directives_.clear();
  }

  void run(const std::string& language, const std::string& text, std::size_t first) {
    const auto has = [&](const char* kind) { return directives_.count(kind) != 0; };
    const std::string name =
        has("file") ? directives_["file"] : "snippet_" + std::to_string(first + 1) + "." + language;
    if (has("skip")) {
      script_ << "skipped " << quoted(directives_["skip"]) << "\n";
      if (language == "sh") commands(text);
    } else if (has("quote")) {
      save(name, text);
      script_ << "check_quote " << quoted(name) << " " << quoted(directives_["quote"]) << "\n";
    } else if (has("output")) {
      save(name, text);
      script_ << "check_output " << quoted(name) << " " << quoted(directives_["output"]) << "\n";
    } else if (language == "text" && !has("file")) {
      // shown only
    } else if (language == "sh" && !has("file")) {
      commands(text);
      script_ << directives_["before"] << "\n" << text << directives_["after"] << "\n";
    } else if (language == "json" || language == "cpp" || has("file")) {
      save(name, directives_["before"] + text + directives_["after"]);
      if (language == "json") script_ << "check_config " << quoted(name) << "\n";
      if (language == "cpp" && !has("file")) script_ << "compile_and_run " << quoted(name) << "\n";
    } else {
      at_ = first;
      fail("a block of \"" + language +
           "\"; use sh, json, cpp or text, or say before it with `<!-- test ...: -->` where it is saved or why it is "
           "skipped (tests/docs/page_script.h)");
    }
  }

  /// The code in the second column of each row of a table: a function that begins with the directive's declarations.
  void table() {
    const std::string declarations = directives_["rows"];
    directives_.clear();
    const std::size_t heading = at_;
    for (; at_ < lines_.size() && starts(lines_[at_], "|"); ++at_) {
      prose(lines_[at_]);
      if (at_ > heading + 1) row(lines_[at_], declarations);
    }
    --at_;
  }

  void row(const std::string& line, const std::string& declarations) {
    const std::size_t first = line.find('|', 1);
    const std::size_t second = first == std::string::npos ? first : line.find('|', first + 1);
    if (second == std::string::npos) fail("a row of fewer than two columns");
    const std::string cell = line.substr(first + 1, second - first - 1);
    static const std::regex code("(\xE2\x86\x92 )?`([^`]+)`");  // an arrow marks what the code before it prints
    std::vector<std::string> statements;
    const std::string number = std::to_string(at_ + 1);
    for (std::sregex_iterator it(cell.begin(), cell.end(), code), end; it != end; ++it) {
      const std::string text = (*it)[2];
      if (!(*it)[1].matched) {
        statements.push_back(text + ";");
      } else if (!statements.empty()) {
        std::string& printed = statements.back();
        printed.pop_back();
        const std::size_t last = printed.rfind("; ") == std::string::npos ? 0 : printed.rfind("; ") + 2;
        printed = printed.substr(0, last) + "prints(" + number + ", R\"row(" + text + ")row\", " +
                  printed.substr(last) + ");";
      }
    }
    if (statements.empty()) fail("a row whose second column has no code");
    rows_ << "void row_" << number << "() {\n" << declarations << "\n";
    for (const std::string& statement : statements)
      rows_ << "#line " << number << " \"" << name_ << "\"\n" << statement << "\n";
    rows_ << "}\n";
    row_calls_ += "  run(" + number + ", row_" + number + ");\n";
  }

  /// One program of all rows, which names the line of the page where one does not compile, throws or prints other text.
  void run_rows() {
    mark();
    save("rows.cpp", R"(#include <hearth/hearth.h>

#include <iostream>
#include <sstream>
using namespace hearth;
int failures = 0;
template <class T>
void prints(int line, const std::string& wanted, const T& value) {
  std::ostringstream text;
  text << std::boolalpha << value;
  std::string found = text.str();
  std::erase(found, '\n');
  if (found == wanted) return;
  std::cerr << "line " << line << ": prints " << found << ", not " << wanted << "\n";
  ++failures;
}
void run(int line, void (*row)()) {
  try {
    row();
  } catch (const std::exception& error) {
    std::cerr << "line " << line << ": throws " << error.what() << "\n";
    ++failures;
  }
}
)" + rows_.str() + "int main() {\n" +
                         row_calls_ + "  return failures == 0 ? 0 : 1;\n}\n");
    script_ << "compile_and_run 'rows.cpp'\n";
  }

  void save(const std::string& name, const std::string& text) {
    script_ << "cat >" << quoted(name) << " <<'END_OF_SNIPPET'\n"
            << text << (text.ends_with('\n') ? "" : "\n") << "END_OF_SNIPPET\n";
  }

  /// Commands that are not run, or whose failure a shell does not see, have the options of the program all the same.
  void commands(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) command(line);
  }

  void command(const std::string& line) {
    static const std::regex call(R"((^|\()(hearth [^#|()]+))");
    std::smatch found;
    if (std::regex_search(line, found, call)) script_ << "check_command " << quoted(found[2]) << "\n";
  }

  void prose(const std::string& line) {
    if (!trimmed(line).empty()) in_list_ = starts(line, "- ") || starts(line, " ") || std::isdigit(line[0]) != 0;
    static const std::regex code("`([^`]+)`"), link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
    static const std::regex path(
        R"((hearth/)?(core|autograd|ops|optim|data|models|train|tests|docs|examples|scripts|cmake)/[\w./-]*\w)");
    mark();
    for (std::sregex_iterator it(line.begin(), line.end(), code), end; it != end; ++it) {
      const std::string text = (*it)[1];
      command(text);
      if (std::regex_match(text, path)) script_ << "check_path " << quoted(text) << "\n";
    }
    const std::string words = std::regex_replace(line, code, "");  // a lambda in code is no link
    for (std::sregex_iterator it(words.begin(), words.end(), link), end; it != end; ++it)
      script_ << "check_link " << quoted(name_) << " " << quoted((*it)[1]) << "\n";
  }

  std::string name_;
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
  bool in_list_ = false;
  std::map<std::string, std::string> directives_;
  std::ostringstream script_;
  std::ostringstream rows_;
  std::string row_calls_;
};

}  // namespace

std::string page_script(const std::string& name, const std::string& page) { return PageScript(name, page).make(); }

}  // namespace hearth::test
