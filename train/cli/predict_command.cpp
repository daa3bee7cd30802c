// SPDX-License-Identifier: Apache-2.0
// predict: classes of images, and generated sequences.
#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <iterator>

#include "core/io/file.h"
#include "core/io/printable.h"
#include "data/formats/image_folder.h"
#include "data/text/labelled.h"
#include "ops/shape/concat.h"
#include "train/checkpoint/checkpoint.h"
#include "train/cli/beam.h"
#include "train/cli/commands.h"
#include "train/cli/predict_rows.h"
#include "train/predictor.h"
#include "train/step/visit_batches.h"
#include "train/text_generation.h"

namespace hearth::train {
namespace {

/// What a kind of run predicts, and the options that belong to it.
struct Kind {
  const char* trained_on;
  const char* usage;
  std::initializer_list<std::string_view> options;
  int (*run)(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session);
};

// Inputs that are computed at once, so that the first lines come soon.
constexpr std::size_t inputs_at_once = 32;

/// A line of the standard input and its end; false where there is none. DataError for one beyond all use.
bool next_line(std::string& line, std::int64_t number) {
  constexpr std::size_t longest = std::size_t{16} << 20;
  line.clear();
  for (int c = 0; line.empty() || line.back() != '\n'; line += static_cast<char>(c)) {
    if ((c = std::cin.get()) == std::istream::traits_type::eof()) return !line.empty();
    HEARTH_CHECK(DataError, line.size() < longest, "the input, line ", number, ": has more than ", longest, " bytes");
  }
  return true;
}

/// f(lines) for all lines of a file, or for some at a time of the standard input, as they come.
template <class F>
void each_lines(const std::string& input, const F& f) {
  const auto split = [](const std::string& text) {
    const std::vector<std::string_view> lines = data::lines_of(text);
    return std::vector<std::string>(lines.begin(), lines.end());
  };
  if (input != "-") return f(split(data::read_corpus(input)));
  std::string line, some;
  std::int64_t number = 1;
  for (; next_line(line, number); ++number) {
    some += data::checked_corpus(line, join_text("the input, line ", number));
    if (number % static_cast<std::int64_t>(inputs_at_once) != 0) continue;
    f(split(some));
    some.clear();
  }
  HEARTH_CHECK(DataError, number > 1, "the input is empty");
  if (!some.empty()) f(split(some));
}

std::vector<std::string> given_inputs(const Arguments& arguments) {
  return {arguments.positional().begin() + 1, arguments.positional().end()};
}

/// A JSON line for each input.
void write_classes(const Arguments& arguments, const Predictor& predictor, const std::vector<std::string>& inputs,
                   const Prediction& prediction) {
  const std::int64_t count = arguments.whole("--top", 3, 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    Json line = Json::object().set("input", inputs[i]);
    set_classes(line, predictor.top(prediction, row, count));
    if (arguments.has("--logits")) line.set("logits", Json::array_of(row_of(prediction.logits, row)));
    if (arguments.has("--embedding")) line.set("embedding", Json::array_of(row_of(prediction.embedding, row)));
    std::cout << to_text(line) << "\n";
  }
  std::cout.flush();
}

/// Inputs that cannot be read are named and passed over; the command fails at its end.
class Unreadable {
 public:
  void add(const Error& error) {
    std::cerr << "hearth: warning: " << error.what() << "\n";
    if (count_++ > 0) return;
    first_ = error.what();
    is_file_error_ = error.kind() == std::string_view("file");
  }
  void add(const data::Warnings& warnings) {
    tell(warnings);
    if (count_ == 0 && warnings.count > 0) first_ = warnings.first.front();
    count_ += static_cast<std::size_t>(warnings.count);
    in_folders_ += static_cast<std::size_t>(warnings.count);
  }
  /// Names the first of what is passed over.
  static void tell(const data::Warnings& warnings) {
    for (const std::string& text : warnings.first) std::cerr << "hearth: warning: " << printable(text) << "\n";
    if (const auto more = warnings.count - static_cast<std::int64_t>(warnings.first.size()); more > 0)
      std::cerr << "hearth: warning: and " << more << " more\n";
  }
  /// FileError or DataError if there was one.
  void report(std::size_t inputs) const {
    if (count_ == 0) return;
    const std::string text = join_text(first_, "; ", count_, " of ", inputs + in_folders_, " inputs cannot be read");
    if (is_file_error_) throw FileError(text);
    throw DataError(text);
  }

 private:
  std::size_t count_ = 0, in_folders_ = 0;
  std::string first_;
  bool is_file_error_ = false;
};

/// The files named, and of folders all images below them.
std::vector<std::string> image_inputs(const Kind& kind, const Arguments& arguments, Unreadable& unreadable) {
  std::vector<std::string> files;
  for (const std::string& input : given_inputs(arguments)) {
    std::error_code absent;
    if (!std::filesystem::is_directory(input, absent)) {
      files.push_back(input);
      continue;
    }
    const data::ImageFiles below = data::image_files(input);
    unreadable.add(below.unreadable);
    Unreadable::tell(below.left_out);
    HEARTH_CHECK(DataError, !below.paths.empty(), input, ": has no image file; give files, or a folder that has some");
    files.insert(files.end(), below.paths.begin(), below.paths.end());
  }
  HEARTH_CHECK(UsageError, !files.empty(), "predict: no image is named; use ", kind.usage);
  return files;
}

int classify_images(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session) {
  const Predictor predictor(std::move(session));
  Unreadable unreadable;
  const std::vector<std::string> files = image_inputs(kind, arguments, unreadable);
  for (std::size_t first = 0; first < files.size(); first += inputs_at_once) {
    std::vector<std::string> names;
    std::vector<Tensor> inputs;
    for (std::size_t i = first; i < std::min(files.size(), first + inputs_at_once); ++i) {
      try {
        inputs.push_back(predictor.prepared(files[i]));
        names.push_back(files[i]);
      } catch (const DataError& error) {
        unreadable.add(error);
      } catch (const FileError& error) {
        unreadable.add(error);
      }
    }
    if (inputs.empty()) continue;
    const NoGrad no_grad;
    write_classes(arguments, predictor, names,
                  predictor.predict_tensor(concat(inputs, 0), arguments.has("--embedding")));
  }
  unreadable.report(files.size());
  return 0;
}

int classify_text(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session) {
  const Predictor predictor(std::move(session));
  std::size_t count = 0;
  const auto classify = [&](const std::vector<std::string>& sequences) {
    count += sequences.size();
    for (std::size_t first = 0; first < sequences.size(); first += inputs_at_once) {
      const auto begin = sequences.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<std::string> some(
          begin, begin + static_cast<std::ptrdiff_t>(std::min(inputs_at_once, sequences.size() - first)));
      write_classes(arguments, predictor, some, predictor.predict_text(some, arguments.has("--embedding")));
    }
  };
  classify(arguments.values("--text"));
  for (const std::string& input : given_inputs(arguments)) each_lines(input, classify);
  HEARTH_CHECK(UsageError, count > 0, "predict: no text is named; use ", kind.usage);
  return 0;
}

int continue_prompts(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session) {
  const std::vector<std::string> prompts = arguments.values("--prompt");
  HEARTH_CHECK(UsageError, arguments.positional().size() == 1 && !prompts.empty(),
               "predict: the run was trained on a token stream and writes prompts on; use ", kind.usage);
  models::GenerateOptions options{.limits = {.most = arguments.whole("--max-tokens", 400, 1)},
                                  .temperature = arguments.number("--temperature", 0.8),
                                  .top_k = arguments.whole("--top-k", 0, 0),
                                  .top_p = arguments.number("--top-p", 1),
                                  .seed = static_cast<std::uint64_t>(arguments.whole("--seed", 0, 0))};
  if (arguments.has("--greedy")) {
    for (const char* option : {"--temperature", "--top-k", "--top-p", "--seed"})
      HEARTH_CHECK(UsageError, !arguments.has(option), "predict: --greedy takes the argmax and draws none; leave ",
                   option, " out");
    options.temperature = 0;
  }
  const std::vector<Continuation> written = generate_text(*session, prompts, options);
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (arguments.has("--json")) {
      std::cout << to_text(Json::object()
                               .set("prompt", prompts[i])
                               .set("text", written[i].text)
                               .set("tokens", written[i].tokens)
                               .set("ended", written[i].ended))
                << "\n";
    } else {
      std::cout << (i > 0 ? "\n" : "") << prompts[i] << written[i].text << "\n";
    }
  }
  return 0;
}

int predict_by_task(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session) {
  const std::vector<std::string> inputs = given_inputs(arguments);
  HEARTH_CHECK(UsageError, !inputs.empty(), "predict: no file is named; use ", kind.usage);
  const std::string folder = arguments.value("--out").value_or(".");
  make_directories(folder);
  const EvaluationScope as_in_evaluations(*session);
  for (const std::string& input : inputs)
    std::cout << to_text(session->task->predict(*session, input, folder)) << std::endl;
  return 0;
}

int predict_tables(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session) {
  HEARTH_CHECK(UsageError, arguments.positional().size() > 1, "predict: no file is named; use ", kind.usage);
  return predict_rows(arguments, std::move(session));
}

int translate_files(const Kind& kind, const Arguments& arguments, std::unique_ptr<Session> session) {
  const std::vector<std::string> inputs = given_inputs(arguments);
  HEARTH_CHECK(UsageError, !inputs.empty(), "predict: the run was trained on pairs of lines and translates files; use ",
               kind.usage);
  const models::BeamOptions options = beam_options(arguments, session->data.train->tokens()->longest());
  const auto write_translations = [&](const std::string& input, const std::vector<std::string>& lines) {
    const auto translations =
        translate(*session, encode_sources(*session, lines, input == "-" ? "the input" : input), options);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (arguments.has("--json"))
        std::cout << to_text(Json::object()
                                 .set("input", lines[i])
                                 .set("text", translations[i].text)
                                 .set("score", translations[i].score)
                                 .set("ended", translations[i].ended))
                  << "\n";
      else
        std::cout << translations[i].text << "\n";
    }
    std::cout.flush();
  };
  for (const std::string& input : inputs)
    each_lines(input, [&](const std::vector<std::string>& lines) { write_translations(input, lines); });
  return 0;
}

// In the order of Predicts.
const std::array<Kind, 6> kinds{{
    {"images", "hearth predict RUN IMAGE...", {"--top", "--logits", "--embedding"}, classify_images},
    {"sequences with a label",
     "hearth predict RUN FILE (of lines, or - for the input), or --text TEXT",
     {"--top", "--logits", "--embedding", "--text"},
     classify_text},
    {"a token stream",
     "hearth predict RUN --prompt TEXT",
     {"--prompt", "--max-tokens", "--temperature", "--top-k", "--top-p", "--seed", "--greedy"},
     continue_prompts},
    {"pairs of lines",
     "hearth predict RUN FILE (or - for the input)",
     {"--beam", "--length-penalty", "--max-tokens"},
     translate_files},
    {"data of the program's own", "hearth predict RUN FILE...", {"--out"}, predict_by_task},
    {"a table", "hearth predict RUN FILE.csv... (or FILE.npy, FILE.npz)", {"--top", "--logits"}, predict_tables},
}};

/// UsageError for an option that belongs to other kinds of runs only.
void refuse_options_of_others(const Arguments& arguments, const Kind& kind) {
  for (const Kind& other : kinds)
    for (const std::string_view option : other.options)
      HEARTH_CHECK(
          UsageError,
          !arguments.has(option) || std::find(kind.options.begin(), kind.options.end(), option) != kind.options.end(),
          "predict: ", option, " is not for this run, which was trained on ", kind.trained_on, "; use ", kind.usage);
}

int predict_command(const Arguments& arguments) {
  auto session = open_trained(arguments.positional()[0], arguments.values("--set"));
  const Kind& kind = kinds.at(static_cast<std::size_t>(session->task->predicts()));
  refuse_options_of_others(arguments, kind);
  return kind.run(kind, arguments, std::move(session));
}

}  // namespace

CommandSpec predict_spec() {
  return {"predict",
          "RUN_OR_CHECKPOINT [INPUT...]",
          1,
          1 << 20,
          "Classifies image files, all images of folders, or sequences, one JSON line each on stdout; generates text; "
          "or translates files of lines, - for the input. Needs nothing but the checkpoint.",
          {set_option(),
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
          predict_command};
}

}  // namespace hearth::train
