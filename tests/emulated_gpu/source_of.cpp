// SPDX-License-Identifier: Apache-2.0
// From an address in the program to the line of its source, for the race checker's reports.
#include <cstdint>
#include <string>

#include "core/error.h"
#include "tests/emulated_gpu/checker.h"

#if HEARTH_EMULATE_CHECK
#if defined(HEARTH_HAS_BACKTRACE)
#include <backtrace.h>
#endif
#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace hearth::cuda::emulate {

#if defined(HEARTH_HAS_BACKTRACE)
namespace {

// Innermost first: the line itself, then the lines it was inlined into.
int add_line(void* text_of, std::uintptr_t, const char* file, int line, const char* function) {
  if (file == nullptr) return 0;
  std::string& text = *static_cast<std::string*>(text_of);
  const std::unique_ptr<char, decltype(&std::free)> name(
      function == nullptr ? nullptr : abi::__cxa_demangle(function, nullptr, nullptr, nullptr), &std::free);
  text += join_text(text.empty() ? "" : ", called at ", file, ":", line);
  if (name != nullptr) text += join_text(" in ", name.get());
  return 0;
}

}  // namespace

std::string source_of(const void* site) {
  const auto ignore = [](void*, const char*, int) {};
  static backtrace_state* const state = backtrace_create_state(nullptr, 0, ignore, nullptr);
  std::string text;
  // The address is where the program goes on after the access.
  backtrace_pcinfo(state, reinterpret_cast<std::uintptr_t>(site) - 1, add_line, ignore, &text);
  return text.empty() ? join_text("address ", site) : text;
}
#else
std::string source_of(const void* site) { return join_text("address ", site); }
#endif

}  // namespace hearth::cuda::emulate
#endif
