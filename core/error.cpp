// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include "core/text_stream.h"

namespace hearth::detail {

void write_characters(std::ostream& out, const void* value) { out << static_cast<const char*>(value); }

std::string join_parts(const TextPart* parts, std::size_t count) {
  TextStream out;
  for (std::size_t i = 0; i < count; ++i) parts[i].write(out, parts[i].value);
  return out.str();
}

}  // namespace hearth::detail
