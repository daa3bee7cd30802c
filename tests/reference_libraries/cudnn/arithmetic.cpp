// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cudnn/arithmetic.h"

#include <array>
#include <cmath>
#include <functional>

#include "tests/reference_libraries/cudnn/matrices.h"

namespace hearth::reference_dnn {
namespace {

// Convolutions.

/// The attributes of one pass, by their meaning.
struct PassAttributes {
  Name alpha, beta, conv, x, w, y;
};

PassAttributes attributes_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
  }
}

struct Axis {
  std::int64_t pad, stride, dilation;
};

std::array<Axis, 2> axes_of(const Node& conv) {
  const auto pads = conv.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto strides = conv.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilations = conv.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  return {Axis{pads[0], strides[0], dilations[0]}, {pads[1], strides[1], dilations[1]}};
}

cudnnStatus_t check_pass(const Node& operation) {
  const PassAttributes names = attributes_of(operation.type);
  const Node& conv = operation.node(names.conv);
  const float beta = operation.value<float>(names.beta);
  const bool adds = beta == 1.0f && operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  if (operation.value<float>(names.alpha) != 1.0f || (beta != 0.0f && !adds) ||
      conv.value<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 ||
      conv.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
      conv.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
    return CUDNN_STATUS_NOT_SUPPORTED;
  const Extents x = extents_of(operation, names.x), w = extents_of(operation, names.w),
                y = extents_of(operation, names.y);
  if (x.size() != 4 || w.size() != 4 || y.size() != 4) return CUDNN_STATUS_NOT_SUPPORTED;
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  const auto post = conv.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  const auto axes = axes_of(conv);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t room = x[2 + i] + axes[i].pad + post[i] - axes[i].dilation * (w[2 + i] - 1) - 1;
    if (room < 0 || y[2 + i] != room / axes[i].stride + 1) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  }
  return CUDNN_STATUS_SUCCESS;
}

/// f(index of x, of w, of y) for each product of the sum that the passes share.
template <class F>
void each_product(const Extents& x, const Extents& w, const Extents& y, const std::array<Axis, 2>& axes, F&& f) {
  const std::int64_t filters = w[0] / (x[1] / w[1]);
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t k = 0; k < y[1]; ++k)
      for (std::int64_t p = 0; p < y[2]; ++p)
        for (std::int64_t q = 0; q < y[3]; ++q)
          for (std::int64_t c = 0; c < w[1]; ++c)
            for (std::int64_t r = 0; r < w[2]; ++r)
              for (std::int64_t s = 0; s < w[3]; ++s) {
                const std::int64_t h = p * axes[0].stride - axes[0].pad + r * axes[0].dilation;
                const std::int64_t v = q * axes[1].stride - axes[1].pad + s * axes[1].dilation;
                if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
                const std::int64_t channel = k / filters * w[1] + c;
                f(static_cast<std::size_t>(((n * x[1] + channel) * x[2] + h) * x[3] + v),
                  static_cast<std::size_t>(((k * w[1] + c) * w[2] + r) * w[3] + s),
                  static_cast<std::size_t>(((n * y[1] + k) * y[2] + p) * y[3] + q));
              }
}

void run_pass(const Node& operation, Memory& memory) {
  const PassAttributes names = attributes_of(operation.type);
  const Node &x = operation.node(names.x), &w = operation.node(names.w), &y = operation.node(names.y);
  const bool makes_x = operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const bool makes_w = operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  const bool makes_y = !makes_x && !makes_w, adds = operation.value<float>(names.beta) != 0.0f;
  const auto values = [&](const Node& tensor, bool made) {
    return made && !adds ? Values(static_cast<std::size_t>(facts_of(tensor).size())) : memory.load(tensor);
  };
  Values of_x = values(x, makes_x), of_w = values(w, makes_w), of_y = values(y, makes_y);
  each_product(facts_of(x).extents, facts_of(w).extents, facts_of(y).extents, axes_of(operation.node(names.conv)),
               [&](std::size_t i, std::size_t j, std::size_t k) {
                 if (makes_x) of_x[i] += of_w[j] * of_y[k];
                 if (makes_w) of_w[j] += of_x[i] * of_y[k];
                 if (makes_y) of_y[k] += of_x[i] * of_w[j];
               });
  if (makes_x) memory.store(x, of_x);
  if (makes_w) memory.store(w, of_w);
  if (makes_y) memory.store(y, of_y);
}

// Element by element.

/// What a mode makes of x and b at a position, which for a choice is where `which` is true.
using Function = std::function<double(double x, double b, bool which)>;

Function function_of(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return [](double a, double b, bool) { return a + b; };
    case CUDNN_POINTWISE_SUB:
      return [](double a, double b, bool) { return a - b; };
    case CUDNN_POINTWISE_MUL:
      return [](double a, double b, bool) { return a * b; };
    case CUDNN_POINTWISE_DIV:
      return [](double a, double b, bool) { return a / b; };
    case CUDNN_POINTWISE_RELU_FWD:
      return [](double a, double, bool) { return a < 0 ? 0 : a; };
    case CUDNN_POINTWISE_EXP:
      return [](double a, double, bool) { return std::exp(a); };
    case CUDNN_POINTWISE_LOG:
      return [](double a, double, bool) { return std::log(a); };
    case CUDNN_POINTWISE_CMP_GT:
      return [](double a, double b, bool) { return a > b ? 1.0 : 0.0; };
    case CUDNN_POINTWISE_CMP_GE:
      return [](double a, double b, bool) { return a >= b ? 1.0 : 0.0; };
    case CUDNN_POINTWISE_CMP_LT:
      return [](double a, double b, bool) { return a < b ? 1.0 : 0.0; };
    case CUDNN_POINTWISE_LOGICAL_AND:
      return [](double a, double b, bool) { return a != 0 && b != 0 ? 1.0 : 0.0; };
    case CUDNN_POINTWISE_GEN_INDEX:
      return [](double place, double, bool) { return place; };
    case CUDNN_POINTWISE_BINARY_SELECT:
      return [](double a, double b, bool which) { return which ? a : b; };
    default:
      return nullptr;
  }
}

cudnnPointwiseMode_t mode_of(const Node& operation) {
  return operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
      .value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
}

bool is_unary(cudnnPointwiseMode_t mode) {
  return mode == CUDNN_POINTWISE_RELU_FWD || mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG ||
         mode == CUDNN_POINTWISE_GEN_INDEX;
}

/// Whether a tensor may stand for one of these extents: each of its own is the same, or 1.
bool broadcasts(const Extents& from, const Extents& to) {
  if (from.size() != to.size()) return false;
  for (std::size_t i = 0; i < to.size(); ++i)
    if (from[i] != to[i] && from[i] != 1) return false;
  return true;
}

cudnnStatus_t check_pointwise(const Node& operation) {
  const cudnnPointwiseMode_t mode = mode_of(operation);
  if (!function_of(mode)) return CUDNN_STATUS_NOT_SUPPORTED;
  const bool has_axis = operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).has(CUDNN_ATTR_POINTWISE_AXIS);
  if (operation.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == is_unary(mode) ||
      operation.has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != (mode == CUDNN_POINTWISE_BINARY_SELECT) ||
      has_axis != (mode == CUDNN_POINTWISE_GEN_INDEX))
    return CUDNN_STATUS_BAD_PARAM;
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  if (x.size() != 4 || extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC) != x)
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  const bool fits =
      (is_unary(mode) || broadcasts(extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), x)) &&
      (mode != CUDNN_POINTWISE_BINARY_SELECT || extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) == x);
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
}

/// Where in a row-major tensor of extents `from` the element at `place` of one of extents `to` is read.
std::size_t place_of(std::size_t place, const Extents& to, const Extents& from) {
  std::int64_t rest = static_cast<std::int64_t>(place), at = 0, step = 1;
  for (std::size_t i = to.size(); i-- > 0;) {
    if (from[i] > 1) at += rest % to[i] * step;
    rest /= to[i];
    step *= from[i];
  }
  return static_cast<std::size_t>(at);
}

void run_pointwise(const Node& operation, Memory& memory) {
  const cudnnPointwiseMode_t mode = mode_of(operation);
  const auto function = function_of(mode);
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  Values values = memory.load(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  const auto given = [&](Name name) {
    return operation.has(name) ? std::pair(memory.load(operation.node(name)), extents_of(operation, name))
                               : std::pair(Values{0}, Extents(x.size(), 1));
  };
  const auto [b, extents] = given(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const auto [which, chosen] = given(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) {
    Extents along(x.size(), 1);
    const auto axis = static_cast<std::size_t>(
        operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
    along.at(axis) = x[axis];
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(place_of(i, x, along));
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = function(values[i], b[place_of(i, x, extents)], which[place_of(i, x, chosen)] != 0);
  memory.store(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), values);
}

cudnnStatus_t check_operation(const Node& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return check_pass(operation);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return check_pointwise(operation);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return check_product(operation);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return check_reduction(operation);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return check_reshape(operation);
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

void run_operation(const Node& operation, Memory& memory) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return run_pointwise(operation, memory);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return run_product(operation, memory);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return run_reduction(operation, memory);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return run_reshape(operation, memory);
    default:
      return run_pass(operation, memory);
  }
}

const std::vector<NodePointer>& operations_of(const Node& graph) {
  return graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).nodes;
}

/// f(tensor) for each that an operation of the graph names.
template <class F>
void each_tensor(const Node& graph, F&& f) {
  for (const NodePointer& operation : operations_of(graph))
    for (const auto& [name, attribute] : operation->attributes)
      for (const NodePointer& node : attribute.nodes)
        if (node->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) f(node);
}

}  // namespace

cudnnStatus_t check_graph(const Node& graph) {
  for (const NodePointer& operation : operations_of(graph))
    if (const cudnnStatus_t status = check_operation(*operation); status != CUDNN_STATUS_SUCCESS) return status;
  // A number stands for one tensor.
  std::map<std::int64_t, const Node*> seen;
  bool unique = true;
  each_tensor(graph, [&](const NodePointer& tensor) {
    const auto [at, fresh] = seen.emplace(facts_of(*tensor).id, tensor.get());
    unique = unique && (fresh || at->second == tensor.get());
  });
  return unique ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

std::map<std::int64_t, TensorFacts> stored_tensors(const Node& graph) {
  std::map<std::int64_t, TensorFacts> stored;
  each_tensor(graph, [&](const NodePointer& node) {
    const TensorFacts tensor = facts_of(*node);
    if (!tensor.passing) stored.emplace(tensor.id, tensor);
  });
  return stored;
}

void compute(const Node& graph, const std::map<std::int64_t, void*>& stored) {
  Memory memory(stored);
  for (const NodePointer& operation : operations_of(graph)) run_operation(*operation, memory);
}

}  // namespace hearth::reference_dnn
