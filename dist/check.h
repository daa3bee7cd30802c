// SPDX-License-Identifier: Apache-2.0
// A condition of fast communication, as `hearth doctor --network` and a run report it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hearth::dist {

enum class CheckState : std::uint8_t { ok, wrong, unknown };

/// "ok"
inline const char* name_of(CheckState state) {
  constexpr const char* names[] = {"ok", "wrong", "unknown"};
  return names[static_cast<std::size_t>(state)];
}

struct Check {
  std::string name;  ///< "peer memory"
  CheckState state = CheckState::unknown;
  std::string finding{};  ///< what the state goes by
  std::string remedy{};   ///< where it is wrong, or what tells where it is unknown
};

}  // namespace hearth::dist
