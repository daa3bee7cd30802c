// SPDX-License-Identifier: Apache-2.0
// What of NCCL there is in every build.
#include <unistd.h>

#include "core/build.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "dist/host_group.h"
#include "dist/nccl/library.h"
#include "dist/process_group.h"
#if HEARTH_HAS_CUDA
#include "core/cuda/runtime.h"
#if __has_include(<nccl.h>)
#include "dist/nccl/group.h"
#endif
#endif

namespace hearth::dist {

#if HEARTH_HAS_CUDA
namespace {

/// A number that no other device has: of the machine, and of what the driver calls it.
std::int64_t identity_of(Device device) {
  const cudaDeviceProp& of = cuda::state_of(device).properties;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string text = join_text(host, ' ', std::string(of.uuid.bytes, sizeof of.uuid.bytes), ' ', of.pciDomainID,
                                     ' ', of.pciBusID, ' ', of.pciDeviceID);
  return 1 + static_cast<std::int64_t>(crc32c(std::as_bytes(std::span(text))));
}

}  // namespace
#else
namespace nccl {
cuda::LibraryInfo about() { return {}; }
std::string why_absent() { return "this build of Hearth has no CUDA backend; build it with -DHEARTH_CUDA=ON"; }
}  // namespace nccl
#endif

std::string why_no_nccl() { return nccl::why_absent(); }

std::string why_no_nccl(Collective& host, [[maybe_unused]] Device device) {
  std::string why = why_no_nccl();
  std::int64_t mine = 0;  // for: it cannot
  if (why.empty() && !device.is_cuda()) why = join_text("rank ", host.rank(), " computes on ", device);
#if HEARTH_HAS_CUDA
  if (why.empty()) mine = identity_of(device);
#endif
  const Tensor all = Tensor::zeros({host.size()}, DType::i64);
  host.all_gather(Tensor::of<std::int64_t>({1}, {mine}), all).wait();
  if (!why.empty()) return why;
  const std::int64_t* const numbers = all.data<const std::int64_t>();
  for (int rank = 0; rank < host.size(); ++rank) {
    if (numbers[rank] == 0) return join_text("rank ", rank, " has no NCCL, or computes on the CPU");
    for (int other = 0; other < rank; ++other)
      if (numbers[other] == numbers[rank])
        return join_text("ranks ", other, " and ", rank, " have the same GPU; NCCL needs one for each rank");
  }
  return "";
}

std::unique_ptr<Collective> nccl_group(std::unique_ptr<Collective> host, Device device, const NcclOptions& options) {
  HEARTH_CHECK(UsageError, dynamic_cast<HostGroup*>(host.get()) != nullptr,
               "nccl_group: the ranks meet by a group of join_processes() or loopback_groups()");
  const std::string why = why_no_nccl(*host, device);
  HEARTH_CHECK(DeviceError, why.empty(), "nccl_group: ", why);
#if HEARTH_HAS_CUDA && __has_include(<nccl.h>)
  std::unique_ptr<HostGroup> of(static_cast<HostGroup*>(host.release()));
  return std::make_unique<nccl::Group>(std::move(of), device, options);
#else
  static_cast<void>(options);
  throw InternalError("nccl_group: there is no NCCL in this build");
#endif
}

}  // namespace hearth::dist
