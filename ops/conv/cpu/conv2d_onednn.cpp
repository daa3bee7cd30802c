// SPDX-License-Identifier: Apache-2.0
// Convolution through oneDNN. Activations keep the plain NHWC layout, in which the library is as fast as in its
// blocked ones; filters must be given to it in a layout of its choosing, because with plain ones it silently falls to
// its reference code. They are copied in and out around each call.
#include "core/build.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/onednn/onednn.h"

#if HEARTH_HAS_DNNL

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/cpu/isa.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/library.h"
#include "ops/scratch.h"

namespace hearth::kernels {
namespace {

using namespace cpu::dnn;
using Desc = dnnl::memory::desc;

/// A problem that is not cut into shares, and the size of the thread pool for it.
using ThreadsProblem = std::pair<ConvProblem, int>;

struct ConvPlan : LibraryPlan {
  Desc src, weights, bias, dst;  // of the primitive; for the backward passes of the gradients
  Reorder filters;  // between the op's layout and the primitive's: out of it for backward_weights, else into it
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

std::string text_of(const ThreadsProblem& key) {
  const auto& [problem, pool] = key;
  const ConvShape& s = problem.shape;
  std::string text = join_text("conv2d ", name_of(problem.pass), " n", s.n, " ", s.h, "x", s.w, "x", s.c, " k", s.k,
                               " ", s.r, "x", s.s, " stride ", s.stride_h, "x", s.stride_w, " pad ", s.pad_h, "x",
                               s.pad_w, " dilation ", s.dilation_h, "x", s.dilation_w, " groups ", s.groups, " ",
                               hearth::name_of(problem.activations), "/", hearth::name_of(problem.weights));
  return text + join_text(problem.bias ? " bias" : "", " threads ", pool);
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

Descriptors describe(const ConvProblem& problem) {
  using Tag = dnnl::memory::format_tag;
  const ConvShape& s = problem.shape;
  const auto activation = library_type(problem.activations);
  // The gradient of the filters is summed and kept in f32 whatever type it leaves in.
  const bool gradient = problem.pass == Pass::backward_weights;
  const auto inside = gradient ? dnnl::memory::data_type::f32 : activation;
  const auto outside = library_type(problem.weights);
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
  if (problem.bias) d.b = Desc({s.k}, dnnl::memory::data_type::f32, Tag::a);
  d.strides = {s.stride_h, s.stride_w};
  d.near_padding = {s.pad_h, s.pad_w};
  d.far_padding = {far_padding(s.h, s.p, s.r, s.stride_h, s.pad_h, s.dilation_h),
                   far_padding(s.w, s.q, s.s, s.stride_w, s.pad_w, s.dilation_w)};
  d.dilation = {s.dilation_h - 1, s.dilation_w - 1};
  return d;
}

// The library's description of a pass. `what` is all up to the sizes: kind, algorithm and tensors; the gradients' take
// the forward pass's as a hint.
template <class Primitive, class... What, class... Hint>
typename Primitive::primitive_desc describe_pass(const Descriptors& d, const dnnl::primitive_attr& attributes,
                                                 const std::tuple<const What&...>& what, const Hint&... hint) {
  using Description = typename Primitive::primitive_desc;
  const auto describe = [&](const What&... part) {
#if DNNL_VERSION_MAJOR >= 3
    return Description(engine(), part..., d.strides, d.dilation, d.near_padding, d.far_padding, hint..., attributes);
#else
    const typename Primitive::desc operation(part..., d.strides, d.dilation, d.near_padding, d.far_padding);
    return Description(operation, attributes, engine(), hint...);
#endif
  };
  return std::apply(describe, what);
}

void make_primitive(ConvPlan& plan, Pass pass, const Descriptors& d) {
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;
  constexpr auto training = dnnl::prop_kind::forward_training;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  const bool has_bias = d.b.get_size() != 0;
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto forward = has_bias ? describe_pass<Forward>(d, a, std::tie(training, direct, d.x, d.w_hint, d.b, d.y))
                                : describe_pass<Forward>(d, a, std::tie(training, direct, d.x, d.w_hint, d.y));
  if (pass == Pass::forward) {
    plan.weights = forward.weights_desc();
    plan.take<Forward>(forward);
  } else if (pass == Pass::backward_data) {
    const auto backward = describe_pass<BackwardData>(d, a, std::tie(direct, d.x, d.w_any, d.y), forward);
    plan.weights = backward.weights_desc();
    plan.take<BackwardData>(backward);
  } else {
    const auto backward = has_bias
                              ? describe_pass<BackwardWeights>(d, a, std::tie(direct, d.x, d.w_any, d.b, d.y), forward)
                              : describe_pass<BackwardWeights>(d, a, std::tie(direct, d.x, d.w_any, d.y), forward);
    plan.weights = backward.diff_weights_desc();
    plan.take<BackwardWeights>(backward);
  }
}

std::shared_ptr<const ConvPlan> make_onednn_plan(const ThreadsProblem& key) {
  auto plan = std::make_shared<ConvPlan>();
  const auto& [problem, size] = key;
  const ThreadsScope pool(size);
  cpu::reserve_for_library("oneDNN");
  try {
    const Descriptors d = describe(problem);
    plan->src = d.x;
    plan->dst = d.y;
    plan->bias = d.b;
    make_primitive(*plan, problem.pass, d);
    if (!plan->reason.empty()) return plan;
    const bool gradient = problem.pass == Pass::backward_weights;
    plan->filters = gradient ? Reorder(plan->weights, d.w_plain) : Reorder(d.w_plain, plan->weights);
  } catch (const dnnl::error& error) {
    plan->reason = reason_of(error);
  }
  return plan;
}

std::shared_ptr<const ConvPlan> plan_of(const ThreadsProblem& key) {
  static auto* const registry = new Registry<ThreadsProblem, ConvPlan>(text_of);
  return registry->get(key, [&] { return make_onednn_plan(key); });
}

std::shared_ptr<const ConvPlan> usable_plan(const ThreadsProblem& key) {
  auto plan = plan_of(key);
  HEARTH_CHECK(UsageError, plan->reason.empty(), text_of(key), ": ", plan->reason);
  return plan;
}

// The memory of a pass, as Conv2dOperands.
struct Memory {
  void *x, *w, *y;
  float* b;
};

// Filters are in the layout of the plan.
void run_inside(const ConvPlan& plan, Pass pass, const Memory& m) {
  const Argument arguments[] = {
      {pass == Pass::backward_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, &plan.src, m.x},
      {pass == Pass::backward_weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, &plan.weights, m.w},
      {pass == Pass::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &plan.dst, m.y},
      {pass == Pass::backward_weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, &plan.bias, m.b}};
  execute(plan.primitive, plan.scratchpad, arguments, m.b == nullptr ? 3 : 4);
}

// Filters in the layout of the plan: where they are if nothing need change, else a copy in scratch memory.
void* filters_inside(const ConvPlan& plan, void* w, cpu::Scratch& scratch) {
  if (!plan.filters.needed) return w;
  void* inside = scratch.take_bytes(bytes_of(plan.weights));
  plan.filters.run(w, inside);
  return inside;
}

void run_whole(const ConvPlan& plan, Pass pass, const Memory& m) {
  cpu::Scratch scratch;
  if (pass != Pass::backward_weights)
    return run_inside(plan, pass, {m.x, filters_inside(plan, m.w, scratch), m.y, m.b});
  void* inside = plan.filters.needed ? scratch.take_bytes(bytes_of(plan.weights)) : m.w;
  run_inside(plan, pass, {m.x, inside, m.y, m.b});
  if (plan.filters.needed) plan.filters.run(inside, m.w);
}

std::int64_t filter_elements(const ConvShape& s) { return s.k * s.r * s.s * (s.c / s.groups); }

// How deterministic mode cuts the batch: `count` shares of `size` images, the last of what is left, each on one thread.
struct Shares {
  std::int64_t size, count, rest;

  explicit Shares(const ConvProblem& problem) {
    const std::int64_t n = problem.shape.n;
    // Every share of the filter gradient costs a filter-sized sum.
    const bool large = problem.pass == Pass::backward_weights && filter_elements(problem.shape) > (1 << 18);
    const std::int64_t wanted = large ? 4 : 8;
    size = (n + wanted - 1) / wanted;
    count = (n + size - 1) / size;
    rest = n - (count - 1) * size;
  }
};

// The problem of a share of so many images. Filter gradients stay f32 until the shares are added.
ThreadsProblem share(const ConvProblem& problem, std::int64_t images) {
  ConvProblem part = problem;
  part.shape.n = images;
  part.deterministic = false;
  if (part.pass == Pass::backward_weights) part.weights = DType::f32;
  return {part, 1};
}

// f(plan of the share, share, memory from its first image on) for every share, side by side.
template <class F>
void for_each_share(const ConvProblem& problem, const Memory& m, const F& f) {
  const ConvShape& s = problem.shape;
  const Shares shares(problem);
  const auto main = usable_plan(share(problem, shares.size)), last = usable_plan(share(problem, shares.rest));
  const std::size_t step = static_cast<std::size_t>(shares.size) * size_of(problem.activations);
  const auto from = [&](void* base, std::int64_t number, std::int64_t image) {
    return static_cast<std::byte*>(base) + static_cast<std::size_t>(number * image) * step;
  };
  cpu::parallel_chunks(shares.count, [&](std::int64_t i) {
    const ThreadsScope alone(1);
    f(i + 1 == shares.count ? *last : *main, i,
      Memory{from(m.x, i, s.h * s.w * s.c), m.w, from(m.y, i, s.p * s.q * s.k), m.b});
  });
}

void run_in_shares(const ConvProblem& problem, const Memory& m) {
  const Shares shares(problem);
  const auto main = usable_plan(share(problem, shares.size)), last = usable_plan(share(problem, shares.rest));
  cpu::Scratch scratch;
  void *of_main, *of_last;
  {
    const ThreadsScope alone(1);  // as the plans count on
    of_main = filters_inside(*main, m.w, scratch);
    of_last = main->weights == last->weights ? of_main : filters_inside(*last, m.w, scratch);
  }
  for_each_share(problem, m, [&](const ConvPlan& plan, std::int64_t, const Memory& part) {
    run_inside(plan, problem.pass, {part.x, &plan == main.get() ? of_main : of_last, part.y, part.b});
  });
}

void sum_in_shares(const ConvProblem& problem, const Memory& m) {
  const ConvShape& s = problem.shape;
  const std::int64_t filter = filter_elements(s), count = Shares(problem).count;
  cpu::Scratch scratch;
  float* parts = scratch.take<float>(count * filter);
  float* bias_parts = m.b == nullptr ? nullptr : scratch.take<float>(count * s.k);
  for_each_share(problem, m, [&](const ConvPlan& plan, std::int64_t i, const Memory& part) {
    run_whole(plan, problem.pass,
              {part.x, parts + i * filter, part.y, m.b == nullptr ? nullptr : bias_parts + i * s.k});
  });
  sum_shares(parts, count, 1, filter, nullptr, false, m.w, problem.weights, filter);
  if (m.b != nullptr) sum_shares(bias_parts, count, 1, s.k, nullptr, false, m.b, DType::f32, s.k);
}

std::string onednn_unsupported(const ConvProblem& problem) {
  if (problem.deterministic) return plan_of(share(problem, Shares(problem).size))->reason;
  return plan_of({problem, current_threads()})->reason;
}

// Measured on AVX2: strided filter gradients run at 20 to 24 of 40 GFLOP/s, those of im2col at 29 to 33.
std::string onednn_why_slower(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.pass != Pass::backward_weights || problem.activations != DType::f32 || problem.deterministic) return "";
  if (cpu::isa() != cpu::Isa::v3 || (s.stride_h == 1 && s.stride_w == 1)) return "";
  return s.groups == 1 && s.c >= 64 && s.k >= 64 ? "a strided filter gradient on AVX2" : "";
}

void run_onednn(const ConvProblem& problem, const Conv2dOperands& o) {
  const Memory memory{o.x.bytes(), o.w.bytes(), o.y.bytes(), o.b.defined() ? o.b.data<float>() : nullptr};
  if (problem.deterministic)
    return problem.pass == Pass::backward_weights ? sum_in_shares(problem, memory) : run_in_shares(problem, memory);
  const ThreadsScope pool(current_threads());
  run_whole(*usable_plan({problem, current_threads()}), problem.pass, memory);
}

}  // namespace

const Conv2dCandidate conv2d_onednn{"onednn", onednn_unsupported, run_onednn, nullptr, onednn_why_slower};

}  // namespace hearth::kernels

#else

namespace hearth::kernels {

const Conv2dCandidate conv2d_onednn{"onednn", [](const ConvProblem&) { return cpu::dnn::why_absent(); },
                                    [](const ConvProblem&, const Conv2dOperands&) {}};

}  // namespace hearth::kernels

#endif
