// SPDX-License-Identifier: Apache-2.0
// XML as a walk over elements.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace hearth::data {

/// What receives the elements of a document, in order.
struct XmlEvents {
  /// An element begins: the path of its names, "annotation/object/name", and the line.
  std::function<void(const std::string& path, std::int64_t line)> begin;
  /// It ended: with the text in it that is in no other element, without space around it.
  std::function<void(const std::string& path, std::string_view text, std::int64_t line)> end;
};

/// Walks a document by expat. Attributes, comments and instructions are passed over. DataError, with `source` and the
/// line, for what is no XML, for a document type (which could define entities), for more than 64 levels, and in a build
/// without expat.
void walk_xml(std::string_view text, const std::string& source, const XmlEvents& events);

}  // namespace hearth::data
