// SPDX-License-Identifier: Apache-2.0
// A collective as all kinds of groups see it: what the ranks compare, which tensors it takes, how it cuts them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/collective.h"
#include "core/error.h"

namespace hearth::dist {

enum class Kind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  receive,
  gather_parts,
  reduce_parts,
  use_route
};
inline constexpr const char* kind_names[] = {"all_reduce",   "reduce_scatter", "all_gather", "broadcast",
                                             "all_to_all",   "send",           "receive",    "gather_parts",
                                             "reduce_parts", "use_route"};
inline constexpr const char* reduce_names[] = {"sum", "min", "max"};

/// What a rank is about to do; the same on all ranks, but for messages between two. Without padding, as it is sent.
struct Call {
  std::uint64_t sequence = 0;  // of collectives; of the messages between two ranks in this direction
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::int32_t axes = 0;
  std::int32_t root = 0;  // of a message: the other rank
  Kind kind{};
  Reduce op{};
  DType dtype{};
  std::uint8_t wire = 0;          // 1 + the type; 0: none
  std::array<char, 52> status{};  // of the rank, as far as it fits

  bool operator==(const Call&) const = default;
};

inline std::string text_of(const Call& call) {
  std::string text =
      join_text(kind_names[static_cast<int>(call.kind)], " of ", call.dtype, ' ',
                Shape(std::span(call.extents).first(static_cast<std::size_t>(std::clamp(call.axes, 0, 8)))));
  if (call.kind == Kind::all_reduce) text += join_text(" (", reduce_names[static_cast<int>(call.op)], ")");
  if (call.wire != 0) text += join_text(" sent as ", static_cast<DType>(call.wire - 1));
  if (call.kind == Kind::broadcast || call.kind == Kind::receive) text += join_text(" from rank ", call.root);
  if (call.kind == Kind::send) text += join_text(" to rank ", call.root);
  if (call.status[0] != 0)
    text += " at " + std::string(call.status.begin(), std::find(call.status.begin(), call.status.end(), '\0'));
  const bool is_message = call.kind == Kind::send || call.kind == Kind::receive;
  return text + join_text(", its ", is_message ? "message" : "collective", " number ", call.sequence + 1,
                          is_message ? " there" : "");
}

inline Call call_of(Kind kind, const Tensor& x, int root = 0) {
  Call call{.axes = x.shape().rank(), .root = root, .kind = kind, .dtype = x.dtype()};
  std::copy(x.shape().begin(), x.shape().end(), call.extents.begin());
  return call;
}

inline Call call_of_all_reduce(const Tensor& x, Reduce op, std::optional<DType> wire) {
  Call call = call_of(Kind::all_reduce, x);
  call.op = op;
  call.wire = wire ? static_cast<std::uint8_t>(1 + static_cast<int>(*wire)) : std::uint8_t{0};
  return call;
}

// Pieces of a sum begin on whole cache lines.
inline constexpr std::int64_t grain_bytes = 64;

/// The elements of each rank: the first ones get `grain` more where they do not divide evenly.
struct Pieces {
  Pieces(std::int64_t total, int ranks, std::int64_t grain_size) : count(total), grain(grain_size) {
    const std::int64_t grains = (count + grain - 1) / grain;
    each = grains / ranks, extra = grains % ranks;
  }
  std::int64_t begin(int rank) const {
    return std::min(count, (each * rank + std::min<std::int64_t>(extra, rank)) * grain);
  }
  std::int64_t size(int rank) const { return begin(rank + 1) - begin(rank); }

  std::int64_t count, grain, each, extra;
};

inline void check_contiguous(const char* op, const Tensor& x) {
  HEARTH_CHECK(UsageError, x.defined(), op, ": the tensor is undefined");
  HEARTH_CHECK(ShapeError, x.is_contiguous(), op, ": ", describe(x), " is not contiguous; give it x.contiguous()");
}
inline void check_all_reduce(const Tensor& x, std::optional<DType> wire) {
  check_contiguous("all_reduce", x);
  HEARTH_CHECK(DTypeError, x.dtype() != DType::boolean, "all_reduce: ", describe(x), ": bool has no sum; take u8");
  HEARTH_CHECK(DTypeError, !wire || (x.dtype() == DType::f32 && (*wire == DType::bf16 || *wire == DType::f16)),
               "all_reduce: ", describe(x), " cannot travel as ", wire.value_or(x.dtype()),
               "; f32 may, as bf16 or f16");
}
/// x is `ranks` times `part`.
inline void check_parts(const char* op, const Tensor& x, const Tensor& part, int ranks) {
  check_contiguous(op, x);
  check_contiguous(op, part);
  HEARTH_CHECK(ShapeError, x.size() == part.size() * ranks && x.dtype() == part.dtype(), op, ": ", describe(x),
               " is not ", ranks, " times ", describe(part), ", one part a rank");
}
/// x and y are `ranks` pieces each, and no element is of both.
inline void check_all_to_all(const Tensor& x, const Tensor& y, int ranks) {
  check_contiguous("all_to_all", x);
  check_contiguous("all_to_all", y);
  HEARTH_CHECK(ShapeError, x.size() == y.size() && x.dtype() == y.dtype() && x.size() % ranks == 0,
               "all_to_all: ", describe(x), " and ", describe(y), " are not ", ranks,
               " pieces each, of one size and type");
  const bool overlap = x.same_storage(y) && x.offset() < y.offset() + y.size() && y.offset() < x.offset() + x.size();
  HEARTH_CHECK(UsageError, x.size() == 0 || !overlap, "all_to_all: ", describe(x),
               " has elements of the result; give a tensor of its own for each");
}
inline void check_message(const char* op, const Tensor& x, int other, int rank, int ranks) {
  check_contiguous(op, x);
  HEARTH_CHECK(IndexError, other >= 0 && other < ranks && other != rank, op, ": rank ", other, " is no other one of ",
               ranks, " ranks; this is rank ", rank);
}
inline void check_broadcast(const Tensor& x, int root, int ranks) {
  check_contiguous("broadcast", x);
  HEARTH_CHECK(IndexError, root >= 0 && root < ranks, "broadcast: there is no rank ", root, "; ranks are 0..",
               ranks - 1);
}

}  // namespace hearth::dist
