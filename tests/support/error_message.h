// SPDX-License-Identifier: Apache-2.0
// The message of an expected exception, so that a test can look into it.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace hearth::testing {

/// what() of the E that `action` throws; a test failure and "" if it throws nothing, anything else passes through.
template <class E, class F>
std::string error_message(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// A predicate for EXPECT_PRED2: `text` contains `part`.
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace hearth::testing
