// SPDX-License-Identifier: Apache-2.0
#include "support/reference_cudnn/arithmetic.h"

#include <array>
#include <cmath>
#include <functional>

#include "hearth/core/half.h"

namespace hearth::reference_dnn {
namespace {

using Name = cudnnBackendAttributeName_t;
using Values = std::vector<double>;

/// Bits of a boolean tensor fill each byte from its highest, unlike Hearth's own masks.
constexpr int bit_of(std::int64_t element) { return 7 - static_cast<int>(element % 8); }

double read(cudnnDataType_t type, const void* data, std::int64_t at) {
  switch (type) {
    case CUDNN_DATA_HALF:
      return static_cast<double>(static_cast<float>(static_cast<const f16*>(data)[at]));
    case CUDNN_DATA_BFLOAT16:
      return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[at]));
    case CUDNN_DATA_BOOLEAN:
      return static_cast<const unsigned char*>(data)[at / 8] >> bit_of(at) & 1;
    default:
      return static_cast<double>(static_cast<const float*>(data)[at]);
  }
}

void write(cudnnDataType_t type, void* data, std::int64_t at, double value) {
  switch (type) {
    case CUDNN_DATA_HALF:
      static_cast<f16*>(data)[at] = f16(static_cast<float>(value));
      break;
    case CUDNN_DATA_BFLOAT16:
      static_cast<bf16*>(data)[at] = bf16(static_cast<float>(value));
      break;
    case CUDNN_DATA_BOOLEAN: {
      unsigned char& byte = static_cast<unsigned char*>(data)[at / 8];
      const unsigned bit = 1u << bit_of(at);
      byte = static_cast<unsigned char>(value != 0 ? byte | bit : byte & ~bit);
      break;
    }
    default:
      static_cast<float*>(data)[at] = static_cast<float>(value);
  }
}

/// f(position in row-major order, element of memory) for each element of a tensor of rank 4.
template <class F>
void each_element(const TensorFacts& tensor, F&& f) {
  std::int64_t position = 0;
  for (std::int64_t n = 0; n < tensor.extents[0]; ++n)
    for (std::int64_t c = 0; c < tensor.extents[1]; ++c)
      for (std::int64_t h = 0; h < tensor.extents[2]; ++h)
        for (std::int64_t w = 0; w < tensor.extents[3]; ++w)
          f(position++, n * tensor.strides[0] + c * tensor.strides[1] + h * tensor.strides[2] + w * tensor.strides[3]);
}

/// The tensors while a graph is computed. Those between operations have room here.
class Memory {
 public:
  explicit Memory(const std::map<std::int64_t, void*>& stored) : stored_(stored) {}

  /// In row-major order of the extents.
  Values load(const Node& node) {
    const TensorFacts tensor = facts_of(node);
    const void* const data = address(tensor);
    Values values(static_cast<std::size_t>(tensor.size()));
    each_element(tensor, [&](std::int64_t position, std::int64_t at) {
      values[static_cast<std::size_t>(position)] = read(tensor.type, data, at);
    });
    return values;
  }
  void store(const Node& node, const Values& values) {
    const TensorFacts tensor = facts_of(node);
    void* const data = address(tensor);
    each_element(tensor, [&](std::int64_t position, std::int64_t at) {
      write(tensor.type, data, at, values[static_cast<std::size_t>(position)]);
    });
  }

 private:
  void* address(const TensorFacts& tensor) {
    if (!tensor.passing) return stored_.at(tensor.id);
    std::vector<std::byte>& room = passing_[tensor.id];
    room.resize(tensor.bytes());
    return room.data();
  }

  const std::map<std::int64_t, void*>& stored_;
  std::map<std::int64_t, std::vector<std::byte>> passing_;
};

using Extents = std::vector<std::int64_t>;
Extents extents_of(const Node& operation, Name tensor) { return facts_of(operation.node(tensor)).extents; }
bool is_per_channel(const Extents& extents, std::int64_t channels) { return extents == Extents{1, channels, 1, 1}; }

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
  if (operation.value<float>(names.alpha) != 1.0f || operation.value<float>(names.beta) != 0.0f ||
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
  const bool makes_y = !makes_x && !makes_w;
  const auto values = [&](const Node& tensor, bool made) {
    return made ? Values(static_cast<std::size_t>(facts_of(tensor).size())) : memory.load(tensor);
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

std::function<double(double, double)> function_of(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return [](double a, double b) { return a + b; };
    case CUDNN_POINTWISE_MUL:
      return [](double a, double b) { return a * b; };
    case CUDNN_POINTWISE_RELU_FWD:
      return [](double a, double) { return a < 0 ? 0 : a; };
    case CUDNN_POINTWISE_CMP_GT:
      return [](double a, double b) { return a > b ? 1.0 : 0.0; };
    default:
      return nullptr;
  }
}

cudnnPointwiseMode_t mode_of(const Node& operation) {
  return operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
      .value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
}

cudnnStatus_t check_pointwise(const Node& operation) {
  const cudnnPointwiseMode_t mode = mode_of(operation);
  if (!function_of(mode)) return CUDNN_STATUS_NOT_SUPPORTED;
  const bool binary = operation.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  if (binary == (mode == CUDNN_POINTWISE_RELU_FWD)) return CUDNN_STATUS_BAD_PARAM;
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  if (x.size() != 4 || extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC) != x)
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (!binary) return CUDNN_STATUS_SUCCESS;
  const Extents b = extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const bool fits = b == x || is_per_channel(b, x[1]) || is_per_channel(b, 1);
  return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
}

void run_pointwise(const Node& operation, Memory& memory) {
  const auto function = function_of(mode_of(operation));
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  Values values = memory.load(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  const Values others = operation.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)
                            ? memory.load(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
                            : Values{0};
  const auto pixels = static_cast<std::size_t>(x[2] * x[3]), channels = static_cast<std::size_t>(x[1]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = others.size() == 1 ? 0 : others.size() == values.size() ? i : i / pixels % channels;
    values[i] = function(values[i], others[at]);
  }
  memory.store(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), values);
}

// Sums by channel.

/// sum of f(i) over the elements i of each channel.
template <class F>
Values by_channel(const Extents& x, F&& f) {
  Values sums(static_cast<std::size_t>(x[1]));
  const auto pixels = static_cast<std::size_t>(x[2] * x[3]);
  for (std::size_t i = 0; i < static_cast<std::size_t>(x[0] * x[1]) * pixels; ++i) {
    const std::size_t c = i / pixels % sums.size();
    sums[c] += f(i, c);
  }
  return sums;
}

cudnnStatus_t check_channels(const Node& operation, Name x, std::initializer_list<Name> tables) {
  const Extents extents = extents_of(operation, x);
  if (extents.size() != 4) return CUDNN_STATUS_NOT_SUPPORTED;
  for (const Name table : tables) {
    if (!is_per_channel(extents_of(operation, table), extents[1])) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    if (facts_of(operation.node(table)).type != CUDNN_DATA_FLOAT) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

void run_sums(const Node& operation, Memory& memory) {
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC);
  const Values values = memory.load(operation.node(CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
  memory.store(operation.node(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
               by_channel(x, [&](std::size_t i, std::size_t) { return values[i]; }));
  memory.store(operation.node(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC),
               by_channel(x, [&](std::size_t i, std::size_t) { return values[i] * values[i]; }));
}

// Batch normalisation.

cudnnStatus_t check_norm(const Node& operation) {
  if (operation.value<cudnnBackendNormMode_t>(CUDNN_ATTR_OPERATION_NORM_FWD_MODE) != CUDNN_BATCH_NORM ||
      operation.value<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) != CUDNN_NORM_FWD_TRAINING)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (extents_of(operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC) !=
      extents_of(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC))
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (!facts_of(operation.node(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC)).by_value) return CUDNN_STATUS_BAD_PARAM;
  return check_channels(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
                        {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
                         CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC});
}

void run_norm(const Node& operation, Memory& memory) {
  const auto tensor = [&](Name name) { return memory.load(operation.node(name)); };
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
  const double count = static_cast<double>(x[0] * x[2] * x[3]);
  Values values = tensor(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
  const Values scale = tensor(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC),
               bias = tensor(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
  const double epsilon = tensor(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC)[0];
  Values mean = by_channel(x, [&](std::size_t i, std::size_t) { return values[i] / count; });
  Values inverse =
      by_channel(x, [&](std::size_t i, std::size_t c) { return std::pow(values[i] - mean[c], 2) / count; });
  for (double& value : inverse) value = 1 / std::sqrt(value + epsilon);
  by_channel(x, [&](std::size_t i, std::size_t c) {
    values[i] = (values[i] - mean[c]) * inverse[c] * scale[c] + bias[c];
    return 0.0;
  });
  memory.store(operation.node(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC), values);
  memory.store(operation.node(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC), mean);
  memory.store(operation.node(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC), inverse);
}

cudnnStatus_t check_norm_grad(const Node& operation) {
  if (operation.value<cudnnBackendNormMode_t>(CUDNN_ATTR_OPERATION_NORM_BWD_MODE) != CUDNN_BATCH_NORM)
    return CUDNN_STATUS_NOT_SUPPORTED;
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
  if (extents_of(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC) != x ||
      extents_of(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC) != x)
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  return check_channels(operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
                        {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
                         CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                         CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC});
}

// Ioffe and Szegedy (2015), section 3.
void run_norm_grad(const Node& operation, Memory& memory) {
  const auto tensor = [&](Name name) { return memory.load(operation.node(name)); };
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
  const double count = static_cast<double>(x[0] * x[2] * x[3]);
  Values values = tensor(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
  const Values slope = tensor(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC),
               scale = tensor(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC),
               mean = tensor(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC),
               inverse = tensor(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
  const Values d_bias = by_channel(x, [&](std::size_t i, std::size_t) { return slope[i]; });
  const Values d_scale =
      by_channel(x, [&](std::size_t i, std::size_t c) { return slope[i] * (values[i] - mean[c]) * inverse[c]; });
  by_channel(x, [&](std::size_t i, std::size_t c) {
    const double normal = (values[i] - mean[c]) * inverse[c];
    values[i] = scale[c] * inverse[c] * (slope[i] - d_bias[c] / count - normal * d_scale[c] / count);
    return 0.0;
  });
  memory.store(operation.node(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC), values);
  memory.store(operation.node(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC), d_scale);
  memory.store(operation.node(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC), d_bias);
}

cudnnStatus_t check_operation(const Node& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return check_pass(operation);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return check_pointwise(operation);
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
      return check_channels(operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC,
                            {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC});
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
      return check_norm(operation);
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
      return check_norm_grad(operation);
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

void run_operation(const Node& operation, Memory& memory) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return run_pointwise(operation, memory);
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
      return run_sums(operation, memory);
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
      return run_norm(operation, memory);
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
      return run_norm_grad(operation, memory);
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
