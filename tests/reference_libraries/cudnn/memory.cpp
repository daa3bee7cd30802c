// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/cudnn/memory.h"

#include "core/half.h"

namespace hearth::reference_dnn {
namespace {

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
    case CUDNN_DATA_INT32:
      return static_cast<const std::int32_t*>(data)[at];
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
    case CUDNN_DATA_INT32:
      static_cast<std::int32_t*>(data)[at] = static_cast<std::int32_t>(value);
      break;
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

}  // namespace

Extents extents_of(const Node& operation, Name tensor) { return facts_of(operation.node(tensor)).extents; }

Values Memory::load(const Node& node) {
  const TensorFacts tensor = facts_of(node);
  const void* const data = address(tensor);
  Values values(static_cast<std::size_t>(tensor.size()));
  each_element(tensor, [&](std::int64_t position, std::int64_t at) {
    values[static_cast<std::size_t>(position)] = read(tensor.type, data, at);
  });
  return values;
}

void Memory::store(const Node& node, const Values& values, const std::vector<bool>& written) {
  const TensorFacts tensor = facts_of(node);
  void* const data = address(tensor);
  each_element(tensor, [&](std::int64_t position, std::int64_t at) {
    const auto i = static_cast<std::size_t>(position);
    if (written.empty() || written[i]) write(tensor.type, data, at, values[i]);
  });
}

void* Memory::address(const TensorFacts& tensor) {
  if (!tensor.passing) return stored_.at(tensor.id);
  std::vector<std::byte>& room = passing_[tensor.id];
  room.resize(tensor.bytes());
  return room.data();
}

}  // namespace hearth::reference_dnn
