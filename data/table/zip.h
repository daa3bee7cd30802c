// SPDX-License-Identifier: Apache-2.0
// ZIP archives (PKWARE's APPNOTE 6.3), as far as .npz files need them: members stored or deflated, of any size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/file.h"

namespace hearth::data {

/// The names of the members. Errors as below.
std::vector<std::string> zip_members(const std::string& path);
/// The bytes of a member. FileError if the archive cannot be read; DataError, naming archive and member, for what is no
/// archive, has no such member (with those that it has), is damaged, encrypted, or compressed in another way.
std::vector<std::uint8_t> read_zip_member(const std::string& path, const std::string& member, ReadLimit limit);

}  // namespace hearth::data
