// SPDX-License-Identifier: Apache-2.0
// Generation of text: each next id is the argmax (greedy decoding) or drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "models/text/decoder.h"

namespace hearth::models {

/// Which ids may be written, and when a text is over.
struct WritingLimits {
  std::int64_t most = 256;               ///< ids written to a text
  std::int32_t end = -1;                 ///< a text ends before this id; -1: there is none
  std::vector<std::int32_t> never = {};  ///< ids that are not written
  std::int64_t vocabulary = 0;           ///< nor are those from here on; 0: all may be
};

struct GenerateOptions {
  WritingLimits limits = {};
  /// Divides the logits: below 1 the likely ids become likelier. 0: always the argmax, of equals the first.
  double temperature = 1.0;
  std::int64_t top_k = 0;  ///< draws from so many of the argmax; 0: from all
  /// Draws from the fewest ids, the most probable first, that together have this probability (nucleus sampling:
  /// Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020).
  double top_p = 1.0;
  /// What text i draws as its n-th id is a function of (seed, i, n): the same whichever sequences are written beside
  /// it.
  std::uint64_t seed = 0;
};

struct Written {
  std::vector<std::int32_t> ids;  ///< without the prompt and the end
  bool ended = false;             ///< by the end id; otherwise it has the most ids
};

/// Writes the decoder's sequences on behind their prompts, which may differ in length. A text that fills the decoder's
/// room goes on from its last half, a prompt that is longer begins with as many of its last ids. UsageError unless
/// there is one prompt for each text of a decoder that has none yet, each of one id or more, and for options out of
/// range; DivergedError for logits that are not numbers.
HEARTH_API std::vector<Written> generate(TextDecoder& decoder, const std::vector<std::vector<std::int32_t>>& prompts,
                                         const GenerateOptions& options);

/// UsageError, beginning with `name`, for limits that cannot be kept.
HEARTH_API void check_limits(const char* name, const WritingLimits& limits);
/// The logits [N, vocabulary], row by row; those of ids that may not be written are -infinity. DivergedError, beginning
/// with `name`, for those that are not numbers, UsageError where no id is left.
HEARTH_API std::vector<double> writable_logits(const char* name, const Tensor& logits, const WritingLimits& limits);

}  // namespace hearth::models
