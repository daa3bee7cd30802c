// SPDX-License-Identifier: Apache-2.0
// The group of a process that is alone, and of one that plans for several.
#include "core/error.h"
#include "dist/call.h"
#include "dist/process_group.h"

namespace hearth::dist {
namespace {

/// Copies `part` to each of `ranks` parts of `all`.
void repeat(const Tensor& part, const Tensor& all, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    Tensor::view(all.storage(), part.shape(), contiguous_strides(part.shape()), all.offset() + rank * part.size(),
                 all.dtype(), all.device())
        .copy_from(part);
}

/// All ranks are taken to do as this one does; of sums it has its own term, and parts that others have are zeros.
class Alike : public Collective {
 public:
  Alike(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* backend() const override { return "none"; }
  Work all_reduce(const Tensor&, Reduce, std::optional<DType>) override { return {}; }
  Work reduce_scatter(const Tensor& x, const Tensor& part) override {
    check_parts("reduce_scatter", x, part, size_);
    return part.copy_from(slice_of(x, rank_ * part.size(), part.size())), Work();
  }
  Work all_gather(const Tensor& part, const Tensor& all) override {
    check_parts("all_gather", all, part, size_);
    return repeat(part, all, size_), Work();
  }
  Work gather_parts(const Tensor& x, const std::vector<std::int64_t>& cuts) override {
    check_cuts("gather_parts", x, cuts);
    for (int rank = 0; rank < size_; ++rank)
      if (const auto i = static_cast<std::size_t>(rank); rank != rank_)
        slice_of(x, cuts[i], cuts[i + 1] - cuts[i]).fill_(0);
    return {};
  }
  Work broadcast(const Tensor&, int) override { return {}; }
  Work all_to_all(const Tensor& x, const Tensor& y) override {
    check_all_to_all(x, y, size_);
    const std::int64_t each = x.size() / size_;
    return repeat(slice_of(x, rank_ * each, each), y, size_), Work();
  }
  Work send(const Tensor& x, int to) override { return check_message("send", x, to, rank_, size_), Work(); }
  Work receive(const Tensor& x, int from) override { return check_message("receive", x, from, rank_, size_), Work(); }
  void barrier() override {}
  void abort(const std::string&) override {}

 private:
  const int rank_, size_;
};

}  // namespace

Collective& one_process() {
  static Alike group(0, 1);
  return group;
}

std::unique_ptr<Collective> imagined_group(int rank, int size) {
  HEARTH_CHECK(UsageError, rank >= 0 && rank < size, "imagined group: there is no rank ", rank, " of ", size);
  return std::make_unique<Alike>(rank, size);
}

}  // namespace hearth::dist
