// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cudnn/descriptors.h"

#include <algorithm>
#include <stdexcept>

namespace hearth::reference_dnn {
namespace {

using Type = cudnnBackendDescriptorType_t;

/// An attribute as the header documents it.
struct Documented {
  cudnnBackendAttributeName_t name;
  Type owner;
  cudnnBackendAttributeType_t kind;
  std::int64_t most;      ///< values
  bool required = false;  ///< before the descriptor is finalized
  Type points_to = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr std::int64_t many = 64;

const std::vector<Documented>& documented() {
  static const std::vector<Documented> all = [] {
    const auto tensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR, conv = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
               pointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR, graph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
               heuristic = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, plan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
               pack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, each = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
               product = CUDNN_BACKEND_MATMUL_DESCRIPTOR, multiply = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
               reduction = CUDNN_BACKEND_REDUCTION_DESCRIPTOR, reduce = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
               reshape = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
    const auto descriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    std::vector<Documented> list{
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor, CUDNN_TYPE_INT64, 1, true},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, tensor, CUDNN_TYPE_DATA_TYPE, 1, true},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, tensor, CUDNN_TYPE_INT64, 1, true},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, tensor, CUDNN_TYPE_INT64, 8, true},
        {CUDNN_ATTR_TENSOR_STRIDES, tensor, CUDNN_TYPE_INT64, 8, true},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, tensor, CUDNN_TYPE_BOOLEAN, 1},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, tensor, CUDNN_TYPE_BOOLEAN, 1},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, conv, CUDNN_TYPE_DATA_TYPE, 1, true},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, conv, CUDNN_TYPE_CONVOLUTION_MODE, 1, true},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, conv, CUDNN_TYPE_INT64, 1, true},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, conv, CUDNN_TYPE_INT64, 6, true},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, conv, CUDNN_TYPE_INT64, 6, true},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, conv, CUDNN_TYPE_INT64, 6, true},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, conv, CUDNN_TYPE_INT64, 6, true},
        {CUDNN_ATTR_POINTWISE_MODE, pointwise, CUDNN_TYPE_POINTWISE_MODE, 1, true},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, pointwise, CUDNN_TYPE_DATA_TYPE, 1, true},
        {CUDNN_ATTR_POINTWISE_AXIS, pointwise, CUDNN_TYPE_INT64, 1},
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, each, descriptor, 1, true, pointwise},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, each, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, each, descriptor, 1},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, each, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, each, descriptor, 1},
        {CUDNN_ATTR_MATMUL_COMP_TYPE, product, CUDNN_TYPE_DATA_TYPE, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, multiply, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, multiply, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, multiply, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_MATMUL_DESC, multiply, descriptor, 1, true, product},
        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, multiply, descriptor, 1},
        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, multiply, descriptor, 1},
        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, multiply, descriptor, 1},
        {CUDNN_ATTR_REDUCTION_OPERATOR, reduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, reduction, CUDNN_TYPE_DATA_TYPE, 1, true},
        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, reduce, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, reduce, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduce, descriptor, 1, true, reduction},
        {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, reshape, descriptor, 1, true},
        {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, reshape, descriptor, 1, true},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, graph, CUDNN_TYPE_HANDLE, 1, true},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, graph, descriptor, many, true, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, heuristic, descriptor, 1, true, graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, heuristic, CUDNN_TYPE_HEUR_MODE, 1, true},
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, plan, CUDNN_TYPE_HANDLE, 1, true},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, plan, descriptor, 1, true, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, pack, CUDNN_TYPE_INT64, many, true},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pack, CUDNN_TYPE_VOID_PTR, many, true},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, pack, CUDNN_TYPE_VOID_PTR, 1, true},
    };
    // The three passes number their attributes alike: alpha, beta, the convolution, three tensors.
    const auto add_pass = [&](Type owner, int first) {
      const auto name = [&](int i) { return static_cast<cudnnBackendAttributeName_t>(first + i); };
      list.push_back({name(0), owner, CUDNN_TYPE_FLOAT, 1, true});
      list.push_back({name(1), owner, CUDNN_TYPE_FLOAT, 1, true});
      list.push_back({name(2), owner, descriptor, 1, true, conv});
      for (int i = 3; i < 6; ++i) list.push_back({name(i), owner, descriptor, 1, true});
    };
    add_pass(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
    add_pass(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
    add_pass(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
    return list;
  }();
  return all;
}
#pragma GCC diagnostic pop

cudnnStatus_t check_tensor(const Node& node) {
  const TensorFacts tensor = facts_of(node);
  if (tensor.extents.size() != tensor.strides.size()) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (*std::min_element(tensor.extents.begin(), tensor.extents.end()) < 1) return CUDNN_STATUS_BAD_PARAM;
  if (tensor.by_value && (tensor.passing || tensor.size() != 1)) return CUDNN_STATUS_BAD_PARAM;
  const auto known = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_BOOLEAN, CUDNN_DATA_INT32};
  return std::find(known.begin(), known.end(), tensor.type) == known.end() ? CUDNN_STATUS_NOT_SUPPORTED
                                                                           : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_convolution(const Node& node) {
  const auto spatial = node.value<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                          CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
    if (node.attributes.at(name).count != spatial) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_pack(const Node& node) {
  auto ids = node.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (node.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count != static_cast<std::int64_t>(ids.size()))
    return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end() ? CUDNN_STATUS_SUCCESS
                                                                 : CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
}

}  // namespace

std::size_t size_of(cudnnBackendAttributeType_t kind) {
  switch (kind) {
    case CUDNN_TYPE_INT64:
      return sizeof(std::int64_t);
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_FLOAT:
      return sizeof(float);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return sizeof(void*);
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
      return sizeof(int);
    default:
      return 0;
  }
}

std::int64_t TensorFacts::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return count;
}

std::int64_t TensorFacts::span() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) last += (extents[i] - 1) * strides[i];
  return last + 1;
}

std::size_t TensorFacts::bytes() const {
  const auto elements = static_cast<std::size_t>(span());
  if (type == CUDNN_DATA_BOOLEAN) return (elements + 7) / 8;
  return elements * (type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 2);
}

TensorFacts facts_of(const Node& tensor) {
  TensorFacts facts;
  facts.id = tensor.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  facts.type = tensor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  facts.extents = tensor.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  facts.strides = tensor.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  facts.passing = tensor.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  facts.by_value = tensor.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  return facts;
}

cudnnStatus_t set(Node& node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t kind, std::int64_t count,
                  const void* values) {
  if (node.finalized || values == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const auto& all = documented();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Documented& d) { return d.name == name && d.owner == node.type; });
  if (found == all.end()) return CUDNN_STATUS_NOT_SUPPORTED;
  if (found->kind != kind) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
  if (count < 1 || count > found->most) return CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
  Attribute attribute{kind, count, std::vector<std::byte>(static_cast<std::size_t>(count) * size_of(kind)), {}};
  std::memcpy(attribute.bytes.data(), values, attribute.bytes.size());
  if (kind == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto* handle = static_cast<const Handle* const*>(values)[i];
      if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
      if (!handle->node->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      const bool fits = name == CUDNN_ATTR_OPERATIONGRAPH_OPS || handle->node->type == found->points_to;
      if (!fits) return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
      attribute.nodes.push_back(handle->node);
    }
  }
  node.attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_complete(const Node& node) {
  for (const Documented& d : documented())
    if (d.owner == node.type && d.required && !node.has(d.name)) return CUDNN_STATUS_BAD_PARAM;
  switch (node.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return check_tensor(node);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return check_convolution(node);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return check_pack(node);
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

}  // namespace hearth::reference_dnn
