// SPDX-License-Identifier: Apache-2.0
#include "data/text/metrics/bleu.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

constexpr std::size_t orders = 4;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }

// Signs that always stand alone: all of ASCII's but ' , - ..
bool is_lone_sign(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

std::string with_signs_apart(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (is_lone_sign(c))
      result += {' ', c, ' '};
    else
      result += c;
  }
  return result;
}

/// Each two neighbours that `matches` become what `written` gives; a character belongs to one match only.
template <class Matches, class Written>
std::string with_pairs(const std::string& text, Matches&& matches, Written&& written) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      result += written(text[i], text[i + 1]);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::vector<std::string> split_at_space(std::string_view text) {
  std::vector<std::string> tokens;
  std::string token;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Character c = unicode::checked_character_at(text, at, "bleu");
    if (!unicode::splits_words(c.code))
      token.append(text, at, c.bytes);
    else if (!token.empty())
      tokens.push_back(std::move(token)), token.clear();
    at += c.bytes;
  }
  if (!token.empty()) tokens.push_back(std::move(token));
  return tokens;
}

using Counts = std::map<std::vector<std::string_view>, std::int64_t>;

Counts runs_of(const std::vector<std::string>& tokens, std::size_t order) {
  Counts counts;
  for (std::size_t i = 0; i + order <= tokens.size(); ++i)
    ++counts[std::vector<std::string_view>(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                           tokens.begin() + static_cast<std::ptrdiff_t>(i + order))];
  return counts;
}

struct Sums {
  std::array<std::int64_t, orders> correct{};
  std::array<std::int64_t, orders> total{};
};

void add_line(const std::vector<std::string>& output, const std::vector<std::string>& reference, Sums& sums) {
  for (std::size_t order = 1; order <= orders; ++order) {
    if (output.size() < order) break;
    sums.total[order - 1] += static_cast<std::int64_t>(output.size() - order + 1);
    const Counts wanted = runs_of(reference, order);
    for (const auto& [run, count] : runs_of(output, order)) {
      const auto place = wanted.find(run);
      if (place != wanted.end()) sums.correct[order - 1] += std::min(count, place->second);
    }
  }
}

}  // namespace

std::vector<std::string> tokens_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  text = with_signs_apart(" " + text + " ");
  text = with_pairs(
      text, [](char a, char b) { return !is_digit(a) && is_point(b); },
      [](char a, char b) {
        return std::string{a, ' ', b, ' '};
      });
  text = with_pairs(
      text, [](char a, char b) { return is_point(a) && !is_digit(b); },
      [](char a, char b) {
        return std::string{' ', a, ' ', b};
      });
  text = with_pairs(
      text, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](char a, char b) {
        return std::string{a, ' ', b, ' '};
      });
  return split_at_space(text);
}

Bleu bleu(std::span<const std::string> outputs, std::span<const std::string> references) {
  HEARTH_CHECK(DataError, outputs.size() == references.size(), "bleu: ", outputs.size(), " outputs for ",
               references.size(), " references");
  Bleu result;
  Sums sums;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto output = tokens_13a(outputs[i]), reference = tokens_13a(references[i]);
    result.output_tokens += static_cast<std::int64_t>(output.size());
    result.reference_tokens += static_cast<std::int64_t>(reference.size());
    add_line(output, reference, sums);
  }
  if (result.output_tokens < result.reference_tokens)
    result.brevity_penalty =
        result.output_tokens == 0
            ? 0
            : std::exp(1 - static_cast<double>(result.reference_tokens) / static_cast<double>(result.output_tokens));
  if (std::all_of(sums.correct.begin(), sums.correct.end(), [](std::int64_t count) { return count == 0; }))
    return result;
  double smoothing = 1, log_sum = 0;
  for (std::size_t i = 0; i < orders; ++i) {
    // No output has so many tokens.
    if (sums.total[i] == 0) return result;
    const auto total = static_cast<double>(sums.total[i]);
    if (sums.correct[i] == 0) smoothing *= 2;
    result.precisions[i] =
        sums.correct[i] == 0 ? 100 / (smoothing * total) : 100 * static_cast<double>(sums.correct[i]) / total;
    log_sum += std::log(result.precisions[i]);
  }
  result.score = result.brevity_penalty * std::exp(log_sum / orders);
  return result;
}

}  // namespace hearth::data
