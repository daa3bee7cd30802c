// SPDX-License-Identifier: Apache-2.0
// How a table writes numbers: what is read as one, and what looks like one in another notation.
#pragma once

#include <optional>
#include <string_view>

namespace hearth::data {

/// A field without the white space around it: spaces, tabs, and Unicode's spaces that do not break.
std::string_view trimmed_field(std::string_view field);

/// The number that a field spells with `decimal` ('.' or ',') before its fraction, white space around it or not; a
/// minus may be U+2212. A number beyond the largest double is an infinity, one below the smallest is 0. Nothing for
/// other text, and for NaN.
std::optional<double> number_of(std::string_view field, char decimal);

/// What a field that number_of() does not read looks like: "a number with separators", "a percentage", "an amount of
/// money", "a date", "a time of day"; null for other text.
const char* other_notation(std::string_view field);

}  // namespace hearth::data
