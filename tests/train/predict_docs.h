// SPDX-License-Identifier: Apache-2.0
// The program of docs/predict.md, which predictor_test.cpp runs and holds against the page.
#pragma once

#include <iostream>

#include "hearth.h"

namespace predict_docs {

// clang-format off
int main(int argc, char** argv) {
  const hearth::Predictor predictor(argv[1]);
  const std::vector<std::string> files(argv + 2, argv + argc);
  const hearth::Prediction result = predictor.predict_files(files);
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const auto& [label, name, probability] : predictor.top(result, i, 3))
      std::cout << files[i] << " " << name << " " << probability << "\n";
  return 0;
}
// clang-format on

}  // namespace predict_docs
