// SPDX-License-Identifier: Apache-2.0
// predict: what a trained model says of files, text and rows, as the run's task answers.
#include <algorithm>
#include <iostream>
#include <optional>

#include "train/checkpoint/checkpoint.h"
#include "train/cli/beam.h"
#include "train/cli/commands.h"
#include "train/predict/answer.h"
#include "train/predictor.h"
#include "train/step/visit_batches.h"

namespace hearth::train {
namespace {

/// UsageError for an option that belongs to other kinds of runs only.
void refuse_options_of_others(const Arguments& arguments, const PredictForm& form) {
  for (const OptionSpec& option : predict_spec().options)
    HEARTH_CHECK(UsageError,
                 option.name == "--set" || option.name == "--json" || !arguments.has(option.name) ||
                     std::ranges::find(form.options, option.name) != form.options.end(),
                 "predict: ", option.name, " is not for this run, which was trained on ", form.trained_on, "; use ",
                 form.usage);
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

int predict_command(const Arguments& arguments) {
  auto opened = open_trained(arguments.positional()[0], arguments.values("--set"));
  Session& session = *opened;
  const PredictForm& form = session.task->form();
  refuse_options_of_others(arguments, form);
  const PredictOptions options{.top = arguments.whole("--top", PredictOptions{}.top, 1),
                               .logits = arguments.has("--logits"),
                               .embedding = arguments.has("--embedding"),
                               .json = arguments.has("--json"),
                               .text = arguments.values("--text"),
                               .prompts = arguments.values("--prompt"),
                               .generate = generate_options(arguments),
                               .search = beam_options(arguments),
                               .folder = arguments.value("--out").value_or(".")};
  std::optional<Predictor> predictor;
  const auto serving = [&]() -> const Predictor& {
    HEARTH_CHECK(UsageError, predictor.has_value(), "predict: a form without a predictor_function cannot compute");
    return *predictor;
  };
  if (form.predictor_function != nullptr) predictor.emplace(std::move(opened));
  const EvaluationScope as_in_evaluations(session);
  form.answer(
      {.task = *session.task,
       .trained = session,
       .options = options,
       .inputs = {arguments.positional().begin() + 1, arguments.positional().end()},
       .classes = session.data.train->class_names(),
       .compute = [&](const OutsideSamples& samples, bool embedding) { return serving().predict(samples, embedding); },
       .prepare = [&](const std::string& path) { return serving().prepared(path); },
       .of_file = [&](const std::string& path) { return session.task->predict(session, path, options.folder); },
       .out = std::cout,
       .warnings = std::cerr});
  return 0;
}

}  // namespace

CommandSpec predict_spec() {
  return {"predict",
          "RUN_OR_CHECKPOINT [INPUT...]",
          1,
          1 << 20,
          "Classifies image files, all images of folders, or sequences, one JSON line each on stdout; finds boxes on "
          "images; generates text; or translates files of lines, - for the input. Needs nothing but the checkpoint.",
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
           {"--out", "DIR",
            "images with boxes, and tasks of a program's own: where pictures and other files go (default: .)"},
           {"--json", "", "print sequences as JSON lines too"}},
          predict_command};
}

}  // namespace hearth::train
