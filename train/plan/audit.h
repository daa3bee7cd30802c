// SPDX-License-Identifier: Apache-2.0
// What keeps the steps of a run from the speed that its machine has: sizes that do not fill tensor cores or vectors,
// portable implementations in place of faster ones, casts, copies and transposes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/export.h"
#include "core/io/json_text.h"
#include "train/session.h"

namespace hearth::train {

struct HEARTH_API AuditFinding {
  std::string kind;   ///< "sizes", "portable", "cast", "transpose", "copy", "fill", "wait", "launches"
  std::string layer;  ///< dotted path; "" outside of modules
  std::string op;     ///< "conv2d", "conv2d (backward)"; of launches the phase
  std::string what;   ///< what was found, in words that do not depend on the rows
  std::string remedy;
  std::int64_t calls = 1;
  double share = 0;  ///< of the step's arithmetic, or of its bytes where the op has none

  /// Whether both are of one kind, layer, op and words.
  bool is_like(const AuditFinding& other) const;
};

/// What a step of a few rows shows, the largest share first. `wanted` is the device of the run, which need not be here:
/// then portable implementations, copies, fills and launches are not looked at, and reads of values count as waits.
/// The session is of no use for training afterwards.
HEARTH_API std::vector<AuditFinding> audit_of(Session& session, Device wanted);

/// Multiples that `size` features have to be of for products in a type to fill the device's units, and 1 where any
/// size does.
HEARTH_API std::int64_t aligned_features(DeviceType device, ComputeType type);

/// A list of objects; findings_of() reads it back. ConfigError for anything else.
HEARTH_API Json to_json(const std::vector<AuditFinding>& findings);
HEARTH_API std::vector<AuditFinding> findings_of(const Json& node);
HEARTH_API std::string to_text(const std::vector<AuditFinding>& findings);
/// Those that `expected` does not have, and launches that are more than expected.
HEARTH_API std::vector<AuditFinding> unexpected(const std::vector<AuditFinding>& found,
                                                const std::vector<AuditFinding>& expected);

}  // namespace hearth::train
