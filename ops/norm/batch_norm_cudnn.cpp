// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/batch_norm_cudnn.h"

#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "ops/norm/batch_norm_graph.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

enum Operand : std::int64_t {
  operand_x = 1,
  operand_y,
  operand_residual,
  operand_gamma,
  operand_beta,
  operand_mean,
  operand_inv_std,
  operand_eps,
  operand_bits,
  operand_zero,
  operand_dy,
  operand_g,
  operand_dx,
  operand_d_gamma,
  operand_d_beta,
};

/// The tensors of a problem.
template <class Problem>
class Parts {
 public:
  Parts(Graph& graph, const Problem& problem) : graph_(graph), p_(problem) {}
  const Descriptor& images(Operand id) { return graph_.stored(id, type_of(p_.dtype), p_.n, p_.c, p_.h, p_.w); }
  const Descriptor& bits() { return graph_.stored(operand_bits, CUDNN_DATA_BOOLEAN, p_.n, p_.c, p_.h, p_.w); }
  const Descriptor& channels(Operand id) { return graph_.channels(id, CUDNN_DATA_FLOAT, p_.c); }
  const Descriptor& passing() { return graph_.passing(p_.n, p_.c, p_.h, p_.w); }

 private:
  Graph& graph_;
  const Problem& p_;
};

void add_operations(Graph& graph, const BatchNorm& p) {
  Parts parts(graph, p);
  const Descriptor& x = parts.images(operand_x);
  const Descriptor& y = parts.images(operand_y);
  const auto passing_or_y = [&](bool more) -> const Descriptor& { return more ? parts.passing() : y; };
  const Descriptor* result = &passing_or_y(p.residual || p.relu);
  Descriptor norm(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
  norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
  norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING);
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, parts.channels(operand_gamma));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, parts.channels(operand_beta));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.number(operand_eps));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, parts.channels(operand_mean));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, parts.channels(operand_inv_std));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, *result);
  graph.add(std::move(norm), "batch normalisation");
  if (p.residual) {
    const Descriptor& residual = parts.images(operand_residual);
    const Descriptor& sum = passing_or_y(p.relu);
    graph.pointwise(CUDNN_POINTWISE_ADD, *result, &residual, sum);
    result = &sum;
  }
  if (p.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, *result, nullptr, y);
  if (p.bits) graph.pointwise(CUDNN_POINTWISE_CMP_GT, y, &graph.number(operand_zero), parts.bits());
}

void add_operations(Graph& graph, const BatchNormGrad& p) {
  Parts parts(graph, p);
  const Descriptor* g = &parts.images(operand_dy);
  if (p.relu) {
    const Descriptor& open = parts.images(operand_g);
    graph.pointwise(CUDNN_POINTWISE_MUL, *g, &parts.bits(), open);
    g = &open;
  }
  Descriptor norm(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, parts.images(operand_x));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, *g);
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, parts.channels(operand_gamma));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, parts.channels(operand_mean));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, parts.channels(operand_inv_std));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, parts.channels(operand_d_gamma));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, parts.channels(operand_d_beta));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, parts.images(operand_dx));
  graph.add(std::move(norm), "gradient of batch normalisation");
}

/// Under the mutex. Leaked, like the library.
template <class Problem>
const Plan& plan_for(int device, const Problem& problem) {
  static auto& plans = *new std::map<std::pair<int, Problem>, Plan>;
  auto found = plans.find({device, problem});
  if (found == plans.end()) {
    const Target target{handle_of(device), nullptr};
    const bool exact_f32 = problem.dtype == DType::f32;
    Plan plan = plan_or_reason([&] { return graph_of(problem).plan(target, exact_f32); });
    found = plans.emplace(std::pair(device, problem), std::move(plan)).first;
  }
  return found->second;
}

bool has_bits(const BatchNorm& problem) { return problem.bits; }
bool has_bits(const BatchNormGrad& problem) { return problem.relu; }

/// What needs no plan to be declined; or empty.
template <class Problem>
std::string refused(const Problem& p) {
  if (p.dtype == DType::f64) return "f64 is left to the own kernel";
  // The bits of a pixel are whole bytes, too.
  const std::int64_t unit = p.dtype == DType::f32 && !has_bits(p) ? 4 : 8;
  if (p.c % unit != 0) return "channels are not a multiple of " + std::to_string(unit);
  for (const std::int64_t size : {p.n, p.h, p.w, p.c})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size of 2^31 or more";
  return "";
}

template <class Problem>
std::string reason_against(Device device, const Problem& problem) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex());
  return plan_for(device.index, problem).info.declines;
}

/// The tensors of a plan and where they are; absent ones are left out.
class Memory {
 public:
  void give(Operand id, void* memory) {
    if (memory == nullptr) return;
    ids_.push_back(id);
    pointers_.push_back(memory);
  }
  template <class Problem>
  void run(Stream& stream, const Problem& problem) const {
    if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("batch_norm: " + reason);
    if (const std::string reason = refused(problem); !reason.empty()) throw UsageError("batch_norm: " + reason);
    const std::lock_guard lock(library_mutex());
    const Plan& plan = plan_for(stream.device().index, problem);
    HEARTH_CHECK(UsageError, plan.info.declines.empty(), "batch_norm: ", plan.info.declines);
    execute(stream, plan, ids_, pointers_);
  }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<void*> pointers_;
};

void check_given(bool in_plan, const void* memory, const char* what) {
  HEARTH_CHECK(UsageError, in_plan == (memory != nullptr), "batch_norm: the plan has ", in_plan ? "" : "no ", what,
               ", but there is ", in_plan ? "none" : "one");
}

}  // namespace

Graph graph_of(const BatchNorm& problem) {
  Graph graph;
  add_operations(graph, problem);
  return graph;
}

Graph graph_of(const BatchNormGrad& problem) {
  Graph graph;
  add_operations(graph, problem);
  return graph;
}

std::string declines(Device device, const BatchNorm& problem) { return reason_against(device, problem); }
std::string declines(Device device, const BatchNormGrad& problem) { return reason_against(device, problem); }

void batch_norm(Stream& stream, const BatchNorm& problem, const BatchNormForward& m) {
  check_given(problem.residual, m.residual, "residual");
  check_given(problem.bits, m.bits, "memory for the ReLU's bits");
  float eps = m.eps, zero = 0;
  Memory memory;
  memory.give(operand_x, m.x);
  memory.give(operand_gamma, m.gamma);
  memory.give(operand_beta, m.beta);
  memory.give(operand_residual, m.residual);
  memory.give(operand_y, m.y);
  memory.give(operand_mean, m.mean);
  memory.give(operand_inv_std, m.inv_std);
  memory.give(operand_eps, &eps);
  memory.give(operand_bits, m.bits);
  if (problem.bits) memory.give(operand_zero, &zero);
  memory.run(stream, problem);
}

void batch_norm_grad(Stream& stream, const BatchNormGrad& problem, const BatchNormBackward& m) {
  check_given(problem.relu, m.bits, "ReLU's bits");
  check_given(problem.relu, m.g, "memory for dy behind the ReLU");
  Memory memory;
  memory.give(operand_x, m.x);
  memory.give(operand_dy, m.dy);
  memory.give(operand_bits, m.bits);
  memory.give(operand_gamma, m.gamma);
  memory.give(operand_mean, m.mean);
  memory.give(operand_inv_std, m.inv_std);
  memory.give(operand_g, m.g);
  memory.give(operand_dx, m.dx);
  memory.give(operand_d_gamma, m.d_gamma);
  memory.give(operand_d_beta, m.d_beta);
  memory.run(stream, problem);
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

std::string declines(Device, const BatchNorm&) { return why_absent(); }
std::string declines(Device, const BatchNormGrad&) { return why_absent(); }
void batch_norm(Stream&, const BatchNorm&, const BatchNormForward&) {
  throw DeviceError("batch_norm: " + why_absent());
}
void batch_norm_grad(Stream&, const BatchNormGrad&, const BatchNormBackward&) {
  throw DeviceError("batch_norm: " + why_absent());
}

}  // namespace hearth::cuda::dnn

#endif
