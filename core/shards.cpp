// SPDX-License-Identifier: Apache-2.0
#include "core/shards.h"

#include <algorithm>

#include "core/error.h"

namespace hearth {
namespace {

void check_flat(const char* what, const Tensor& flat, std::int64_t size) {
  HEARTH_CHECK(ShapeError, flat.size() == size && flat.is_contiguous(), "shards: ", what, " ", describe(flat),
               " is not contiguous or not of ", size, " elements");
}

}  // namespace

std::vector<std::int64_t> Shards::cuts_of(std::size_t block) const {
  const auto ranks = static_cast<std::ptrdiff_t>(group->size());
  const auto first = cuts.begin() + static_cast<std::ptrdiff_t>(block) * ranks;
  return {first, first + ranks + 1};
}

Shards::Range Shards::range(std::size_t block) const {
  const auto ranks = static_cast<std::size_t>(group->size()), rank = static_cast<std::size_t>(group->rank());
  Range result{0, 0, 0};
  for (std::size_t b = 0; b <= block; ++b) {
    result.place += result.end - result.begin;
    result.begin = cuts[b * ranks + rank], result.end = cuts[b * ranks + rank + 1];
  }
  return result;
}

std::vector<Shards::Range> Shards::ranges() const {
  const auto ranks = static_cast<std::size_t>(group->size());
  std::vector<Range> result;
  std::int64_t place = 0;
  for (std::size_t k = static_cast<std::size_t>(group->rank()); k + 1 < cuts.size(); k += ranks) {
    if (cuts[k] < cuts[k + 1]) result.push_back({cuts[k], cuts[k + 1], place});
    place += cuts[k + 1] - cuts[k];
  }
  return result;
}

std::int64_t Shards::size() const {
  std::int64_t sum = 0;
  for (const Range& range : ranges()) sum += range.end - range.begin;
  return sum;
}

Tensor Shards::own(const Tensor& flat) const {
  check_flat("the whole", flat, total());
  HEARTH_CHECK(UsageError, blocks() == 1, "shards: parts of ", blocks(), " blocks are no view; use take() and put()");
  const Range mine = range(0);
  return slice_of(flat, mine.begin, mine.end - mine.begin);
}

void Shards::put(const Tensor& part, const Tensor& flat) const {
  check_flat("a part", part, size());
  check_flat("the whole", flat, total());
  for (const auto& [begin, end, place] : ranges())
    slice_of(flat, begin, end - begin).copy_from(slice_of(part, place, end - begin));
}

void Shards::take(const Tensor& flat, const Tensor& part) const {
  check_flat("a part", part, size());
  check_flat("the whole", flat, total());
  for (const auto& [begin, end, place] : ranges())
    slice_of(part, place, end - begin).copy_from(slice_of(flat, begin, end - begin));
}

void Shards::gather(const Tensor& flat) const {
  check_flat("the whole", flat, total());
  std::vector<Work> works;
  for (std::size_t block = 0; block < blocks(); ++block) {
    std::vector<std::int64_t> of_block = cuts_of(block);
    const std::int64_t begin = of_block.front(), size = of_block.back() - begin;
    if (size == 0) continue;
    for (std::int64_t& cut : of_block) cut -= begin;
    works.push_back(group->gather_parts(slice_of(flat, begin, size), of_block));
  }
  wait_for_all(works);
}

}  // namespace hearth
