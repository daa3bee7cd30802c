// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cuda/dnn_norm.h"

#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "hearth/core/cuda/dnn_graph.h"
#include "hearth/core/error.h"

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
};

struct Key {
  int device;
  BatchNorm problem;
  auto operator<=>(const Key&) const = default;
};

void add_operations(Graph& graph, const BatchNorm& p) {
  const cudnnDataType_t type = type_of(p.dtype);
  const auto channels = [&](Operand id) -> const Descriptor& { return graph.channels(id, CUDNN_DATA_FLOAT, p.c); };
  const Descriptor& x = graph.stored(operand_x, type, p.n, p.c, p.h, p.w);
  const Descriptor& y = graph.stored(operand_y, type, p.n, p.c, p.h, p.w);
  const auto passing_or_y = [&](bool more) -> const Descriptor& {
    return more ? graph.passing(p.n, p.c, p.h, p.w) : y;
  };
  const Descriptor* result = &passing_or_y(p.residual || p.relu);
  Descriptor norm(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
  norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
  norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING);
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, channels(operand_gamma));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, channels(operand_beta));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.number(operand_eps));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, channels(operand_mean));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, channels(operand_inv_std));
  norm.set_descriptor(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, *result);
  graph.add(std::move(norm), "batch normalisation");
  if (p.residual) {
    const Descriptor& residual = graph.stored(operand_residual, type, p.n, p.c, p.h, p.w);
    const Descriptor& sum = passing_or_y(p.relu);
    graph.pointwise(CUDNN_POINTWISE_ADD, *result, &residual, sum);
    result = &sum;
  }
  if (p.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, *result, nullptr, y);
}

/// Under the mutex. Leaked, like the library.
const Plan& plan_for(const Key& key) {
  static std::map<Key, Plan>& plans = *new std::map<Key, Plan>;
  auto found = plans.find(key);
  if (found == plans.end()) {
    const Target target{handle_of(key.device), nullptr};
    const bool exact_f32 = key.problem.dtype == DType::f32;
    found = plans.emplace(key, plan_or_reason([&] { return graph_of(key.problem).plan(target, exact_f32); })).first;
  }
  return found->second;
}

/// What needs no plan to be declined; or empty.
std::string refused(const BatchNorm& p) {
  if (p.dtype == DType::f64) return "f64 is left to the own kernel";
  const std::int64_t unit = p.dtype == DType::f32 ? 4 : 8;
  if (p.c % unit != 0) return "channels are not a multiple of " + std::to_string(unit);
  for (const std::int64_t size : {p.n, p.h, p.w, p.c})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size of 2^31 or more";
  return "";
}

}  // namespace

Graph graph_of(const BatchNorm& problem) {
  Graph graph;
  add_operations(graph, problem);
  return graph;
}

std::string declines(Device device, const BatchNorm& problem) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex());
  return plan_for({device.index, problem}).info.declines;
}

void batch_norm(Stream& stream, const BatchNorm& problem, const BatchNormForward& m) {
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("batch_norm: " + reason);
  if (const std::string reason = refused(problem); !reason.empty()) throw UsageError("batch_norm: " + reason);
  HEARTH_CHECK(UsageError, problem.residual == (m.residual != nullptr), "batch_norm: the plan ",
               problem.residual ? "has" : "has no", " residual");
  const std::lock_guard lock(library_mutex());
  const Plan& plan = plan_for({stream.device().index, problem});
  HEARTH_CHECK(UsageError, plan.info.declines.empty(), "batch_norm: ", plan.info.declines);
  float eps = m.eps;
  std::vector<std::int64_t> ids{operand_x,    operand_gamma,   operand_beta, operand_y,
                                operand_mean, operand_inv_std, operand_eps};
  std::vector<void*> pointers{m.x, m.gamma, m.beta, m.y, m.mean, m.inv_std, &eps};
  if (problem.residual) {
    ids.push_back(operand_residual);
    pointers.push_back(m.residual);
  }
  execute(stream, plan, ids, pointers);
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

std::string declines(Device, const BatchNorm&) { return why_absent(); }
void batch_norm(Stream&, const BatchNorm&, const BatchNormForward&) {
  throw DeviceError("batch_norm: " + why_absent());
}

}  // namespace hearth::cuda::dnn

#endif
