// SPDX-License-Identifier: Apache-2.0
// Deep Gradient Compression: each rank sends the largest of what it has accumulated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dist/strategy/strategy.h"

namespace hearth::dist {

struct DgcOptions {
  double sparsity = 0.999;        ///< part of a parameter that is not sent in a step, after the warm-up
  std::int64_t warmup_steps = 0;  ///< updates with 75 %, 93.75 %, ... of a parameter not sent, in four stages
  double momentum = 0.9;          ///< of the SGD whose gradients these are
  bool nesterov = false;
  std::optional<double> clip_norm{};  ///< of the whole gradient; each rank clips its own to 1 / sqrt(ranks) of it
  bool keeps_rest = true;             ///< off: what is not sent is lost, as tests of the accumulation need it
};

/// Momentum is applied before the sum: u = momentum * u + g, v = v + u; with nesterov v = v + g + momentum * u. The
/// largest |v| of each parameter are sent; u and v are 0 there from then on, and stay elsewhere. So the sum is a step
/// with its momentum, and the optimizer adds none (optim::SgdOptions::momentum_in_gradients). Parameters of rank 0 and
/// 1 are sent whole, with u kept. Source: Lin et al. 2018 (arXiv:1712.01887).
class Dgc final : public Strategy {
 public:
  /// ConfigError unless sparsity and momentum are in (0, 1) and [0, 1), warmup_steps at least 0 and clip_norm above 0;
  /// see parts_of().
  Dgc(const StrategyContext& context, const DgcOptions& options);

  const char* name() const override { return "dgc"; }
  std::vector<std::pair<std::string, std::string>> settings() const override;
  bool reads_all() const override { return options_.clip_norm.has_value(); }
  bool has_momentum() const override { return true; }
  void begin_step() override;
  Work begin(std::size_t bucket, const Tensor& grads) override;
  void end(std::size_t bucket, const Tensor& grads) override;
  bool is_stateful() const override { return true; }
  void commit() override;
  void set_scale(double scale) override { coming_scale_ = scale; }
  void register_state(State& state) override;
  std::vector<Transfer> transfers(std::size_t bucket) const override {
    return {{.count = layouts_[bucket].words, .type = DType::i32}};
  }
  std::int64_t payload() const override { return payload_; }

  /// The part of a parameter that is sent in update t = 0, 1, ...
  static double density(const DgcOptions& options, std::int64_t update);

 private:
  struct Part {
    BucketPart range;
    std::int64_t sent = 0;  ///< elements
    std::int64_t at = 0;    ///< first word of its indices, then values; of values alone where all are sent
    bool is_whole() const { return range.rows == 0; }
  };
  struct Layout {
    std::int64_t begin = 0;  ///< of the bucket
    std::vector<Part> parts;
    std::int64_t words = 0;
    Tensor sent, received;  ///< i32 [words], [ranks * words]
  };

  void accumulate(const Layout& layout, const BucketPart& range, const float* g) const;
  void select(const Layout& layout, const Part& part, std::int32_t* words);

  Collective& group_;
  const Tensor grads_;
  DgcOptions options_;
  std::vector<Layout> layouts_;
  RankState velocity_, residual_;
  double scale_ = 1, coming_scale_ = 1;
  std::int64_t updates_ = 0;
  double density_ = 0;  ///< of the layouts
  float clip_ = 1;
  std::int64_t payload_ = 0;
  std::vector<std::uint64_t> keys_;
};

}  // namespace hearth::dist
