// SPDX-License-Identifier: Apache-2.0
// eval, predict.
#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <numeric>

#include "hearth/autograd/grad_mode.h"
#include "hearth/data/prepare.h"
#include "hearth/ops/ops.h"
#include "hearth/train/checkpoint.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/step.h"
#include "hearth/train/text_metrics.h"

namespace hearth::train {
namespace {

struct Row {
  std::int64_t label;
  double probability;
};

std::vector<Row> most_likely(const Tensor& outputs, std::int64_t count) {
  const std::vector<double> probability = softmax(outputs).to_doubles();
  std::vector<Row> rows;
  for (std::size_t i = 0; i < probability.size(); ++i) rows.push_back({static_cast<std::int64_t>(i), probability[i]});
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.probability > b.probability; });
  rows.resize(std::min(rows.size(), static_cast<std::size_t>(count)));
  return rows;
}

}  // namespace

int eval_command(const Arguments& arguments) {
  const auto session = open_trained(arguments.positional()[0], arguments.values("--set"));
  const std::string wanted = arguments.value("--split").value_or("");
  const auto [split, part] = session->evaluation_part(wanted);
  HEARTH_CHECK(DataError, part != nullptr, "eval: the data of this run has no ",
               wanted.empty() ? "test or valid" : wanted, " part; choose another with --split");
  const Meter meter = evaluate(*session, part);
  Json record = Json::object();
  record.set("split", split)
      .set("step", session->position.step)
      .set("samples", meter.samples)
      .set("loss", meter.loss())
      .set("accuracy", meter.accuracy());
  const data::TokenDataset* const text = part->tokens();
  if (text != nullptr) set_text_metrics(record, session->loss, meter, *text);
  if (arguments.has("--json")) {
    std::cout << to_text(record) << "\n";
    return 0;
  }
  std::cerr << split << ": " << meter.samples << (text != nullptr ? " tokens" : " images") << ", step "
            << session->position.step << ", loss " << std::setprecision(9) << meter.loss() << ", accuracy "
            << std::fixed << std::setprecision(2) << 100 * meter.accuracy() << " %";
  for (const char* key : {"perplexity", "bits_per_character"})
    if (const Json* value = record.find(key))
      std::cerr << ", " << key << ' ' << std::setprecision(4) << value->as_number();
  std::cerr << "\n";
  return 0;
}

int predict_command(const Arguments& arguments) {
  const std::string top_text = arguments.value("--top").value_or("3");
  const long long top = std::atoll(top_text.c_str());
  HEARTH_CHECK(UsageError, top >= 1, "predict: --top ", top_text, "; it must be at least 1");
  const auto session = open_trained(arguments.positional()[0], arguments.values("--set"));
  HEARTH_CHECK(UsageError, session->data.train->tokens() == nullptr,
               "predict: the run was trained on texts; only images are predicted here");
  const auto& names = session->data.train->class_names();
  const NoGrad no_grad;
  const AutocastScope autocast(session->autocast());
  session->use_averaged_weights();
  session->model->train(false);
  const std::vector<std::string> inputs(arguments.positional().begin() + 1, arguments.positional().end());
  for (const std::string& input : inputs) {
    const Tensor image = data::load_input(input, session->data.train->image_shape(), session->data.eval_transforms);
    const Tensor outputs = (*session->model)(image.to(session->device()));
    Json list = Json::array();
    const auto rows = most_likely(outputs, top);
    for (const Row& row : rows)
      list.push_back(Json::object()
                         .set("label", row.label)
                         .set("class", names[static_cast<std::size_t>(row.label)])
                         .set("probability", row.probability));
    std::cout << to_text(Json::object()
                             .set("input", input)
                             .set("label", rows[0].label)
                             .set("class", names[static_cast<std::size_t>(rows[0].label)])
                             .set("probability", rows[0].probability)
                             .set("top", list))
              << std::endl;
  }
  return 0;
}

}  // namespace hearth::train
