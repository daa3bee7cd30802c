// SPDX-License-Identifier: Apache-2.0
#include "train/text_generation.h"

#include "train/step/visit_batches.h"
#include "train/task/text_tasks.h"

namespace hearth::train {
namespace {

const LanguageModelTask& writer_of(const Session& session) {
  const auto* const task = dynamic_cast<const LanguageModelTask*>(session.task.get());
  HEARTH_CHECK(UsageError, task != nullptr,
               "generate: the run was not trained on a token stream (data \"text\"), which prompts go on from");
  return *task;
}

const TranslationTask& translator_of(const Session& session) {
  const auto* const task = dynamic_cast<const TranslationTask*>(session.task.get());
  HEARTH_CHECK(UsageError, task != nullptr,
               "translate: the run was not trained on pairs of lines (data \"parallel_text\")");
  return *task;
}

}  // namespace

std::vector<Continuation> generate_text(Session& session, const std::vector<std::string>& prompts,
                                        models::GenerateOptions options) {
  const EvaluationScope as_in_evaluations(session);
  return writer_of(session).continue_text(session, prompts, std::move(options));
}

std::vector<Continuation> continue_ids(Session& session, const std::vector<std::vector<std::int32_t>>& prompts,
                                       models::GenerateOptions options) {
  const EvaluationScope as_in_evaluations(session);
  return writer_of(session).continue_ids(session, prompts, std::move(options));
}

std::vector<std::vector<std::int32_t>> encode_sources(const Session& session, const std::vector<std::string>& lines,
                                                      const std::string& source) {
  return translator_of(session).source_ids(lines, source);
}

std::vector<Translation> translate(Session& session, const std::vector<std::vector<std::int32_t>>& sources,
                                   models::BeamOptions options) {
  const EvaluationScope as_in_evaluations(session);
  return translator_of(session).translate(session, sources, std::move(options));
}

}  // namespace hearth::train
