// SPDX-License-Identifier: Apache-2.0
// A host program's locale, in which 1234.5 is written "1.234,5", for tests that nothing takes notice of it.
#pragma once

#include <locale>
#include <string>

namespace hearth::test {

/// The global locale while this object lives.
class GroupingLocale {
 public:
  GroupingLocale() : previous_(std::locale::global(std::locale(std::locale::classic(), new Numbers))) {}
  ~GroupingLocale() { std::locale::global(previous_); }
  GroupingLocale(const GroupingLocale&) = delete;
  GroupingLocale& operator=(const GroupingLocale&) = delete;

 private:
  class Numbers : public std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::locale previous_;
};

}  // namespace hearth::test
