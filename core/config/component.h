// SPDX-License-Identifier: Apache-2.0
// Components of a configuration, {"type": name, ...}, as they were read: checked once, and made from what was read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "core/io/json_text.h"

namespace hearth {

class ComponentTypes;
class Schema;
template <class Signature>
class Registry;

/// The schema that describe(Fields<T>&) gives, made at the first call.
template <class T>
const std::shared_ptr<const Schema>& schema_of();

/// A component as it was read: its type, its options and the node with every key. None if it was null.
class HEARTH_API AnyComponent {
 public:
  explicit operator bool() const { return options_ != nullptr; }
  /// The name of its type. UsageError if there is none.
  const std::string& type() const;
  const Json& node() const { return node_; }
  /// Its options, if they are a T; null otherwise.
  template <class T>
  const T* options() const {
    return options_ && schema() == schema_of<T>().get() ? static_cast<const T*>(options_.get()) : nullptr;
  }

 protected:
  friend class ComponentTypes;
  const Schema* schema() const;

  const ComponentTypes* types_ = nullptr;
  std::size_t index_ = 0;  // in types_->types()
  std::shared_ptr<const void> options_;
  Json node_;
};

/// A component of a Registry<Signature>.
template <class Signature>
class Component;
template <class Result, class... Context>
class Component<Result(Context...)> : public AnyComponent {
 public:
  using Types = Registry<Result(Context...)>;
  /// Makes what it describes. UsageError if there is none.
  Result make(Context... context) const {
    (void)type();
    return static_cast<const Types&>(*types_).factories_[index_](options_.get(), std::forward<Context>(context)...);
  }
};

}  // namespace hearth
