// SPDX-License-Identifier: Apache-2.0
#include "dist/nccl/library.h"

#include "core/error.h"
#include "dist/nccl/functions.h"

namespace hearth::dist::nccl {

#if __has_include(<nccl.h>)

int Functions::version() const {
  int number = 0;
  if (!file.is_open() || get_version(&number) != ncclSuccess) return 0;
  return number;
}

// Leaked, as the library's own state outlives static objects.
Functions& library() {
  static Functions& loaded = *new Functions;
  return loaded;
}

cuda::LibraryInfo about() { return library().file.about(static_cast<std::size_t>(library().version())); }

std::string why_absent() {
  const std::string why = cuda::why_not_run(library().file);
  if (!why.empty() || library().version() >= least_version) return why;
  return join_text("NCCL at ", library().file.path(), " is version ", about().version,
                   "; 2.14 or newer is needed: install it, or name its folder in HEARTH_CUDA_LIBRARIES");
}

#else

cuda::LibraryInfo about() { return {"", "", why_absent()}; }
std::string why_absent() {
  return "this build was made without the header nccl.h; install NCCL's development files and build again";
}

#endif

}  // namespace hearth::dist::nccl
