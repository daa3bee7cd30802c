// SPDX-License-Identifier: Apache-2.0
#include "models/text/attention_cache.h"

#include <algorithm>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/error.h"
#include "core/run_on.h"
#include "ops/ops.h"

namespace hearth::models {

/// [length, sequences, 2 C] from place `first` on.
Tensor AttentionCache::part(std::int64_t first, std::int64_t length, std::int64_t sequences) const {
  const std::int64_t width = kept_.dim(2);
  return Tensor::view(kept_.storage(), {length, sequences, width}, {sequences * width, width, 1},
                      first * sequences * width, kept_.dtype(), kept_.device());
}

Tensor AttentionCache::attend(const Tensor& qkv, std::int64_t heads, std::int64_t length, std::optional<double> scale) {
  const std::int64_t sequences = qkv.dim(0), added = qkv.dim(1), width = qkv.dim(2) / 3, head = width / heads;
  if (!kept_.defined()) kept_ = Tensor::empty({capacity_, sequences_, 2 * width}, qkv.dtype(), qkv.device());
  part(length, added, sequences).copy_from(transpose(slice(qkv, 2, width, 3 * width), {1, 0, 2}));
  const auto heads_of = [&](const Tensor& x, std::int64_t count, std::int64_t of_text, std::int64_t of_id,
                            std::int64_t offset) {
    return Tensor::view(x.storage(), {sequences, count, heads, head}, {of_text, of_id, head, 1}, x.offset() + offset,
                        x.dtype(), x.device());
  };
  const Tensor q = heads_of(qkv, added, qkv.strides()[0], qkv.strides()[1], 0);
  const Tensor k = heads_of(kept_, length + added, 2 * width, sequences * 2 * width, 0);
  const Tensor v = heads_of(kept_, length + added, 2 * width, sequences * 2 * width, width);
  return reshape(attention(q, k, v, {.causal = true, .query_offset = length, .scale = scale}),
                 {sequences, added, width});
}

void AttentionCache::select(const Tensor& from, std::int64_t sequences, std::int64_t length, Tensor& spare) {
  if (!kept_.defined() || length == 0) return;
  if (!spare.defined()) spare = Tensor::empty_like(kept_);
  const Tensor x = part(0, length, sequences);
  std::swap(kept_, spare);
  const Tensor y = part(0, length, from.size());
  y.storage()->bump_version();
  run_on(y.device(), [&](auto& stream) { kernels::take_rows(stream, x, {length, sequences, x.dim(2)}, from, y); });
}

CachedDecoder::CachedDecoder(const char* name, nn::Module& model, const DecoderOptions& options, std::int64_t context,
                             std::size_t layers, Device device)
    : TextDecoder(name, options, options.capacity == 0 ? context : std::min(options.capacity, context)),
      caches_(layers, AttentionCache(options.sequences, capacity())),
      device_(device) {
  HEARTH_CHECK(UsageError, !model.is_training(), name, ": the model is in training; call eval() before it writes");
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
  bool moved = count != sequences_;
  for (std::int64_t i = 0; i < count; ++i) moved = moved || from[static_cast<std::size_t>(i)] != i;
  if (!moved) return;
  const NoGrad no_grad;
  select_sources(from);
  const Tensor rows = Tensor::of<std::int64_t>({count}, from).to(device_);
  for (AttentionCache& cache : caches_) cache.select(rows, sequences_, length_, spare_);
  sequences_ = count;
}

}  // namespace hearth::models
