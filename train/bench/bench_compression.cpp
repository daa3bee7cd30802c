// SPDX-License-Identifier: Apache-2.0
// What compression costs a rank, as `hearth bench ops` measures it: 25 million gradients in 160 tensors, about those of
// ResNet-50, from gradients to codes and from codes to their sum. Of one rank, so that nothing travels.
#include <cmath>
#include <deque>

#include "core/memory/memory.h"
#include "core/random.h"
#include "dist/data_parallel.h"
#include "dist/process_group.h"
#include "dist/strategy/registry.h"
#include "train/bench/bench.h"

namespace hearth::train {
namespace {

constexpr std::int64_t matrix_count = 54, vector_count = 106;

struct CompressionCase {
  const char* name;
  const char* options;
  double error_bound;  ///< of the mean of many sums of one gradient
};
constexpr CompressionCase compression_cases[] = {
    {"onebit", R"({"type": "onebit"})", 0.2},
    {"int8", R"({"type": "int8"})", 0.02},
    {"dgc", R"({"type": "dgc", "sparsity": 0.999, "warmup_epochs": 0})", 1},
    {"powersgd", R"({"type": "powersgd", "rank": 2})", 0.5},
};

/// Gradients and what sums them.
class Compressed {
 public:
  Compressed(const CompressionCase& tried, std::int64_t part) {
    std::vector<NamedTensor> named;
    for (std::int64_t i = 0; i < matrix_count + vector_count; ++i) {
      tensors_.push_back(Tensor::zeros(i < matrix_count ? Shape{768, 600 / part} : Shape{256 / part}));
      named.push_back({join_text("p", i), &tensors_.back()});
    }
    flat_ = std::make_unique<FlatParameters>(named);
    flat_->zero_grads();
    buckets_ = dist::DataParallel::buckets_of(*flat_, {});
    strategy_ = dist::compressions()
                    .parse(parse_json(tried.options, "bench"))
                    .make({.seed = 1})({dist::one_process(), *flat_, buckets_});
    sums_ = Tensor::zeros({flat_->grads().size()});
    Random random(1, 2);
    for (const FlatParameters::Entry& entry : flat_->entries())
      for (std::int64_t i = 0; i < entry.size; ++i)
        flat_->grads().data<float>()[entry.begin + i] = static_cast<float>(1e-3 * random.normal());
  }

  void step() {
    strategy_->begin_step();
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      strategy_->begin(i, part_of(flat_->grads(), i)).wait();
      for (int stage = 0; stage < strategy_->further(); ++stage) strategy_->next(i, part_of(sums_, i)).wait();
      strategy_->end(i, part_of(sums_, i));
    }
    strategy_->commit();
  }
  std::int64_t size() const { return sums_.size(); }
  std::vector<double> gradients() const { return flat_->grads().to_doubles(); }
  std::vector<double> sums() const { return sums_.to_doubles(); }

 private:
  Tensor part_of(const Tensor& all, std::size_t bucket) const {
    return all.slice(0, buckets_[bucket].begin, buckets_[bucket].begin + buckets_[bucket].size);
  }

  std::deque<Tensor> tensors_;
  std::unique_ptr<FlatParameters> flat_;
  std::vector<dist::Bucket> buckets_;
  std::unique_ptr<dist::Strategy> strategy_;
  Tensor sums_;
};

double error_of_mean(const CompressionCase& tried) {
  constexpr int steps = 64;
  Compressed compressed(tried, 30);
  std::vector<double> mean(static_cast<std::size_t>(compressed.size()));
  for (int i = 0; i < steps; ++i) {
    compressed.step();
    const std::vector<double> sums = compressed.sums();
    for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += sums[k] / steps;
  }
  return relative_error(mean, compressed.gradients());
}

}  // namespace

std::vector<OpBench> compression_benches() {
  std::vector<OpBench> all;
  for (const CompressionCase& tried : compression_cases) {
    const std::string name = join_text("compress/", tried.name, "/f32");
    const auto run = [=] {
      Compressed compressed(tried, 1);
      BenchCase result;
      result.name = name;
      result.shape = join_text(Shape{compressed.size()});
      result.timing = time_repeated([&] { compressed.step(); });
      result.items = 1;
      result.unit = "calls/s";
      // Of the gradients alone.
      result.bytes = 4 * static_cast<double>(compressed.size());
      result.peak_bytes = static_cast<double>(memory_of({}).statistics().peak);
      return result;
    };
    all.push_back({name, run, [=] { return error_of_mean(tried); }, tried.error_bound});
  }
  return all;
}

}  // namespace hearth::train
