// SPDX-License-Identifier: Apache-2.0
// What the facade is as a whole: presence, name, introspection; and its face in a build without the library.
#include "ops/onednn/onednn.h"

#include <mutex>

#include "core/build.h"
#include "core/error.h"
#include "ops/onednn/library.h"
#include "ops/scratch.h"

namespace hearth::cpu::dnn {

#if HEARTH_HAS_DNNL

namespace {

const char* isa_text() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    default:
      return static_cast<int>(dnnl::get_effective_cpu_isa()) > static_cast<int>(dnnl::cpu_isa::avx512_core_bf16)
                 ? "beyond avx512_core_bf16"
                 : "baseline";
  }
}

struct Kinds {
  std::mutex mutex;
  std::vector<PlanList*> all;
};

// Leaked, as the lists in it are.
Kinds& kinds() {
  static auto* const instance = new Kinds;
  return *instance;
}

}  // namespace

PlanList::PlanList() {
  const std::lock_guard lock(kinds().mutex);
  kinds().all.push_back(this);
}

bool available() { return true; }
std::string why_absent() { return {}; }

std::string library() {
  const dnnl_version_t* version = dnnl_version();
  return join_text("oneDNN ", version->major, ".", version->minor, ".", version->patch, " (", isa_text(), ")");
}

bool has_hardware_bf16() {
  constexpr int bits = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

std::vector<PlanInfo> plans() {
  std::vector<PlanInfo> found;
  const std::lock_guard lock(kinds().mutex);
  for (const PlanList* kind : kinds().all) kind->list(found);
  return found;
}

void clear() {
  const std::lock_guard lock(kinds().mutex);
  for (PlanList* kind : kinds().all) kind->clear();
  Scratch::release();
}

#else

bool available() { return false; }
std::string why_absent() { return "this build has no oneDNN; install libdnnl-dev and configure again"; }
std::string library() { return "none"; }
bool has_hardware_bf16() { return false; }
std::vector<PlanInfo> plans() { return {}; }
void clear() { Scratch::release(); }

#endif

}  // namespace hearth::cpu::dnn
