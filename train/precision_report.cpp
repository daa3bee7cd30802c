// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/precision_report.h"

#include "hearth/autograd/grad_mode.h"
#include "hearth/autograd/op_observer.h"
#include "hearth/autograd/record.h"
#include "hearth/core/origin.h"
#include "hearth/train/step.h"

namespace hearth::train {
namespace {

const char* name_of_policy(Autocast policy) {
  switch (policy) {
    case Autocast::follow:
      return "follow";
    case Autocast::narrow:
      return "narrow";
    case Autocast::widen:
      return "widen";
    case Autocast::as_is:
      break;
  }
  return "as_is";
}

class Collector : public OpObserver {
 public:
  void after(const OpInfo& info, std::span<const Tensor> inputs, const Tensor& y) override {
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
    rows.push_back(std::move(row));
  }
  std::vector<OpPrecision> rows;
};

}  // namespace

std::vector<OpPrecision> precision_of_ops(Session& session) {
  const StepInput input = blank_rows(session, 2);
  const NoGrad no_grad;
  const AutocastScope autocast(session.autocast());
  Collector collector;
  const OpObserverScope observed(collector);
  session.model->train(true);
  (void)loss_of(session, input);
  return collector.rows;
}

}  // namespace hearth::train
