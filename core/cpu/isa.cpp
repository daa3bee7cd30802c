// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/isa.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace hearth::cpu {
namespace {

Isa detect() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  Isa best = Isa::baseline;
  // All that the compiler may use in a ISA level (foreach_isa.h): hypervisors hide single features.
  if (__builtin_cpu_supports("x86-64-v3")) best = Isa::v3;
  if (__builtin_cpu_supports("x86-64-v4")) best = Isa::v4;
#else
  const Isa best = Isa::baseline;
#endif
  const char* wanted = std::getenv("HEARTH_ISA");
  if (wanted == nullptr) return best;
  for (const Isa candidate : {Isa::baseline, Isa::v3, Isa::v4})
    if (std::string_view(wanted) == name_of(candidate)) {
      HEARTH_CHECK(ConfigError, candidate <= best, "HEARTH_ISA=", wanted, " but this processor offers only ",
                   name_of(best));
      return candidate;
    }
  throw ConfigError(join_text("HEARTH_ISA=", wanted, " is not known; use baseline, v3 or v4"));
}

}  // namespace

Isa isa() {
  static const Isa chosen = detect();
  return chosen;
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
  }
  return "baseline";
}

}  // namespace hearth::cpu
