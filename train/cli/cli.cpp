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
  static const OptionSpec set_option{
      "--set", "PATH=VALUE",
      "override a config value, as in optimizer.lr=0.1; lr, batch_size, epochs and steps "
      "need no section; may be repeated"};
  static const std::vector<CommandSpec> table{
      {"train",
       "CONFIG.json",
       1,
       1,
       "Trains the run that a JSON file describes.",
       {set_option,
        {"--out", "DIR", "folder of the run (default: runs/<name>)"},
        {"--resume", "auto|never|DIR",
         "auto (default): continue the folder's run if there is one; never: start afresh, deleting that run's files; "
         "DIR: continue from another run's folder, deleting this one's"},
        {"--changed-data", "", "continue although samples were added, removed or changed since the checkpoint"},
        {"--device", "auto|cpu|cuda[:N]", "where to compute (default: what the config says)"},
        {"--epochs", "N", "as --set train.epochs=N"},
        {"--lr", "X", "as --set optimizer.lr=X"},
        {"--batch-size", "N", "as --set train.batch_size=N"},
        {"--seed", "N", "as --set seed=N"},
        {"--dry-run", "", "build everything, print the plan and stop"}},
       train_command},
      {"launch",
       "-n N -- train CONFIG.json [options]",
       1,
       1 << 20,
       "Starts N processes of this machine as the ranks of one data parallel run.",
       {{"-n", "N", "how many ranks"},
        {"--restart", "K", "start all again, up to K times, where a rank fails; they go on from the last checkpoint"}},
       launch_command},
      {"eval",
       "RUN_OR_CHECKPOINT",
       1,
       1,
       "Evaluates a run (its best checkpoint) or one checkpoint on the test data.",
       {set_option,
        {"--data", "PATH",
         "other data than the config names: a folder of class folders, a file of sequences, or a folder with such "
         "files"},
        {"--split", "train|valid|test", "which split of the data (default: test, or valid if there is none)"},
        {"--beam", "N", "pairs of lines: open sequences of each search for a translation (default: 4; 1: greedy)"},
        {"--length-penalty", "A", "pairs of lines: above 0 favours longer translations (default: 0.6)"},
        {"--limit", "N", "pairs of lines: translate the first N only"},
        {"--json", "", "print the result as JSON on stdout"}},
       eval_command},
      {"predict",
       "RUN_OR_CHECKPOINT [INPUT...]",
       1,
       1 << 20,
       "Classifies image files, all images of folders, or sequences, one JSON line each on stdout; generates text; "
       "or "
       "translates files of lines, - for the input. Needs nothing but the checkpoint.",
       {set_option,
        {"--top", "N", "images and labelled sequences: how many classes to list (default: 3)"},
        {"--logits", "", "images and labelled sequences: list the model's outputs too, by label"},
        {"--embedding", "", "images and labelled sequences: list what the model's last layer sees too"},
        {"--text", "TEXT", "labelled sequences: what to classify; may be repeated"},
        {"--prompt", "TEXT", "token streams: what to go on from; may be repeated"},
        {"--max-tokens", "N",
         "sequences: how many tokens to write at most (default: 400, translations: the longest row)"},
        {"--temperature", "X", "token streams: below 1 keeps to what is likely (default: 0.8)"},
        {"--top-k", "K", "token streams: draw from the K most probable tokens only"},
        {"--top-p", "P", "token streams: draw from the most probable tokens that together have probability P only"},
        {"--seed", "S", "token streams: another text for each (default: 0)"},
        {"--greedy", "", "token streams: always the most probable token"},
        {"--beam", "N", "pairs of lines: open sequences of each search for a translation (default: 4; 1: greedy)"},
        {"--length-penalty", "A", "pairs of lines: above 0 favours longer translations (default: 0.6)"},
        {"--out", "DIR", "tasks of a program's own: where files that are predicted go (default: .)"},
        {"--json", "", "print sequences as JSON lines too"}},
       predict_command},
      {"report",
       "RUN...",
       1,
       1 << 20,
       "Writes RUN/report.html: curves, what the best checkpoint predicts, layers, time and memory; of several runs a "
       "page that compares them.",
       {set_option,
        {"--out", "FILE", "where to (default: RUN/report.html; of several runs report.html)"},
        {"--data", "PATH", "one run: other data than the config names, as of eval"},
        {"--split", "train|valid|test", "one run: which split of the data (default: valid, or test if there is none)"},
        {"--samples", "N", "one run: look at the first N samples (default: 10000)"}},
       report_command},
      {"schema",
       "",
       0,
       0,
       "Prints the JSON schema of run configs.",
       {{"--markdown", "", "print the reference page instead"}},
       schema_command},
      {"config",
       "CONFIG.json",
       1,
       1,
       "Prints the resolved config with the origin of each value (file, --set or default).",
       {set_option, {"--json", "", "print only the resolved config"}},
       config_command},
      {"summary",
       "CONFIG.json",
       1,
       1,
       "Lists layers, output shapes, parameters, arithmetic, the memory of a run and the largest batch that fits.",
       {set_option,
        {"--ranks", "N", "the memory of each of N ranks too, with dist.zero and its rows of the batch"},
        {"--precision", "", "list each op with the types it reads, computes in and gives"},
        {"--json", "", "print as JSON on stdout"}},
       summary_command},
      {"bench",
       "step|ops|data [CONFIG.json]",
       1,
       2,
       "Measures: `bench step CONFIG.json` a whole training step, with all of its `train.accumulate` batches, `bench "
       "ops` single operations, `bench data CONFIG.json` loading without a model: the pipeline, each stage, and the "
       "limits of the machine.",
       {set_option,
        {"--filter", "REGEX", "ops: only cases whose name matches"},
        {"--device", "NAME", "cpu or cuda[:N] (default: cpu for ops; for step and data what the config says)"},
        {"--scale", "N", "ops: factor on batches and rows (default: 1; 16 on a CUDA device)"},
        {"--check", "", "ops: compare with f64 on the CPU first; code 70 if a result is too far off"},
        {"--steps", "N",
         "step: how many steps to time (default: 20); on a CUDA device five groups of so many, each queued back to "
         "back"},
        {"--random-data", "", "step: random images instead of the config's dataset"},
        {"--image-size", "N", "step: side of the random images (default: 224)"},
        {"--profile", "",
         "step: also list where the time goes, by phase, op and kernel, beside the machine's limits; on a CUDA device "
         "by "
         "its own clock (CUPTI)"},
        {"--trace", "FILE", "step: write a Chrome trace"},
        {"--report", "DIR", "step: with --profile, keep these times in a run's folder, for its report"},
        {"--seconds", "N", "data: how long each measurement takes (default: 3)"},
        {"--serve", "", "step: time one step for each line on stdin, printing its milliseconds"},
        {"--json", "", "print as JSON on stdout"}},
       bench_command},
      {"tune",
       "batch|lr CONFIG.json",
       1,
       2,
       "Finds the largest batch that fits and the batch at which samples go by fastest, by trying sizes in turn; or "
       "the "
       "learning rate at which the loss falls fastest, by a short training at rising rates. Writes no run.",
       {set_option,
        {"--most", "N", "batch: no batch larger than this"},
        {"--steps", "N",
         "batch: how many steps to time at each size (default: 5); lr: how many to train (default: 100)"},
        {"--min", "LR", "lr: the first rate (default: 1e-7)"},
        {"--max", "LR", "lr: the last rate (default: 1)"},
        {"--json", "", "print as JSON on stdout"}},
       tune_command},
      {"data",
       "inspect|verify|pack CONFIG_OR_FOLDER [FOLDER]",
       2,
       3,
       "Looks at the data of a run or of a folder, or at one file FILE.ffr, FILE.tar or FILE.tfrecord: counts, sizes "
       "and "
       "classes; `verify` reads every sample; `pack` turns images into record files or shards, and sequences into "
       "token "
       "files.",
       {set_option,
        {"--out", "FOLDER", "pack: where to write, a folder that is empty, missing, or of a pack that was interrupted"},
        {"--resize", "PIXELS", "pack: shrink images whose shorter side has more pixels to this (image_folder)"},
        {"--records", "N", "pack: images a file (default: 512, and more where that makes more than 128 files)"},
        {"--format", "NAME", "pack: records (default), webdataset (tar shards) or tfrecord"},
        {"--quality", "Q", "pack: store every image as a JPEG of this quality, 1 to 100"},
        {"--sheet", "FILE.png", "inspect: write a picture of samples of the first split, side by side"},
        {"--samples", "N", "inspect: samples on that picture (default: 64)"},
        {"--json", "", "print as JSON on stdout"}},
       data_command},
      {"weights",
       "inspect|convert FILE [OUT]",
       2,
       3,
       "Lists a safetensors file, or converts one: also an index of several, the folder they are in, or a run.",
       {{"--from", "FORMAT",
         "convert: what FILE is: hearth (default), torch, hf-gpt2, hf-bert, hf-roberta, hf-distilbert, timm-swin or "
         "microsoft-swin"},
        {"--to", "FORMAT", "convert: what OUT is to be (default: hearth)"},
        {"--dtype", "TYPE", "convert: element type of the result (f32, f16, bf16)"},
        {"--config", "JSON", "convert: the configuration of the model (default: config.json beside FILE)"},
        {"--leave-out", "BEGINNING", "convert: not the tensors whose names begin so; may be repeated"},
        {"--raw", "", "convert: of a run or checkpoint the weights of the last update, not their average (train.ema)"},
        {"--json", "", "print as JSON on stdout"}},
       weights_command},
      {"devices",
       "",
       0,
       0,
       "Lists what this build can compute on.",
       {{"--json", "", "print as JSON on stdout"}},
       devices_command},
      {"doctor",
       "",
       0,
       0,
       "Tells which devices and libraries were found, in which version, and what replaces those that are missing.",
       {{"--network", "", "tell of interfaces, RDMA devices, what NCCL would choose, and what to change, instead"},
        {"--json", "", "print as JSON on stdout"}},
       doctor_command},
      {"completion",
       "bash|zsh|fish",
       1,
       1,
       "Prints a script that completes commands, options and files in a shell.",
       {},
       completion_command},
      {"manual", "", 0, 0, "Prints the manual page, for `man -l`.", {}, manual_command},
  };
  return table;
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
