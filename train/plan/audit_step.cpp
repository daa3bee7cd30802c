// SPDX-License-Identifier: Apache-2.0
// How the findings of an audit come about.
#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "autograd/op_observer.h"
#include "autograd/record.h"
#include "core/cuda/counters.h"
#include "core/error.h"
#include "core/origin.h"
#include "core/tensor_events.h"
#include "core/text_stream.h"
#include "ops/dispatch/candidates.h"
#include "train/plan/audit.h"
#include "train/plan/step_ops.h"
#include "train/profile/work_log.h"

namespace hearth::train {
namespace {

std::string current_layer() {
  const char* const layer = current_origin().layer;
  return layer == nullptr ? "" : layer;
}

std::string current_op() {
  const Origin& origin = current_origin();
  const std::string op = origin.op == nullptr ? "no op" : origin.op;
  return origin.backward ? op + " (backward)" : op;
}

/// Equal findings are one, with as many calls.
class Findings {
 public:
  void add(AuditFinding finding) {
    const auto same =
        std::find_if(list_.begin(), list_.end(), [&](const AuditFinding& other) { return finding.is_like(other); });
    if (same == list_.end()) {
      list_.push_back(std::move(finding));
      return;
    }
    same->calls += finding.calls;
    same->share += finding.share;
  }
  std::vector<AuditFinding>& list() { return list_; }

 private:
  std::vector<AuditFinding> list_;
};

/// What the input and output features of an op's weights are, by the op's name; nothing for others.
std::vector<std::pair<const char*, std::int64_t>> features_of(const std::string& op, std::span<const Tensor> inputs) {
  if (inputs.size() < 2 || !inputs[1].defined()) return {};
  const Shape& w = inputs[1].shape();
  if (op == "conv2d" && w.rank() == 4) return {{"input channels", w.dim(3)}, {"output channels", w.dim(0)}};
  if (op == "linear" && w.rank() == 2) return {{"input features", w.dim(1)}, {"output features", w.dim(0)}};
  // It pads the classes itself.
  if (op == "linear_cross_entropy" && w.rank() == 2) return {{"input features", w.dim(1)}};
  if (op == "matmul" && w.rank() >= 2) return {{"inner size", w.dim(-2)}, {"columns", w.dim(-1)}};
  return {};
}

/// Looks at forward's ops.
class OpAudit final : public OpObserver {
 public:
  OpAudit(Findings& findings, std::int64_t multiple) : findings_(findings), multiple_(multiple) {}

  void after(const OpInfo& info, std::span<const Tensor> inputs, const Tensor& y) override {
    const std::string op = info.name;
    if (op == "cast") {
      casts_.push_back(join_text(inputs[0].dtype(), " to ", y.dtype()));
      return;
    }
    for (const std::string& cast : std::exchange(casts_, {}))
      findings_.add({.kind = "cast",
                     .layer = current_layer(),
                     .op = op,
                     .what = cast + " of an input",
                     .remedy = "give " + op + " the type that it computes in; O2 keeps weights in it"});
    check_sizes(op, inputs);
  }

 private:
  void check_sizes(const std::string& op, std::span<const Tensor> inputs) {
    std::string what, remedy;
    for (const auto& [name, size] : features_of(op, inputs)) {
      if (size % multiple_ == 0) continue;
      what += join_text(what.empty() ? "" : ", ", size, " ", name);
      remedy += join_text(remedy.empty() ? "" : ", ", (size + multiple_ - 1) / multiple_ * multiple_, " ", name);
    }
    if (what.empty()) return;
    findings_.add({.kind = "sizes",
                   .layer = current_layer(),
                   .op = op,
                   .what = join_text(what, ": no multiple of ", multiple_),
                   .remedy = "pad to " + remedy});
  }

  Findings& findings_;
  std::int64_t multiple_;
  std::vector<std::string> casts_;
};

/// "winograd, onednn" of "winograd: the stride is 2; onednn: ...".
std::string names_of(const std::string& reasons) {
  std::string names;
  for (std::size_t begin = 0; begin < reasons.size();) {
    const std::size_t colon = reasons.find(": ", begin), end = std::min(reasons.find("; ", begin), reasons.size());
    if (colon < end) names += (names.empty() ? "" : ", ") + reasons.substr(begin, colon - begin);
    begin = end + 2;
  }
  return names;
}

void add_portable(Findings& findings, const ChoiceLog& log) {
  for (const auto& [run, calls] : log.portable_runs()) {
    const std::string op = run.label.substr(0, run.label.find(':'));
    findings.add({.kind = "portable",
                  .layer = run.layer,
                  .op = run.backward ? op + " (backward)" : op,
                  .what = run.label + " ran: " + run.reasons,
                  .remedy = "change what keeps it from " + names_of(run.reasons),
                  .calls = calls});
  }
}

/// "axes 0, 2, 1 in memory", or how else the elements lie; empty where they are contiguous.
std::string layout_of(const Tensor& x) {
  if (x.is_contiguous()) return "";
  std::vector<int> axes(static_cast<std::size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  const auto stride = [&](int axis) { return x.strides()[static_cast<std::size_t>(axis)]; };
  for (const int axis : axes)
    if (x.dim(axis) > 1 && stride(axis) == 0) return join_text("axis ", axis, " repeated");
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return stride(a) > stride(b); });
  if (std::is_sorted(axes.begin(), axes.end())) return "with gaps";
  std::string order;
  for (const int axis : axes) order += join_text(order.empty() ? "axes " : ", ", axis);
  return order + " in memory";
}

/// What is asked of tensors and of the device besides kernels, within a step. One at a time.
class TensorAudit {
 public:
  /// With `is_there` false reads of values stand for the waits of a device that is not here, and nothing else is told.
  TensorAudit(Findings& findings, const PhaseMeter& phases, bool is_there)
      : findings_(findings), phases_(phases), is_there_(is_there) {
    active = this;
    listen_to_tensors([](TensorEvent event, const Tensor& from, const Tensor& to) { active->add(event, from, to); });
    cuda::listen_to_waits([] { active->add_wait("waits for the device"); });
  }
  ~TensorAudit() {
    listen_to_tensors(nullptr);
    cuda::listen_to_waits(nullptr);
    active = nullptr;
  }
  TensorAudit(const TensorAudit&) = delete;
  TensorAudit& operator=(const TensorAudit&) = delete;

 private:
  void add_wait(const char* what) {
    if (!phases_.phase()) return;
    findings_.add({.kind = "wait",
                   .layer = current_layer(),
                   .op = current_op(),
                   .what = what,
                   .remedy = "compute with tensors; read values after the step, every some steps"});
  }

  void add(TensorEvent event, const Tensor& from, const Tensor& to) {
    if (!phases_.phase()) return;
    // On a CPU the step asks whether loss and gradients are finite, after the backward pass.
    const bool is_models =
        phases_.phase() == Phase::forward || (phases_.phase() == Phase::backward && current_origin().op != nullptr);
    if (event == TensorEvent::read && !is_there_ && is_models) add_wait("the host reads values");
    if (event == TensorEvent::read || !is_there_) return;
    const std::string op = current_op(), taker = current_origin().op == nullptr ? "what is outside of ops" : op;
    // The op itself; see OpAudit.
    if (op == "cast") return;
    AuditFinding finding{.kind = "fill",
                         .layer = current_layer(),
                         .op = op,
                         .what = "fills memory",
                         .remedy = "have " + taker + " write all of it",
                         .share = static_cast<double>(to.byte_size())};
    if (event == TensorEvent::copy) {
      finding.share += static_cast<double>(from.byte_size());
      const std::string layout = layout_of(from), written = layout_of(to);
      finding.kind = from.dtype() != to.dtype() ? "cast" : layout.starts_with("axes") ? "transpose" : "copy";
      finding.what = from.dtype() == to.dtype() ? "copies" : join_text(from.dtype(), " to ", to.dtype(), " of");
      finding.what += layout.empty() ? " an operand" : " an operand, " + layout;
      if (!written.empty()) finding.what += ", to " + written;
      finding.remedy = finding.kind == "cast" ? "give " + taker + " the type that it computes in"
                       : !layout.empty()      ? "give " + taker + " contiguous operands"
                       : from.device().is_cpu() != to.device().is_cpu()
                           ? "keep it on one device"
                           : "take the tensor itself, or write the result where it goes";
    }
    findings_.add(std::move(finding));
  }

  static thread_local TensorAudit* active;
  Findings& findings_;
  const PhaseMeter& phases_;
  bool is_there_;
};
thread_local TensorAudit* TensorAudit::active = nullptr;

void add_launches(Findings& findings, WorkLog& log) {
  for (const AskedWork& work : log.take())
    if (work.phase)
      findings.add({.kind = "launches",
                    .layer = "",
                    .op = name_of(*work.phase),
                    .what = "launches, library calls, copies and fills",
                    .remedy = "let train.graph replay the step as one launch"});
}

/// Of the arithmetic of the step, or of its bytes for ops without any; copies and fills have their bytes.
void set_shares(std::vector<AuditFinding>& findings, const StepOps& step) {
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> of_op;
  for (const StepOp& op : step.ops) {
    auto& [flops, bytes] = of_op[{op.layer, op.name()}];
    flops += op.flops();
    bytes += op.bytes;
  }
  const double flops = step.flops(), bytes = step.bytes();
  for (AuditFinding& finding : findings) {
    if (finding.share > 0) {
      finding.share /= std::max(bytes, finding.share);
      continue;
    }
    const auto sums = of_op.find({finding.layer, finding.op});
    if (sums == of_op.end()) continue;
    const auto& [op_flops, op_bytes] = sums->second;
    finding.share = op_flops > 0 ? op_flops / flops : bytes > 0 ? op_bytes / bytes : 0;
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const AuditFinding& a, const AuditFinding& b) { return a.share > b.share; });
}

}  // namespace

std::int64_t aligned_features(DeviceType device, ComputeType type) {
  // A vector of AVX-512 has 16 values of f32, and sums of low precision are f32.
  if (device == DeviceType::cpu) return 16;
  // Tensor cores take 16 bytes of each row at once.
  return type == ComputeType::f32 ? 1 : type == ComputeType::tf32 ? 4 : 8;
}

std::vector<AuditFinding> audit_of(Session& session, Device wanted) {
  Findings findings;
  const std::int64_t rows = session.task->rows_to_measure();
  session.phases.use(session.device());
  (void)record_step(session, rows, wanted.type, 1);  // makes what later steps have
  // Another device has implementations of its own.
  const bool is_there = wanted.type == session.device().type;
  StepOps step;
  {
    OpAudit audit(findings, aligned_features(wanted.type, session.config().precision.dtype));
    const OpObserverScope observed(audit);
    const TensorAudit tensors(findings, session.phases, is_there);
    const ChoiceLog log;
    WorkLog work(&session.phases);
    step = record_step(session, rows, wanted.type, 1);
    if (is_there) {
      add_portable(findings, log);
      add_launches(findings, work);
    }
  }
  set_shares(findings.list(), step);
  return std::move(findings.list());
}

}  // namespace hearth::train
