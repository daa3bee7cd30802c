// SPDX-License-Identifier: Apache-2.0
// The command line as one table of commands: parsing, help and misspelling hints all come from it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::train {

struct OptionSpec {
  std::string name;   ///< "--set"
  std::string value;  ///< what follows, as shown in the help ("PATH=VALUE"); empty for a flag
  std::string help;
};

class Arguments;

struct CommandSpec {
  std::string name;
  std::string positional;  ///< as shown in the help: "CONFIG.json", "FILE..."
  int min_positional;
  int max_positional;
  std::string summary;
  std::vector<OptionSpec> options;
  int (*run)(const Arguments&);
};

/// What was given to one command.
class Arguments {
 public:
  /// Splits `words` by the command's options. UsageError names a word that is unknown and the nearest known one.
  Arguments(const CommandSpec& command, const std::vector<std::string>& words, std::string program);

  const std::vector<std::string>& positional() const { return positional_; }
  bool has(std::string_view option) const;
  /// The last value given to the option.
  std::optional<std::string> value(std::string_view option) const;
  /// Every value given to the option, in order.
  std::vector<std::string> values(std::string_view option) const;
  /// The number given to the option, or `otherwise`. UsageError unless it is a whole number of at least `least`.
  std::int64_t whole(std::string_view option, std::int64_t otherwise, std::int64_t least) const;
  std::int64_t positive(std::string_view option, std::int64_t otherwise) const { return whole(option, otherwise, 1); }
  /// The number given to the option, or `otherwise`. UsageError unless it is a finite number.
  double number(std::string_view option, double otherwise) const;
  /// UsageError if an option was given that is not one of `own`, those of this use of the command.
  void refuse_others(std::string_view use, std::initializer_list<std::string_view> own) const;
  /// The whole command line, to be recorded.
  const std::string& command_line() const { return command_line_; }

 private:
  struct Given {
    std::string name;
    std::string value;
  };
  std::vector<Given> given_;
  std::vector<std::string> positional_;
  std::string command_line_;
};

/// The help page of a command.
std::string help_of(const CommandSpec& command);

}  // namespace hearth::train
