// SPDX-License-Identifier: Apache-2.0
// hearth_stand_in_data FOLDER: writes small made-up data in the form of the real data; see stand_in_data.h.
#include <exception>
#include <iostream>

#include "tests/support/stand_in_data.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: hearth_stand_in_data FOLDER\n";
    return 2;
  }
  try {
    hearth::test::write_stand_in_data(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
