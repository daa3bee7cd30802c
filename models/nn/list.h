// SPDX-License-Identifier: Apache-2.0
// Modules in a row, made at run time and named "0", "1", ...
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "models/nn/module.h"

namespace hearth::nn {

/// Owns its modules; forward applies them one after the other. What the gradients need is kept or, after
/// recompute(true), only what goes into each module (see recomputed()).
class HEARTH_API ModuleList : public Module {
 public:
  /// Makes a module of type M at the end of the list, named by its index.
  template <class M, class... Arguments>
  M& add(Arguments&&... arguments) {
    return add_named<M>(std::to_string(modules_.size()), std::forward<Arguments>(arguments)...);
  }
  /// The same under a name of its own, for lists whose names have gaps.
  template <class M, class... Arguments>
  M& add_named(const std::string& name, Arguments&&... arguments) {
    M& module = make<M>(std::forward<Arguments>(arguments)...);
    register_module(name, module);
    return module;
  }
  /// The same without a name: the parts of the module are named as if they were the list's own.
  template <class M, class... Arguments>
  M& add_unnamed(Arguments&&... arguments) {
    M& module = make<M>(std::forward<Arguments>(arguments)...);
    register_module(module);
    return module;
  }

  Tensor forward(const Tensor& x) override { return run(x, 0, size()); }
  /// The modules from `first` to before `end` alone.
  Tensor run(const Tensor& x, std::size_t first, std::size_t end);

  void recompute(bool on) { recompute_ = on; }

  std::size_t size() const { return modules_.size(); }
  bool empty() const { return modules_.empty(); }
  /// IndexError outside the list.
  Module& operator[](std::size_t index) {
    HEARTH_CHECK(IndexError, index < modules_.size(), "module list: index ", index, " of ", modules_.size(),
                 " modules");
    return *modules_[index];
  }

 private:
  template <class M, class... Arguments>
  M& make(Arguments&&... arguments) {
    auto owned = std::make_unique<M>(std::forward<Arguments>(arguments)...);
    M& module = *owned;
    modules_.push_back(std::move(owned));
    return module;
  }

  std::vector<std::unique_ptr<Module>> modules_;
  bool recompute_ = false;
};

}  // namespace hearth::nn
