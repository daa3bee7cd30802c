// SPDX-License-Identifier: Apache-2.0
#include "train/cli/name_filter.h"

#include <array>

#include "core/error.h"

namespace hearth::train {

void NameFilter::Free::operator()(regex_t* compiled) const {
  ::regfree(compiled);
  delete compiled;
}

NameFilter::NameFilter(const std::string& pattern) {
  HEARTH_CHECK(UsageError, pattern.size() <= longest_pattern, "--filter: ", pattern.size(),
               " characters; a pattern may have ", longest_pattern);
  auto made = std::make_unique<regex_t>();
  const int fault = ::regcomp(made.get(), pattern.c_str(), REG_EXTENDED | REG_NOSUB);
  if (fault != 0) {
    std::array<char, 128> reason{};
    ::regerror(fault, made.get(), reason.data(), reason.size());
    throw UsageError(join_text("--filter \"", pattern, "\": ", reason.data(), "; see regex(7)"));
  }
  compiled_.reset(made.release());
  for (char digit = '1'; digit <= '9'; ++digit)
    HEARTH_CHECK(UsageError, pattern.find({'\\', digit}) == std::string::npos, "--filter \"", pattern, "\": \\", digit,
                 " asks for what was matched before, which may take forever");
}

bool NameFilter::matches(const std::string& name) const {
  return ::regexec(compiled_.get(), name.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace hearth::train
