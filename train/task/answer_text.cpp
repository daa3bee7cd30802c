// SPDX-License-Identifier: Apache-2.0
// Answers for sequences, prompts and lines to translate.
#include <algorithm>
#include <cstdint>
#include <iostream>

#include "data/text/tokens.h"
#include "train/cli/arguments.h"
#include "train/cli/beam.h"
#include "train/task/answer.h"
#include "train/task/text_tasks.h"

namespace hearth::train {
namespace {

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

void answer_sequences(const PredictCall& call) {
  std::size_t count = 0;
  const auto classify = [&](const std::vector<std::string>& sequences) {
    count += sequences.size();
    for (std::size_t first = 0; first < sequences.size(); first += samples_at_once) {
      const auto begin = sequences.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<std::string> some(
          begin, begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(samples_at_once, sequences.size() - first)));
      write_classes(call, some, call.compute(Texts{some}, call.arguments.has("--embedding")));
    }
  };
  classify(call.arguments.values("--text"));
  for (const std::string& input : call.inputs) each_lines(input, classify);
  HEARTH_CHECK(UsageError, count > 0, "predict: no text is named; use ", sequences_form().usage);
}

models::GenerateOptions generate_options(const Arguments& arguments) {
  models::GenerateOptions options{.limits = {.most = arguments.whole("--max-tokens", 400, 1)},
                                  .temperature = arguments.number("--temperature", 0.8),
                                  .top_k = arguments.whole("--top-k", 0, 0),
                                  .top_p = arguments.number("--top-p", 1),
                                  .seed = static_cast<std::uint64_t>(arguments.whole("--seed", 0, 0))};
  if (!arguments.has("--greedy")) return options;
  for (const char* option : {"--temperature", "--top-k", "--top-p", "--seed"})
    HEARTH_CHECK(UsageError, !arguments.has(option), "predict: --greedy takes the argmax and draws none; leave ",
                 option, " out");
  options.temperature = 0;
  return options;
}

void answer_prompts(const PredictCall& call) {
  const std::vector<std::string> prompts = call.arguments.values("--prompt");
  HEARTH_CHECK(UsageError, call.inputs.empty() && !prompts.empty(),
               "predict: the run was trained on a token stream and writes prompts on; use ", prompts_form().usage);
  const auto& task = dynamic_cast<const LanguageModelTask&>(call.task);
  const std::vector<Continuation> written = task.continue_text(call.trained, prompts, generate_options(call.arguments));
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (call.arguments.has("--json")) {
      call.out << to_text(Json::object()
                              .set("prompt", prompts[i])
                              .set("text", written[i].text)
                              .set("tokens", written[i].tokens)
                              .set("ended", written[i].ended))
               << "\n";
    } else {
      call.out << (i > 0 ? "\n" : "") << prompts[i] << written[i].text << "\n";
    }
  }
}

void answer_lines(const PredictCall& call) {
  HEARTH_CHECK(UsageError, !call.inputs.empty(),
               "predict: the run was trained on pairs of lines and translates files; use ", lines_form().usage);
  const auto& task = dynamic_cast<const TranslationTask&>(call.task);
  const models::BeamOptions options = beam_options(call.arguments, task.longest_row());
  for (const std::string& input : call.inputs)
    each_lines(input, [&](const std::vector<std::string>& lines) {
      const auto translations =
          task.translate(call.trained, task.source_ids(lines, input == "-" ? "the input" : input), options);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (call.arguments.has("--json"))
          call.out << to_text(Json::object()
                                  .set("input", lines[i])
                                  .set("text", translations[i].text)
                                  .set("score", translations[i].score)
                                  .set("ended", translations[i].ended))
                   << "\n";
        else
          call.out << translations[i].text << "\n";
      }
      call.out.flush();
    });
}

}  // namespace

void each_lines(const std::string& input, const std::function<void(const std::vector<std::string>&)>& use) {
  const auto split = [](const std::string& text) {
    const std::vector<std::string_view> lines = data::lines_of(text);
    return std::vector<std::string>(lines.begin(), lines.end());
  };
  if (input != "-") return use(split(data::read_corpus(input)));
  std::string line, some;
  std::int64_t number = 1;
  for (; next_line(line, number); ++number) {
    some += data::checked_corpus(line, join_text("the input, line ", number));
    if (number % samples_at_once != 0) continue;
    use(split(some));
    some.clear();
  }
  HEARTH_CHECK(DataError, number > 1, "the input is empty");
  if (!some.empty()) use(split(some));
}

const PredictForm& sequences_form() {
  static const PredictForm form{.trained_on = "sequences with a label",
                                .usage = "hearth predict RUN FILE (of lines, or - for the input), or --text TEXT",
                                .options = {"--top", "--logits", "--embedding", "--text"},
                                .answer = answer_sequences,
                                .predictor_function = "predict_text()"};
  return form;
}

const PredictForm& prompts_form() {
  static const PredictForm form{
      .trained_on = "a token stream",
      .usage = "hearth predict RUN --prompt TEXT",
      .options = {"--prompt", "--max-tokens", "--temperature", "--top-k", "--top-p", "--seed", "--greedy"},
      .answer = answer_prompts};
  return form;
}

const PredictForm& lines_form() {
  static const PredictForm form{.trained_on = "pairs of lines",
                                .usage = "hearth predict RUN FILE (or - for the input)",
                                .options = {"--beam", "--length-penalty", "--max-tokens"},
                                .answer = answer_lines};
  return form;
}

}  // namespace hearth::train
