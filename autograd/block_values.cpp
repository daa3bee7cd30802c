// SPDX-License-Identifier: Apache-2.0
#include "autograd/block_values.h"

#include "autograd/grad_mode.h"
#include "core/error.h"
#include "core/origin.h"

namespace hearth {

BlockValues::BlockValues(const Shards& shards, Tensor values, DType computed, std::optional<DType> beside)
    : group_(shards.group), values_(std::move(values)) {
  for (std::size_t b = 0; b < shards.blocks(); ++b) units_.push_back(make_unit(shards, b, computed, beside));
}

BlockValues::Unit BlockValues::make_unit(const Shards& shards, std::size_t number, DType computed,
                                         std::optional<DType> beside) {
  Unit unit;
  unit.part = shards.range(number);
  unit.cuts = shards.cuts_of(number);
  unit.begin = unit.cuts.front();
  const std::int64_t size = unit.cuts.back() - unit.begin;
  for (std::int64_t& cut : unit.cuts) cut -= unit.begin;
  const auto make = [&](DType dtype) {
    const Tensor made = Tensor::empty({size}, dtype, values_.device());
    made.storage()->keep(this, number);
    made.storage()->release();
    return made;
  };
  unit.values = make(computed);
  if (beside) unit.copy = make(*beside);
  return unit;
}

BlockValues::~BlockValues() {
  for (Unit& unit : units_) {
    try {
      unit.work.wait();
    } catch (const Error&) {  // nobody asks for the values any more
    }
    for (const Tensor& tensor : {unit.values, unit.copy})
      if (tensor.defined()) tensor.storage()->keep(nullptr, 0);
  }
}

std::optional<std::size_t> BlockValues::expected() const {
  if (const auto known = successors_.find({before_.value_or(*current_), *current_}); known != successors_.end())
    return known->second;
  const bool falls = before_ && *before_ > *current_;
  if (falls ? *current_ == 0 : *current_ + 1 == units_.size()) return std::nullopt;
  return falls ? *current_ - 1 : *current_ + 1;
}

void BlockValues::bring(std::size_t number) {
  if (is_converting_) return;
  Unit& unit = units_[number];
  const std::uint64_t op = detail::current_op();
  unit.used_by = op;
  if (current_ == number && unit.state == State::here) return;
  if (current_ != number) {
    if (current_) successors_[{before_.value_or(*current_), *current_}] = number;
    before_ = current_, current_ = number;
  }
  const std::optional<std::size_t> next = expected();
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (i != number && i != next && units_[i].used_by != op) give_back(units_[i]);
  start(unit);
  finish(unit);
  if (next && *next != number) start(units_[*next]);
}

void BlockValues::start(Unit& unit) {
  if (unit.state != State::away) return;
  const OriginScope origin = OriginScope::of_op("parameters");
  Storage& storage = *unit.values.storage();
  storage.refill();
  if (unit.copy.defined()) unit.copy.storage()->refill();
  slice_of(unit.values, unit.part.begin - unit.begin, unit.part.end - unit.part.begin)
      .copy_from(slice_of(values_, unit.part.place, unit.part.end - unit.part.begin));
  unit.work = group_->gather_parts(unit.values, unit.cuts);
  unit.state = State::under_way;
  // The same values as before, for those who have kept them.
  storage.restore_version(unit.version);
  *unit.copy_version = unit.version;
}

void BlockValues::finish(Unit& unit) {
  if (unit.state != State::under_way) return;
  unit.work.wait();
  unit.work = {};
  if (unit.copy.defined()) {
    is_converting_ = true;
    unit.copy.copy_from(unit.values);
    is_converting_ = false;
    unit.copy.storage()->restore_version(unit.version);
  }
  unit.state = State::here;
}

void BlockValues::give_back(Unit& unit) {
  if (unit.state == State::away) return;
  finish(unit);
  for (const Tensor& tensor : {unit.values, unit.copy}) {
    if (!tensor.defined()) continue;
    HEARTH_CHECK(UsageError, tensor.storage()->version() == unit.version,
                 "parameters: values that ranks keep a part of each (zero 3) were written in place, which would be "
                 "lost; load weights through the registered state, or use zero 2");
    tensor.storage()->release();
  }
  unit.state = State::away;
}

void BlockValues::values_changed() {
  for (Unit& unit : units_) {
    give_back(unit);
    ++unit.version;
  }
  // What follows begins anew: a forward pass.
  before_.reset();
  current_.reset();
}

}  // namespace hearth
