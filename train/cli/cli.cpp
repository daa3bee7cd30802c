// SPDX-License-Identifier: Apache-2.0
// The table of commands, help, and the one position where exceptions become exit codes.
#include "train/cli/cli.h"
#include "core/io/descriptor.h"
#include "train/cli/commands.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>
#include <system_error>

#include "core/build.h"
#include "core/error.h"
#include "core/io/printable.h"
#include "core/nearest.h"
#include "core/warning.h"
#include "train/signals.h"

namespace hearth::train {

const std::vector<CommandSpec>& commands() {
  // Made at first use: before main() nobody would report that memory is short.
  static const std::vector<CommandSpec> table{
      train_spec(),   launch_spec(),  eval_spec(),    predict_spec(), status_spec(),     trace_spec(), report_spec(),
      compare_spec(), schema_spec(),  config_spec(),  plan_spec(),    summary_spec(),    bench_spec(), tune_spec(),
      data_spec(),    weights_spec(), devices_spec(), doctor_spec(),  completion_spec(), manual_spec()};
  return table;
}

OptionSpec set_option() {
  return {"--set", "PATH=VALUE",
          "override a config value, as in optimizer.lr=0.1; lr, batch_size, epochs and steps need no section; may be "
          "repeated"};
}

namespace {

void print_help() {
  std::cerr << "hearth " << build::version << ": trains neural networks from one JSON file\n\n"
            << "usage: hearth <command> [options]\n\n";
  std::size_t width = 0;
  for (const CommandSpec& command : commands()) width = std::max(width, command.name.size());
  for (const CommandSpec& command : commands())
    std::cerr << "  " << command.name << std::string(width - command.name.size() + 2, ' ') << command.summary << "\n";
  std::cerr << "\n`hearth help <command>` lists the options of a command.\n"
            << "HEARTH_THREADS in the environment sets the number of threads to compute with (default: one for each "
               "core that the process may use).\n";
}

const CommandSpec& command_named(const std::string& name) {
  std::vector<std::string> known;
  for (const CommandSpec& command : commands()) {
    if (command.name == name) return command;
    known.push_back(command.name);
  }
  throw UsageError(join_text("unknown command \"", name, "\"; ", suggest(name, known, "commands")));
}

int dispatch(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    print_help();
    HEARTH_CHECK(UsageError, !words.empty(), "no command is given; they are listed above");
    return 0;
  }
  if (words[0] == "--version") {
    std::cout << "hearth " << build::version << "\n";
    return 0;
  }
  if (words[0] == "help") {
    if (words.size() == 1)
      print_help();
    else
      std::cerr << help_of(command_named(words[1]));
    return 0;
  }
  const CommandSpec& command = command_named(words[0]);
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (std::find(rest.begin(), rest.end(), "--help") != rest.end()) {
    std::cerr << help_of(command);
    return 0;
  }
  return command.run(Arguments(command, rest, argv[0]));
}

/// Collects what is written and passes it on in one piece, as other ranks may write to the same stream. Asks for no
/// memory.
class InOnePiece : public std::streambuf {
 public:
  InOnePiece() { setp(bytes_, bytes_ + sizeof bytes_); }
  ~InOnePiece() override { sync(); }

 protected:
  int overflow(int next) override {
    sync();
    return next == EOF ? 0 : sputc(static_cast<char>(next));
  }
  int sync() override {
    std::cerr.write(pbase(), pptr() - pbase());
    setp(bytes_, bytes_ + sizeof bytes_);
    return 0;
  }

 private:
  char bytes_[4096];
};

// Scripts read the last line: `hearth: error: <kind>: <message>`. Of several faults all come first, a line each. Asks
// for no memory, as there may be none.
int report_failure(const char* kind, std::string_view message, int exit_code) noexcept {
  std::cout.flush();
  InOnePiece buffer;
  std::ostream out(&buffer);
  const auto more = std::count(message.begin(), message.end(), '\n');
  if (more > 0) write_printable(out, message, LineBreaks::kept) << "\n";
  write_printable(out << "hearth: error: " << kind << ": ", message.substr(0, message.find('\n')));
  if (more > 0) out << " (and " << more << " more, listed above)";
  out << "\n";
  return exit_code;
}

int report_no_memory() noexcept {
  return report_failure("memory", "the system is out of memory; use a smaller batch, or give the process more", 4);
}

bool is_shortage(const std::error_code& code) {
  return code == std::errc::not_enough_memory || code == std::errc::resource_unavailable_try_again;
}

// Whether memory is what the process ends for, where nothing was caught.
bool ends_for_memory() noexcept {
  // Nothing is thrown where not even the exception found memory.
  void* const probe = std::malloc(4096);
  if (probe == nullptr) return true;
  std::free(probe);
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
  }
  return false;
}

std::terminate_handler terminate_before = nullptr;

[[noreturn]] void terminate() noexcept {
  if (ends_for_memory()) _exit(report_no_memory());
  terminate_before();
  std::abort();
}

// Memory that runs out where nothing may be thrown, as in a library, ends the process like any other lack of memory.
struct TerminateScope {
  TerminateScope() { terminate_before = std::set_terminate(terminate); }
  ~TerminateScope() { std::set_terminate(terminate_before); }
  TerminateScope(const TerminateScope&) = delete;
  TerminateScope& operator=(const TerminateScope&) = delete;
};

/// Writes the library's warnings to the standard error.
struct WarningScope {
  WarningScope()
      : before(set_warning_handler([](const std::string& text) { std::cerr << "hearth: warning: " << text << "\n"; })) {
  }
  ~WarningScope() { set_warning_handler(std::move(before)); }
  WarningScope(const WarningScope&) = delete;
  WarningScope& operator=(const WarningScope&) = delete;
  WarningHandler before;
};

}  // namespace

int run_cli(int argc, char** argv) {
  // Before any file is opened.
  open_standard_streams();
  // Before anything else: a training is asked for a checkpoint by the one, and a file that grows too large is an error.
  survive(SIGUSR1);
  survive(SIGXFSZ);
  const TerminateScope memory_may_run_out;
  const WarningScope warnings;
  try {
    const int code = dispatch(argc, argv);
    std::cout.flush();
    HEARTH_CHECK(FileError, std::cout.good(), "standard output cannot be written; is its disk full?");
    return code;
  } catch (const Error& error) {
    return report_failure(error.kind(), error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return report_no_memory();
  } catch (const std::system_error& error) {
    return is_shortage(error.code()) ? report_failure("memory", error.what(), 4)
                                     : report_failure("internal", error.what(), 70);
  } catch (const std::exception& error) {
    return report_failure("internal", error.what(), 70);
  } catch (...) {
    return report_failure("internal",
                          "something was thrown that is no std::exception, by a dataset, loss, model or hook of the "
                          "program; throw a hearth::Error, which says what is wrong",
                          70);
  }
}

}  // namespace hearth::train
