// SPDX-License-Identifier: Apache-2.0
// The warnings that some code gives.
#pragma once

#include <string>
#include <utility>

#include "core/warning.h"

namespace hearth::test {

/// Runs f and returns its warnings, a line each.
template <class F>
std::string warnings_of(F&& f) {
  std::string text;
  struct Scope {
    explicit Scope(std::string& text)
        : before(set_warning_handler([&text](const std::string& warning) { text += warning + "\n"; })) {}
    ~Scope() { set_warning_handler(std::move(before)); }
    WarningHandler before;
  } const scope(text);
  f();
  return text;
}

}  // namespace hearth::test
