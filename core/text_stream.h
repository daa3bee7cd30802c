// SPDX-License-Identifier: Apache-2.0
// The stream that all of Hearth's strings are put together with.
#pragma once

#include <locale>
#include <sstream>

#include "core/export.h"

namespace hearth {

/// A string stream that writes numbers as programs read them ("1000", "12.5"), whatever locale the host program has
/// made the global one. Throws std::bad_alloc when memory runs out, where a plain stream would cut the text short.
class HEARTH_API TextStream : public std::ostringstream {
 public:
  TextStream() {
    imbue(std::locale::classic());
    exceptions(std::ios::badbit);
  }
};

}  // namespace hearth
