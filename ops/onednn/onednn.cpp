// SPDX-License-Identifier: Apache-2.0
// What the facade is as a whole: presence, name, introspection; and its face in a build without the library.
#include "ops/onednn/onednn.h"

#include "core/build.h"
#include "core/cpu/scratch.h"
#include "core/error.h"
#include "ops/onednn/library.h"

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

}  // namespace

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
  list_convolutions(found);
  list_matmuls(found);
  return found;
}

void clear() {
  clear_convolutions();
  clear_matmuls();
  Scratch::release();
}

#else

bool available() { return false; }
std::string why_absent() { return "this build has no oneDNN; install libdnnl-dev and configure again"; }
std::string library() { return "none"; }
bool has_hardware_bf16() { return false; }
std::string declines(const ConvProblem&, Pass) { return why_absent(); }
std::string implementation(const ConvProblem&, Pass) { return {}; }
void conv2d_forward(const ConvProblem&, const void*, const void*, const float*, void*) { throw UsageError(why_absent()); }
void conv2d_backward_data(const ConvProblem&, const void*, const void*, void*) { throw UsageError(why_absent()); }
void conv2d_backward_weights(const ConvProblem&, const void*, const void*, void*, float*) { throw UsageError(why_absent()); }
std::vector<PlanInfo> plans() { return {}; }
void clear() { Scratch::release(); }

#endif

}  // namespace hearth::cpu::dnn
