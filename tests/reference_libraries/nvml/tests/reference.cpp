// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

namespace hearth::test {
namespace {

// Before anything opens a library or looks for devices, and for all tests of this program.
[[maybe_unused]] const bool environment_is_set = [] {
  ::setenv("HEARTH_CUDA_LIBRARIES", HEARTH_REFERENCE_LIBRARIES, 1);
  ::setenv("HEARTH_EMULATE_DEVICES", "2", 1);
  return true;
}();

}  // namespace
}  // namespace hearth::test
