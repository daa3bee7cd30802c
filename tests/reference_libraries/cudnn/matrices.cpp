// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cudnn/matrices.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace hearth::reference_dnn {
namespace {

constexpr auto name_a = CUDNN_ATTR_OPERATION_MATMUL_ADESC, name_b = CUDNN_ATTR_OPERATION_MATMUL_BDESC,
               name_c = CUDNN_ATTR_OPERATION_MATMUL_CDESC;
/// Of rows, columns and what is summed over.
constexpr std::array lengths{CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
                             CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
                             CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};

/// Engines read whole vectors along one of a matrix's axes.
bool has_dense_axis(const TensorFacts& matrix) { return matrix.strides[2] == 1 || matrix.strides[3] == 1; }

bool is_narrow(cudnnDataType_t type) { return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16; }

}  // namespace

cudnnStatus_t check_product(const Node& operation) {
  const TensorFacts a = facts_of(operation.node(name_a)), b = facts_of(operation.node(name_b)),
                    c = facts_of(operation.node(name_c));
  if (operation.node(CUDNN_ATTR_OPERATION_MATMUL_DESC).value<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE) !=
      CUDNN_DATA_FLOAT)
    return CUDNN_STATUS_NOT_SUPPORTED;
  for (const TensorFacts* const x : {&a, &b, &c})
    if (x->extents.size() != 4 || !has_dense_axis(*x)) return CUDNN_STATUS_NOT_SUPPORTED;
  // Scores that are already scaled may be f32.
  if (!is_narrow(b.type) || (!a.passing && !is_narrow(a.type))) return CUDNN_STATUS_NOT_SUPPORTED;
  const Extents &x = a.extents, &y = b.extents, &z = c.extents;
  if (x[0] != y[0] || x[0] != z[0] || x[1] != y[1] || x[1] != z[1] || x[2] != z[2] || y[3] != z[3] || x[3] != y[2])
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  for (const Name name : lengths) {
    if (!operation.has(name)) continue;
    const TensorFacts length = facts_of(operation.node(name));
    if (length.extents != Extents{x[0], 1, 1, 1}) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    if (length.type != CUDNN_DATA_INT32) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

void run_product(const Node& operation, Memory& memory) {
  const Extents x = extents_of(operation, name_a), z = extents_of(operation, name_c);
  const Values a = memory.load(operation.node(name_a)), b = memory.load(operation.node(name_b));
  std::array<std::optional<Values>, 3> given;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (operation.has(lengths[i])) given[i] = memory.load(operation.node(lengths[i]));
  const auto rows = static_cast<std::size_t>(z[2]), columns = static_cast<std::size_t>(z[3]),
             sums = static_cast<std::size_t>(x[3]), matrices = static_cast<std::size_t>(z[0] * z[1]);
  Values c(matrices * rows * columns);
  std::vector<bool> written(c.size());
  for (std::size_t matrix = 0; matrix < matrices; ++matrix) {
    const auto end = [&](std::size_t which, std::size_t whole) {
      if (!given[which]) return whole;
      const double length = (*given[which])[matrix / static_cast<std::size_t>(z[1])];
      return std::min(whole, static_cast<std::size_t>(std::max(0.0, length)));
    };
    const std::size_t last_row = end(0, rows), last_column = end(1, columns), last_sum = end(2, sums);
    for (std::size_t i = 0; i < last_row; ++i)
      for (std::size_t k = 0; k < last_sum; ++k)
        for (std::size_t j = 0; j < last_column; ++j)
          c[(matrix * rows + i) * columns + j] +=
              a[(matrix * rows + i) * sums + k] * b[(matrix * sums + k) * columns + j];
    for (std::size_t i = 0; i < last_row; ++i)
      for (std::size_t j = 0; j < last_column; ++j) written[(matrix * rows + i) * columns + j] = true;
  }
  const bool stored = !facts_of(operation.node(name_c)).passing;
  memory.store(operation.node(name_c), c, stored ? written : std::vector<bool>{});
}

cudnnStatus_t check_reduction(const Node& operation) {
  const auto how =
      operation.node(CUDNN_ATTR_OPERATION_REDUCTION_DESC).value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  if (how != CUDNN_REDUCE_TENSOR_ADD && how != CUDNN_REDUCE_TENSOR_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
  Extents row = extents_of(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  if (row.size() != 4) return CUDNN_STATUS_NOT_SUPPORTED;
  row[3] = 1;
  return extents_of(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC) == row ? CUDNN_STATUS_SUCCESS
                                                                            : CUDNN_STATUS_NOT_SUPPORTED;
}

void run_reduction(const Node& operation, Memory& memory) {
  const bool most =
      operation.node(CUDNN_ATTR_OPERATION_REDUCTION_DESC).value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) ==
      CUDNN_REDUCE_TENSOR_MAX;
  const Values values = memory.load(operation.node(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
  const auto width = static_cast<std::size_t>(extents_of(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)[3]);
  Values rows(values.size() / width, most ? -std::numeric_limits<double>::infinity() : 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& row = rows[i / width];
    row = most ? std::max(row, values[i]) : row + values[i];
  }
  memory.store(operation.node(CUDNN_ATTR_OPERATION_REDUCTION_YDESC), rows);
}

cudnnStatus_t check_reshape(const Node& operation) {
  Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  if (x.size() != 4) return CUDNN_STATUS_NOT_SUPPORTED;
  std::swap(x[2], x[3]);
  return extents_of(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC) == x ? CUDNN_STATUS_SUCCESS
                                                                        : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
}

void run_reshape(const Node& operation, Memory& memory) {
  const Values values = memory.load(operation.node(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
  const Extents x = extents_of(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  const auto rows = static_cast<std::size_t>(x[2]), columns = static_cast<std::size_t>(x[3]);
  Values turned(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
    turned[(matrix * columns + column) * rows + row] = values[i];
  }
  memory.store(operation.node(CUDNN_ATTR_OPERATION_RESHAPE_YDESC), turned);
}

}  // namespace hearth::reference_dnn
