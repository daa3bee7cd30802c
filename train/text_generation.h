// SPDX-License-Identifier: Apache-2.0
// Sequences written by the model of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/session.h"
#include "train/task/written_text.h"

namespace hearth::train {

/// Writes prompts on with a run on a token stream, as LanguageModelTask::continue_text(). UsageError for a run on
/// something else, or on masked sequences.
HEARTH_API std::vector<Continuation> generate_text(Session& session, const std::vector<std::string>& prompts,
                                                   models::GenerateOptions options);

/// The same from ids, of which each prompt has one or more.
HEARTH_API std::vector<Continuation> continue_ids(Session& session,
                                                  const std::vector<std::vector<std::int32_t>>& prompts,
                                                  models::GenerateOptions options);

/// The ids of lines as a run on pairs takes them, by TranslationTask::source_ids(). UsageError for a run on something
/// else.
HEARTH_API std::vector<std::vector<std::int32_t>> encode_sources(const Session& session,
                                                                 const std::vector<std::string>& lines,
                                                                 const std::string& source);

/// Translates sources, ids with an end, by a run on pairs, as TranslationTask::translate(). UsageError for a run on
/// something else.
HEARTH_API std::vector<Translation> translate(Session& session, const std::vector<std::vector<std::int32_t>>& sources,
                                              models::BeamOptions options);

}  // namespace hearth::train
