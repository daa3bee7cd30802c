// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_libraries/nccl/clique.h"

#include <algorithm>
#include <cstring>

#include "core/half.h"

namespace hearth::reference_nccl {
namespace {

template <class T>
T reduced(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclMin:
      return std::min(a, b);
    case ncclMax:
      return std::max(a, b);
    default:
      return static_cast<T>(a + b);
  }
}
// As NCCL's kernels do, which round at every rank.
template <class T>
T reduced_by_float(ncclRedOp_t op, T a, T b) {
  return T(reduced(op, static_cast<float>(a), static_cast<float>(b)));
}
bf16 reduced(ncclRedOp_t op, bf16 a, bf16 b) { return reduced_by_float(op, a, b); }
f16 reduced(ncclRedOp_t op, f16 a, f16 b) { return reduced_by_float(op, a, b); }

/// From the last rank to the first, so that the order is none that Hearth promises.
template <class T>
std::vector<std::byte> reduce_all(const std::vector<const Operation*>& ranks, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  T* const result = reinterpret_cast<T*>(bytes.data());
  std::memcpy(result, ranks.back()->send, bytes.size());
  for (std::size_t rank = ranks.size() - 1; rank-- > 0;)
    for (std::size_t i = 0; i < count; ++i)
      result[i] = reduced(ranks[0]->op, result[i], reinterpret_cast<const T*>(ranks[rank]->send)[i]);
  return bytes;
}

std::vector<std::byte> reduce_all(const std::vector<const Operation*>& ranks, std::size_t count) {
  switch (ranks[0]->type) {
    case ncclFloat32:
      return reduce_all<float>(ranks, count);
    case ncclFloat64:
      return reduce_all<double>(ranks, count);
    case ncclFloat16:
      return reduce_all<f16>(ranks, count);
    case ncclBfloat16:
      return reduce_all<bf16>(ranks, count);
    case ncclInt32:
      return reduce_all<std::int32_t>(ranks, count);
    case ncclInt64:
      return reduce_all<std::int64_t>(ranks, count);
    default:
      return reduce_all<std::uint8_t>(ranks, count);
  }
}

/// What `from` sends to rank `to`, in order.
std::vector<const Message*> sent(const Operation& from, int to) {
  std::vector<const Message*> found;
  for (const Message& one : from.sends)
    if (one.peer == to) found.push_back(&one);
  return found;
}

/// Calls f(sent, received) for each pair of messages; false where they do not make pairs. Null: a rank that has none.
template <class F>
bool pair_messages(const std::vector<const Operation*>& ranks, F&& f) {
  for (std::size_t to = 0; to < ranks.size(); ++to)
    for (std::size_t from = 0; from < ranks.size(); ++from) {
      if (ranks[to] == nullptr || ranks[from] == nullptr) continue;
      const std::vector<const Message*> out = sent(*ranks[from], static_cast<int>(to));
      std::size_t next = 0;
      for (const Message& in : ranks[to]->receives) {
        if (in.peer != static_cast<int>(from)) continue;
        if (next == out.size() || out[next]->bytes != in.bytes) return false;
        f(*out[next++], in);
      }
      if (next != out.size()) return false;
    }
  return true;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64:
      return 8;
    case ncclFloat32:
    case ncclInt32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

bool Clique::arrive(int rank, const Operation& operation) {
  const auto mine = static_cast<std::size_t>(rank);
  if (aborted_[mine] || passed_[mine]) return true;
  at_[mine] = &operation;
  return !meeting(mine).empty();
}

std::vector<const Operation*> Clique::meeting(std::size_t rank) const {
  const Operation& first = *at_[rank];
  if (first.kind != Kind::point_to_point) {
    for (const Operation* of : at_)
      if (of == nullptr || of->kind != first.kind || of->count != first.count || of->type != first.type ||
          of->op != first.op || of->root != first.root)
        return {};
    return at_;
  }
  std::vector<const Operation*> ranks(at_.size());
  std::vector<std::size_t> reached{rank};
  while (!reached.empty()) {
    const std::size_t next = reached.back();
    reached.pop_back();
    if (ranks[next] != nullptr) continue;
    if (at_[next] == nullptr || at_[next]->kind != Kind::point_to_point) return {};
    ranks[next] = at_[next];
    for (const auto& messages : {at_[next]->sends, at_[next]->receives})
      for (const Message& message : messages) reached.push_back(static_cast<std::size_t>(message.peer));
  }
  return pair_messages(ranks, [](const Message&, const Message&) {}) ? ranks : std::vector<const Operation*>{};
}

void Clique::pass(int rank) {
  const auto mine = static_cast<std::size_t>(rank);
  if (aborted_[mine]) {
    at_[mine] = nullptr;
    return;
  }
  if (passed_[mine]) {
    passed_[mine] = false;
    return;
  }
  const std::vector<const Operation*> ranks = meeting(mine);
  compute(ranks, *at_[mine]);
  for (std::size_t other = 0; other < ranks.size(); ++other)
    if (ranks[other] != nullptr) at_[other] = nullptr, passed_[other] = other != mine;
}

void Clique::compute(const std::vector<const Operation*>& ranks, const Operation& first) {
  const std::size_t bytes = first.count * size_of(first.type);
  switch (first.kind) {
    case Kind::all_reduce: {
      const std::vector<std::byte> result = reduce_all(ranks, first.count);
      for (const Operation* one : ranks) std::memcpy(one->receive, result.data(), bytes);
      return;
    }
    case Kind::reduce_scatter: {
      const std::vector<std::byte> result = reduce_all(ranks, first.count * ranks.size());
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        std::memcpy(ranks[rank]->receive, result.data() + rank * bytes, bytes);
      return;
    }
    case Kind::all_gather: {
      std::vector<std::byte> all;
      for (const Operation* one : ranks) all.insert(all.end(), one->send, one->send + bytes);
      for (const Operation* one : ranks) std::memcpy(one->receive, all.data(), all.size());
      return;
    }
    case Kind::broadcast:
      for (const Operation* one : ranks)
        std::memmove(one->receive, ranks[static_cast<std::size_t>(first.root)]->send, bytes);
      return;
    case Kind::point_to_point:
      pair_messages(ranks, [](const Message& out, const Message& in) { std::memmove(in.data, out.data, in.bytes); });
      return;
  }
}

}  // namespace hearth::reference_nccl
