// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"

namespace hearth::data {

OrderedBatches::OrderedBatches(std::int64_t size, const LoaderOptions& options, const std::string& source,
                               const char* what)
    : options_(options), size_(size) {
  HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
  HEARTH_CHECK(DataError, size < (std::int64_t{1} << 32), source, ": ", size, " ", what,
               "; at most 2^32 - 1 can be addressed");
  per_epoch_ = size / options.batch_size + (!options.drop_last && size % options.batch_size != 0 ? 1 : 0);
  HEARTH_CHECK(DataError, per_epoch_ > 0, source, ": ", size, " ", what, " give no batch of ", options.batch_size,
               options.drop_last ? " when the incomplete one is dropped" : "", "; use a smaller batch");
}

std::vector<std::int64_t> OrderedBatches::epoch_order(std::uint64_t epoch) const {
  return shuffled_order(size_, options_.seed, epoch);
}

std::vector<std::int64_t> OrderedBatches::samples_of(std::int64_t epoch, std::int64_t index) const {
  const std::int64_t first = index * options_.batch_size, count = std::min(options_.batch_size, size_ - first);
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  if (!options_.shuffle) return samples;
  std::copy_n(order_of(epoch)->begin() + first, count, samples.begin());
  return samples;
}

void OrderedBatches::plan(std::int64_t epoch) const {
  if (options_.shuffle) (void)order_of(epoch);
}

OrderedBatches::Orders::Pointer OrderedBatches::order_of(std::int64_t epoch) const {
  return orders_.of(epoch, [&] { return epoch_order(static_cast<std::uint64_t>(epoch)); });
}

}  // namespace hearth::data
