// SPDX-License-Identifier: Apache-2.0
// predict: classes of images, and texts written on.
#include <algorithm>
#include <initializer_list>
#include <iostream>
#include <iterator>

#include "hearth/autograd/grad_mode.h"
#include "hearth/data/prepare.h"
#include "hearth/data/text/labelled.h"
#include "hearth/ops/ops.h"
#include "hearth/train/checkpoint.h"
#include "hearth/train/cli/beam.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/text_generation.h"

namespace hearth::train {
namespace {

/// What a kind of run predicts, and the options that belong to it.
struct Kind {
  const char* trained_on;
  const char* usage;
  std::initializer_list<const char*> options;
};

const Kind images{"images", "hearth predict RUN IMAGE...", {"--top"}};
const Kind labelled_texts{"texts with a label", "hearth predict RUN --text TEXT", {"--top", "--text"}};
const Kind running_text{"a running text",
                        "hearth predict RUN --prompt TEXT",
                        {"--prompt", "--max-tokens", "--temperature", "--top-k", "--top-p", "--seed", "--greedy"}};

const Kind pairs{
    "pairs of lines", "hearth predict RUN FILE (or - for the input)", {"--beam", "--length-penalty", "--max-tokens"}};

/// UsageError for an option that belongs to other kinds of runs only.
void refuse_options_of_others(const Arguments& arguments, const Kind& kind) {
  for (const Kind& other : {images, labelled_texts, running_text, pairs})
    for (const char* option : other.options)
      HEARTH_CHECK(
          UsageError,
          !arguments.has(option) ||
              std::find_if(kind.options.begin(), kind.options.end(),
                           [&](const char* own) { return std::string_view(own) == option; }) != kind.options.end(),
          "predict: ", option, " is not for this run, which was trained on ", kind.trained_on, "; use ", kind.usage);
}

struct Row {
  std::int64_t label;
  double probability;
};

std::vector<Row> most_likely(const Tensor& outputs, std::int64_t count) {
  const std::vector<double> probability = softmax(outputs).to_doubles();
  std::vector<Row> rows;
  for (std::size_t i = 0; i < probability.size(); ++i) rows.push_back({static_cast<std::int64_t>(i), probability[i]});
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.probability > b.probability; });
  rows.resize(std::min(rows.size(), static_cast<std::size_t>(count)));
  return rows;
}

int classify(const Arguments& arguments, Session& session) {
  const std::int64_t top = arguments.whole("--top", 3, 1);
  const data::TokenDataset* const text = session.data.train->tokens();
  std::vector<std::string> inputs(arguments.positional().begin() + 1, arguments.positional().end());
  HEARTH_CHECK(UsageError, text == nullptr || inputs.empty(), "predict: the run was trained on texts; use ",
               labelled_texts.usage);
  if (text != nullptr) inputs = arguments.values("--text");
  HEARTH_CHECK(UsageError, !inputs.empty(), "predict: no ", text != nullptr ? "text" : "image", " is named; use ",
               text != nullptr ? labelled_texts.usage : images.usage);
  const auto& names = session.data.train->class_names();
  const NoGrad no_grad;
  const AutocastScope autocast(session.autocast());
  session.use_averaged_weights();
  session.model->train(false);
  for (const std::string& input : inputs) {
    const Tensor sample = text != nullptr ? text->labelled()->input_of(input)
                                          : data::load_input(input, *session.data.train, session.data.eval_transforms);
    const Tensor outputs = (*session.model)(sample.to(session.device()));
    HEARTH_CHECK(ShapeError, outputs.size() == static_cast<std::int64_t>(names.size()), "predict: the network gives ",
                 describe(outputs), " of one input, but the data has ", names.size(), " classes");
    Json list = Json::array();
    const auto rows = most_likely(outputs, top);
    for (const Row& row : rows)
      list.push_back(Json::object()
                         .set("label", row.label)
                         .set("class", names[static_cast<std::size_t>(row.label)])
                         .set("probability", row.probability));
    std::cout << to_text(Json::object()
                             .set("input", input)
                             .set("label", rows[0].label)
                             .set("class", names[static_cast<std::size_t>(rows[0].label)])
                             .set("probability", rows[0].probability)
                             .set("top", list))
              << std::endl;
  }
  return 0;
}

int continue_prompts(const Arguments& arguments, Session& session) {
  const std::vector<std::string> prompts = arguments.values("--prompt");
  HEARTH_CHECK(UsageError, arguments.positional().size() == 1 && !prompts.empty(),
               "predict: the run was trained on a running text and writes prompts on; use ", running_text.usage);
  models::GenerateOptions options{.limits = {.most = arguments.whole("--max-tokens", 400, 1)},
                                  .temperature = arguments.number("--temperature", 0.8),
                                  .top_k = arguments.whole("--top-k", 0, 0),
                                  .top_p = arguments.number("--top-p", 1),
                                  .seed = static_cast<std::uint64_t>(arguments.whole("--seed", 0, 0))};
  if (arguments.has("--greedy")) {
    for (const char* option : {"--temperature", "--top-k", "--top-p", "--seed"})
      HEARTH_CHECK(UsageError, !arguments.has(option),
                   "predict: --greedy takes the likeliest ids and draws none; leave ", option, " out");
    options.temperature = 0;
  }
  const std::vector<Continuation> written = continue_texts(session, prompts, options);
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

std::vector<std::string> read_lines(const std::string& input) {
  const std::string text = input == "-"
                               ? data::checked_corpus({std::istreambuf_iterator<char>(std::cin), {}}, "the input")
                               : data::read_corpus(input);
  const std::vector<std::string_view> lines = data::lines_of(text);
  return {lines.begin(), lines.end()};
}

int translate_files(const Arguments& arguments, Session& session) {
  const std::vector<std::string> inputs(arguments.positional().begin() + 1, arguments.positional().end());
  HEARTH_CHECK(UsageError, !inputs.empty(), "predict: the run was trained on pairs of lines and translates files; use ",
               pairs.usage);
  const models::BeamOptions options = beam_options(arguments, session);
  for (const std::string& input : inputs) {
    const std::vector<std::string> lines = read_lines(input);
    const auto translations =
        translate(session, encode_sources(session, lines, input == "-" ? "the input" : input), options);
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
  }
  return 0;
}

std::unique_ptr<Session> open_run(const Arguments& arguments) {
  const std::string& run = arguments.positional()[0];
  try {
    return open_trained(run, arguments.values("--set"));
  } catch (const FileError& error) {
    if (std::string_view(error.what()).starts_with(run)) throw;
    throw FileError(join_text(error.what(), "; predict opens the data that the run's configuration names"));
  }
}

}  // namespace

int predict_command(const Arguments& arguments) {
  const auto session = open_run(arguments);
  const data::TokenDataset* const text = session->data.train->tokens();
  if (text == nullptr || text->labelled() != nullptr) {
    refuse_options_of_others(arguments, text != nullptr ? labelled_texts : images);
    return classify(arguments, *session);
  }
  if (text->source_tokenizer() == nullptr) {
    refuse_options_of_others(arguments, running_text);
    return continue_prompts(arguments, *session);
  }
  refuse_options_of_others(arguments, pairs);
  return translate_files(arguments, *session);
}

}  // namespace hearth::train
