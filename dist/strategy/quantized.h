// SPDX-License-Identifier: Apache-2.0
// Gradients in codes of a few bits, block by block: to the rank that sums a block, and as the sum to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dist/strategy/strategy.h"

namespace hearth::dist {

/// What a code may draw random numbers by: each use of it has numbers of its own.
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t update = 0;
  std::uint32_t stream = 0;  ///< tells ranks, and their codes from those of sums
  std::int64_t first = 0;    ///< number of the block's first element among all gradients
};

/// The code of a block of f32.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual const char* name() const = 0;
  /// Bytes of a block of n.
  virtual std::int64_t bytes(std::int64_t n) const = 0;
  /// Writes the code of x [n], with `remains` also what the code leaves out of x in its place. A number that is not
  /// finite gives a code of which none is.
  virtual void encode(float* x, std::int64_t n, std::byte* code, bool remains, const Draw& draw) const = 0;
  /// y [n] = what the code stands for; with `add` added to it.
  virtual void decode(const std::byte* code, std::int64_t n, float* y, bool add) const = 0;
};

struct QuantizedOptions {
  std::int64_t block = 1024;    ///< elements of one code; a multiple of 64, from 64 to 4096
  std::uint64_t seed = 0;       ///< of what the code draws
  bool error_feedback = false;  ///< what a code leaves out is added to the gradient, or the sum, of the next step
};

/// Each rank sums the blocks that it owns. Ranks send it their codes, and it sends the code of the sum to all.
/// Source of the two directions: Seide et al. 2014 (doi:10.21437/Interspeech.2014-274).
class Quantized final : public Strategy {
 public:
  /// ConfigError for a bad block; see parts_of().
  Quantized(const StrategyContext& context, std::unique_ptr<Codec> codec, const QuantizedOptions& options);

  const char* name() const override { return codec_->name(); }
  std::vector<std::pair<std::string, std::string>> settings() const override;
  Work begin(std::size_t bucket, const Tensor& grads) override;
  int further() const override { return 1; }
  Work next(std::size_t bucket, const Tensor& grads) override;
  void end(std::size_t bucket, const Tensor& grads) override;
  bool is_stateful() const override { return true; }
  void commit() override;
  void set_scale(double scale) override { coming_scale_ = scale; }
  void register_state(State& state) override;
  std::vector<Transfer> transfers(std::size_t bucket) const override {
    return {{.count = layouts_[bucket].part, .type = DType::u8}, {.count = layouts_[bucket].part, .type = DType::u8}};
  }
  std::int64_t payload() const override { return payload_; }

 private:
  struct Block {
    std::int64_t begin;  ///< first element within the bucket
    std::int64_t size;
    std::int64_t at;     ///< of its code within the bucket's, in bytes
    std::int64_t owned;  ///< first element among those of its owner
  };
  struct Layout {
    std::int64_t begin = 0;  ///< of the bucket
    std::vector<Block> blocks;
    std::vector<std::size_t> cuts;         ///< rank r owns the blocks from cuts[r] to cuts[r + 1]
    std::int64_t part = 0;                 ///< bytes of the codes of a rank's blocks, at most
    Tensor sent, received, sum, all_sums;  ///< codes: [ranks * part], of this rank's blocks, [part], all
  };

  void lay_out(Layout& layout, const std::vector<BucketPart>& parts, std::int64_t owned_before);
  Draw draw(std::uint32_t stream, const Layout& layout, const Block& block) const;
  /// What is added to a gradient: `residual` in the scale of this step.
  float ratio() const { return static_cast<float>(coming_scale_ / scale_); }

  Collective& group_;
  std::unique_ptr<Codec> codec_;
  QuantizedOptions options_;
  std::vector<Layout> layouts_;
  std::unique_ptr<RankState> residual_, sum_residual_;  ///< null without error feedback
  double scale_ = 1, coming_scale_ = 1;
  std::int64_t updates_ = 0;
  std::int64_t payload_ = 0;
};

/// The signs, and the means of the block's positive and negative numbers: 1 bit an element and 8 bytes a block.
std::unique_ptr<Codec> sign_codec();
/// Multiples of a 127th of the block's largest magnitude, rounded at random so that the mean is exact to 2^-16 of a
/// multiple: 8 bits an element and 4 bytes a block.
std::unique_ptr<Codec> int8_codec();

}  // namespace hearth::dist
