// SPDX-License-Identifier: Apache-2.0
// What a library's attention leaves to do: the numbers of queries and keys of each sample, rows without a key, and the
// gradients of keys that are padding. Traffic: lse once; of the gradients only what is padding.
#include <limits>

#include "ops/attention/cuda/problem.cuh"
#include "ops/attention/kernels.h"

namespace hearth::kernels {
namespace {

using namespace cuda;
using namespace attention_problem;

constexpr int threads = 256;

// A thread a sample.
__global__ void count_tokens(const std::int32_t* lengths, std::int64_t samples, std::int32_t queries, std::int32_t keys,
                             std::int32_t* of_queries, std::int32_t* of_keys) {
  const std::int64_t n = global_thread();
  if (n >= samples) return;
  const std::int32_t length = lengths[n];
  of_queries[n] = queries;
  of_keys[n] = length < 1 ? 1 : length < keys ? length : keys;
}

// A thread a row of [N, H, Tq].
template <class T>
__global__ void settle_rows(HEARTH_GRID_CONSTANT(Problem<T>) p, Heads<T> y, float* lse, std::int64_t rows) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t row = global_thread(); row < rows; row += global_threads()) {
    const Head<T> head(p, row / p.queries);
    if (head.keys > 0 && lse[row] > -infinity) continue;
    lse[row] = infinity;
    T* const to = y.head(head.n, head.h) + row % p.queries * y.row_step;
    for (int d = 0; d < p.width; d += pack_size<T>) store_pack(to + d, Pack<T, pack_size<T>>{});
  }
}

// A thread 16 bytes of a row of [N, H, tokens].
template <class T>
__global__ void settle_gradients(HEARTH_GRID_CONSTANT(Problem<T>) p, Heads<T> dq, Heads<T> dk, Heads<T> dv,
                                 std::int64_t tokens) {
  const int packs = p.width / pack_size<T>;
  const std::int64_t all = p.batch * p.heads * tokens * packs;
  for (std::int64_t at = global_thread(); at < all; at += global_threads()) {
    const std::int64_t row = at / packs, token = row % tokens, channel = at % packs * pack_size<T>;
    const Head<T> head(p, row / tokens);
    const auto clear = [&](const Heads<T>& x) {
      store_pack(x.head(head.n, head.h) + token * x.row_step + channel, Pack<T, pack_size<T>>{});
    };
    if (token >= head.keys && token < p.keys) {
      clear(dk);
      clear(dv);
    }
    if (head.keys == 0 && token < p.queries) clear(dq);
  }
}

}  // namespace

void attention_counts(Stream& stream, const AttentionArguments& a, const Tensor& counts) {
  std::int32_t* const of_queries = counts.data<std::int32_t>();
  launch(stream, "attention counts", {blocks_for(a.batch(), threads), threads, 0, bytes_of(a.key_lengths, counts)},
         count_tokens, static_cast<const std::int32_t*>(a.key_lengths.data<std::int32_t>()), a.batch(),
         static_cast<std::int32_t>(a.queries()), static_cast<std::int32_t>(a.keys()), of_queries,
         of_queries + counts.dim(1));
}

void attention_settle(Stream& stream, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  visit_dtype("attention", y.dtype(), Types<f16, bf16>{}, [&]<class T>() {
    launch(stream, "attention settle", {blocks_for(lse.size(), threads, 1 << 16), threads, 0, bytes_of(lse)},
           settle_rows<T>, problem_of<T>(stream, a), heads_of<T>(y), lse.data<float>(), lse.size());
  });
}

void attention_settle_grad(Stream& stream, const AttentionArguments& a, const AttentionGradients& into) {
  const std::int64_t tokens = std::max(a.queries(), a.keys());
  const std::int64_t packs = a.batch() * a.heads() * tokens * a.width() / 8;
  visit_dtype("attention", a.q.dtype(), Types<f16, bf16>{}, [&]<class T>() {
    launch(stream, "attention_grad settle", {blocks_for(packs, threads, 1 << 16), threads, 0, bytes_of(a.key_lengths)},
           settle_gradients<T>, problem_of<T>(stream, a), heads_of<T>(into.dq), heads_of<T>(into.dk),
           heads_of<T>(into.dv), tokens);
  });
}

}  // namespace hearth::kernels
