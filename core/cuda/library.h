// SPDX-License-Identifier: Apache-2.0
// Libraries of the vendor, opened when first needed, so that the program starts, and computes by native kernels,
// without them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

namespace hearth::cuda {

/// What was found of a library, for reports.
struct LibraryInfo {
  std::string version;     ///< "9.19.0"; empty if it is absent
  std::string path;        ///< of the file
  std::string why_absent;  ///< with the remedy; empty if it is there
};

/// Why a library that is there cannot be run in this build; empty if it can. It can be asked what it would do.
const char* why_no_library_runs();

class Library;
/// Empty if this library's functions can be called to do work here; else why not, with the remedy. In builds for the
/// emulated GPU only a library that was made for it does: one that says so by the symbol
/// hearth_runs_on_the_emulated_gpu, as the reference in the tests.
std::string why_not_run(const Library& library);

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
  /// Of the file that the loader found.
  const std::string& path() const { return path_; }
  /// Whether it has this symbol; false where it is absent.
  bool has(const char* symbol) const;
  /// `version` is the library's own number, as in 91900 for 9.19.0; of no meaning where it is absent.
  LibraryInfo about(std::size_t version) const;
  /// A function's address, for a pointer to one of its type.
  struct Function {
    void* address;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  /// The function of this name. Without it the library counts as absent.
  Function find(const char* symbol) { return {address_of(symbol)}; }

 private:
  void* address_of(const char* symbol);
  void open(const std::string& path, std::string& last_reason);

  std::string title_, path_, why_absent_;
  void* handle_ = nullptr;
};

}  // namespace hearth::cuda
