// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/quantized.h"

#include <algorithm>
#include <array>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "dist/strategy/powersgd_kernels.h"

namespace hearth::dist {
namespace {

constexpr std::int64_t largest_block = 4096;
// Blocks that a thread takes at once.
constexpr std::int64_t blocks_at_once = 16;

}  // namespace

Quantized::Quantized(const StrategyContext& context, std::unique_ptr<Codec> codec, const QuantizedOptions& options)
    : group_(context.group), codec_(std::move(codec)), options_(options) {
  HEARTH_CHECK(ConfigError, options.block >= 64 && options.block <= largest_block && options.block % 64 == 0,
               "compress ", codec_->name(), ": blocks of ", options.block,
               " elements; give a multiple of 64 from 64 to ", largest_block);
  const std::vector<std::vector<BucketPart>> parts = parts_of(context, codec_->name());
  std::int64_t owned = 0;
  for (std::size_t i = 0; i < context.buckets.size(); ++i) {
    Layout& layout = layouts_.emplace_back();
    layout.begin = context.buckets[i].begin;
    lay_out(layout, parts[i], owned);
    for (int rank = 0; rank < group_.size(); ++rank)
      for (std::size_t b = layout.cuts[static_cast<std::size_t>(rank)];
           b < layout.cuts[static_cast<std::size_t>(rank) + 1]; ++b)
        owned = std::max(owned, layout.blocks[b].owned + layout.blocks[b].size);
    payload_ += 2 * layout.part;
  }
  if (!options.error_feedback) return;
  residual_ = std::make_unique<RankState>(group_, context.parameters.grads().size());
  sum_residual_ = std::make_unique<RankState>(group_, owned);
}

void Quantized::lay_out(Layout& layout, const std::vector<BucketPart>& parts, std::int64_t owned_before) {
  std::int64_t elements = 0;
  for (const BucketPart& part : parts)
    for (std::int64_t at = 0; at < part.size; at += options_.block) {
      const std::int64_t size = std::min(options_.block, part.size - at);
      layout.blocks.push_back({part.begin + at, size, 0, 0});
      elements += size;
    }
  // As even as whole blocks can be.
  const int ranks = group_.size();
  layout.cuts.assign(1, 0);
  std::int64_t before = 0;
  for (std::size_t b = 0; b < layout.blocks.size(); ++b) {
    before += layout.blocks[b].size;
    while (static_cast<int>(layout.cuts.size()) < ranks &&
           before * ranks >= elements * static_cast<std::int64_t>(layout.cuts.size()))
      layout.cuts.push_back(b + 1);
  }
  layout.cuts.resize(static_cast<std::size_t>(ranks) + 1, layout.blocks.size());
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    std::int64_t bytes = 0, owned = owned_before;
    for (std::size_t b = layout.cuts[rank]; b < layout.cuts[rank + 1]; ++b) {
      Block& block = layout.blocks[b];
      block.at = bytes;
      block.owned = owned;
      bytes += codec_->bytes(block.size);
      owned += block.size;
    }
    layout.part = std::max(layout.part, bytes);
  }
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
    for (std::size_t b = layout.cuts[rank]; b < layout.cuts[rank + 1]; ++b)
      layout.blocks[b].at += layout.part * static_cast<std::int64_t>(rank);
  layout.sent = Tensor::zeros({ranks * layout.part}, DType::u8);
  layout.received = Tensor::zeros({ranks * layout.part}, DType::u8);
  layout.sum = Tensor::zeros({layout.part}, DType::u8);
  layout.all_sums = Tensor::zeros({ranks * layout.part}, DType::u8);
}

std::vector<std::pair<std::string, std::string>> Quantized::settings() const {
  return {{"block", std::to_string(options_.block)}, {"seed", std::to_string(options_.seed)}};
}

Draw Quantized::draw(std::uint32_t stream, const Layout& layout, const Block& block) const {
  return {.seed = options_.seed,
          .update = static_cast<std::uint64_t>(updates_),
          .stream = stream,
          .first = layout.begin + block.begin};
}

Work Quantized::begin(std::size_t bucket, const Tensor& grads) {
  const Layout& layout = layouts_[bucket];
  const float* const g = grads.data<const float>();
  std::byte* const codes = layout.sent.bytes();
  cpu::parallel_for(static_cast<std::int64_t>(layout.blocks.size()), blocks_at_once,
                    [&](std::int64_t from, std::int64_t to) {
                      std::array<float, largest_block> scratch;
                      for (std::int64_t b = from; b < to; ++b) {
                        const Block& block = layout.blocks[static_cast<std::size_t>(b)];
                        const std::int64_t at = layout.begin + block.begin;
                        float* const x = residual_ ? residual_->next() + at : scratch.data();
                        if (residual_)
                          kernels::add_residual(g + block.begin, residual_->now() + at, ratio(), x, block.size);
                        else
                          std::copy_n(g + block.begin, block.size, x);
                        codec_->encode(x, block.size, codes + block.at, residual_ != nullptr,
                                       draw(2 * static_cast<std::uint32_t>(group_.rank()), layout, block));
                      }
                    });
  return group_.all_to_all(layout.sent, layout.received);
}

Work Quantized::next(std::size_t bucket, const Tensor&) {
  const Layout& layout = layouts_[bucket];
  const auto rank = static_cast<std::size_t>(group_.rank());
  const std::int64_t mine = group_.rank() * layout.part;
  const auto first = static_cast<std::int64_t>(layout.cuts[rank]),
             count = static_cast<std::int64_t>(layout.cuts[rank + 1]) - first;
  cpu::parallel_for(count, blocks_at_once, [&](std::int64_t from, std::int64_t to) {
    std::array<float, largest_block> scratch;
    for (std::int64_t b = from; b < to; ++b) {
      const Block& block = layout.blocks[static_cast<std::size_t>(first + b)];
      float* const x = sum_residual_ ? sum_residual_->next() + block.owned : scratch.data();
      for (int other = 0; other < group_.size(); ++other)
        codec_->decode(layout.received.bytes() + other * layout.part + (block.at - mine), block.size, x, other > 0);
      if (sum_residual_) kernels::add_residual(x, sum_residual_->now() + block.owned, ratio(), x, block.size);
      codec_->encode(x, block.size, layout.sum.bytes() + (block.at - mine), sum_residual_ != nullptr,
                     draw(2 * static_cast<std::uint32_t>(group_.rank()) + 1, layout, block));
    }
  });
  return group_.all_gather(layout.sum, layout.all_sums);
}

void Quantized::end(std::size_t bucket, const Tensor& grads) {
  const Layout& layout = layouts_[bucket];
  auto* const y = grads.data<float>();
  cpu::parallel_for(static_cast<std::int64_t>(layout.blocks.size()), blocks_at_once,
                    [&](std::int64_t from, std::int64_t to) {
                      for (std::int64_t b = from; b < to; ++b) {
                        const Block& block = layout.blocks[static_cast<std::size_t>(b)];
                        codec_->decode(layout.all_sums.bytes() + block.at, block.size, y + block.begin, false);
                      }
                    });
}

void Quantized::commit() {
  if (residual_) residual_->commit();
  if (sum_residual_) sum_residual_->commit();
  scale_ = coming_scale_;
  ++updates_;
}

void Quantized::register_state(State& state) {
  state.add("compress.updates", &updates_);
  if (!residual_) return;
  residual_->add_to(state, "compress.residual");
  sum_residual_->add_to(state, "compress.sum_residual");
  state.add("compress.scale", &scale_);
}

}  // namespace hearth::dist
