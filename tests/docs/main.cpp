// SPDX-License-Identifier: Apache-2.0
// hearth_page_script FOLDER PAGE: prints the script of the page PAGE below FOLDER.
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/docs/page_script.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: hearth_page_script FOLDER PAGE\n";
    return 2;
  }
  std::ifstream in(std::string(argv[1]) + "/" + argv[2]);
  if (!in) {
    std::cerr << argv[1] << "/" << argv[2] << " cannot be read\n";
    return 1;
  }
  try {
    std::cout << hearth::test::page_script(argv[2], {std::istreambuf_iterator<char>(in), {}});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
