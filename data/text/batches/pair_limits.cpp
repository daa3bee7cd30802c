// SPDX-License-Identifier: Apache-2.0
#include "data/text/batches/pair_limits.h"

#include <algorithm>

#include "core/error.h"

namespace hearth::data {

PairsWithin pairs_within(const Tokens& source, const Tokens& target, const std::vector<std::int64_t>& pairs,
                         const PairOptions& options, bool skip_long) {
  HEARTH_CHECK(DataError, source.sequences() == target.sequences(), source.source(), ": ", source.sequences(),
               " lines, but ", target.source(), " has ", target.sequences(), "; each line needs its translation");
  PairsWithin result;
  for (const std::int64_t pair : pairs) {
    HEARTH_CHECK(IndexError, pair >= 0 && pair < target.sequences(), target.source(), ": pair ", pair, " of ",
                 target.sequences());
    const auto [shorter, longer] = std::minmax({source.length(pair), target.length(pair)});
    HEARTH_CHECK(DataError, shorter >= 1, target.source(), ": pair ", pair + 1,
                 " has a side without ids, not even an end");
    const bool is_long = longer > options.longest;
    const bool is_uneven =
        options.max_ratio > 0 && static_cast<double>(longer) > options.max_ratio * static_cast<double>(shorter);
    if (!is_long && !is_uneven) {
      result.pairs.push_back(pair);
      continue;
    }
    const std::string place =
        join_text(source.source(), ":", pair + 1, " with ", target.source(), ":", pair + 1, ": ", longer, " ids");
    const std::string text =
        is_long ? join_text(place, "; the longest row may have ", options.longest)
                : join_text(place, " beside ", shorter, "; sides may differ by a factor of ", options.max_ratio);
    HEARTH_CHECK(DataError, !is_long || skip_long, text, "; raise \"longest\", or say \"on_long\": \"skip\"");
    result.left_out.add(text);
  }
  HEARTH_CHECK(DataError, !result.pairs.empty(), target.source(), ": no pairs",
               result.left_out.count > 0 ? join_text(" within the limits; of ", result.left_out.count,
                                                     " that are not, the first: ", result.left_out.first.front())
                                         : "");
  return result;
}

}  // namespace hearth::data
