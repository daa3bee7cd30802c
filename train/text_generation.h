// SPDX-License-Identifier: Apache-2.0
// Sequences written by the model of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text/token_set.h"
#include "train/session.h"
#include "train/task/written_text.h"

namespace hearth::train {

/// Writes prompts on with a run on a token stream; `options.limits` but for `most` come from its tokenizer. An empty
/// prompt stands for the beginning of a text. UsageError for a run on something else, or on masked sequences;
/// DataError, naming the prompt's number, for one that is not UTF-8 or has what the vocabulary lacks.
HEARTH_API std::vector<Continuation> generate_text(Session& session, const std::vector<std::string>& prompts,
                                                   models::GenerateOptions options);

/// The same from ids, of which each prompt has one or more.
HEARTH_API std::vector<Continuation> continue_ids(Session& session,
                                                  const std::vector<std::vector<std::int32_t>>& prompts,
                                                  models::GenerateOptions options);

/// The ids of lines as a run on pairs takes them. DataError naming `source` and the line for one that is longer than
/// the model takes (the longest of the training, rounded up as its rows are), or has what the vocabulary lacks;
/// UsageError for a run on something else.
HEARTH_API std::vector<std::vector<std::int32_t>> encode_sources(const Session& session,
                                                                 const std::vector<std::string>& lines,
                                                                 const std::string& source);

/// Translates sources, ids with an end, by a run on pairs; `options.limits` but for `most` come from the tokenizer of
/// translations. Those of about equal length are searched for together. What has no ids but the end gives an empty
/// text.
HEARTH_API std::vector<Translation> translate(Session& session, const std::vector<std::vector<std::int32_t>>& sources,
                                              models::BeamOptions options);

/// Translates the first `limit` pairs of a part (0: all) and sets `decoded`, their number, and by eval.metric `bleu`,
/// or `error_rate` (edits by words) and `sequence_error_rate` (translations with an edit). For the latter pairs with
/// one source are translated once and counted against the nearest of their references. References are what the
/// tokenizer makes of them.
HEARTH_API void set_translation_metric(Json& record, Session& session, const data::PairDataset& part,
                                       const models::BeamOptions& options, std::int64_t limit);

}  // namespace hearth::train
