// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace hearth::test {

/// An environment variable with this value until the end of the scope.
class VariableScope {
 public:
  VariableScope(const char* name, const std::string& value) : VariableScope(name) { ::setenv(name, value.c_str(), 1); }
  /// Absent until the end of the scope.
  explicit VariableScope(const char* name) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::unsetenv(name);
  }
  ~VariableScope() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  VariableScope(const VariableScope&) = delete;
  VariableScope& operator=(const VariableScope&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace hearth::test
