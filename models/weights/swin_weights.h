// SPDX-License-Identifier: Apache-2.0
// The names of Swin's weights in timm and in its authors' code, beside torchvision's, which are Hearth's. All three
// merge 2 x 2 tokens column by column, so that only names differ, as long as windows divide the tokens: where they do
// not, torchvision and Hearth fill them up before they shift them, timm afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/weights/weights.h"

namespace hearth::models {

/// How names end that a window's attention has: of the learned bias of each distance between two tokens, and of the
/// buffer beside it that tells which row of the table a pair takes.
inline constexpr std::string_view swin_table_ending = "relative_position_bias_table";
inline constexpr std::string_view swin_index_ending = "relative_position_index";

inline bool is_swin(WeightFormat format) {
  return format == WeightFormat::timm_swin || format == WeightFormat::microsoft_swin;
}

/// Whether it is the buffer beside a table in `set`, which follows from the table's size.
bool is_position_index(const Weight& weight, const WeightSet& set);

/// to_hearth() and from_hearth() for the formats of Swin. Buffers are not written: the loaders make them anew.
WeightSet swin_to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report);
WeightSet swin_from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report);

/// Where timm computes something else than Hearth from images of so many pixels, with the remedy; "" if nowhere, or if
/// `ours`, in Hearth's names, is no Swin.
std::string timm_difference(const WeightSet& ours, std::int64_t height, std::int64_t width);
/// Of images whose sides are multiples of it timm computes the same; 0 if `ours` is no Swin.
std::int64_t timm_multiple(const WeightSet& ours);

}  // namespace hearth::models
