// SPDX-License-Identifier: Apache-2.0
#include "train/cli/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/nearest.h"

namespace hearth::train {
namespace {

std::string signature(const OptionSpec& option) {
  return option.value.empty() ? option.name : option.name + " " + option.value;
}

std::string usage_line(const CommandSpec& command) {
  std::string line = "hearth " + command.name;
  if (!command.positional.empty()) line += " " + command.positional;
  if (!command.options.empty()) line += " [options]";
  return line;
}

}  // namespace

Arguments::Arguments(const CommandSpec& command, const std::vector<std::string>& words, std::string program)
    : command_line_(std::move(program) + " " + command.name) {
  for (const std::string& word : words) command_line_ += " " + word;
  bool options_over = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (options_over || word.size() < 2 || word[0] != '-') {
      positional_.push_back(word);
      continue;
    }
    if (word == "--") {
      options_over = true;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto option = std::find_if(command.options.begin(), command.options.end(),
                                     [&](const OptionSpec& candidate) { return candidate.name == name; });
    if (option == command.options.end()) {
      std::vector<std::string> known;
      for (const OptionSpec& candidate : command.options) known.push_back(candidate.name);
      throw UsageError(join_text(command.name, ": unknown option ", name, "; ", suggest(name, known, "options")));
    }
    if (option->value.empty()) {
      HEARTH_CHECK(UsageError, equals == std::string::npos, command.name, ": ", name, " takes no value");
      given_.push_back({name, ""});
    } else if (equals != std::string::npos) {
      given_.push_back({name, word.substr(equals + 1)});
    } else {
      HEARTH_CHECK(UsageError, i + 1 < words.size(), command.name, ": ", name, " needs a value: ", signature(*option));
      given_.push_back({name, words[++i]});
    }
  }
  const int count = static_cast<int>(positional_.size());
  HEARTH_CHECK(UsageError, count >= command.min_positional && count <= command.max_positional, command.name, ": ",
               count, " arguments; usage: ", usage_line(command));
}

bool Arguments::has(std::string_view option) const {
  return std::any_of(given_.begin(), given_.end(), [&](const Given& g) { return g.name == option; });
}

std::optional<std::string> Arguments::value(std::string_view option) const {
  const auto all = values(option);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::int64_t Arguments::whole(std::string_view option, std::int64_t otherwise, std::int64_t least) const {
  const std::optional<std::string> text = value(option);
  if (!text) return otherwise;
  std::int64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, number);
  HEARTH_CHECK(UsageError, error == std::errc() && stopped == end && number >= least, option, " ", *text,
               "; it must be a whole number of at least ", least);
  return number;
}

double Arguments::number(std::string_view option, double otherwise) const {
  const std::optional<std::string> text = value(option);
  if (!text) return otherwise;
  double number = 0;
  const char* const end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, number);
  HEARTH_CHECK(UsageError, error == std::errc() && stopped == end && std::isfinite(number), option, " ", *text,
               "; it must be a number");
  return number;
}

void Arguments::refuse_others(std::string_view use, std::initializer_list<std::string_view> own) const {
  std::string all;
  for (const std::string_view option : own) all += (all.empty() ? "" : ", ") + std::string(option);
  for (const Given& g : given_)
    HEARTH_CHECK(UsageError, std::find(own.begin(), own.end(), g.name) != own.end(), use, ": ", g.name,
                 " is not for it; it takes ", all);
}

std::vector<std::string> Arguments::values(std::string_view option) const {
  std::vector<std::string> result;
  for (const Given& g : given_)
    if (g.name == option) result.push_back(g.value);
  return result;
}

std::string help_of(const CommandSpec& command) {
  std::string text = usage_line(command) + "\n\n" + command.summary + "\n";
  if (command.options.empty()) return text;
  std::size_t width = 0;
  for (const OptionSpec& option : command.options) width = std::max(width, signature(option).size());
  text += "\n";
  for (const OptionSpec& option : command.options) {
    const std::string left = signature(option);
    text += "  " + left + std::string(width - left.size() + 2, ' ') + option.help + "\n";
  }
  return text;
}

}  // namespace hearth::train
