// SPDX-License-Identifier: Apache-2.0
// The libraries that read images, compressed files, XML and models of pieces, as this build has them.
#pragma once

#include <string>
#include <vector>

namespace hearth::data {

struct FileLibrary {
  std::string name;     ///< "JPEG", "PNG", "WebP", "zlib", "expat" or "SentencePiece"
  std::string version;  ///< in the library's own words; empty if the build lacks it
  std::string without;  ///< what cannot be done without it
};
std::vector<FileLibrary> file_libraries();

}  // namespace hearth::data
