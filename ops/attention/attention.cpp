// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/attention/operands.h"

namespace hearth {
namespace {

using namespace attention_operands;

/// How the heads lie in the inputs.
enum class Packing {
  none,  ///< q, k, v
  kv,    ///< q, and k beside v
  qkv,   ///< one tensor
};

/// The heads that begin at channel `first` of x [N, T, channels], whose last axis is dense, as [N, T, H, D].
Tensor heads_of(const Tensor& x, std::int64_t first, std::int64_t heads, std::int64_t width) {
  if (x.size() == 0) return Tensor::empty({x.dim(0), x.dim(1), heads, width}, x.dtype(), x.device());
  const Strides& from = x.strides();
  return Tensor::view(x.storage(), {x.dim(0), x.dim(1), heads, width}, {from[0], from[1], width, 1}, x.offset() + first,
                      x.dtype(), x.device());
}

/// x, or a copy where neighbours of its last axis do not lie side by side.
Tensor with_dense_rows(const Tensor& x) {
  return x.dim(-1) == 1 || x.strides()[static_cast<std::size_t>(x.rank() - 1)] == 1 ? x : x.contiguous();
}

struct Attention {
  static constexpr OpInfo info{.name = "attention", .autocast = Autocast::low_precision, .autocast_inputs = 3};
  struct Saved {
    std::array<SavedTensor, 3> x;
    SavedTensor bias, key_lengths, segments, y;
    Tensor lse;
    DType bias_dtype = DType::f32;
  };
  Packing packing = Packing::none;
  std::int64_t head_count = 0;
  bool causal = false;
  std::int64_t query_offset = 0;
  double scale = 1.0;
  double dropout = 0.0;
  RandomKey key = {};

  int inputs() const { return packing == Packing::none ? 3 : packing == Packing::kv ? 2 : 1; }

  /// q, k and v as views of [N, T, H, D] on the inputs, or on the gradients laid out like them.
  std::array<Tensor, 3> views(const std::array<Tensor, 3>& x) const {
    if (packing == Packing::none) return x;
    const std::int64_t parts = packing == Packing::qkv ? 3 : 1, c = x[0].dim(-1) / parts;
    const std::int64_t width = c / head_count;
    const auto part = [&](const Tensor& whole, std::int64_t i) { return heads_of(whole, i * c, head_count, width); };
    if (packing == Packing::qkv) return {part(x[0], 0), part(x[0], 1), part(x[0], 2)};
    return {part(x[0], 0), part(x[1], 0), part(x[1], 1)};
  }

  kernels::AttentionArguments arguments(const std::array<Tensor, 3>& qkv, const Tensor& bias, const Tensor& key_lengths,
                                        const Tensor& segments) const {
    return {qkv[0], qkv[1], qkv[2], bias, key_lengths, segments, causal, query_offset, scale, dropout, key};
  }

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& bias_in,
                 const Tensor& key_lengths, const Tensor& segments_in) const {
    std::array<Tensor, 3> x{a, b, c};
    for (Tensor& each : x)
      if (each.defined()) each = with_dense_rows(each);
    const auto qkv = views(x);
    const Tensor& q = qkv[0];
    const Tensor bias = in_type(bias_in.defined() ? bias_in.contiguous() : bias_in, sum_type(q.dtype()));
    const Tensor lengths = key_lengths.defined() ? key_lengths.contiguous() : Tensor();
    const Tensor segments = segments_in.defined() ? segments_in.contiguous() : Tensor();
    const Tensor y = Tensor::empty(q.shape(), q.dtype(), q.device());
    const Tensor lse = Tensor::empty({q.dim(0), q.dim(2), q.dim(1)}, sum_type(q.dtype()), q.device());
    const auto given = arguments(qkv, bias, lengths, segments);
    if (y.size() > 0) run_on(q.device(), [&](auto& stream) { kernels::attention(stream, given, y, lse); });
    const Tensor result = packing == Packing::none ? y : y.as_shape({y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
    if (is_recording()) {
      for (std::size_t i = 0; i < x.size(); ++i) saved.x[i] = x[i];
      saved.bias = bias;
      if (bias.defined()) saved.bias_dtype = bias_in.dtype();
      saved.key_lengths = lengths;
      saved.segments = segments;
      saved.y = y;
      saved.lse = lse;
    }
    return result;
  }

  std::array<Tensor, 6> backward(const Saved& saved, const Tensor& dy_in, const NeedsGrad& needs) const {
    std::array<Tensor, 3> x;
    std::array<Tensor, 6> gradients;
    for (int i = 0; i < inputs(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      x[at] = saved.x[at].get();
      gradients[at] = needs[at] ? needs.make(at, x[at].shape(), x[at].dtype()) : Tensor::empty_like(x[at]);
    }
    const auto given = arguments(views(x), saved.bias.get(), saved.key_lengths.get(), saved.segments.get());
    const auto into = views({gradients[0], gradients[1], gradients[2]});
    const Tensor& y = saved.y.get();
    const Tensor dy = with_dense_rows(dy_in);
    const Tensor dy_heads = packing == Packing::none ? dy : heads_of(dy, 0, given.heads(), given.width());
    Tensor dbias;
    if (given.bias.defined() && needs[3]) dbias = sums_for(3, given.bias, saved.bias_dtype, needs);
    if (y.size() == 0 || given.keys() == 0) {
      for (const Tensor& gradient : {gradients[0], gradients[1], gradients[2], dbias})
        if (gradient.defined()) gradient.fill_(0);
    } else {
      run_on(y.device(), [&](auto& stream) {
        kernels::attention_grad(stream, given, y, saved.lse, dy_heads, {into[0], into[1], into[2], dbias});
      });
    }
    if (dbias.defined()) gradients[3] = in_type(dbias, needs.type_for(3, saved.bias_dtype));
    for (std::size_t i = 0; i < 3; ++i)
      if (!needs[i]) gradients[i] = Tensor();
    return gradients;
  }
};

/// The shapes of a problem, for checks and messages.
struct Extents {
  std::int64_t n, tq, tk, heads, width;
};

void check_mask(const char* op, const Extents& e, DType dtype, const AttentionOptions& options) {
  const Tensor& bias = options.bias;
  if (bias.defined()) {
    require_floating(op, "bias", bias);
    HEARTH_CHECK(DTypeError, bias.dtype() == dtype || (bias.dtype() == DType::f32 && dtype != DType::f64), op,
                 ": the bias is ", describe(bias), " beside queries of ", dtype, "; give it that type, or f32");
    const bool fits =
        bias.rank() == 3 && (bias.dim(0) == e.heads || bias.dim(0) == 1) && bias.dim(1) == e.tq && bias.dim(2) == e.tk;
    HEARTH_CHECK(ShapeError, fits, op, ": the bias is ", bias.shape(), " for ", e.heads, " heads, ", e.tq,
                 " queries and ", e.tk, " keys; it must be ", Shape{e.heads, e.tq, e.tk}, " or ", Shape{1, e.tq, e.tk});
  }
  const Tensor& lengths = options.key_lengths;
  if (lengths.defined()) {
    HEARTH_CHECK(DTypeError, lengths.dtype() == DType::i32, op, ": key_lengths is ", describe(lengths),
                 "; it must be i32");
    HEARTH_CHECK(ShapeError, lengths.rank() == 1 && lengths.dim(0) == e.n, op, ": key_lengths is ", lengths.shape(),
                 " for ", e.n, " samples; give one number a sample, ", Shape{e.n});
  }
}

void check_segments(const char* op, const Extents& e, const AttentionOptions& options) {
  const Tensor& segments = options.segments;
  if (!segments.defined()) return;
  HEARTH_CHECK(DTypeError, segments.dtype() == DType::i32, op, ": segments is ", describe(segments),
               "; it must be i32");
  HEARTH_CHECK(UsageError, e.tq == e.tk && options.query_offset == 0, op, ": segments of ", e.tq, " queries and ", e.tk,
               " keys, ", options.query_offset,
               " of them before the first query; only a whole sequence that attends to ", "itself has segments");
  HEARTH_CHECK(ShapeError, segments.rank() == 3 && segments.shape() == (Shape{e.n, e.tq, 2}), op, ": segments is ",
               segments.shape(), " for ", e.n, " samples of ", e.tq, " positions; it must be ", Shape{e.n, e.tq, 2});
}

Tensor run(const char* op, Packing packing, const Extents& e, const std::array<Tensor, 3>& x,
           const AttentionOptions& options) {
  detail::check_devices(op, std::array{x[0], x[1], x[2], options.bias, options.key_lengths, options.segments});
  HEARTH_CHECK(ShapeError, e.width >= 1 && e.width <= max_head_width, op, ": heads of ", e.width,
               " channels; they must have from 1 to ", max_head_width, ": use more heads");
  check_mask(op, e, x[0].dtype(), options);
  check_segments(op, e, options);
  HEARTH_CHECK(UsageError, options.query_offset >= 0, op, ": query_offset is ", options.query_offset,
               "; it counts the keys before the first query and is at least 0");
  HEARTH_CHECK(UsageError, options.causal || options.query_offset == 0, op, ": query_offset is ", options.query_offset,
               " without causal, where it has no meaning; set causal");
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(e.width)));
  HEARTH_CHECK(UsageError, std::isfinite(scale), op, ": the scale is ", scale, "; it must be finite");
  require_probability(op, "the dropout", options.dropout);
  // The weights are never in memory, but each has a number.
  checked_mul(checked_mul(checked_mul(e.n, e.heads, op), e.tq, op), e.tk, op);
  checked_add(options.query_offset, e.tq, op);
  Attention attention{packing, e.heads, options.causal, options.query_offset, scale, options.dropout, {}};
  if (options.dropout > 0) attention.key = next_random_key();
  return record(attention, x[0], x[1], x[2], wide_bias(options.bias), options.key_lengths, options.segments);
}

/// The width of a head where `parts` times `heads` of them make the channels of x [N, T, channels].
std::int64_t head_width(const char* op, const char* name, const Tensor& x, std::int64_t heads, std::int64_t parts) {
  require_floating(op, name, x);
  HEARTH_CHECK(ShapeError, x.rank() == 3, op, ": ", name, " is ", x.shape(), "; it must be [N, T, ",
               parts == 1   ? ""
               : parts == 2 ? "2 "
                            : "3 ",
               "C]");
  HEARTH_CHECK(UsageError, heads >= 1, op, ": ", heads, " heads; there must be at least one");
  const std::int64_t channels = x.dim(-1);
  HEARTH_CHECK(ShapeError, channels % parts == 0 && channels / parts % heads == 0, op, ": the ", channels,
               " channels of ", name, " ", x.shape(), " do not divide into ",
               parts == 1 ? "" : join_text(parts, " times "), heads, " heads");
  return channels / parts / heads;
}

}  // namespace

double kernels::AttentionArguments::flops(int products) const {
  double seen = static_cast<double>(keys());
  if (causal) seen = std::min(seen, static_cast<double>(query_offset) + (static_cast<double>(queries()) + 1) / 2);
  return 2.0 * products * static_cast<double>(batch() * heads()) * static_cast<double>(queries()) * seen *
         static_cast<double>(width());
}

Tensor attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const AttentionOptions& options) {
  const char* const op = "attention";
  const Tensor q = narrowed(q_in), k = narrowed(k_in), v = narrowed(v_in);
  require_floating(op, "q", q);
  require_same_kind(op, "q", q, "k", k);
  require_same_kind(op, "q", q, "v", v);
  HEARTH_CHECK(ShapeError, q.rank() == 4, op, ": q is ", q.shape(), "; it must be [N, Tq, H, D]");
  const Shape expected = q.shape().with(1, k.rank() == 4 ? k.dim(1) : 0);
  HEARTH_CHECK(ShapeError, k.shape() == expected && v.shape() == expected, op, ": q is ", q.shape(), ", k ", k.shape(),
               " and v ", v.shape(), "; k and v must be one shape [N, Tk, H, D], and all but Tk as in q");
  return run(op, Packing::none, {q.dim(0), q.dim(1), k.dim(1), q.dim(2), q.dim(3)}, {q, k, v}, options);
}

Tensor self_attention(const Tensor& qkv_in, std::int64_t heads, const AttentionOptions& options) {
  const char* const op = "self_attention";
  const Tensor qkv = narrowed(qkv_in);
  const std::int64_t width = head_width(op, "qkv", qkv, heads, 3);
  return run(op, Packing::qkv, {qkv.dim(0), qkv.dim(1), qkv.dim(1), heads, width}, {qkv, {}, {}}, options);
}

Tensor cross_attention(const Tensor& q_in, const Tensor& kv_in, std::int64_t heads, const AttentionOptions& options) {
  const char* const op = "cross_attention";
  const Tensor q = narrowed(q_in), kv = narrowed(kv_in);
  const std::int64_t width = head_width(op, "q", q, heads, 1);
  const std::int64_t other = head_width(op, "kv", kv, heads, 2);
  require_same_kind(op, "q", q, "kv", kv);
  HEARTH_CHECK(ShapeError, width == other && q.dim(0) == kv.dim(0), op, ": q is ", q.shape(), " and kv ", kv.shape(),
               "; they must be [N, Tq, C] and [N, Tk, 2 C]");
  return run(op, Packing::kv, {q.dim(0), q.dim(1), kv.dim(1), heads, width}, {q, kv, {}}, options);
}

}  // namespace hearth
