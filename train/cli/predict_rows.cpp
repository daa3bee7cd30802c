// SPDX-License-Identifier: Apache-2.0
// predict of runs on tables: a JSON line for each row of the files.
#include "train/cli/predict_rows.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>

#include "data/table/table_data.h"
#include "train/visit_batches.h"

namespace hearth::train {
namespace {

constexpr std::int64_t rows_at_once = 256;

/// The model's outputs, f32 [count, outputs], for rows of a table.
Tensor outputs_of(Session& session, const data::TableDataset& table, std::int64_t first, std::int64_t count) {
  std::vector<data::TensorSample> samples;
  Random random(0, 0);
  for (std::int64_t i = first; i < first + count; ++i) samples.push_back(table.read(i, random));
  data::Batch batch = table.collate(samples);
  batch.samples.resize(static_cast<std::size_t>(count));
  const data::Batch moved = batch.to(session.device());
  const Tensor outputs = (*session.model)(session.task->inputs(session, moved));
  HEARTH_CHECK(ShapeError, outputs.rank() == 2 && outputs.dim(0) == count, "predict: the model gives ",
               describe(outputs), " for ", count, " rows");
  return outputs.to(DType::f32).to(Device{}).contiguous();
}

std::vector<double> softmax_of(const std::vector<double>& logits) {
  const double greatest = *std::ranges::max_element(logits);
  std::vector<double> shares;
  for (const double logit : logits) shares.push_back(std::exp(logit - greatest));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

void add_classes(Json& line, const std::vector<double>& logits, const std::vector<std::string>& names,
                 std::int64_t top) {
  const std::vector<double> shares = softmax_of(logits);
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(order.size(), static_cast<std::size_t>(top)); ++i)
    list.push_back(
        Json::object().set("label", order[i]).set("class", names[order[i]]).set("probability", shares[order[i]]));
  line.set("label", order[0]).set("class", names[order[0]]).set("probability", shares[order[0]]).set("top", list);
}

}  // namespace

int predict_rows(const Arguments& arguments, Session& session) {
  const auto& trained = dynamic_cast<const data::TableDataset&>(*session.data.train);
  const std::vector<std::string>& names = trained.class_names();
  const std::int64_t top = arguments.whole("--top", 3, 1);
  const EvaluationScope as_in_evaluations(session);
  for (std::size_t input = 1; input < arguments.positional().size(); ++input) {
    const std::string& path = arguments.positional()[input];
    const data::TablePointer table = data::open_rows(session.config().data, trained.shared_facts(), path, false);
    for (std::int64_t first = 0; first < table->size(); first += rows_at_once) {
      const std::int64_t count = std::min(rows_at_once, table->size() - first);
      const Tensor outputs = outputs_of(session, *table, first, count);
      for (std::int64_t i = 0; i < count; ++i) {
        const float* const row = outputs.data<const float>() + i * outputs.dim(1);
        const std::vector<double> values(row, row + outputs.dim(1));
        Json line = Json::object().set("input", path).set("row", first + i);
        if (session.task->best_by_loss() || names.empty()) {
          line.set("prediction", values.size() == 1 ? Json(values[0]) : Json::array_of(values));
        } else {
          add_classes(line, values, names, top);
          if (arguments.has("--logits")) line.set("logits", Json::array_of(values));
        }
        std::cout << to_text(line) << "\n";
      }
      std::cout.flush();
    }
  }
  return 0;
}

}  // namespace hearth::train
