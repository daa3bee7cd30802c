// SPDX-License-Identifier: Apache-2.0
// Which key of a document was meant by one that is not known where it stands. Private to core/config*.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace hearth::config_detail {

/// As suggest() with "known keys" for an object whose keys are `own`. A key that stands elsewhere in the document, or
/// is more like one that does, is suggested by its path, as "train.epochs". Components count with the type they have.
std::string suggest_key(std::string_view key, const std::vector<std::string>& own, const Schema& schema,
                        const Json& document);

/// As suggest() with the known types. A variant that is a choice of one of them is suggested as that, as
/// {"type": "swin", "size": "swin_mini"}.
std::string suggest_type(const std::string& type, const ComponentTypes& types);

}  // namespace hearth::config_detail
