// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/conv2d_cudnn.h"

#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/tf32.h"
#include "ops/conv/conv2d_graph.h"

#if __has_include(<cudnn.h>)

namespace hearth::cuda::dnn {
namespace {

enum Operand : std::int64_t { operand_x = 1, operand_w, operand_y, operand_bias, operand_sum, operand_squares };

struct Key {
  int device;
  ConvProblem problem;
  Pass pass;
  Epilogue epilogue;
  /// Only engines that multiply f32 as f32.
  bool exact_f32;
  auto operator<=>(const Key&) const = default;
};

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

Plan make_plan(const Target& target, const Key& key) {
  const ConvShape& s = key.problem.shape;
  const Epilogue& e = key.epilogue;
  const cudnnDataType_t type = type_of(key.problem.activations);
  Graph graph;
  const Descriptor& x = graph.stored(operand_x, type, s.n, s.c, s.h, s.w);
  const Descriptor& w = graph.stored(operand_w, type, s.k, s.c / s.groups, s.r, s.s);
  const Descriptor& y = graph.stored(operand_y, type, s.n, s.k, s.p, s.q);
  const Descriptor& options = graph.keep(convolution(s));
  const auto passing_or_y = [&](bool more) -> const Descriptor& {
    return more ? graph.passing(s.n, s.k, s.p, s.q) : y;
  };
  const Descriptor* result = &passing_or_y(e.bias || e.relu);
  graph.add(convolution_pass(key.pass, options, x, w, *result), "convolution's pass");
  if (e.bias) {
    const Descriptor& bias = graph.channels(operand_bias, type, s.k);
    const Descriptor& sum = passing_or_y(e.relu);
    graph.pointwise(CUDNN_POINTWISE_ADD, *result, &bias, sum);
    result = &sum;
  }
  if (e.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, *result, nullptr, y);
  if (e.sums)
    graph.channel_sums(y, graph.channels(operand_sum, CUDNN_DATA_FLOAT, s.k),
                       graph.channels(operand_squares, CUDNN_DATA_FLOAT, s.k));
  return graph.plan(target, key.exact_f32);
}

/// Under the mutex. Leaked, like the library.
const Plan& plan_for(const Key& key) {
  static std::map<Key, Plan>& plans = *new std::map<Key, Plan>;
  auto found = plans.find(key);
  if (found == plans.end()) {
    const Target target{handle_of(key.device), nullptr};
    found = plans.emplace(key, plan_or_reason([&] { return make_plan(target, key); })).first;
  }
  return found->second;
}

Key key_of(Device device, const ConvProblem& problem, Pass pass, const Epilogue& epilogue) {
  return {device.index, problem, pass, epilogue, problem.activations == DType::f32 && !allows_tf32()};
}

/// What needs no plan to be declined; or empty.
std::string refused(const ConvProblem& problem, Pass pass, const Epilogue& epilogue) {
  if (epilogue != Epilogue{} && pass != Pass::forward) return "only a forward pass has an epilogue";
  if (problem.activations == DType::f64) return "f64 is left to the own kernel";
  if (pass == Pass::backward_weights && problem.weights != problem.activations)
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
                            const Descriptor& y) {
  const PassNames names = names_of(pass);
  Descriptor operation(names.type);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0f);
  operation.set_descriptor(names.x, x);
  operation.set_descriptor(names.w, w);
  operation.set_descriptor(names.y, y);
  operation.set_descriptor(names.conv, options);
  return operation;
}

std::string declines(Device device, const ConvProblem& problem, Pass pass, const Epilogue& epilogue) {
  if (std::string reason = why_absent(); !reason.empty()) return reason;
  if (std::string reason = refused(problem, pass, epilogue); !reason.empty()) return reason;
  const std::lock_guard lock(library_mutex());
  return plan_for(key_of(device, problem, pass, epilogue)).info.declines;
}

bool try_conv2d(Stream& stream, const ConvProblem& problem, Pass pass, const Epilogue& epilogue,
                const ConvOperands& operands) {
  if (!why_absent().empty() || !refused(problem, pass, epilogue).empty()) return false;
  const std::lock_guard lock(library_mutex());
  const Plan& plan = plan_for(key_of(stream.device(), problem, pass, epilogue));
  if (!plan.info.declines.empty()) return false;
  std::vector<std::int64_t> ids{operand_x, operand_w, operand_y};
  std::vector<void*> pointers{operands.x, operands.w, operands.y};
  const auto give = [&](Operand id, void* memory) {
    ids.push_back(id);
    pointers.push_back(memory);
  };
  if (epilogue.bias) give(operand_bias, operands.bias);
  if (epilogue.sums) {
    give(operand_sum, operands.sum);
    give(operand_squares, operands.squares);
  }
  execute(stream, plan, ids, pointers);
  return true;
}

void conv2d(Stream& stream, const ConvProblem& problem, Pass pass, const Epilogue& epilogue,
            const ConvOperands& operands) {
  if (try_conv2d(stream, problem, pass, epilogue, operands)) return;
  if (const std::string reason = why_absent(); !reason.empty()) throw DeviceError("conv2d: " + reason);
  throw UsageError("conv2d: " + declines(stream.device(), problem, pass, epilogue));
}

Probe probe(const ConvProblem& problem, Pass pass, const std::string& device_json, const Epilogue& epilogue) {
  if (!api().file.is_open()) return {api().file.why_absent(), -1, 0};
  if (std::string reason = refused(problem, pass, epilogue); !reason.empty()) return {std::move(reason), -1, 0};
  const Descriptor description = described_device(device_json);
  return make_plan({nullptr, &description}, {0, problem, pass, epilogue, problem.activations == DType::f32}).info;
}

}  // namespace hearth::cuda::dnn

#else

namespace hearth::cuda::dnn {

std::string declines(Device, const ConvProblem&, Pass, const Epilogue&) { return why_absent(); }
bool try_conv2d(Stream&, const ConvProblem&, Pass, const Epilogue&, const ConvOperands&) { return false; }
void conv2d(Stream&, const ConvProblem&, Pass, const Epilogue&, const ConvOperands&) {
  throw DeviceError("conv2d: " + why_absent());
}
Probe probe(const ConvProblem&, Pass, const std::string&, const Epilogue&) { return {why_absent(), -1, 0}; }

}  // namespace hearth::cuda::dnn

#endif
