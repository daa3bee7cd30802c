// SPDX-License-Identifier: Apache-2.0
#include "train/plan/audit.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "autograd/op_observer.h"
#include "autograd/record.h"
#include "core/error.h"
#include "core/origin.h"
#include "core/text_stream.h"
#include "ops/dispatch/candidates.h"
#include "train/plan/step_ops.h"
#include "train/profile/work_log.h"

namespace hearth::train {
namespace {

std::string current_layer() {
  const char* const layer = current_origin().layer;
  return layer == nullptr ? "" : layer;
}

auto key_of(const AuditFinding& finding) { return std::tie(finding.kind, finding.layer, finding.op, finding.what); }

/// Equal findings are one, with as many calls.
class Findings {
 public:
  void add(AuditFinding finding) {
    const auto same = std::find_if(list_.begin(), list_.end(),
                                   [&](const AuditFinding& other) { return key_of(other) == key_of(finding); });
    if (same == list_.end())
      list_.push_back(std::move(finding));
    else
      same->calls += finding.calls;
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
  if ((op == "linear" || op == "linear_cross_entropy") && w.rank() == 2)
    return {{"input features", w.dim(1)}, {"output features", w.dim(0)}};
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
    if ((op == "transpose" || op == "permute") && !inputs.empty() && !inputs[0].same_storage(y))
      findings_.add({.kind = "transpose",
                     .layer = current_layer(),
                     .op = op,
                     .what = "copies its input in another order",
                     .remedy = "keep NHWC, and heads as the op takes them"});
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

void add_work(Findings& findings, WorkLog& log) {
  for (const AskedWork& work : log.take()) {
    if (work.name != "copy" && work.name != "fill") continue;
    const std::string op = work.origin.op == nullptr ? "no op" : work.origin.op;
    findings.add({.kind = work.name,
                  .layer = work.origin.layer == nullptr ? "" : work.origin.layer,
                  .op = work.origin.backward ? op + " (backward)" : op,
                  .what = work.name == "copy" ? "copies an operand" : "fills memory",
                  .remedy = work.name == "copy" ? "give the op contiguous operands" : "have the op write all of it"});
  }
}

/// Of the arithmetic of the step, or of its bytes for ops without any.
void set_shares(std::vector<AuditFinding>& findings, const StepOps& step) {
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> of_op;
  for (const StepOp& op : step.ops) {
    auto& [flops, bytes] = of_op[{op.layer, op.name()}];
    flops += op.flops();
    bytes += op.bytes;
  }
  const double flops = step.flops(), bytes = step.bytes();
  for (AuditFinding& finding : findings) {
    const auto found = of_op.find({finding.layer, finding.op});
    if (found == of_op.end()) continue;
    const auto& [own_flops, own_bytes] = found->second;
    finding.share = own_flops > 0 ? own_flops / flops : bytes > 0 ? own_bytes / bytes : 0;
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
  (void)record_step(session, rows, wanted.type, 1);  // makes what later steps have
  StepOps step;
  {
    OpAudit audit(findings, aligned_features(wanted.type, session.config().precision.dtype));
    const OpObserverScope observed(audit);
    const ChoiceLog log;
    WorkLog work;
    step = record_step(session, rows, wanted.type, 1);
    // Another device has implementations of its own.
    if (wanted.type == session.device().type) {
      add_portable(findings, log);
      add_work(findings, work);
    }
  }
  set_shares(findings.list(), step);
  return std::move(findings.list());
}

Json to_json(const std::vector<AuditFinding>& findings) {
  Json list = Json::array();
  for (const AuditFinding& finding : findings)
    list.push_back(Json::object()
                       .set("kind", finding.kind)
                       .set("layer", finding.layer)
                       .set("op", finding.op)
                       .set("what", finding.what)
                       .set("remedy", finding.remedy)
                       .set("calls", finding.calls)
                       .set("share", finding.share));
  return list;
}

std::vector<AuditFinding> findings_of(const Json& node) {
  std::vector<AuditFinding> findings;
  for (const Json& item : node.items()) {
    AuditFinding finding{.kind = item.at("kind").as_string(),
                         .layer = item.at("layer").as_string(),
                         .op = item.at("op").as_string(),
                         .what = item.at("what").as_string(),
                         .remedy = ""};
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::string to_text(const std::vector<AuditFinding>& findings) {
  if (findings.empty()) return "nothing found\n";
  // What several layers have in common is one line.
  std::vector<std::pair<AuditFinding, std::vector<std::string>>> lines;
  for (const AuditFinding& finding : findings) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.first.kind == finding.kind && line.first.op == finding.op && line.first.what == finding.what;
    });
    const bool is_first = same == lines.end();
    auto& [line, layers] = is_first ? lines.emplace_back(finding, std::vector<std::string>()) : *same;
    layers.push_back(finding.layer.empty() ? "no layer" : finding.layer);
    if (is_first) continue;
    line.calls += finding.calls;
    line.share += finding.share;
  }
  TextStream out;
  for (const auto& [line, layers] : lines) {
    out << std::left << std::setw(10) << line.kind << line.op << ": " << line.what << "\n          in "
        << layers.front();
    if (layers.size() > 1) out << " and " << layers.size() - 1 << " more";
    out << ", " << line.calls << (line.calls == 1 ? " call, " : " calls, ") << std::fixed << std::setprecision(1)
        << 100 * line.share << " % of the step\n          -> " << line.remedy << "\n";
  }
  return out.str();
}

std::vector<AuditFinding> unexpected(const std::vector<AuditFinding>& found,
                                     const std::vector<AuditFinding>& expected) {
  std::vector<AuditFinding> rest;
  for (const AuditFinding& finding : found)
    if (std::none_of(expected.begin(), expected.end(),
                     [&](const AuditFinding& other) { return key_of(other) == key_of(finding); }))
      rest.push_back(finding);
  return rest;
}

}  // namespace hearth::train
