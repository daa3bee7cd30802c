// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/xml_events.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "core/error.h"

#if HEARTH_HAS_EXPAT
#include <expat.h>
#endif

namespace hearth::data {

#if HEARTH_HAS_EXPAT
namespace {

constexpr std::size_t deepest_element = 64;

/// The state of a walk. Exceptions do not pass through expat, which is C.
struct XmlWalk {
  XML_Parser parser;
  const std::string& source;
  const XmlEvents& events;
  std::string path{};
  std::vector<std::string> texts{};  // of the open elements
  std::exception_ptr fault{};

  std::int64_t line() const { return static_cast<std::int64_t>(XML_GetCurrentLineNumber(parser)); }
  template <class F>
  void guarded(const F& work) {
    if (fault) return;
    try {
      work();
    } catch (...) {
      fault = std::current_exception();
      XML_StopParser(parser, XML_FALSE);
    }
  }
  void begin(const char* name) {
    HEARTH_CHECK(DataError, texts.size() < deepest_element, source, ": line ", line(), ": more than ", deepest_element,
                 " levels of elements");
    path += (path.empty() ? "" : "/") + std::string(name);
    texts.emplace_back();
    events.begin(path, line());
  }
  void end() {
    constexpr std::string_view space = " \t\r\n";
    std::string_view text = texts.back();
    text.remove_prefix(std::min(text.find_first_not_of(space), text.size()));
    text = text.substr(0, text.find_last_not_of(space) + 1);
    events.end(path, text, line());
    texts.pop_back();
    path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
};

XmlWalk& walk_of(void* data) { return *static_cast<XmlWalk*>(data); }

}  // namespace

void walk_xml(std::string_view text, const std::string& source, const XmlEvents& events) {
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(XML_ParserCreate(nullptr), XML_ParserFree);
  HEARTH_CHECK(OutOfMemory, parser != nullptr, source, ": no memory for the parser of XML");
  HEARTH_CHECK(DataError, text.size() <= std::size_t{1} << 30, source, ": has more than 2^30 bytes");
  XmlWalk walk{parser.get(), source, events};
  XML_SetUserData(parser.get(), &walk);
  XML_SetElementHandler(
      parser.get(),
      [](void* data, const XML_Char* name, const XML_Char**) {
        walk_of(data).guarded([&] { walk_of(data).begin(name); });
      },
      [](void* data, const XML_Char*) { walk_of(data).guarded([&] { walk_of(data).end(); }); });
  XML_SetCharacterDataHandler(parser.get(), [](void* data, const XML_Char* bytes, int count) {
    walk_of(data).guarded([&] { walk_of(data).texts.back().append(bytes, static_cast<std::size_t>(count)); });
  });
  XML_SetStartDoctypeDeclHandler(parser.get(), [](void* data, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    XmlWalk& refusing = walk_of(data);
    refusing.guarded([&] {
      throw DataError(join_text(refusing.source, ": line ", refusing.line(),
                                ": has a document type, which is not read; take <!DOCTYPE ...> out"));
    });
  });
  const XML_Status status = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE);
  if (walk.fault) std::rethrow_exception(walk.fault);
  HEARTH_CHECK(DataError, status == XML_STATUS_OK, source, ": line ", walk.line(),
               ": is no XML: ", XML_ErrorString(XML_GetErrorCode(parser.get())));
}
#else
void walk_xml(std::string_view, const std::string& source, const XmlEvents&) {
  throw DataError(source + ": this build has no expat, which reads XML; install libexpat1-dev and build again");
}
#endif

}  // namespace hearth::data
