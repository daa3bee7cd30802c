// SPDX-License-Identifier: Apache-2.0
#include "tests/support/places.h"

#include <cstdlib>

namespace hearth::test {
namespace {

std::string variable_or(const char* name, const char* otherwise) {
  const char* const found = std::getenv(name);
  return found == nullptr || *found == '\0' ? otherwise : found;
}

}  // namespace

std::string source_dir() { return variable_or("HEARTH_SOURCE_DIR", HEARTH_SOURCE_DIR); }
std::string failing_requests() { return HEARTH_FAILING_REQUESTS; }
std::string hearth_program() { return variable_or("HEARTH_PROGRAM", HEARTH_PROGRAM); }

bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace hearth::test
