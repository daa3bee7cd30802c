// SPDX-License-Identifier: Apache-2.0
#include "data/table/notation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace hearth::data {
namespace {

using namespace std::string_view_literals;

// No-break space, figure space, thin space, narrow no-break space.
constexpr std::array white{" "sv, "\t"sv, "\u00a0"sv, "\u2007"sv, "\u2009"sv, "\u202f"sv};
constexpr std::array money{"$"sv,   "\u20ac"sv, "\u00a3"sv, "\u00a5"sv, "\u20b9"sv, "\u20bd"sv, "\u20a9"sv,
                           "USD"sv, "EUR"sv,    "GBP"sv,    "CHF"sv,    "JPY"sv,    "kr"sv,     "z\u0142"sv};
constexpr std::array separators{"."sv, ","sv, "'"sv, "\u2019"sv, "_"sv, " "sv, "\u00a0"sv, "\u2009"sv, "\u202f"sv};
constexpr std::array signs{"-"sv, "+"sv, "\u2212"sv};
constexpr std::array percent{"%"sv, "\u2030"sv};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes one of the words off the front, or off the back.
template <std::size_t count>
bool take_front(std::string_view& text, const std::array<std::string_view, count>& words) {
  for (const std::string_view word : words)
    if (text.starts_with(word)) return text.remove_prefix(word.size()), true;
  return false;
}
template <std::size_t count>
bool take_back(std::string_view& text, const std::array<std::string_view, count>& words) {
  for (const std::string_view word : words)
    if (text.ends_with(word)) return text.remove_suffix(word.size()), true;
  return false;
}

/// How many digits are at the front, which are taken off.
std::size_t take_digits(std::string_view& text) {
  const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(count);
  return count;
}

/// "2024-05-03", "3/5/24", "03.05.2024", with a time behind or not.
bool is_date(std::string_view text) {
  const std::size_t first = take_digits(text);
  if (first == 0 || first > 4 || text.empty()) return false;
  const char mark = text.front();
  if (mark != '-' && mark != '/' && mark != '.') return false;
  text.remove_prefix(1);
  const std::size_t second = take_digits(text);
  if (second == 0 || second > 2 || text.empty() || text.front() != mark) return false;
  text.remove_prefix(1);
  const std::size_t third = take_digits(text);
  return third > 0 && third <= 4 && (text.empty() || text.front() == 'T' || text.front() == ' ' || text.front() == ',');
}

/// "9:30", "09:30:15.5", "9:30 pm".
bool is_time(std::string_view text) {
  const std::size_t hours = take_digits(text);
  if (hours == 0 || hours > 3 || text.empty() || text.front() != ':') return false;
  text.remove_prefix(1);
  return take_digits(text) == 2 && (text.empty() || text.front() == ':' || text.front() == ' ' || text.front() == '.');
}

/// Digits in groups, with an exponent or not.
bool is_grouped(std::string_view text) {
  take_front(text, signs);
  bool has_digit = false;
  while (!text.empty()) {
    if (is_digit(text.front())) {
      has_digit = true;
      text.remove_prefix(1);
    } else if (has_digit && (text.front() == 'e' || text.front() == 'E')) {
      text.remove_prefix(1);
      take_front(text, signs);
      return take_digits(text) > 0 && text.empty();
    } else if (!take_front(text, separators)) {
      return false;
    }
  }
  return has_digit;
}

}  // namespace

std::string_view trimmed_field(std::string_view field) {
  while (take_front(field, white) || take_back(field, white)) {
  }
  return field;
}

std::optional<double> number_of(std::string_view field, char decimal) {
  std::string text(trimmed_field(field));
  constexpr std::string_view minus = "\u2212";
  for (std::size_t at = text.find(minus); at != text.npos; at = text.find(minus, at))
    text.replace(at, minus.size(), "-");
  if (decimal != '.') {
    if (text.find('.') != text.npos) return std::nullopt;
    std::ranges::replace(text, decimal, '.');
  }
  const char *first = text.data(), *const last = first + text.size();
  if (last - first > 1 && *first == '+' && first[1] != '-') ++first;
  double value = 0;
  const auto [stop, fault] = std::from_chars(first, last, value);
  if (stop != last || fault == std::errc::invalid_argument || std::isnan(value)) return std::nullopt;
  if (fault == std::errc::result_out_of_range) {
    const std::string_view digits(first, last);
    const std::size_t exponent = digits.find_first_of("eE");
    const bool is_tiny = exponent != digits.npos ? digits[exponent + 1] == '-' : digits.find('.') < 3;
    return is_tiny ? 0 : std::numeric_limits<double>::infinity();
  }
  return value;
}

const char* other_notation(std::string_view field) {
  std::string_view text = trimmed_field(field);
  if (text.starts_with('(') && text.ends_with(')')) text = trimmed_field(text.substr(1, text.size() - 2));
  if (is_date(text)) return "a date";
  if (is_time(text)) return "a time of day";
  const bool has_sign = take_front(text, signs);
  const bool is_money = take_front(text, money) || take_back(text, money);
  const bool is_share = take_back(text, percent);
  text = trimmed_field(text);
  if ((has_sign && take_front(text, signs)) || !is_grouped(text)) return nullptr;
  return is_money ? "an amount of money" : is_share ? "a percentage" : "a number with separators";
}

}  // namespace hearth::data
