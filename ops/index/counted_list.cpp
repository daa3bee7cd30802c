// SPDX-License-Identifier: Apache-2.0
#include "ops/index/counted_list.h"

#include "core/error.h"
#include "ops/shape/indexing.h"
#include "ops/shape/view.h"

namespace hearth {

Tensor CountedList::wait(std::int64_t list) const {
  HEARTH_CHECK(UsageError, values.defined() && count.defined(), "CountedList: values ", describe(values), ", count ",
               describe(count), "; both are what an op gave");
  HEARTH_CHECK(IndexError, list >= 0 && list < count.size(), "CountedList: list ", list, " of ", count.size());
  const Tensor counts = count.to(Device{});
  const Index first[] = {list};
  const Tensor whole = count.rank() == 0 ? values : index(values, first);
  return slice(whole, 0, 0, counts.data<const std::int64_t>()[list]);
}

}  // namespace hearth
