// SPDX-License-Identifier: Apache-2.0
// The message of an expected exception, so that a test can look into it.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace hearth::test {

/// what() of the E that `action` throws; a test failure and "" if it throws nothing or something else.
template <class E, class F>
std::string error_message(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// A predicate for EXPECT_PRED2: `text` contains `part`.
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace hearth::test
