// SPDX-License-Identifier: Apache-2.0
// Convolution through oneDNN. Activations keep the plain NHWC layout, in which the library is as fast as in its
// blocked ones; filters must be given to it in a layout of its choosing, because with plain ones it silently falls to
// its reference code. They are copied in and out around each call.
#include "ops/onednn/library.h"

#if HEARTH_HAS_DNNL

#include <algorithm>
#include <optional>

#include "core/cpu/scratch.h"
#include "ops/conv/direct_bf16.h"
#include "ops/conv/paired_bf16.h"
#include "ops/onednn/convert.h"

namespace hearth::cpu::dnn {
namespace {

using Desc = dnnl::memory::desc;

struct ConvKey {
  ConvProblem problem;
  Pass pass = Pass::forward;
  bool bias = false;
  int team = 1;
  auto operator<=>(const ConvKey&) const = default;
};

struct ConvPlan {
  std::string reason;  // why there is no plan; empty if there is one
  std::string implementation;
  dnnl::primitive primitive;
  Desc src, weights, bias, dst;  // of the primitive; for the backward passes of the gradients
  Desc scratchpad;
  Reorder weights_in, weights_out;
};

const char* name_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward_data:
      return "backward_data";
    case Pass::backward_weights:
      return "backward_weights";
  }
  return "";
}

std::string text_of(const ConvKey& key) {
  const ConvShape& s = key.problem.shape;
  std::string text = join_text("conv2d ", name_of(key.pass), " n", s.n, " ", s.h, "x", s.w, "x", s.c, " k", s.k, " ",
                               s.r, "x", s.s, " stride ", s.stride_h, "x", s.stride_w, " pad ", s.pad_h, "x", s.pad_w,
                               " dilation ", s.dilation_h, "x", s.dilation_w, " groups ", s.groups, " ",
                               hearth::name_of(key.problem.activations), "/", hearth::name_of(key.problem.weights));
  return text + join_text(key.bias ? " bias" : "", " threads ", key.team);
}

void check_shape(const ConvShape& s) {
  const std::int64_t all[] = {s.n, s.h, s.w,        s.c,        s.k,          s.r,          s.s,
                              s.p, s.q, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w, s.groups};
  for (const std::int64_t extent : all)
    HEARTH_CHECK(ShapeError, extent >= 1 && extent <= (std::int64_t{1} << 31),
                 "conv2d: every size must be at least 1 and below 2^31, found ", extent);
  HEARTH_CHECK(ShapeError, s.pad_h >= 0 && s.pad_w >= 0 && s.pad_h < (1 << 30) && s.pad_w < (1 << 30),
               "conv2d: padding ", s.pad_h, "x", s.pad_w, " is negative or too large");
  HEARTH_CHECK(ShapeError, s.c % s.groups == 0 && s.k % s.groups == 0, "conv2d: ", s.c, " input and ", s.k,
               " output channels do not both divide into ", s.groups, " groups");
}

// Zeros after the last pixel so that the output has `out` pixels: the same as before the first where that fits.
std::int64_t far_padding(std::int64_t in, std::int64_t out, std::int64_t taps, std::int64_t stride, std::int64_t pad,
                         std::int64_t dilation) {
  const std::int64_t reach = (taps - 1) * dilation + 1;
  if (in + 2 * pad >= reach && (in + 2 * pad - reach) / stride + 1 == out) return pad;
  return (out - 1) * stride + reach - in - pad;
}

struct Descriptors {
  Desc x, y, w_any, w_hint, w_plain, b;
  dnnl::memory::dims strides, near_padding, far_padding, dilation;
};

Descriptors describe(const ConvKey& key) {
  using Tag = dnnl::memory::format_tag;
  const ConvShape& s = key.problem.shape;
  const auto activation = library_type(key.problem.activations);
  // The gradient of the filters is summed and kept in f32 whatever type it leaves in.
  const bool gradient = key.pass == Pass::backward_weights;
  const auto inside = gradient ? dnnl::memory::data_type::f32 : activation;
  const auto outside = library_type(key.problem.weights);
  const std::int64_t g = s.groups, k = s.k / g, c = s.c / g;
  Descriptors d;
  d.x = Desc({s.n, s.c, s.h, s.w}, activation, Tag::nhwc);
  d.y = Desc({s.n, s.k, s.p, s.q}, activation, Tag::nhwc);
  if (g == 1) {
    d.w_any = Desc({k, c, s.r, s.s}, inside, Tag::any);
    d.w_hint = Desc({k, c, s.r, s.s}, activation, Tag::any);
    d.w_plain = Desc({k, c, s.r, s.s}, outside, dnnl::memory::dims{s.r * s.s * c, 1, s.s * c, c});
  } else {
    d.w_any = Desc({g, k, c, s.r, s.s}, inside, Tag::any);
    d.w_hint = Desc({g, k, c, s.r, s.s}, activation, Tag::any);
    d.w_plain = Desc({g, k, c, s.r, s.s}, outside, dnnl::memory::dims{k * s.r * s.s * c, s.r * s.s * c, 1, s.s * c, c});
  }
  if (key.bias) d.b = Desc({s.k}, dnnl::memory::data_type::f32, Tag::a);
  d.strides = {s.stride_h, s.stride_w};
  d.near_padding = {s.pad_h, s.pad_w};
  d.far_padding = {far_padding(s.h, s.p, s.r, s.stride_h, s.pad_h, s.dilation_h),
                   far_padding(s.w, s.q, s.s, s.stride_w, s.pad_w, s.dilation_w)};
  d.dilation = {s.dilation_h - 1, s.dilation_w - 1};
  return d;
}

#if DNNL_VERSION_MAJOR >= 3
dnnl::convolution_forward::primitive_desc forward_descriptor(const Descriptors& d, const dnnl::primitive_attr& a) {
  return {engine(),
          dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_direct,
          d.x,
          d.w_hint,
          d.b,
          d.y,
          d.strides,
          d.dilation,
          d.near_padding,
          d.far_padding,
          a};
}
dnnl::convolution_backward_data::primitive_desc data_descriptor(const Descriptors& d, const dnnl::primitive_attr& a,
                                                                const dnnl::convolution_forward::primitive_desc& hint) {
  return {engine(),
          dnnl::algorithm::convolution_direct,
          d.x,
          d.w_any,
          d.y,
          d.strides,
          d.dilation,
          d.near_padding,
          d.far_padding,
          hint,
          a};
}
dnnl::convolution_backward_weights::primitive_desc weights_descriptor(
    const Descriptors& d, const dnnl::primitive_attr& a, const dnnl::convolution_forward::primitive_desc& hint) {
  return {engine(),
          dnnl::algorithm::convolution_direct,
          d.x,
          d.w_any,
          d.b,
          d.y,
          d.strides,
          d.dilation,
          d.near_padding,
          d.far_padding,
          hint,
          a};
}
#else
dnnl::convolution_forward::primitive_desc forward_descriptor(const Descriptors& d, const dnnl::primitive_attr& a) {
  using P = dnnl::convolution_forward;
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  if (d.b.get_size() != 0)
    return {P::desc(kind, direct, d.x, d.w_hint, d.b, d.y, d.strides, d.dilation, d.near_padding, d.far_padding), a,
            engine()};
  return {P::desc(kind, direct, d.x, d.w_hint, d.y, d.strides, d.dilation, d.near_padding, d.far_padding), a, engine()};
}
dnnl::convolution_backward_data::primitive_desc data_descriptor(const Descriptors& d, const dnnl::primitive_attr& a,
                                                                const dnnl::convolution_forward::primitive_desc& hint) {
  return {dnnl::convolution_backward_data::desc(dnnl::algorithm::convolution_direct, d.x, d.w_any, d.y, d.strides,
                                                d.dilation, d.near_padding, d.far_padding),
          a, engine(), hint};
}
dnnl::convolution_backward_weights::primitive_desc weights_descriptor(
    const Descriptors& d, const dnnl::primitive_attr& a, const dnnl::convolution_forward::primitive_desc& hint) {
  using P = dnnl::convolution_backward_weights;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  if (d.b.get_size() != 0)
    return {P::desc(direct, d.x, d.w_any, d.b, d.y, d.strides, d.dilation, d.near_padding, d.far_padding), a, engine(),
            hint};
  return {P::desc(direct, d.x, d.w_any, d.y, d.strides, d.dilation, d.near_padding, d.far_padding), a, engine(), hint};
}
#endif

template <class PrimitiveDesc>
void keep(ConvPlan& plan, const PrimitiveDesc& descriptor) {
  plan.implementation = descriptor.impl_info_str();
  plan.scratchpad = descriptor.scratchpad_desc();
  if (is_reference(plan.implementation))
    plan.reason = "oneDNN has only its slow reference code (" + plan.implementation + ") for this problem";
}

void make_primitive(ConvPlan& plan, const ConvKey& key, const Descriptors& d) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto forward = forward_descriptor(d, attributes);
  if (key.pass == Pass::forward) {
    keep(plan, forward);
    plan.weights = forward.weights_desc();
    if (plan.reason.empty()) plan.primitive = dnnl::convolution_forward(forward);
  } else if (key.pass == Pass::backward_data) {
    const auto backward = data_descriptor(d, attributes, forward);
    keep(plan, backward);
    plan.weights = backward.weights_desc();
    if (plan.reason.empty()) plan.primitive = dnnl::convolution_backward_data(backward);
  } else {
    const auto backward = weights_descriptor(d, attributes, forward);
    keep(plan, backward);
    plan.weights = backward.diff_weights_desc();
    if (plan.reason.empty()) plan.primitive = dnnl::convolution_backward_weights(backward);
  }
}

std::shared_ptr<const ConvPlan> make_plan(const ConvKey& key) {
  auto plan = std::make_shared<ConvPlan>();
  const TeamScope team(key.team);
  reserve_for_library("oneDNN");
  try {
    const Descriptors d = describe(key);
    plan->src = d.x;
    plan->dst = d.y;
    plan->bias = d.b;
    make_primitive(*plan, key, d);
    if (!plan->reason.empty()) return plan;
    if (key.pass == Pass::backward_weights)
      plan->weights_out = Reorder(plan->weights, d.w_plain);
    else
      plan->weights_in = Reorder(d.w_plain, plan->weights);
  } catch (const dnnl::error& error) {
    plan->reason = reason_of(error);
  }
  return plan;
}

Registry<ConvKey, ConvPlan>& registry() {
  static auto* const instance = new Registry<ConvKey, ConvPlan>;
  return *instance;
}

std::shared_ptr<const ConvPlan> plan_of(const ConvKey& key) {
  return registry().get(key, [&] { return make_plan(key); });
}

// How exact mode cuts the batch: `count` shares of `size` images, the last of what is left.
struct Shares {
  std::int64_t size, count;
};

Shares shares_of(const ConvProblem& problem, Pass pass) {
  const ConvShape& s = problem.shape;
  // Every share of the filter gradient costs a filter-sized sum.
  const std::int64_t filter = s.k * s.r * s.s * (s.c / s.groups);
  const std::int64_t wanted = pass == Pass::backward_weights && filter > (1 << 18) ? 4 : 8;
  const std::int64_t size = (s.n + wanted - 1) / wanted;
  return {size, (s.n + size - 1) / size};
}

ConvProblem share(const ConvProblem& problem, std::int64_t images) {
  ConvProblem part = problem;
  part.shape.n = images;
  part.deterministic = false;
  return part;
}

ConvKey key_of(const ConvProblem& problem, Pass pass, bool bias, int team) { return {problem, pass, bias, team}; }

std::shared_ptr<const ConvPlan> usable_plan(const ConvKey& key) {
  auto plan = plan_of(key);
  HEARTH_CHECK(UsageError, plan->reason.empty(), text_of(key), ": ", plan->reason, "; ask declines() first");
  return plan;
}

// The problem as it is planned: the whole of it, or the first share of exact mode.
ConvKey planned(const ConvProblem& problem, Pass pass, bool bias) {
  if (problem.deterministic) return key_of(share(problem, shares_of(problem, pass).size), pass, bias, 1);
  return key_of(problem, pass, bias, current_team());
}

const void* at(const void* base, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}
void* at(void* base, std::int64_t elements, DType dtype) {
  return const_cast<void*>(at(static_cast<const void*>(base), elements, dtype));
}

// Filters in the layout of the plan: where they are if nothing need change, else a copy in scratch memory.
const void* filters_in(const ConvPlan& plan, const void* w, Scratch& scratch) {
  if (!plan.weights_in.needed) return w;
  void* inside = scratch.take_bytes(bytes_of(plan.weights));
  plan.weights_in.run(w, inside);
  return inside;
}

void run_forward(const ConvPlan& plan, const void* x, const void* w_inside, const float* b, void* y) {
  const Argument arguments[] = {{DNNL_ARG_SRC, &plan.src, x},
                                {DNNL_ARG_WEIGHTS, &plan.weights, w_inside},
                                {DNNL_ARG_DST, &plan.dst, y},
                                {DNNL_ARG_BIAS, &plan.bias, b}};
  execute(plan.primitive, plan.scratchpad, arguments, b ? 4 : 3);
}

void run_backward_data(const ConvPlan& plan, const void* dy, const void* w_inside, void* dx) {
  const Argument arguments[] = {{DNNL_ARG_DIFF_DST, &plan.dst, dy},
                                {DNNL_ARG_WEIGHTS, &plan.weights, w_inside},
                                {DNNL_ARG_DIFF_SRC, &plan.src, dx}};
  execute(plan.primitive, plan.scratchpad, arguments, 3);
}

void run_backward_weights(const ConvPlan& plan, const void* x, const void* dy, void* dw, float* db) {
  Scratch scratch;
  void* inside = plan.weights_out.needed ? scratch.take_bytes(bytes_of(plan.weights)) : dw;
  const Argument arguments[] = {{DNNL_ARG_SRC, &plan.src, x},
                                {DNNL_ARG_DIFF_DST, &plan.dst, dy},
                                {DNNL_ARG_DIFF_WEIGHTS, &plan.weights, inside},
                                {DNNL_ARG_DIFF_BIAS, &plan.bias, db}};
  execute(plan.primitive, plan.scratchpad, arguments, db ? 4 : 3);
  if (plan.weights_out.needed) plan.weights_out.run(inside, dw);
}

// f(plan, first image, share index) for every share of exact mode, shares side by side, each on one thread.
template <class F>
void for_each_share(const ConvProblem& problem, Pass pass, bool bias, const F& f) {
  const std::int64_t n = problem.shape.n;
  const Shares shares = shares_of(problem, pass);
  const auto main = usable_plan(key_of(share(problem, shares.size), pass, bias, 1));
  const std::int64_t rest = n - (shares.count - 1) * shares.size;
  const auto last = usable_plan(key_of(share(problem, rest), pass, bias, 1));
  parallel_chunks(shares.count, [&](std::int64_t i) {
    const TeamScope alone(1);
    f(i + 1 == shares.count ? *last : *main, i * shares.size, i);
  });
}

// The two layouts that exact mode may need: of the full shares and of the last, shorter one.
struct SharedFilters {
  Scratch scratch;
  std::shared_ptr<const ConvPlan> main, last;
  const void* for_main;
  const void* for_last;

  SharedFilters(const ConvProblem& problem, Pass pass, bool bias, const void* w) {
    const Shares shares = shares_of(problem, pass);
    const std::int64_t rest = problem.shape.n - (shares.count - 1) * shares.size;
    main = usable_plan(key_of(share(problem, shares.size), pass, bias, 1));
    last = usable_plan(key_of(share(problem, rest), pass, bias, 1));
    const TeamScope alone(1);  // as the plans count on
    for_main = filters_in(*main, w, scratch);
    for_last = main->weights == last->weights ? for_main : filters_in(*last, w, scratch);
  }
  const void* of(const ConvPlan& plan) const { return &plan == main.get() ? for_main : for_last; }
};

void deterministic_backward_weights(const ConvProblem& problem, const void* x, const void* dy, void* dw, float* db) {
  const ConvShape& s = problem.shape;
  const std::int64_t filter = s.k * s.r * s.s * (s.c / s.groups);
  const std::int64_t count = shares_of(problem, Pass::backward_weights).count;
  ConvProblem wide = problem;
  wide.weights = DType::f32;
  Scratch scratch;
  float* parts = scratch.take<float>(count * filter);
  float* bias_parts = db ? scratch.take<float>(count * s.k) : nullptr;
  for_each_share(wide, Pass::backward_weights, db != nullptr,
                 [&](const ConvPlan& plan, std::int64_t first, std::int64_t i) {
                   run_backward_weights(plan, at(x, first * s.h * s.w * s.c, problem.activations),
                                        at(dy, first * s.p * s.q * s.k, problem.activations), parts + i * filter,
                                        db ? bias_parts + i * s.k : nullptr);
                 });
  sum_shares(parts, count, 1, filter, nullptr, false, dw, problem.weights, filter);
  if (db) sum_shares(bias_parts, count, 1, s.k, nullptr, false, db, DType::f32, s.k);
}

// Whether the pass is done as a matrix product. It nearly always is where it can be; the f32 product with
// transposed filters of many channels is the one that the library does slower than a convolution.
bool runs_as_product(const ConvProblem& problem, Pass pass) {
  const ConvShape& s = problem.shape;
  if (!is_pointwise(problem) || pointwise_implementation(problem, pass).empty()) return false;
  const bool strided = s.stride_h > 1 || s.stride_w > 1;
  if (pass != Pass::forward || problem.activations != DType::f32 || strided) return true;
  return s.c <= 256 || s.n * s.p * s.q <= 256;
}

bool runs_unfolded(const ConvProblem& problem, Pass pass) {
  return is_unfoldable(problem, pass) && !unfolded_implementation(problem, pass).empty();
}

}  // namespace

std::string declines(const ConvProblem& problem, Pass pass) {
  check_shape(problem.shape);
  const auto narrow_or_wide = [](DType t) { return t == DType::f32 || t == DType::bf16; };
  if (!narrow_or_wide(problem.activations) || !narrow_or_wide(problem.weights))
    return join_text("oneDNN takes f32 and bf16, not activations in ", hearth::name_of(problem.activations),
                     " with weights in ", hearth::name_of(problem.weights));
  if (problem.activations == DType::f32 && problem.weights != DType::f32) return "f32 activations need f32 weights";
  return plan_of(planned(problem, pass, false))->reason;
}

std::string implementation(const ConvProblem& problem, Pass pass) {
  if (!declines(problem, pass).empty()) return {};
  if (runs_as_product(problem, pass)) return pointwise_implementation(problem, pass);
  if (pass == Pass::backward_weights && is_pairable(problem)) return "paired:avx512_core_bf16";
  if (is_direct(problem, pass)) return "direct:avx512_core_bf16";
  if (runs_unfolded(problem, pass)) return unfolded_implementation(problem, pass);
  return plan_of(planned(problem, pass, false))->implementation;
}

void conv2d_forward(const ConvProblem& problem, const void* x, const void* w, const float* b, void* y) {
  const ConvShape& s = problem.shape;
  check_shape(s);
  if (runs_as_product(problem, Pass::forward)) {
    pointwise_forward(problem, x, w, b, y);
    return;
  }
  if (is_direct(problem, Pass::forward)) {
    direct_forward(problem, x, w, b, y);
    return;
  }
  if (runs_unfolded(problem, Pass::forward)) {
    unfolded_forward(problem, x, w, b, y);
    return;
  }
  if (!problem.deterministic) {
    const TeamScope team(current_team());
    const auto plan = usable_plan(planned(problem, Pass::forward, b != nullptr));
    Scratch scratch;
    run_forward(*plan, x, filters_in(*plan, w, scratch), b, y);
    return;
  }
  const SharedFilters filters(problem, Pass::forward, b != nullptr, w);
  for_each_share(problem, Pass::forward, b != nullptr, [&](const ConvPlan& plan, std::int64_t first, std::int64_t) {
    run_forward(plan, at(x, first * s.h * s.w * s.c, problem.activations), filters.of(plan), b,
                at(y, first * s.p * s.q * s.k, problem.activations));
  });
}

void conv2d_backward_data(const ConvProblem& problem, const void* dy, const void* w, void* dx) {
  const ConvShape& s = problem.shape;
  check_shape(s);
  if (runs_as_product(problem, Pass::backward_data)) {
    pointwise_backward_data(problem, dy, w, dx);
    return;
  }
  if (is_direct(problem, Pass::backward_data)) {
    direct_backward_data(problem, dy, w, dx);
    return;
  }
  if (runs_unfolded(problem, Pass::backward_data)) {
    unfolded_backward_data(problem, dy, w, dx);
    return;
  }
  if (!problem.deterministic) {
    const TeamScope team(current_team());
    const auto plan = usable_plan(planned(problem, Pass::backward_data, false));
    Scratch scratch;
    run_backward_data(*plan, dy, filters_in(*plan, w, scratch), dx);
    return;
  }
  const SharedFilters filters(problem, Pass::backward_data, false, w);
  for_each_share(problem, Pass::backward_data, false, [&](const ConvPlan& plan, std::int64_t first, std::int64_t) {
    run_backward_data(plan, at(dy, first * s.p * s.q * s.k, problem.activations), filters.of(plan),
                      at(dx, first * s.h * s.w * s.c, problem.activations));
  });
}

void conv2d_backward_weights(const ConvProblem& problem, const void* x, const void* dy, void* dw, float* db) {
  check_shape(problem.shape);
  if (runs_as_product(problem, Pass::backward_weights)) {
    pointwise_backward_weights(problem, x, dy, dw, db);
    return;
  }
  if (is_pairable(problem)) {
    paired_backward_weights(problem, x, dy, dw, db);
    return;
  }
  if (runs_unfolded(problem, Pass::backward_weights)) {
    unfolded_backward_weights(problem, x, dy, dw, db);
    return;
  }
  if (problem.deterministic) {
    deterministic_backward_weights(problem, x, dy, dw, db);
    return;
  }
  const TeamScope team(current_team());
  run_backward_weights(*usable_plan(planned(problem, Pass::backward_weights, db != nullptr)), x, dy, dw, db);
}

void list_convolutions(std::vector<PlanInfo>& found) {
  registry().each([&](const ConvKey& key, const ConvPlan& plan) {
    found.push_back({text_of(key), plan.implementation, is_reference(plan.implementation), plan.scratchpad.get_size()});
  });
}

void clear_convolutions() { registry().clear(); }

}  // namespace hearth::cpu::dnn

#endif
