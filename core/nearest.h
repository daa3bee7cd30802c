// SPDX-License-Identifier: Apache-2.0
// The known word closest to a mistyped one, for messages that suggest what was meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

/// The least number of insertions, deletions, substitutions and swaps of neighbouring characters that turn `a` into
/// `b`, no part being edited twice (optimal string alignment distance).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate most like `word`, or "" if none is like it. Letter case and '-' for '_' do not count, the beginning of
/// a candidate is like it, and otherwise about a third of the characters may differ. Of equals the first wins.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// "did you mean "lr"? " or "", then `label`, ": " and the candidates separated by commas ("none" if there are none).
std::string suggest(std::string_view word, std::span<const std::string> candidates, std::string_view label);

}  // namespace hearth
