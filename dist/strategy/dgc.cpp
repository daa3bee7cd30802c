// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/dgc.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "dist/strategy/dgc_kernels.h"

namespace hearth::dist {
namespace {

// Elements that a thread takes at once.
constexpr std::int64_t grain = 1 << 16;
// Of which a threshold is estimated; parameters of fewer are sorted whole.
constexpr std::int64_t samples = 8192;
constexpr int warmup_stages = 4;

/// Orders by magnitude, and NaN above all: bits of |x| in the upper half, the index, from the end, in the lower one, so
/// that of equal ones the first counts more.
std::uint64_t key_of(float x, std::int64_t index) {
  const std::uint64_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU;
  return magnitude << 32 | (0xFFFFFFFFU - static_cast<std::uint32_t>(index));
}
std::int64_t index_of(std::uint64_t key) { return 0xFFFFFFFFU - static_cast<std::uint32_t>(key); }

/// Bits of a magnitude that somewhat more than `count` of v [n] reach, by samples.
std::uint32_t estimate_threshold(const float* v, std::int64_t n, std::int64_t count) {
  if (n <= samples) return 0;
  std::vector<std::uint32_t> drawn(samples);
  for (std::int64_t i = 0; i < samples; ++i)
    drawn[static_cast<std::size_t>(i)] = std::bit_cast<std::uint32_t>(v[i * n / samples]) & 0x7FFFFFFFU;
  // So many more that with few samples there are enough nearly always.
  const double expected = static_cast<double>(count) * static_cast<double>(samples) / static_cast<double>(n);
  const auto rank = static_cast<std::int64_t>(std::ceil(expected + 3 * std::sqrt(expected) + 1));
  if (rank >= samples) return 0;
  std::nth_element(drawn.begin(), drawn.begin() + rank, drawn.end(), std::greater<>());
  return drawn[static_cast<std::size_t>(rank)];
}

}  // namespace

Dgc::Dgc(const StrategyContext& context, const DgcOptions& options)
    : group_(context.group),
      grads_(context.parameters.grads()),
      options_(options),
      velocity_(context.group, context.parameters.grads().size()),
      residual_(context.group, context.parameters.grads().size()) {
  HEARTH_CHECK(ConfigError, options.sparsity > 0 && options.sparsity < 1, "compress dgc: sparsity ", options.sparsity,
               "; it is above 0 and below 1, as 0.999");
  HEARTH_CHECK(ConfigError, options.momentum >= 0 && options.momentum < 1, "compress dgc: momentum ", options.momentum,
               " is outside [0, 1)");
  HEARTH_CHECK(ConfigError, options.warmup_steps >= 0, "compress dgc: ", options.warmup_steps,
               " steps of warm-up; give 0 or more");
  HEARTH_CHECK(ConfigError, !options.clip_norm || *options.clip_norm > 0, "compress dgc: clip_norm ",
               options.clip_norm.value_or(0), "; it is above 0");
  const std::vector<std::vector<BucketPart>> all = parts_of(context, name());
  for (std::size_t i = 0; i < context.buckets.size(); ++i) {
    HEARTH_CHECK(ConfigError, context.buckets[i].size <= 0xFFFFFFFF, "compress dgc: a bucket of ",
                 context.buckets[i].size, " gradients, more than 2^32; make dist.bucket_mb smaller");
    Layout& layout = layouts_.emplace_back();
    layout.begin = context.buckets[i].begin;
    for (const BucketPart& part : all[i]) layout.parts.push_back({part});
  }
}

double Dgc::density(const DgcOptions& options, std::int64_t update) {
  const double last = 1 - options.sparsity;
  if (update >= options.warmup_steps) return last;
  const auto stage = static_cast<int>(warmup_stages * update / options.warmup_steps);
  return std::max(last, std::ldexp(1.0, -2 * (stage + 1)));
}

std::vector<std::pair<std::string, std::string>> Dgc::settings() const {
  return {{"sparsity", join_text(options_.sparsity)},
          {"warmup_steps", join_text(options_.warmup_steps)},
          {"momentum", join_text(options_.momentum)},
          {"nesterov", options_.nesterov ? "yes" : "no"},
          {"clip_norm", options_.clip_norm ? join_text(*options_.clip_norm) : ""}};
}

void Dgc::begin_step() {
  if (const double now = density(options_, updates_); now != density_) {
    density_ = now;
    payload_ = 0;
    for (Layout& layout : layouts_) {
      layout.words = 0;
      for (Part& part : layout.parts) {
        const std::int64_t size = part.range.size;
        part.sent =
            part.is_whole() ? size : std::min(size, 1 + static_cast<std::int64_t>(now * static_cast<double>(size)));
        part.at = layout.words;
        layout.words += part.sent * (part.is_whole() ? 1 : 2);
      }
      layout.sent = Tensor::zeros({layout.words}, DType::i32);
      layout.received = Tensor::zeros({group_.size() * layout.words}, DType::i32);
      payload_ += 4 * layout.words;
    }
  }
  if (!options_.clip_norm) return;
  const std::int64_t n = grads_.size(), chunks = (n + grain - 1) / grain;
  std::vector<double> sums(static_cast<std::size_t>(chunks));
  cpu::parallel_chunks(chunks, [&](std::int64_t i) {
    const float* const g = grads_.data<const float>() + i * grain;
    sums[static_cast<std::size_t>(i)] = kernels::sum_of_squares(g, std::min(grain, n - i * grain));
  });
  double squares = 0;
  for (const double sum : sums) squares += sum;
  const double norm = std::sqrt(squares), limit = *options_.clip_norm * coming_scale_ / std::sqrt(group_.size());
  clip_ = static_cast<float>(norm > limit ? limit / norm : 1);
}

void Dgc::accumulate(const Layout& layout, const BucketPart& range, const float* g) const {
  const std::int64_t at = layout.begin + range.begin;
  const auto ratio = static_cast<float>(coming_scale_ / scale_);
  const kernels::DgcConstants constants{.clip = clip_,
                                        .ratio = ratio,
                                        .momentum = static_cast<float>(options_.momentum),
                                        .nesterov = options_.nesterov,
                                        .is_whole = range.rows == 0};
  cpu::parallel_for(range.size, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t from = at + begin;
    kernels::dgc_accumulate(g + range.begin + begin, velocity_.now() + from, residual_.now() + from,
                            velocity_.next() + from, residual_.next() + from, end - begin, constants);
  });
}

void Dgc::select(const Layout& layout, const Part& part, std::int32_t* words) {
  const std::int64_t n = part.range.size, first = layout.begin + part.range.begin;
  float* const v = residual_.next() + first;
  float* const u = velocity_.next() + first;
  const auto collect = [&](std::uint32_t threshold) {
    keys_.clear();
    for (std::int64_t begin = 0; begin < n; begin += kernels::dgc_block) {
      const std::int64_t count = std::min(kernels::dgc_block, n - begin);
      if (!kernels::reaches(v + begin, count, threshold)) continue;
      for (std::int64_t i = begin; i < begin + count; ++i)
        if (const std::uint64_t key = key_of(v[i], i); key >> 32 >= threshold) keys_.push_back(key);
    }
  };
  collect(estimate_threshold(v, n, part.sent));
  // The samples were not like the rest.
  if (static_cast<std::int64_t>(keys_.size()) < part.sent) collect(0);
  const auto end = keys_.begin() + part.sent;
  if (end != keys_.end()) std::nth_element(keys_.begin(), end, keys_.end(), std::greater<>());
  std::sort(keys_.begin(), end, [](std::uint64_t a, std::uint64_t b) { return index_of(a) < index_of(b); });
  std::int32_t* const values = words + part.sent;
  for (std::int64_t i = 0; i < part.sent; ++i) {
    const std::int64_t index = index_of(keys_[static_cast<std::size_t>(i)]);
    words[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(part.range.begin + index));
    values[i] = std::bit_cast<std::int32_t>(v[index]);
    v[index] = u[index] = 0;
  }
  if (!options_.keeps_rest) std::fill_n(v, n, 0.0F);
}

Work Dgc::begin(std::size_t bucket, const Tensor& grads) {
  const Layout& layout = layouts_[bucket];
  auto* const words = layout.sent.data<std::int32_t>();
  for (const Part& part : layout.parts) {
    accumulate(layout, part.range, grads.data<const float>());
    if (!part.is_whole()) {
      select(layout, part, words + part.at);
      continue;
    }
    float* const v = residual_.next() + layout.begin + part.range.begin;
    std::memcpy(words + part.at, v, static_cast<std::size_t>(part.sent) * sizeof(float));
    std::fill_n(v, part.sent, 0.0F);
  }
  return group_.all_gather(layout.sent, layout.received);
}

void Dgc::end(std::size_t bucket, const Tensor& grads) {
  const Layout& layout = layouts_[bucket];
  auto* const y = grads.data<float>();
  grads.fill_(0);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::int32_t* const words = layout.received.data<const std::int32_t>() + rank * layout.words;
    for (const Part& part : layout.parts) {
      const std::int32_t* const indices = words + part.at;
      const std::int32_t* const values = part.is_whole() ? indices : indices + part.sent;
      for (std::int64_t i = 0; i < part.sent; ++i) {
        const std::int64_t index = part.is_whole() ? part.range.begin + i : static_cast<std::uint32_t>(indices[i]);
        HEARTH_CHECK(PeerError, index < grads.size(), "compress dgc: rank ", rank, " has sent gradient ", index,
                     " of a bucket of ", grads.size(), "; look at the memory of that machine");
        y[index] += std::bit_cast<float>(values[i]);
      }
    }
  }
}

void Dgc::commit() {
  velocity_.commit();
  residual_.commit();
  scale_ = coming_scale_;
  ++updates_;
}

void Dgc::register_state(State& state) {
  state.add("compress.updates", &updates_);
  state.add("compress.scale", &scale_);
  velocity_.add_to(state, "compress.velocity");
  residual_.add_to(state, "compress.residual");
}

}  // namespace hearth::dist
