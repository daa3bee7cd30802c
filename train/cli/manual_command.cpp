// SPDX-License-Identifier: Apache-2.0
// manual: the manual page, made from the table of commands.
#include <iostream>

#include "core/build.h"
#include "train/cli/commands.h"

namespace hearth::train {
namespace {

/// Text as troff takes it: hyphens that are typed, backslashes, no line that begins as a request.
std::string troff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (result.empty() && (c == '.' || c == '\'')) result += "\\&";
    if (c == '-')
      result += "\\-";
    else if (c == '\\')
      result += "\\e";
    else
      result += c;
  }
  return result;
}

int manual_command(const Arguments&) {
  std::ostream& out = std::cout;
  out << ".TH HEARTH 1 \"\" \"hearth " << build::version << "\" \"User Commands\"\n"
      << ".SH NAME\nhearth \\- trains neural networks from one JSON file\n"
      << ".SH SYNOPSIS\n.B hearth\n.I command\n.RI [ options ]\n.br\n.B hearth help\n.RI [ command ]\n.br\n"
      << ".B hearth \\-\\-version\n"
      << ".SH COMMANDS\n";
  for (const CommandSpec& command : commands()) {
    out << ".SS hearth " << troff(command.name) << (command.positional.empty() ? "" : " " + troff(command.positional))
        << "\n"
        << troff(command.summary) << "\n";
    for (const OptionSpec& option : command.options)
      out << ".TP\n\\fB" << troff(option.name) << "\\fR"
          << (option.value.empty() ? "" : " \\fI" + troff(option.value) + "\\fR") << "\n"
          << troff(option.help) << "\n";
  }
  out << ".SH ENVIRONMENT\n.TP\n.B HEARTH_THREADS\n"
      << "number of threads to compute with (default: one for each core that the process may use)\n"
      << ".SH EXIT STATUS\n";
  struct Code {
    const char* code;
    const char* meaning;
  };
  for (const auto& [code, meaning] : {Code{"0", "done"},
                                      {"2", "usage or configuration"},
                                      {"3", "data or file"},
                                      {"4", "device or memory"},
                                      {"5", "training diverged"},
                                      {"70", "a defect of Hearth"},
                                      {"128+n", "ended by signal n after a checkpoint"}})
    out << ".TP\n.B " << code << "\n" << meaning << "\n";
  out << ".SH SEE ALSO\nThe pages in the folder doc/hearth beside this one's, and "
      << "\\fBhearth schema\\fR for every key of a configuration.\n";
  return 0;
}

}  // namespace

CommandSpec manual_spec() { return {"manual", "", 0, 0, "Prints the manual page, for `man -l`.", {}, manual_command}; }

}  // namespace hearth::train
