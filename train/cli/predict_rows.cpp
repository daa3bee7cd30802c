// SPDX-License-Identifier: Apache-2.0
// predict of runs on tables: a JSON line for each row of the files.
#include "train/cli/predict_rows.h"

#include <iostream>

#include "train/predictor.h"

namespace hearth::train {

std::vector<double> row_of(const Tensor& rows, std::int64_t row) {
  const std::int64_t width = rows.size() / rows.dim(0);
  const float* const first = rows.data<const float>() + row * width;
  return {first, first + width};
}

void set_classes(Json& line, const std::vector<Predictor::Class>& top) {
  Json list = Json::array();
  for (const Predictor::Class& found : top)
    list.push_back(
        Json::object().set("label", found.label).set("class", found.name).set("probability", found.probability));
  line.set("label", top[0].label)
      .set("class", top[0].name)
      .set("probability", top[0].probability)
      .set("top", std::move(list));
}

int predict_rows(const Arguments& arguments, std::unique_ptr<Session> session) {
  const Predictor predictor(std::move(session));
  const std::int64_t count = arguments.whole("--top", 3, 1);
  for (std::size_t input = 1; input < arguments.positional().size(); ++input) {
    const std::string& path = arguments.positional()[input];
    const Prediction result = predictor.predict_rows(path);
    for (std::int64_t row = 0; row < result.logits.dim(0); ++row) {
      const std::vector<double> outputs = row_of(result.logits, row);
      Json line = Json::object().set("input", path).set("row", row);
      if (!result.probabilities.defined()) {
        line.set("prediction", outputs.size() == 1 ? Json(outputs[0]) : Json::array_of(outputs));
      } else {
        set_classes(line, predictor.top(result, row, count));
        if (arguments.has("--logits")) line.set("logits", Json::array_of(outputs));
      }
      std::cout << to_text(line) << "\n";
    }
    std::cout.flush();
  }
  return 0;
}

}  // namespace hearth::train
