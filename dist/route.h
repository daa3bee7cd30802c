// SPDX-License-Identifier: Apache-2.0
// The ways that sums take between ranks, by name.
#pragma once

#include <cstdint>

#include "core/export.h"

namespace hearth::dist {

/// How large sums go from rank to rank (`all_reduce`). All ranks have the same bits by any of them.
enum class Route : std::uint8_t {
  automatic,     ///< hierarchical where the ranks can, else direct
  direct,        ///< each rank sends every other its piece, adds up its own and sends the sum to all
  ring,          ///< pieces go round all ranks, each of which adds its own; not by pairs of neighbouring ranks
  tree,          ///< ranks at distance 1, 2, 4... exchange halves: 2^k ranks
  hierarchical,  ///< within each host, between hosts by ranks of one number, within each host
};
HEARTH_API const char* name_of(Route route);

}  // namespace hearth::dist
