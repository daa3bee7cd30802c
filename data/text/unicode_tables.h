// SPDX-License-Identifier: Apache-2.0
// The tables behind unicode.h, as scripts/make_unicode_tables.py writes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hearth::data::unicode {

/// `first` << 8 | letter of the Kind, where a run of equal kinds begins; in order.
extern const std::uint32_t kind_runs[];
extern const std::size_t kind_runs_size;

/// `count` characters from `first` on, every `stride`th, whose lower case lies `delta` further on; in order.
struct LowerRun {
  std::uint32_t first;
  std::uint32_t count;
  std::uint32_t stride;
  std::int32_t delta;
};
extern const LowerRun lower_runs[];
extern const std::size_t lower_runs_size;

/// `count` neighbours from `first` on whose bases are base, base + step, ...; in order.
struct BaseRun {
  std::uint32_t first;
  std::uint32_t count;
  std::uint32_t base;
  std::uint32_t step;
};
extern const BaseRun base_runs[];
extern const std::size_t base_runs_size;

/// A character that decomposes into several bases; unused ones are 0. In order.
struct Bases {
  std::uint32_t code;
  std::array<std::uint32_t, 3> bases;
};
extern const Bases several_bases[];
extern const std::size_t several_bases_size;

}  // namespace hearth::data::unicode
