// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/amx.h"

#include <atomic>

#include "core/cpu/isa.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hearth::cpu::amx {
namespace {

std::atomic<int> emulating{0};

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)

bool find_vectors() { return isa() == Isa::v4 && __builtin_cpu_supports("avx512bf16"); }

std::string find_tiles() {
  if (std::string reason = bf16_vectors_unsupported(); !reason.empty()) return reason;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned bf16_products = 1u << 22, tiles = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & bf16_products) == 0 || (d & tiles) == 0)
    return "the processor has no matrix tiles (AMX)";
  // Linux saves the tiles of processes that asked for them: ARCH_REQ_XCOMP_PERM, of the data of tiles.
  constexpr long ask = 0x1023, data_of_tiles = 18;
  return syscall(SYS_arch_prctl, ask, data_of_tiles) == 0 ? "" : "the system gives no leave to use matrix tiles";
}

#else

bool find_vectors() { return false; }
std::string find_tiles() { return "this build is not by GCC for Linux on x86-64"; }

#endif

}  // namespace

bool has_bf16_vectors() {
  static const bool found = find_vectors();
  return found;
}

std::string bf16_vectors_unsupported() {
  return has_bf16_vectors() ? "" : "the processor or the build has no AVX-512 with bf16, or HEARTH_ISA is below v4";
}

std::string unsupported() {
  static const std::string tiles = find_tiles();
  return emulated() ? "" : tiles;
}

void emulate(bool begins) { emulating.fetch_add(begins ? 1 : -1); }
bool emulated() { return emulating.load() > 0; }

}  // namespace hearth::cpu::amx
