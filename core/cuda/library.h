// SPDX-License-Identifier: Apache-2.0
// Libraries of the vendor, opened when first needed, so that the program starts, and computes by own kernels, without
// them.
#pragma once

#include <initializer_list>
#include <string>

namespace hearth::cuda {

/// A shared library, or the reason why there is none. Never closed.
class Library {
 public:
  /// Opens the first of these names that the loader finds: in the folders of HEARTH_CUDA_LIBRARIES (separated by
  /// colons), in the lib folders beside them (site-packages/nvidia/*/lib, when one of these or site-packages is named),
  /// and where the loader looks by itself.
  Library(const char* title, std::initializer_list<const char*> names);

  bool is_open() const { return handle_ != nullptr; }
  /// Why it is not open; empty if it is.
  const std::string& why_absent() const { return why_absent_; }
  /// The path or name it was opened by.
  const std::string& path() const { return path_; }
  /// Sets `function` to the symbol's address. Without it the library counts as absent.
  template <class F>
  void find(const char* symbol, F*& function) {
    function = reinterpret_cast<F*>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol);
  void open(const std::string& path, std::string& last_reason);

  std::string title_, path_, why_absent_;
  void* handle_ = nullptr;
};

}  // namespace hearth::cuda
