// SPDX-License-Identifier: Apache-2.0
#include "train/report/precision_report.h"

#include <string_view>

#include "autograd/grad_mode.h"
#include "autograd/op_observer.h"
#include "autograd/record.h"
#include "core/origin.h"
#include "core/tf32.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

const char* name_of_policy(Autocast policy) {
  switch (policy) {
    case Autocast::follow:
      return "follow";
    case Autocast::low_precision:
      return "low_precision";
    case Autocast::f32:
      return "f32";
    case Autocast::as_is:
      break;
  }
  return "as_is";
}

/// Whether libraries may take an op of f32 as TF32; attention in f32 is of native kernels.
bool may_round(const OpInfo& info) {
  const std::string_view name = info.name;
  if (info.autocast != Autocast::low_precision || name.ends_with("attention")) return false;
  return name.starts_with("conv") ? allowed_tf32().conv : allowed_tf32().matmul;
}

class Collector : public OpObserver {
 public:
  void after(const OpInfo& info, std::span<const Tensor> inputs, const Tensor& y) override {
    // What it computes again has rows of its own.
    if (std::string_view(info.name) == "recompute") return;
    OpPrecision row;
    const char* const layer = current_origin().layer;
    row.layer = layer != nullptr ? layer : "";
    row.op = info.name;
    row.policy = name_of_policy(info.autocast);
    const Tensor* first = nullptr;
    for (const Tensor& input : inputs) {
      row.reads.emplace_back(input.defined() ? name_of(input.dtype()) : "");
      if (first == nullptr && input.defined() && is_floating(input.dtype())) first = &input;
    }
    row.gives = name_of(y.dtype());
    const bool mixes = info.autocast == Autocast::as_is && row.op != "cast";
    row.runs_in = first == nullptr ? row.gives : name_of(first->dtype());
    if (mixes && row.runs_in != "f64") row.runs_in = "f32";
    if (row.runs_in == "f32" && may_round(info) && y.device().is_cuda()) row.runs_in = "tf32";
    rows.push_back(std::move(row));
  }
  std::vector<OpPrecision> rows;
};

}  // namespace

std::vector<OpPrecision> precision_of_ops(Session& session) {
  const SwitchScope switches(session.switches());
  const data::Batch input = sample_batch(session, 2, session.device().type).to(session.device());
  const NoGrad no_grad;
  const AutocastScope autocast(session.autocast());
  Collector collector;
  const OpObserverScope observed(collector);
  session.train_mode();
  (void)session.task->loss(session, input, {});
  return collector.rows;
}

std::string precision_text(const Session& session) {
  const PrecisionOptions& precision = session.config().precision;
  const Tf32 rounded = precision.allowed_tf32();
  const char* const tf32 = precision.dtype == ComputeType::tf32 || rounded == Tf32() ? ""
                           : rounded == Tf32(true)                                   ? ", TF32"
                           : rounded.conv                                            ? ", TF32 in convolutions"
                                                                                     : ", TF32 in matrix products";
  const std::string text = join_text(name_of(precision.level), " ", name_of(precision.dtype), tf32);
  return session.precision_reason().empty() ? text : join_text(text, " (auto: ", session.precision_reason(), ")");
}

}  // namespace hearth::train
