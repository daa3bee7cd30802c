// SPDX-License-Identifier: Apache-2.0
// Text in HTML.
#pragma once

#include <string>
#include <string_view>

#include "core/export.h"

namespace hearth::train {

/// Text with &, <, > and quotes escaped for HTML.
HEARTH_API std::string html_escaped(std::string_view text);

}  // namespace hearth::train
