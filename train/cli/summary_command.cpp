// SPDX-License-Identifier: Apache-2.0
#include <iomanip>
#include <iostream>

#include "hearth/core/memory.h"
#include "hearth/models/nn/summary.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/step.h"

namespace hearth::train {
namespace {

data::Batch random_batch(const Session& session, std::int64_t n) {
  data::Batch batch;
  const data::ImageShape input = session.data.input_shape();
  batch.images = Tensor::zeros({n, input.height, input.width, input.channels});
  batch.labels = Tensor::zeros({n}, DType::i64);
  batch.samples.resize(static_cast<std::size_t>(n));
  return batch;
}

// Bytes a training step needs beyond weights and optimizer state, at a small batch.
double activation_bytes(Session& session, std::int64_t n) {
  MemoryResource& memory = memory_of({});
  const data::Batch batch = random_batch(session, n);
  const std::int64_t before = memory.statistics().in_use;
  memory.reset_peak();
  (void)training_step(session, std::span(&batch, 1));
  return static_cast<double>(memory.statistics().peak - before);
}

std::string count_text(double value) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  if (value >= 1e9)
    out << value / 1e9 << " G";
  else if (value >= 1e6)
    out << value / 1e6 << " M";
  else if (value >= 1e3)
    out << value / 1e3 << " k";
  else
    out << std::setprecision(0) << value;
  return out.str();
}

}  // namespace

int summary_command(const Arguments& arguments) {
  Session session(load_config(arguments.positional()[0], arguments.values("--set")));
  const data::ImageShape input = session.data.input_shape();
  const auto rows = nn::summarize(*session.model, Tensor::zeros({1, input.height, input.width, input.channels}));
  // A step's memory grows by the same amount with each image, so two small steps give it for any batch.
  (void)activation_bytes(session, 2);
  const double two = activation_bytes(session, 2);
  const double three = activation_bytes(session, 3);
  const std::int64_t batch_size = session.config().train.batch_size;
  const double activations = two + (three - two) * static_cast<double>(batch_size - 2);
  const double weights = static_cast<double>(memory_of({}).statistics().in_use);
  const double flops = rows.empty() ? 0 : rows[0].flops;

  if (arguments.has("--json")) {
    Json list = Json::array();
    for (const nn::ModuleReport& row : rows)
      list.push_back(Json::object()
                         .set("path", row.path)
                         .set("type", row.type)
                         .set("output", Json::array_of(std::vector<std::int64_t>(row.output.begin(), row.output.end())))
                         .set("parameters", row.parameters)
                         .set("flops", row.flops));
    std::cout << to_text(Json::object()
                             .set("layers", list)
                             .set("parameters", session.model->parameter_count())
                             .set("forward_flops_per_image", flops)
                             .set("batch_size", batch_size)
                             .set("activation_bytes_per_step", activations)
                             .set("weight_and_state_bytes", weights),
                         2)
              << "\n";
    return 0;
  }
  for (const nn::ModuleReport& row : rows) {
    const std::string name = std::string(static_cast<std::size_t>(2 * row.depth), ' ') +
                             (row.path.empty() ? "(model)" : row.path.substr(row.path.rfind('.') + 1));
    std::cout << std::left << std::setw(28) << name << " " << std::setw(14) << row.type << " " << std::setw(22)
              << join_text(row.output) << std::right << std::setw(12) << row.parameters << std::setw(12)
              << count_text(row.flops) << "\n";
  }
  std::cout << "\nparameters                " << session.model->parameter_count() << "\nforward FLOP per image    "
            << count_text(flops) << "\nmemory of a step          " << count_text(activations)
            << "B activations at batch " << batch_size << " + " << count_text(weights)
            << "B weights, gradients and optimizer state\n";
  return 0;
}

}  // namespace hearth::train
