// SPDX-License-Identifier: Apache-2.0
#include "train/plan/step_ops.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/profiler.h"
#include "train/profile/device_use.h"
#include "train/profile/host_profile.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

/// A scope that has ended, while the op around it has not.
struct EndedScope {
  std::int64_t begin_ns = 0;
  double us = 0;
  double bytes = 0;
  std::vector<OpPart> parts{};
};

void add_parts(std::vector<OpPart>& to, const std::vector<OpPart>& more) {
  for (const OpPart& part : more) {
    const auto same = std::find_if(to.begin(), to.end(),
                                   [&](const OpPart& other) { return other.implementation == part.implementation; });
    if (same == to.end())
      to.push_back(part);
    else
      same->flops += part.flops;
  }
}

/// An offset and a part in proportion to the rows; neither shrinks below 0.
double extended(double small, std::int64_t small_rows, double large, std::int64_t large_rows, std::int64_t rows) {
  const double slope = (large - small) / static_cast<double>(large_rows - small_rows);
  return std::max(0.0, large + slope * static_cast<double>(rows - large_rows));
}

bool same_ops(const StepOps& a, const StepOps& b) {
  return std::equal(a.ops.begin(), a.ops.end(), b.ops.begin(), b.ops.end(), [](const StepOp& x, const StepOp& y) {
    return x.op == y.op && x.layer == y.layer && x.backward == y.backward;
  });
}

/// Time grows at least in proportion to what is beyond the offset that both sizes have in common.
double extended_us(const StepOp& small, std::int64_t small_rows, const StepOp& large, std::int64_t large_rows,
                   std::int64_t rows) {
  // A larger batch that takes less time was measured badly, or has another implementation.
  const double least = std::min(small.us, large.us);
  return extended(least, small_rows, large.us, large_rows, rows);
}

}  // namespace

double StepOp::flops() const {
  double sum = 0;
  for (const OpPart& part : parts) sum += part.flops;
  return sum;
}

std::string StepOp::name() const { return backward ? op + " (backward)" : op; }

double StepOps::flops() const {
  double sum = 0;
  for (const StepOp& op : ops) sum += op.flops();
  return sum;
}

double StepOps::bytes() const {
  double sum = 0;
  for (const StepOp& op : ops) sum += op.bytes;
  return sum;
}

std::vector<StepOp> ops_of_spans(std::span<const profiler::Span> spans) {
  std::vector<StepOp> ops;
  std::vector<EndedScope> ended;
  for (const profiler::Span& span : spans) {
    if (span.thread != profiler::this_thread() || span.op == nullptr) continue;
    EndedScope scope{span.begin_ns, 1e-3 * static_cast<double>(span.own_ns), span.bytes, {}};
    if (span.flops > 0) scope.parts.push_back({span.name, span.flops});
    while (!ended.empty() && ended.back().begin_ns >= span.begin_ns) {
      scope.us += ended.back().us;
      scope.bytes += ended.back().bytes;
      add_parts(scope.parts, ended.back().parts);
      ended.pop_back();
    }
    if (std::string_view(span.op) != span.name) {
      ended.push_back(std::move(scope));
      continue;
    }
    ops.push_back({span.op, span.layer == nullptr ? "" : span.layer, span.backward, scope.bytes, scope.us,
                   std::move(scope.parts)});
  }
  return ops;
}

StepOps record_step(Session& session, std::int64_t rows, DeviceType target, int repeats) {
  StepOps step{.rows = rows, .ops = {}};
  const data::Batch host = sample_batch(session, rows, target);
  for (const data::Batch::Named& tensor : host.tensors())
    if (tensor.axis != data::Batch::Axis::shared) step.input_bytes += static_cast<double>(tensor.tensor.byte_size());
  const std::vector<data::Batch> inputs{host.to(session.device())};
  StepWorkMeter meter;
  for (int i = 0; i < repeats; ++i) {
    profiler::start();
    const auto begin = std::chrono::steady_clock::now();
    meter.begin_step();
    {
      const PhaseMeter::StepScope phases(session.phases);
      (void)begin_step(session, rows);
      run_step(session, inputs);
    }
    meter.end_step();
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    profiler::stop();
    std::vector<StepOp> ops = ops_of_spans(profiler::spans());
    step.us = i == 0 ? us : std::min(step.us, us);
    if (ops.size() == step.ops.size())
      for (std::size_t k = 0; k < ops.size(); ++k) ops[k].us = std::min(ops[k].us, step.ops[k].us);
    step.ops = std::move(ops);
  }
  step.launches = meter.last().launches;
  return step;
}

StepOps step_at(const StepOps& small, const StepOps& large, std::int64_t rows) {
  HEARTH_CHECK(UsageError, 0 < small.rows && small.rows < large.rows, "step_at: recorded at ", small.rows, " and ",
               large.rows, " rows; the second must be larger");
  StepOps step = large;
  step.rows = rows;
  const bool alike = same_ops(small, large);
  const double ratio = static_cast<double>(rows) / static_cast<double>(large.rows);
  const auto at = [&](double a, double b) { return alike ? extended(a, small.rows, b, large.rows, rows) : b * ratio; };
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    StepOp& op = step.ops[i];
    const StepOp& before = alike ? small.ops[i] : op;
    const double us = alike ? extended_us(before, small.rows, op, large.rows, rows) : op.us * ratio;
    const double flops = op.flops(), flops_at = at(before.flops(), flops);
    op.bytes = at(before.bytes, op.bytes);
    // The implementations are those of the larger step.
    for (OpPart& part : op.parts) part.flops *= flops > 0 ? flops_at / flops : 0;
    op.us = us;
  }
  step.us = at(small.us, large.us);
  step.input_bytes = at(small.input_bytes, large.input_bytes);
  step.launches = large.launches;
  return step;
}

}  // namespace hearth::train
