// SPDX-License-Identifier: Apache-2.0
#include "models/text/attention_cache.h"

#include <algorithm>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/error.h"
#include "core/run_on.h"
#include "ops/ops.h"

namespace hearth::models {

/// [length, texts, 2 C] from place `first` on.
Tensor AttentionCache::part(std::int64_t first, std::int64_t length, std::int64_t texts) const {
  const std::int64_t width = kept_.dim(2);
  return Tensor::view(kept_.storage(), {length, texts, width}, {texts * width, width, 1}, first * texts * width,
                      kept_.dtype(), kept_.device());
}

Tensor AttentionCache::attend(const Tensor& qkv, std::int64_t heads, std::int64_t length, std::optional<double> scale) {
  const std::int64_t texts = qkv.dim(0), added = qkv.dim(1), width = qkv.dim(2) / 3, head = width / heads;
  if (!kept_.defined()) kept_ = Tensor::empty({room_, texts_, 2 * width}, qkv.dtype(), qkv.device());
  part(length, added, texts).copy_from(transpose(slice(qkv, 2, width, 3 * width), {1, 0, 2}));
  const auto heads_of = [&](const Tensor& x, std::int64_t count, std::int64_t of_text, std::int64_t of_id,
                            std::int64_t offset) {
    return Tensor::view(x.storage(), {texts, count, heads, head}, {of_text, of_id, head, 1}, x.offset() + offset,
                        x.dtype(), x.device());
  };
  const Tensor q = heads_of(qkv, added, qkv.strides()[0], qkv.strides()[1], 0);
  const Tensor k = heads_of(kept_, length + added, 2 * width, texts * 2 * width, 0);
  const Tensor v = heads_of(kept_, length + added, 2 * width, texts * 2 * width, width);
  return reshape(attention(q, k, v, {.causal = true, .query_offset = length, .scale = scale}), {texts, added, width});
}

void AttentionCache::select(const Tensor& from, std::int64_t texts, std::int64_t length, Tensor& spare) {
  if (!kept_.defined() || length == 0) return;
  if (!spare.defined()) spare = Tensor::empty_like(kept_);
  const Tensor x = part(0, length, texts);
  std::swap(kept_, spare);
  const Tensor y = part(0, length, from.size());
  y.storage()->bump_version();
  run_on(y.device(), [&](auto& stream) { kernels::take_rows(stream, x, {length, texts, x.dim(2)}, from, y); });
}

CachedDecoder::CachedDecoder(const char* name, nn::Module& network, const DecoderOptions& options, std::int64_t context,
                             std::size_t layers, Device device)
    : TextDecoder(name, options, options.room == 0 ? context : std::min(options.room, context)),
      caches_(layers, AttentionCache(options.texts, room())),
      device_(device) {
  HEARTH_CHECK(UsageError, !network.is_training(), name, ": the network is in training; call eval() before it writes");
}

Tensor CachedDecoder::append(const Tensor& ids) {
  check_appended(ids);
  const NoGrad no_grad;
  const Tensor y = logits(ids.to(device_));
  length_ += ids.dim(1);
  return y;
}

void CachedDecoder::select(std::span<const std::int64_t> from) {
  check_selected(from);
  const auto count = static_cast<std::int64_t>(from.size());
  bool moved = count != texts_;
  for (std::int64_t i = 0; i < count; ++i) moved = moved || from[static_cast<std::size_t>(i)] != i;
  if (!moved) return;
  const NoGrad no_grad;
  select_sources(from);
  const Tensor rows = Tensor::of<std::int64_t>({count}, from).to(device_);
  for (AttentionCache& cache : caches_) cache.select(rows, texts_, length_, spare_);
  texts_ = count;
}

}  // namespace hearth::models
