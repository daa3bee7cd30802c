// SPDX-License-Identifier: Apache-2.0
// The descriptors of the reference cuDNN: attributes as cudnn_graph.h documents them.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace hearth::reference_dnn {

struct Node;
using NodePointer = std::shared_ptr<Node>;

/// Bytes of one value of an attribute; 0 for a kind that Hearth does not use.
std::size_t size_of(cudnnBackendAttributeType_t kind);

/// A value set, with the kind that it was set as. Descriptors are kept alive.
struct Attribute {
  cudnnBackendAttributeType_t kind;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<NodePointer> nodes;
};

/// What lies behind a cudnnBackendDescriptor_t. A finalized one never changes.
struct Node {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  int engine = -1;    ///< of an engine or a configuration that a heuristic named
  NodePointer graph;  ///< the same
  bool knob = false;  ///< whether it is the one knob that an engine has

  bool has(cudnnBackendAttributeName_t name) const { return attributes.count(name) != 0; }
  /// Throws std::out_of_range where it was not set.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const Attribute& found = attributes.at(name);
    std::vector<T> list(static_cast<std::size_t>(found.count));
    std::memcpy(list.data(), found.bytes.data(), found.bytes.size());
    return list;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    return values<T>(name).at(0);
  }
  const Node& node(cudnnBackendAttributeName_t name) const { return *attributes.at(name).nodes.at(0); }
};

/// A tensor descriptor's content.
struct TensorFacts {
  std::int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> extents, strides;
  bool passing = false;   ///< "virtual": between operations
  bool by_value = false;  ///< one number in the host's memory

  std::int64_t size() const;
  /// Elements from the first to behind the last.
  std::int64_t span() const;
  std::size_t bytes() const;
};
TensorFacts facts_of(const Node& tensor);

/// Sets an attribute, as cudnnBackendSetAttribute.
cudnnStatus_t set(Node& node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t kind, std::int64_t count,
                  const void* values);
/// Whether all that the descriptor needs is there and goes together.
cudnnStatus_t check_complete(const Node& node);

/// What a cudnnBackendDescriptor_t points to.
struct Handle {
  NodePointer node;
};

}  // namespace hearth::reference_dnn
