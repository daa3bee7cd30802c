// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient by a library, beside f64 on the CPU and the native kernels; what it does not support, and
// what it refuses.
#include <cudnn.h>

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/random.h"
#include "ops/attention/attention.h"
#include "ops/attention/cuda/attention_cudnn.h"
#include "ops/cudnn/graph.h"
#include "ops/dispatch/candidates.h"
#include "ops/dispatch/repeatable.h"
#include "ops/pointwise/operators.h"
#include "ops/shape/view.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

/// As beside the native kernels.
constexpr CheckOptions rounded{.tolerance_scale = 4.0};

bool is_for_the_library() { return !current_site().device.is_cpu() && size_of(site_dtype()) == 2; }

/// The gradient is by the library, too, and by no engine that gives other bits each time.
void expect_library() {
  EXPECT_EQ(last_choice("attention"), "cudnn");
  EXPECT_GT(controls().runs[reference_dnn::rounding], 0);
  EXPECT_EQ(controls().runs[reference_dnn::adding_anywhere] + controls().runs[reference_dnn::spacious], 0);
}

struct Case {
  std::int64_t n, tq, tk, h, d;
};

void check_library(const Case& c, const AttentionOptions& options,
                   const std::function<void(Draw&, AttentionOptions&)>& extend = {}) {
  check(
      [&](Draw& draw) {
        const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
        const Tensor v = draw.normal({c.n, c.tk, c.h, c.d});
        AttentionOptions extended = options;
        if (extend) extend(draw, extended);
        return attention(q, k, v, extended);
      },
      rounded);
}

OP_TEST(LibraryAttention) {
  if (!is_for_the_library()) return;
  const ForceCandidate force("attention", "cudnn");
  for (const bool causal : {false, true}) {
    for (const Case& c : {Case{1, 1, 1, 1, 8}, {2, 7, 7, 3, 32}, {1, 49, 49, 2, 64}, {2, 5, 37, 1, 128}})
      check_library(c, {.causal = causal});
    check_library({1, 37, 5, 2, 40}, {.causal = causal, .scale = -0.3});
  }
  check_library({1, 9, 11, 1, 136}, {});
  expect_library();
}

OP_TEST(LibraryAttentionOfPaddedKeys) {
  if (!is_for_the_library()) return;
  const ForceCandidate force("attention", "cudnn");
  for (const bool causal : {false, true})
    check_library({5, 9, 21, 2, 16}, {.causal = causal}, [](Draw& draw, AttentionOptions& options) {
      options.key_lengths = draw.indices({5}, {21, 1, -3, 40, 13}, DType::i32);
    });
  expect_library();
}

OP_TEST(LibraryAttentionBias) {
  if (!is_for_the_library()) return;
  const ForceCandidate force("attention", "cudnn");
  for (const bool shared : {false, true})
    check_library({3, 7, 10, 2, 8}, {.causal = shared}, [&](Draw& draw, AttentionOptions& options) {
      options.bias = draw.normal({shared ? 1 : 2, 7, 10}, 1.0, shared ? Width::site : Width::wide);
      if (!shared) options.key_lengths = draw.indices({3}, {10, 0, 4}, DType::i32);
    });
  expect_library();
}

// A row that the bias hides gives zeros and has no part in gradients.
OP_TEST(LibraryAttentionOfHiddenRows) {
  if (!is_for_the_library()) return;
  const ForceCandidate force("attention", "cudnn");
  check_library({2, 3, 4, 1, 8}, {}, [](Draw& draw, AttentionOptions& options) {
    std::vector<double> hidden(12, 0.0);
    for (const std::size_t at : {4, 5, 6, 7, 9}) hidden[at] = -std::numeric_limits<double>::infinity();
    options.bias = draw.constant({1, 3, 4}, hidden);
  });
  expect_library();
}

/// Heads in front of the tokens, as another library has them.
OP_TEST(LibraryAttentionOfHeadsInFront) {
  if (!is_for_the_library()) return;
  const ForceCandidate force("attention", "cudnn");
  check(
      [](Draw& draw) {
        const auto heads = [&](std::int64_t tokens) {
          // In one piece also where the input is not, by an op that the tape knows.
          return transpose(draw.normal({2, 3, tokens, 16}) * 1.0, {0, 2, 1, 3});
        };
        const Tensor q = heads(5), k = heads(9);
        return attention(q, k, heads(9));
      },
      rounded);
  expect_library();
}

// Where a projection wrote them.
OP_TEST(LibraryAttentionOfPackedHeads) {
  if (!is_for_the_library()) return;
  const ForceCandidate force("attention", "cudnn");
  check([](Draw& draw) { return self_attention(draw.normal({2, 19, 3 * 2 * 24}), 2, {.causal = true}); }, rounded);
  check(
      [](Draw& draw) {
        const Tensor q = draw.normal({2, 6, 2 * 16}), kv = draw.normal({2, 11, 2 * 2 * 16});
        return cross_attention(q, kv, 2, {.key_lengths = draw.indices({2}, {11, 4}, DType::i32)});
      },
      rounded);
  expect_library();
}

using CudaReferenceAttention = CudaReferenceDnn;

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype = DType::bf16) {
  Random random(31, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

/// y and the gradient of qkv, each by the implementation of this name; no name: as chosen.
std::vector<Tensor> run(std::int64_t tokens, const std::string& forward, const std::string& gradient,
                        std::int64_t samples = 2) {
  const std::int64_t heads = 2, width = 16;
  const Tensor qkv = requires_grad(numbers({samples, tokens, 3 * heads * width}, 1));
  Tensor y;
  const auto by = [](const std::string& name, const auto& f) {
    if (name.empty()) return f();
    const ForceCandidate force("attention", name);
    f();
    EXPECT_EQ(last_choice("attention"), name);
  };
  by(forward, [&] { y = self_attention(qkv, heads, {.causal = true}); });
  by(gradient, [&] { backward(y, numbers(y.shape(), 2)); });
  return {y.detach(), grad_of(qkv)};
}

TEST_F(CudaReferenceAttention, EitherMakesTheGradientOfTheOther) {
  const auto own = run(37, "mma", "mma");
  for (const auto& [forward, gradient] : {std::pair("cudnn", "cudnn"), {"cudnn", "mma"}, {"mma", "cudnn"}}) {
    const auto mixed = run(37, forward, gradient);
    for (std::size_t i = 0; i < own.size(); ++i) expect_close(mixed[i], own[i], 2e-2);
  }
  EXPECT_EQ(controls().runs[reference_dnn::rounding], 4);
}

// Whatever lies behind the lengths, in samples without a key too, which the library is never asked for.
TEST_F(CudaReferenceAttention, PaddingMayHoldAnything) {
  const ForceCandidate force("attention", "cudnn");
  const Tensor lengths = Tensor::of<std::int32_t>({2}, {0, 2}).to(gpu);
  std::vector<std::vector<Tensor>> found;
  for (const double padding : {0.0, std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<Tensor> x{requires_grad(numbers({2, 3, 1, 8}, 1))};
    for (const std::uint64_t stream : {2, 3}) {
      const Tensor keys = Tensor::full({2, 4, 1, 8}, padding, DType::bf16, gpu);
      slice(slice(keys, 0, 1, 2), 1, 0, 2).copy_from(numbers({1, 2, 1, 8}, stream));
      x.push_back(requires_grad(keys));
    }
    const Tensor y = attention(x[0], x[1], x[2], {.key_lengths = lengths});
    backward(y, numbers(y.shape(), 4));
    found.push_back({y.detach(), grad_of(x[0]), grad_of(x[1]), grad_of(x[2])});
  }
  for (std::size_t i = 0; i < found[0].size(); ++i) expect_close(found[1][i], found[0][i], 0.0);
  for (const std::size_t i : {0, 1})
    expect_close(slice(found[1][i], 0, 0, 1), Tensor::zeros({1, 3, 1, 8}).to(gpu), 0.0);
  EXPECT_EQ(controls().counts_below_one, 0);
}

TEST_F(CudaReferenceAttention, ComesFirstForSizesThatStay) {
  for (const auto& [tokens, choice] : {std::pair(128, "cudnn"), {192, "cudnn"}, {64, "mma"}, {130, "mma"}}) {
    (void)run(tokens, "", "", 1);
    EXPECT_EQ(last_choice("attention"), choice) << tokens;
  }
  for (const auto& [queries, keys] : {std::pair(128, 130), {130, 128}, {64, 128}, {128, 64}}) {
    const Tensor q = numbers({1, queries, 1, 8}, 1), k = numbers({1, keys, 1, 8}, 2);
    (void)attention(q, k, k);
    EXPECT_EQ(last_choice("attention"), "mma") << queries << " and " << keys;
  }
  const std::int64_t questions = controls().questions;
  (void)run(128, "", "", 1);
  EXPECT_EQ(controls().questions, questions) << "plans are kept";
}

TEST_F(CudaReferenceAttention, EnginesThatDoNotRepeatRunWhereThatIsAllowed) {
  set_repeatable(false);
  (void)run(192, "", "", 1);
  set_repeatable(true);
  EXPECT_EQ(controls().runs[reference_dnn::adding_anywhere], 2);
  (void)run(192, "", "", 1);
  EXPECT_EQ(controls().runs[reference_dnn::rounding], 2);
}

TEST_F(CudaReferenceAttention, WhatTheLibraryHasNoEngineForIsLeftToOthers) {
  controls().withheld = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
  (void)run(256, "", "", 1);
  EXPECT_EQ(last_choice("attention"), "mma") << "the gradient";
  EXPECT_EQ(controls().runs[reference_dnn::rounding], 1) << "forward";
}

TEST_F(CudaReferenceAttention, SaysWhatIsUnsupported) {
  const ForceCandidate force("attention", "cudnn");
  const auto heads = [](std::int64_t width, DType dtype = DType::bf16) { return numbers({1, 5, 2, width}, 3, dtype); };
  const auto reason = [](const Tensor& q, const Tensor& k, const AttentionOptions& options) {
    return error_message<UsageError>([&] { (void)attention(q, k, k, options); });
  };
  EXPECT_PRED2(contains, reason(heads(8, DType::f32), heads(8, DType::f32), {}), "f16 and bf16");
  EXPECT_PRED2(contains, reason(heads(12), heads(12), {}), "not a multiple of 8");
  EXPECT_PRED2(contains, reason(heads(8), heads(8), {.dropout = 0.1}), "Hearth's own counters");
  EXPECT_PRED2(contains, reason(heads(8), heads(8), {.causal = true, .query_offset = 3}), "before the first query");
  EXPECT_PRED2(contains, reason(heads(8), expand(numbers({1, 5, 1, 8}, 4), {1, 5, 2, 8}), {}), "shared by expand()");
  const Tensor room = numbers({1, 5, 17}, 5);
  const Tensor odd = Tensor::view(room.storage(), {1, 5, 2, 8}, {85, 17, 8, 1}, 0, DType::bf16, gpu);
  EXPECT_PRED2(contains, reason(odd, heads(8), {}), "multiples of 16 bytes");

  const Tensor q = requires_grad(heads(8)), y = attention(q, heads(8), heads(8));
  const Tensor turned = transpose(numbers({1, 2, 5, 8}, 6), {0, 2, 1, 3});
  EXPECT_PRED2(contains, error_message<UsageError>([&] { backward(y, turned); }), "dy does not lie like y");
}

TEST_F(CudaReferenceAttention, LaunchesAreOnesOfLengthsOnly) {
  const ForceCandidate force("attention", "cudnn");
  const Tensor qkv = requires_grad(numbers({2, 21, 3 * 16}, 1)), dy = numbers({2, 21, 16}, 2);
  const Tensor lengths = Tensor::of<std::int32_t>({2}, {21, 9}).to(gpu);
  const auto counted = [](const auto& f) {
    const cuda::Counters before = cuda::counters();
    f();
    return cuda::counters() - before;
  };
  for (const auto& [options, launches] :
       {std::pair(AttentionOptions{.causal = true}, 0), {AttentionOptions{.key_lengths = lengths}, 2}}) {
    Tensor y;
    for (const cuda::Counters& found :
         {counted([&] { y = self_attention(qkv, 2, options); }), counted([&] { backward(y, dy); })}) {
      EXPECT_EQ(found.launches, launches);
      EXPECT_EQ(found.library_calls, 1);
    }
    zero_grad(qkv);
  }
}

// Lengths lie on the device and are read anew by each replay.
TEST_F(CudaReferenceAttention, RecordedWorkReadsTheLengthsOfTheMoment) {
  const ForceCandidate force("attention", "cudnn");
  const Tensor x = numbers({2, 6, 3 * 16}, 1), dy = numbers({2, 6, 16}, 2);
  const Tensor lengths = Tensor::of<std::int32_t>({2}, {6, 6}).to(gpu);
  const Tensor y = Tensor::empty({2, 6, 16}, DType::bf16, gpu), dx = Tensor::empty(x.shape(), DType::bf16, gpu);
  const auto work = [&] {
    const Tensor leaf = requires_grad(x), made = self_attention(leaf, 2, {.causal = true, .key_lengths = lengths});
    y.copy_from(made.detach());
    backward(made, dy);
    dx.copy_from(grad_of(leaf));
  };
  cuda::Stream& stream = cuda::stream_of(gpu);
  cuda::Arena arena(gpu);
  arena.run(work);
  const std::int64_t questions = controls().questions;
  const cuda::Graph graph = cuda::Graph::record(stream, arena, work);
  EXPECT_EQ(controls().questions, questions) << "no plan is made while work is recorded";
  for (const auto& now : {std::vector<std::int32_t>{6, 2}, {0, 5}}) {
    lengths.copy_from(Tensor::of<std::int32_t>({2}, now).to(gpu));
    graph.launch(stream);
    const std::vector<std::vector<double>> replayed{y.to_doubles(), dx.to_doubles()};
    work();
    EXPECT_EQ(replayed, (std::vector<std::vector<double>>{y.to_doubles(), dx.to_doubles()}));
  }
}

// Scores of more than 16384 samples are more than a plan may keep, however small each is. With one key, y is v.
TEST_F(CudaReferenceAttention, LargeBatchesAreSharedOut) {
  const ForceCandidate force("attention", "cudnn");
  const std::int64_t samples = 40000, first = 18000;
  const Tensor lengths = Tensor::zeros({samples}, DType::i32, gpu);
  slice(lengths, 0, first, samples).fill_(1);
  std::vector<Tensor> x;
  for (const std::uint64_t stream : {1, 2, 3}) x.push_back(requires_grad(numbers({samples, 1, 1, 8}, stream)));
  const Tensor y = attention(x[0], x[1], x[2], {.key_lengths = lengths}), dy = numbers(y.shape(), 4);
  backward(y, dy);
  EXPECT_EQ(controls().runs[reference_dnn::rounding], 1 + 2);
  const auto kept = [&](const Tensor& from) {
    const Tensor to = Tensor::zeros(from.shape(), from.dtype(), gpu);
    slice(to, 0, first, samples).copy_from(slice(from.detach(), 0, first, samples));
    return to;
  };
  expect_close(y.detach(), kept(x[2]), 0.0);
  expect_close(grad_of(x[2]), kept(dy), 0.0);
  expect_close(grad_of(x[1]), Tensor::zeros(y.shape(), y.dtype(), gpu), 1e-2);
}

/// The library's words about a problem whose tensors are given memory of two samples, shifted by some bytes.
std::string refusal(const cuda::dnn::Attention& problem, std::int64_t shift) {
  cuda::Stream& stream = cuda::stream_of(gpu);
  const Tensor x = Tensor::zeros({160}, DType::f16, gpu), lse = Tensor::zeros({64}, DType::f32, gpu);
  return error_message<Error>([&] {
    cuda::dnn::attention(stream, problem,
                         {.q = static_cast<std::byte*>(x.bytes()) + shift,
                          .k = x.bytes(),
                          .v = x.bytes(),
                          .bias = nullptr,
                          .query_lengths = nullptr,
                          .key_lengths = nullptr,
                          .y = x.bytes(),
                          .lse = lse.bytes(),
                          .scale = 1.0f});
  });
}

TEST_F(CudaReferenceAttention, MisuseIsRefused) {
  using namespace cuda::dnn;
  const HeadSteps steps{5 * 16, 16, 8};
  const Attention good{.batch = 2,
                       .heads = 2,
                       .queries = 5,
                       .keys = 5,
                       .width = 8,
                       .dtype = DType::f16,
                       .q = steps,
                       .k = steps,
                       .v = steps,
                       .y = steps};
  EXPECT_PRED2(contains, refusal(good, 8), "cudnnBackendExecute") << "q is not aligned";
  Attention more = good;
  more.y.sample = std::int64_t{1} << 40;
  EXPECT_PRED2(contains, refusal(more, 0), "cudnnBackendExecute") << "memory ends before y does";
  more = good;
  more.lengths = true;
  EXPECT_PRED2(contains, refusal(more, 0), "numbers of queries");
  more = good;
  more.bias_heads = 3;
  EXPECT_PRED2(contains, unsupported(gpu, more), "operation graph") << "a bias of as many heads as there are not";
  more = good;
  more.batch = 0;
  EXPECT_PRED2(contains, refusal(more, 0), "nothing to attend to");

  Graph graph;
  const std::array<std::int64_t, 4> extents{1, 1, 4, 8}, sparse{64, 64, 16, 2}, dense{32, 32, 8, 1};
  const Descriptor& a = graph.keep(tensor(1, CUDNN_DATA_HALF, extents, sparse));
  Descriptor product(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  product.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  EXPECT_NE(product.try_finalize(), CUDNN_STATUS_SUCCESS) << "b, c and the kind of product are missing";
  Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  EXPECT_NE(kind.try_finalize(), CUDNN_STATUS_SUCCESS) << "the type of sums is missing";
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("product");
  product.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                         graph.keep(tensor(2, CUDNN_DATA_HALF, std::array<std::int64_t, 4>{1, 1, 8, 4}, dense)));
  product.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC,
                         graph.keep(tensor(3, CUDNN_DATA_HALF, std::array<std::int64_t, 4>{1, 1, 4, 4}, dense)));
  product.set_descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, graph.keep(std::move(kind)));
  graph.add(std::move(product), "product");
  const std::string message = error_message<DeviceError>([&] { (void)graph.plan({handle_of(0), nullptr}, {}); });
  EXPECT_PRED2(contains, message, "NOT_SUPPORTED") << "no axis of a is dense";
}

}  // namespace
}  // namespace hearth::test
