// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/strategy.h"

#include "core/error.h"

namespace hearth::dist {
namespace {

class PlainSum final : public Strategy {
 public:
  PlainSum(const StrategyContext& context, std::optional<DType> wire)
      : group_(context.group),
        buckets_(context.buckets),
        wire_(wire),
        type_(wire.value_or(context.parameters.grads().dtype())) {}

  const char* name() const override { return "none"; }
  Work begin(std::size_t, const Tensor& grads) override { return group_.all_reduce(grads, Reduce::sum, wire_); }
  std::vector<Transfer> transfers(std::size_t bucket) const override {
    return {{.is_sum = true, .count = buckets_[bucket].size, .type = type_}};
  }
  std::int64_t payload() const override {
    std::int64_t bytes = 0;
    for (const Bucket& bucket : buckets_) bytes += bucket.size * static_cast<std::int64_t>(size_of(type_));
    return bytes;
  }

 private:
  Collective& group_;
  const std::vector<Bucket>& buckets_;
  const std::optional<DType> wire_;
  const DType type_;
};

}  // namespace

Work Strategy::next(std::size_t, const Tensor&) {
  throw InternalError(join_text("strategy ", name(), ": has no further collective"));
}
void Strategy::end(std::size_t, const Tensor&) {}
void Strategy::set_scale(double) {}
void Strategy::register_state(State&) {}

StrategyFactory plain_sum(std::optional<DType> wire) {
  return [wire](const StrategyContext& context) { return std::make_unique<PlainSum>(context, wire); };
}

std::vector<std::vector<BucketPart>> parts_of(const StrategyContext& context, const char* strategy) {
  const Tensor& grads = context.parameters.grads();
  HEARTH_CHECK(DeviceError, grads.device().is_cpu(), "compress ", strategy, ": runs on the CPU, the gradients are on ",
               name_of(grads.device()), "; leave dist.compress out");
  HEARTH_CHECK(DTypeError, grads.dtype() == DType::f32, "compress ", strategy, ": takes gradients of f32, these are ",
               grads.dtype(), "; leave dist.compress out");
  const std::vector<FlatParameters::Entry>& entries = context.parameters.entries();
  std::vector<std::vector<BucketPart>> all;
  std::size_t end = entries.size();
  for (const Bucket& bucket : context.buckets) {
    std::vector<BucketPart>& parts = all.emplace_back();
    end -= static_cast<std::size_t>(bucket.parameters);
    for (int i = 0; i < bucket.parameters; ++i) {
      const FlatParameters::Entry& entry = entries[end + static_cast<std::size_t>(i)];
      const Shape& shape = entry.value.shape();
      parts.push_back({entry.begin - bucket.begin, entry.size, shape.rank() < 2 ? 0 : shape[0]});
    }
  }
  return all;
}

RankState::RankState(Collective& group, std::int64_t size)
    : shards_{.group = &group}, now_(Tensor::zeros({size})), next_(Tensor::zeros({size})) {
  for (int rank = 0; rank <= group.size(); ++rank) shards_.cuts.push_back(rank * size);
}

void RankState::add_to(State& state, const std::string& name) {
  state.add_shard(name, &now_, shards_, {shards_.group->size(), now_.size()});
}

}  // namespace hearth::dist
