// SPDX-License-Identifier: Apache-2.0
// Where the sources and the program lie, for tests that read the former or run the latter: where they were when the
// tests were built, unless the environment says otherwise, as on a machine that the tests were carried to.
#pragma once

#include <string>

namespace hearth::test {

/// The folder of Hearth's sources; the variable HEARTH_SOURCE_DIR names another.
std::string source_dir();
/// The program `hearth`; the variable HEARTH_PROGRAM names another.
std::string hearth_program();
/// The library that lets requests for memory fail (support/failing_requests.cpp); empty where it cannot be loaded, as
/// beside a sanitizer.
std::string failing_requests();
/// Whether a sanitizer looks at the library. The test's own source may be compiled without it.
bool is_sanitized();

}  // namespace hearth::test
