// SPDX-License-Identifier: Apache-2.0
#include "core/shards.h"

#include "core/error.h"

namespace hearth {

Tensor Shards::part(const Tensor& whole, int rank) const {
  HEARTH_CHECK(ShapeError, whole.size() == total() && whole.is_contiguous(), "shards of [", total(),
               "]: ", describe(whole), " is not contiguous or of another size");
  const std::int64_t begin = cuts[static_cast<std::size_t>(rank)], end = cuts[static_cast<std::size_t>(rank) + 1];
  return Tensor::view(whole.storage(), {end - begin}, {1}, whole.offset() + begin, whole.dtype(), whole.device());
}

void Shards::gather(const Tensor& whole) const {
  std::vector<Work> works;
  for (int rank = 0; rank < group->size(); ++rank)
    if (const Tensor shard = part(whole, rank); shard.size() > 0) works.push_back(group->broadcast(shard, rank));
  // All of them, so that none writes any more when this throws.
  std::exception_ptr fault;
  for (const Work& work : works) try {
      work.wait();
    } catch (...) {
      if (!fault) fault = std::current_exception();
    }
  if (fault) std::rethrow_exception(fault);
}

}  // namespace hearth
