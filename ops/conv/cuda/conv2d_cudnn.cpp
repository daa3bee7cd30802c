// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/cuda/conv2d_cudnn.h"

#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/tf32.h"
#include "ops/conv/cuda/conv2d_graph.h"
#include "ops/dispatch/plan_cache.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

enum Operand : std::int64_t { operand_x = 1, operand_w, operand_y, operand_bias };

/// The names that the library has for the parts of one pass.
struct PassNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
};

PassNames names_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case Pass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
  }
}

/// `exact_f32`: only by engines that multiply f32 as f32.
Plan make_plan(const Target& target, const ConvProblem& problem, bool exact_f32, const TimedProblem* timed = nullptr) {
  const ConvShape& s = problem.shape;
  const cudnnDataType_t type = type_of(problem.activations);
  Graph graph;
  const Descriptor& x = graph.stored(operand_x, type, s.n, s.c, s.h, s.w);
  const Descriptor& w = graph.stored(operand_w, type, s.k, s.c / s.groups, s.r, s.s);
  const Descriptor& y = graph.stored(operand_y, type, s.n, s.k, s.p, s.q);
  const Descriptor& options = graph.keep(convolution(s));
  const auto passing_or_y = [&](bool more) -> const Descriptor& {
    return more ? graph.passing(s.n, s.k, s.p, s.q) : y;
  };
  const Descriptor* result = &passing_or_y(problem.bias || problem.relu);
  graph.add(convolution_pass(problem.pass, options, x, w, *result, problem.accumulate), "convolution's pass");
  if (problem.bias) {
    const Descriptor& bias = graph.channels(operand_bias, type, s.k);
    const Descriptor& sum = passing_or_y(problem.relu);
    graph.pointwise(CUDNN_POINTWISE_ADD, *result, &bias, sum);
    result = &sum;
  }
  if (problem.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, *result, nullptr, y);
  Plan plan = graph.plan(target, {.exact_f32 = exact_f32, .repeatable = problem.repeatable}, timed);
  if (problem.pass != Pass::backward_data) plan.bytes -= skipped_bytes(s, problem.activations);
  return plan;
}

using Plans = PlanCache<std::pair<ConvProblem, bool>, Plan>;

// Leaked, like the library.
Plans& all_plans() {
  static Plans& made = *new Plans;
  return made;
}

/// Under the mutex.
const Plan& plan_for(const ConvProblem& problem) {
  const bool exact_f32 = problem.activations == DType::f32 && !allowed_tf32().conv;
  return all_plans().get({problem, exact_f32}, [&] {
    const bool tf32 = problem.activations == DType::f32 && !exact_f32;
    const TimedProblem timed{{DeviceType::cuda, problem.device},
                             join_text(problem, tf32 ? ", TF32" : ""),
                             problem.deterministic,
                             flops_of(problem.shape)};
    return plan_or_reason(problem.device,
                          [&](const Target& target) { return make_plan(target, problem, exact_f32, &timed); });
  });
}

/// Why the problem is unsupported, as far as that needs no plan; or empty.
std::string refused(const ConvProblem& problem) {
  if (problem.activations == DType::f64) return "f64 is left to the portable kernel";
  if (problem.bias && (problem.pass != Pass::forward || problem.bias != problem.activations))
    return "cuDNN adds a bias of the images' type to a forward pass, and nothing else";
  if (problem.pass == Pass::backward_weights && problem.weights != problem.activations)
    return "cuDNN rounds filter gradients to the type of the images";
  const ConvShape& s = problem.shape;
  for (const std::int64_t size : {s.n, s.h, s.w, s.c, s.k, s.r, s.s, s.p, s.q, s.stride_h, s.stride_w, s.pad_h, s.pad_w,
                                  s.dilation_h, s.dilation_w})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size or option of 2^31 or more";
  return "";
}

}  // namespace

Descriptor convolution(const ConvShape& s) {
  Descriptor conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, std::int64_t h, std::int64_t w) {
    const std::array<std::int64_t, 2> values{h, w};
    conv.set(name, CUDNN_TYPE_INT64, std::span<const std::int64_t>(values));
  };
  conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
  set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, s.pad_h, s.pad_w);
  set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, s.pad_h, s.pad_w);
  set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, s.stride_h, s.stride_w);
  set(CUDNN_ATTR_CONVOLUTION_DILATIONS, s.dilation_h, s.dilation_w);
  conv.finalize("convolution");
  return conv;
}

Descriptor convolution_pass(Pass pass, const Descriptor& options, const Descriptor& x, const Descriptor& w,
                            const Descriptor& y, bool accumulate) {
  const PassNames names = names_of(pass);
  Descriptor operation(names.type);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, accumulate ? 1.0f : 0.0f);
  operation.set_descriptor(names.x, x);
  operation.set_descriptor(names.w, w);
  operation.set_descriptor(names.y, y);
  operation.set_descriptor(names.conv, options);
  return operation;
}

std::string unsupported(const ConvProblem& problem) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex());
  return plan_for(problem).info.unsupported;
}

bool try_conv2d(Stream& stream, const ConvProblem& problem, const ConvOperands& operands) {
  if (!why_absent().empty() || !refused(problem).empty()) return false;
  const std::lock_guard lock(library_mutex());
  const Plan& plan = plan_for(problem);
  if (!plan.info.unsupported.empty()) return false;
  std::vector<std::int64_t> ids{operand_x, operand_w, operand_y};
  std::vector<void*> pointers{operands.x, operands.w, operands.y};
  if (problem.bias) {
    ids.push_back(operand_bias);
    pointers.push_back(operands.bias);
  }
  execute(stream, plan, ids, pointers);
  return true;
}

void conv2d(Stream& stream, const ConvProblem& problem, const ConvOperands& operands) {
  if (try_conv2d(stream, problem, operands)) return;
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("conv2d: " + reason);
  throw UsageError("conv2d: " + unsupported(problem));
}

double microseconds(const ConvProblem& problem) {
  if (!why_absent().empty() || !refused(problem).empty()) return 0;
  const std::lock_guard lock(library_mutex());
  return plan_for(problem).info.microseconds;
}

void clear_plans() {
  const std::lock_guard lock(library_mutex());
  all_plans().clear();
}

Probe probe(const ConvProblem& problem, const std::string& device_json) {
  if (!api().file.is_open()) return {api().file.why_absent(), -1, 0};
  if (std::string reason = refused(problem); !reason.empty()) return {std::move(reason), -1, 0};
  const Descriptor description = described_device(device_json);
  return make_plan({nullptr, &description}, problem, problem.activations == DType::f32).info;
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

std::string unsupported(const ConvProblem&) { return why_absent(); }
bool try_conv2d(Stream&, const ConvProblem&, const ConvOperands&) { return false; }
void conv2d(Stream&, const ConvProblem&, const ConvOperands&) { throw DeviceError("conv2d: " + why_absent()); }
double microseconds(const ConvProblem&) { return 0; }
void clear_plans() {}
Probe probe(const ConvProblem&, const std::string&) { return {why_absent(), -1, 0}; }

}  // namespace hearth::cuda::dnn

#endif
