// SPDX-License-Identifier: Apache-2.0
// completion: scripts for bash, zsh and fish, made from the table of commands.
#include <algorithm>
#include <iostream>

#include "core/error.h"
#include "train/cli/commands.h"

namespace hearth::train {
namespace {

/// What can stand for a placeholder of the help: words as they are, and files or folders.
struct Values {
  std::vector<std::string> words;
  bool configs = false;  ///< files whose names end in .json
  bool files = false;
  bool folders = false;
};

/// "auto|cpu|cuda[:N]" has the words auto, cpu and cuda; names in capitals stand for something else, some for files.
Values values_of(const std::string& placeholder) {
  Values values;
  std::string part;
  const auto take = [&] {
    if (part == "CONFIG.json") {
      values.configs = true;
    } else if (part == "FILE" || part == "OUT" || part == "INPUT" || part == "INPUT...") {
      values.files = true;
    } else if (part == "DIR" || part == "FOLDER" || part == "RUN_OR_CHECKPOINT" || part == "RUN" || part == "RUN...") {
      values.folders = true;
    } else if (!part.empty() && part[0] >= 'a' && part[0] <= 'z') {
      values.words.push_back(part);
    }
    part.clear();
  };
  bool suffix = false;  // of a word, as in cuda[:N]
  for (const char c : placeholder) {
    if (c == '[' && !part.empty()) suffix = true;
    if (c == '|' || c == ' ') take();
    if (c == ']') suffix = false;
    if (!suffix && c != '|' && c != ' ' && c != '[' && c != ']') part += c;
  }
  take();
  return values;
}

bool is_repeatable(const OptionSpec& option) { return option.help.find("may be repeated") != std::string::npos; }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names{"help"};
  for (const CommandSpec& command : commands()) names.push_back(command.name);
  return names;
}

/// A word of shell between single quotes.
std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  }
  return result + "'";
}

/// The call of _hearth_reply (below) for these values.
std::string bash_reply(const Values& values) {
  std::string kinds;
  if (values.configs) kinds += "c";
  if (values.files) kinds += "f";
  if (values.folders) kinds += "d";
  return "_hearth_reply " + shell_quoted(kinds) + " " + shell_quoted(joined(values.words));
}

void print_bash(std::ostream& out) {
  out << R"(# bash completion for hearth, made by `hearth completion bash`
_hearth_reply() {  # KINDS (c: configs, f: files, d: folders) WORDS
  local word
  COMPREPLY=()
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(
    compgen -W "$2" -- "$current"
    case $1 in *f*) compgen -f -- "$current" ;; esac
    case $1 in *c*) compgen -f -X '!*.json' -- "$current" ;; esac
    case $1 in *[cd]*) compgen -d -S / -- "$current" ;; esac
  )
  case ${COMPREPLY[0]-} in */) compopt -o nospace 2>/dev/null ;; esac
}
_hearth() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    _hearth_reply '' )"
      << shell_quoted(joined(command_names()) + " --version --help") << R"(
    return
  fi
  case ${COMP_WORDS[1]} in
)";
  out << "    help) _hearth_reply '' " << shell_quoted(joined(command_names())) << " ;;\n";
  for (const CommandSpec& command : commands()) {
    out << "    " << command.name << ")\n      case $previous in\n";
    std::vector<std::string> options{"--help"};
    for (const OptionSpec& option : command.options) {
      options.push_back(option.name);
      if (!option.value.empty())
        out << "        " << option.name << ") " << bash_reply(values_of(option.value)) << "; return ;;\n";
    }
    out << "      esac\n      case $current in\n        -*) _hearth_reply '' " << shell_quoted(joined(options))
        << " ;;\n        *) " << bash_reply(values_of(command.positional)) << " ;;\n      esac\n      ;;\n";
  }
  out << "  esac\n}\ncomplete -F _hearth hearth\n";
}

/// A description inside of an argument of zsh's _arguments or _describe.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_action(const Values& values) {
  std::string action;
  if (!values.words.empty()) action += " \"values:value:(" + joined(values.words) + ")\"";
  if (values.configs) action += " \"configs:config:_files -g \\*.json\"";
  if (values.files) action += " \"files:file:_files\"";
  if (values.folders && !values.files) action += " \"folders:folder:_files -/\"";
  return action.empty() ? ": " : "_alternative" + action;
}

void print_zsh(std::ostream& out) {
  out << "#compdef hearth\n# zsh completion for hearth, made by `hearth completion zsh`\n_hearth() {\n"
         "  local -a names\n  if ((CURRENT == 2)); then\n    names=(\n      'help:Lists commands and options.'\n";
  for (const CommandSpec& command : commands())
    out << "      " << shell_quoted(command.name + ":" + zsh_text(command.summary)) << "\n";
  out << "    )\n    _describe command names\n    return\n  fi\n  local command=$words[2]\n  shift words\n"
         "  ((CURRENT--))\n  case $command in\n    help) _values command "
      << joined(command_names()) << " ;;\n";
  for (const CommandSpec& command : commands()) {
    out << "    " << command.name << ")\n      _arguments";
    for (const OptionSpec& option : command.options) {
      std::string argument = (is_repeatable(option) ? "*" : "") + option.name + "[" + zsh_text(option.help) + "]";
      if (!option.value.empty())
        argument += ":" + zsh_text(option.value) + ":{" + zsh_action(values_of(option.value)) + "}";
      out << " \\\n        " << shell_quoted(argument);
    }
    if (!command.positional.empty())
      out << " \\\n        "
          << shell_quoted("*:" + zsh_text(command.positional) + ":{" + zsh_action(values_of(command.positional)) + "}");
    out << " \\\n        '--help[list the options]'\n      ;;\n";
  }
  out << "  esac\n}\n_hearth \"$@\"\n";
}

/// What fish offers for these values: the arguments of `complete`.
std::string fish_arguments(const Values& values) {
  std::string all = joined(values.words);
  if (values.configs) all += " (__fish_complete_suffix .json)";
  if (values.folders && !values.files) all += " (__fish_complete_directories)";
  return (values.files ? "" : " -f") + (all.empty() ? "" : " -a " + shell_quoted(all));
}

void print_fish(std::ostream& out) {
  out << "# fish completion for hearth, made by `hearth completion fish`\ncomplete -c hearth -f\n"
         "complete -c hearth -n __fish_use_subcommand -a help -d 'Lists commands and options.'\n"
      << "complete -c hearth -n '__fish_seen_subcommand_from help' -f -a " << shell_quoted(joined(command_names()))
      << "\n";
  for (const CommandSpec& command : commands()) {
    out << "complete -c hearth -n __fish_use_subcommand -a " << command.name << " -d " << shell_quoted(command.summary)
        << "\n";
    const std::string condition = " -n " + shell_quoted("__fish_seen_subcommand_from " + command.name);
    if (!command.positional.empty())
      out << "complete -c hearth" << condition << fish_arguments(values_of(command.positional)) << "\n";
    for (const OptionSpec& option : command.options)
      out << "complete -c hearth" << condition << " -l " << option.name.substr(2)
          << (option.value.empty() ? "" : " -r" + fish_arguments(values_of(option.value))) << " -d "
          << shell_quoted(option.help) << "\n";
  }
}

int completion_command(const Arguments& arguments) {
  const std::string& shell = arguments.positional()[0];
  if (shell == "bash")
    print_bash(std::cout);
  else if (shell == "zsh")
    print_zsh(std::cout);
  else if (shell == "fish")
    print_fish(std::cout);
  else
    throw UsageError(join_text("completion: no script for \"", shell, "\"; use bash, zsh or fish"));
  return 0;
}

}  // namespace

CommandSpec completion_spec() {
  return {
      "completion", "bash|zsh|fish",   1, 1, "Prints a script that completes commands, options and files in a shell.",
      {},           completion_command};
}

}  // namespace hearth::train
