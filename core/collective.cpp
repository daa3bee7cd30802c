// SPDX-License-Identifier: Apache-2.0
// What groups can do by collectives that each of them has.
#include "core/collective.h"

#include <utility>

#include "core/error.h"

namespace hearth {
Tensor slice_of(const Tensor& flat, std::int64_t begin, std::int64_t size) {
  // Nothing may lie behind the end.
  return Tensor::view(flat.storage(), {size}, {1}, flat.offset() + (size > 0 ? begin : 0), flat.dtype(), flat.device());
}

void wait_for_all(std::span<const Work> works) {
  // All of them, so that none writes any more when this throws.
  std::exception_ptr fault;
  for (const Work& work : works) try {
      work.wait();
    } catch (...) {
      if (!fault) fault = std::current_exception();
    }
  if (fault) std::rethrow_exception(fault);
}

void Collective::check_cuts(const char* op, const Tensor& x, std::span<const std::int64_t> cuts) const {
  HEARTH_CHECK(UsageError, x.defined(), op, ": the tensor is undefined");
  HEARTH_CHECK(ShapeError, x.is_contiguous() && x.shape().rank() == 1, op, ": ", describe(x),
               " is not contiguous of one dimension");
  bool rises = cuts.size() == static_cast<std::size_t>(size()) + 1 && cuts.front() == 0 && cuts.back() == x.size();
  for (std::size_t i = 0; rises && i + 1 < cuts.size(); ++i) rises = cuts[i] <= cuts[i + 1];
  HEARTH_CHECK(ShapeError, rises, op, ": ", describe(x),
               " has no such parts; give size() + 1 cuts that rise from 0 to ", x.size());
}

Work Collective::gather_parts(const Tensor& x, const std::vector<std::int64_t>& cuts) {
  check_cuts("gather_parts", x, cuts);
  std::vector<Work> works;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r)
    if (cuts[r] < cuts[r + 1])
      works.push_back(broadcast(slice_of(x, cuts[r], cuts[r + 1] - cuts[r]), static_cast<int>(r)));
  return Work({}, [works = std::move(works)] { wait_for_all(works); });
}

Work Collective::reduce_parts(const Tensor& x, const std::vector<std::int64_t>& cuts, const Tensor& part) {
  check_cuts("reduce_parts", x, cuts);
  const auto mine = static_cast<std::size_t>(rank());
  const Tensor sum = slice_of(x, cuts[mine], cuts[mine + 1] - cuts[mine]);
  HEARTH_CHECK(ShapeError, part.size() == sum.size() && part.dtype() == sum.dtype(), "reduce_parts: ", describe(part),
               " is no part of ", sum.size(), " elements of ", describe(x));
  // Only once, as the part may change after the first wait().
  return Work({}, [work = all_reduce(x), sum, part, is_copied = std::make_shared<bool>(false)] {
    work.wait();
    if (!std::exchange(*is_copied, true)) part.copy_from(sum);
  });
}

}  // namespace hearth
