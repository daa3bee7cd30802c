// SPDX-License-Identifier: Apache-2.0
// The fully connected layer by cuBLASLt's epilogues, as the documentation describes them.
#include <cublasLt.h>

#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "core/cuda/graph.h"
#include "core/tf32.h"
#include "ops/dispatch/candidates.h"
#include "ops/linear/linear.h"
#include "ops/linear/mlp.h"
#include "ops/matmul/cuda/matmul_cublaslt.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product.h"
#include "tests/reference_libraries/cublaslt/tests/reference.h"
#include "tests/support/op_test.h"
#include "tests/support/stream_policies.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda};

struct Case {
  Shape x;
  std::int64_t outputs;
};
// What goes into GELU is kept for rows of a multiple of eight only.
const Case cases[] = {{{1, 1}, 8}, {{5}, 16}, {{2, 3, 37}, 24}, {{65, 64}, 32}};

void check_all(Activation activation, Width width, bool with_bias) {
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << "x " << c.x << " outputs " << c.outputs << " " << name_of(activation));
    const double scale = 1.0 / std::sqrt(static_cast<double>(c.x.dim(-1)));
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(c.x), w = draw.normal({c.outputs, c.x.dim(-1)}, scale, width);
          return linear(x, w, with_bias ? draw.normal({c.outputs}, 1.0, width) : Tensor(), activation);
        },
        {.tolerance_scale = 3.0});
  }
}

// Far from ReLU's kink.
void check_relu(Width width) {
  const std::vector<double> bias{0, -1000, 0.5, -1000, 1};
  check([&](Draw& draw) {
    const Tensor x = draw.positive({3, 8}), w = draw.positive({5, 8}, width);
    return linear(x, w, draw.constant({5}, bias, width), Activation::relu);
  });
  check([&](Draw& draw) {
    return linear(draw.positive({3, 8}), draw.positive({5, 8}, width), Tensor(), Activation::relu);
  });
}

// But for weight gradients beside a bias's, which are not its own.
OP_TEST(LinearByCublasLt) {
  if (current_site().device.is_cpu()) return;
  for (const Width width : {Width::site, Width::wide})
    for (const bool with_bias : {true, false})
      for (const Activation activation : {Activation::none, Activation::gelu_tanh})
        check_all(activation, width, with_bias);
  check_relu(Width::site);
  check_relu(Width::wide);
  EXPECT_EQ(last_choice("linear"), "cublaslt");
}

OP_TEST(LinearByCublasLtUnfused) {
  if (current_site().device.is_cpu()) return;
  const ForceCandidate force("linear", "cublaslt_unfused");
  for (const Activation activation : {Activation::none, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    check_all(activation, Width::site, true);
  check_relu(Width::wide);
}

OP_TEST(MatmulByCublasLt) {
  if (current_site().device.is_cpu()) return;
  const ForceCandidate force("matmul", "cublaslt");
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const MatmulOptions options{.transpose_a = transpose_a, .transpose_b = transpose_b};
      const auto shape = [](bool transposed, std::int64_t rows, std::int64_t columns) {
        return transposed ? Shape{3, columns, rows} : Shape{3, rows, columns};
      };
      check([&](Draw& draw) {
        const Tensor a = draw.normal(shape(transpose_a, 5, 7));
        return matmul(a, draw.normal(shape(transpose_b, 7, 4)), options);
      });
      // One b for the whole batch.
      check([&](Draw& draw) {
        const Tensor a = draw.normal(shape(transpose_a, 5, 7));
        return matmul(a, draw.normal(transpose_b ? Shape{4, 7} : Shape{7, 4}), options);
      });
    }
  EXPECT_EQ(last_choice("matmul"), "cublaslt");
}

class CudaReferenceLinear : public CudaReferenceBlas {
 protected:
  static Tensor numbers(const Shape& shape, DType dtype, double scale = 0.01) {
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = scale * static_cast<double>(static_cast<std::int64_t>(i * 37 % 101) - 50);
    return Tensor::of<double>(shape, values).to(dtype).to(gpu);
  }

  const VariableScope no_timing_{"HEARTH_PLAN_TIMING", "off"};
};

// Forward and both gradients once, so that plans are there; then the work of `f` alone.
template <class F>
cuda::Counters counted(F&& f) {
  f();
  cuda::stream_of(gpu).wait();
  const cuda::Counters before = cuda::counters();
  f();
  cuda::stream_of(gpu).wait();
  return cuda::counters() - before;
}

TEST_F(CudaReferenceLinear, ALayerIsOneCallForward) {
  const Tensor x = requires_grad(numbers({16, 24}, DType::bf16)), w = requires_grad(numbers({8, 24}, DType::bf16));
  const Tensor b = requires_grad(numbers({8}, DType::bf16));
  const struct {
    Activation activation;
    int epilogue;
  } expected[] = {{Activation::none, CUBLASLT_EPILOGUE_BIAS},
                  {Activation::relu, CUBLASLT_EPILOGUE_RELU_BIAS},
                  {Activation::gelu_tanh, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}};
  for (const auto& [activation, epilogue] : expected) {
    const cuda::Counters used = counted([&, a = activation] { (void)linear(x, w, b, a); });
    EXPECT_EQ(used.library_calls, 1) << name_of(activation);
    EXPECT_EQ(used.launches, 0) << name_of(activation);
    EXPECT_EQ(last_choice("linear"), "cublaslt");
    EXPECT_EQ(controls().epilogue, epilogue) << name_of(activation);
  }
}

// The slope is taken in the product that makes the gradient; the bias gradients are sums of their own.
TEST_F(CudaReferenceLinear, TheGradientOfAnMlpIsFourCalls) {
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu}) {
    std::vector<Tensor> in;
    for (const Shape& shape : {Shape{16, 24}, {32, 24}, {32}, {8, 32}, {8}})
      in.push_back(requires_grad(numbers(shape, DType::bf16)));
    const cuda::Counters used = counted([&] {
      const Tensor y = mlp(in[0], in[1], in[2], in[3], in[4], activation);
      for (const Tensor& leaf : in) zero_grad(leaf);
      backward(y, y.detach());
    });
    const bool taken = activation == Activation::gelu_tanh;
    EXPECT_EQ(used.library_calls, 6) << name_of(activation);
    EXPECT_EQ(used.launches, taken ? 2 : 4) << name_of(activation);
  }
}

TEST_F(CudaReferenceLinear, WhatTheLibraryLacksFollowsItsProduct) {
  const Tensor x = requires_grad(numbers({16, 24}, DType::f16)), w = requires_grad(numbers({8, 24}, DType::f16));
  const Tensor b = requires_grad(numbers({8}, DType::f16));
  for (const Activation activation : {Activation::gelu, Activation::silu}) {
    const cuda::Counters used = counted([&] { (void)linear(x, w, b, activation); });
    EXPECT_EQ(last_choice("linear"), "cublaslt_unfused") << name_of(activation);
    EXPECT_EQ(used.library_calls, 1);
    EXPECT_EQ(used.launches, 1);
    const ForceCandidate force("linear", "cublaslt");
    refuses<UsageError>(activation == Activation::gelu ? "by tanh" : "no SiLU",
                        [&] { return linear(x, w, b, activation); });
  }
}

// The library's kernel for the sums is slower than the one here, which is one launch.
TEST_F(CudaReferenceLinear, BiasGradientsAreSumsOfTheirOwn) {
  const Tensor x = numbers({16, 24}, DType::f32), w = requires_grad(numbers({8, 24}, DType::f32));
  const Tensor b = requires_grad(numbers({8}, DType::f32)), dy = Tensor::full({16, 8}, 0.5, DType::f32, gpu);
  const cuda::Counters used = counted([&] {
    zero_grad(b);
    backward(linear(x, w, b), dy);
  });
  EXPECT_EQ(last_choice("linear"), "cublaslt_unfused");
  EXPECT_EQ(used.library_calls, 2);
  EXPECT_EQ(used.launches, 1);
  EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(8, 8.0));
}

// A bias of x's type beside f32 weights: the library makes one type, so the sum is a kernel of its own.
TEST_F(CudaReferenceLinear, BiasAndWeightsOfTwoTypesGetTheirOwn) {
  const Tensor x = numbers({16, 24}, DType::bf16), w = requires_grad(numbers({8, 24}, DType::f32));
  const Tensor b = requires_grad(numbers({8}, DType::bf16)), dy = Tensor::full({16, 8}, 0.5, DType::bf16, gpu);
  backward(linear(x, w, b), dy);
  EXPECT_EQ(last_choice("linear"), "cublaslt_unfused");
  EXPECT_EQ(grad_of(w).dtype(), DType::f32);
  EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(8, 8.0));
}

TEST_F(CudaReferenceLinear, SaysWhyItIsUnsupported) {
  const auto why = [](auto&& change) {
    MatmulProblem problem{.m = 16, .n = 8, .k = 24, .a = DType::f16, .b = DType::f16, .c = DType::f16};
    EXPECT_EQ(cuda::blas::unsupported(problem), "");
    change(problem);
    return cuda::blas::unsupported(problem);
  };
  const auto expect = [](const std::string& reason, const char* part) {
    EXPECT_NE(reason.find(part), std::string::npos) << reason << " does not say: " << part;
  };
  const auto keeps = [](MatmulProblem& p) {
    p.activation = Activation::gelu_tanh;
    p.keeps_pre = true;
  };
  expect(why([](MatmulProblem& p) { p.b = DType::bf16; }), "takes one type");
  expect(why([](MatmulProblem& p) { p.c = DType::bf16; }), "c is bf16");
  expect(why([](MatmulProblem& p) { p.batch = 65536; }), "65535");
  expect(why([&](MatmulProblem& p) {
           keeps(p);
           p.activation = Activation::relu;
         }),
         "for GELU only");
  expect(why([](MatmulProblem& p) { p.slope = Activation::gelu; }), "the slope of gelu_tanh");
  expect(why([](MatmulProblem& p) {
           p.slope = Activation::gelu_tanh;
           p.n = 12;
         }),
         "multiples of 8");
  expect(why([&](MatmulProblem& p) {
           keeps(p);
           p.n = 12;
         }),
         "multiples of 8");
  expect(why([&](MatmulProblem& p) {
           keeps(p);
           p.batch = 2;
         }),
         "of a batch");
  expect(why([](MatmulProblem& p) { p.sums_a = true; }), "by a kernel of its own");
  // What only the library knows: it has no epilogues in f64.
  expect(why([](MatmulProblem& p) {
           p.a = p.b = p.c = DType::f64;
           p.has_bias = true;
         }),
         "no repeatable algorithm");
}

// The second contribution is added by the product (beta = 1), not by the tape.
TEST_F(CudaReferenceLinear, LaterContributionsAreAddedByTheProduct) {
  const Tensor x = numbers({16, 24}, DType::f32), w = requires_grad(numbers({8, 24}, DType::f32));
  const Tensor dy = numbers({16, 8}, DType::f32);
  backward(linear(x, w, Tensor()), dy);
  EXPECT_EQ(controls().beta, 0.0f);
  const std::vector<double> once = grad_of(w).to_doubles();
  const Tensor y = linear(x, w, Tensor());
  const cuda::Counters before = cuda::counters();
  backward(y, dy);
  EXPECT_EQ(controls().beta, 1.0f);
  EXPECT_EQ((cuda::counters() - before).launches, 0);
  const std::vector<double> twice = grad_of(w).to_doubles();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-5);
}

TEST_F(CudaReferenceLinear, AddressesThatDoNotServeAreCopied) {
  const Tensor all = numbers({1 + 16 * 24}, DType::f16);
  const auto at_one = [](const Tensor& tensor, const Shape& shape) {
    return Tensor::view(tensor.storage(), shape, contiguous_strides(shape), 1, tensor.dtype(), tensor.device());
  };
  const Tensor x = at_one(all, {16, 24}), into = Tensor::empty({1 + 16 * 8}, DType::f16, gpu);
  const Tensor w = numbers({8, 24}, DType::f16), y = at_one(into, {16, 8});
  cuda::Stream& stream = cuda::stream_of(gpu);
  static kernels::ProductCandidates candidates = kernels::product_candidates(stream, "product of a test");
  const ForceCandidate force("product of a test", "cublaslt");
  kernels::product(stream, candidates, {.m = 16, .n = 8, .k = 24, .transpose_b = true}, {.a = x, .b = w, .c = y});
  expect_close(y.to(Device{}), linear(x.clone(), w, Tensor()).to(Device{}), 1e-6);
  const MatmulProblem problem{
      .m = 16, .n = 8, .k = 24, .transpose_b = true, .a = DType::f16, .b = DType::f16, .c = DType::f16};
  refuses<UsageError>("multiple of 16", [&] {
    cuda::blas::matmul(stream, problem, {.a = x.bytes(), .b = w.bytes(), .c = y.bytes()});
    return 0;
  });
}

TEST_F(CudaReferenceLinear, TheOrderOfTheStreamHolds) {
  const Tensor dy = numbers({16, 8}, DType::f16);
  std::vector<std::vector<double>> found;
  under_every_stream_policy([&] {
    const Tensor x = requires_grad(numbers({16, 24}, DType::f16)), w = requires_grad(numbers({8, 24}, DType::f16));
    const Tensor b = requires_grad(numbers({8}, DType::f16));
    const Tensor y = linear(x, w, b, Activation::gelu_tanh);
    backward(y, dy);
    for (const Tensor& t : {y, grad_of(x), grad_of(w), grad_of(b)}) found.push_back(t.to_doubles());
  });
  for (std::size_t i = 4; i < found.size(); ++i) EXPECT_EQ(found[i], found[i % 4]);
}

TEST_F(CudaReferenceLinear, PlansAreMadeBeforeAStepIsRecorded) {
  const Tensor x = numbers({16, 24}, DType::f32), w = numbers({8, 24}, DType::f32);
  cuda::Stream& stream = cuda::stream_of(gpu);
  cuda::Arena arena(gpu);
  Tensor y;
  const auto work = [&] {
    y = Tensor();
    y = linear(x, w, Tensor(), Activation::relu);
  };
  const auto record = [&] { return cuda::Graph::record(stream, arena, work); };
  // The arena is large enough, but nobody asked for this product yet.
  arena.run([&] { (void)Tensor::empty({16, 8}, DType::f32, gpu); });
  refuses<DeviceError>("choosing cuBLASLt's plan", [&] { return record(); });
  arena.run(work);
  const std::vector<double> eager = y.to_doubles();
  const std::int64_t questions = controls().questions;
  const cuda::Graph graph = record();
  EXPECT_EQ(controls().questions, questions) << "the heuristic was asked while recording";
  y.fill_(0);
  graph.launch(stream);
  EXPECT_EQ(y.to_doubles(), eager);
  y = Tensor();
}

/// The largest difference of x w^T and its gradients on the device from f64 on the CPU, as a part of the largest value.
double error_of_product() {
  std::vector<float> x(33 * 64), w(24 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(static_cast<double>(i) * 1.7));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(std::cos(static_cast<double>(i) * 2.3));
  const auto results = [&](Device device, DType dtype) {
    const Tensor a = requires_grad(Tensor::of<float>({33, 64}, x).to(dtype).to(device));
    const Tensor b = requires_grad(Tensor::of<float>({24, 64}, w).to(dtype).to(device));
    const Tensor y = linear(a, b, {});
    backward(y, y);
    std::vector<double> all = y.to_doubles();
    for (const Tensor& part : {grad_of(a), grad_of(b)})
      for (const double value : part.to_doubles()) all.push_back(value);
    return all;
  };
  const std::vector<double> found = results(gpu, DType::f32), exact = results({}, DType::f64);
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(exact[i] - found[i]));
  }
  return difference / largest;
}

class CudaTf32 : public CudaReferenceBlas {};

TEST_F(CudaTf32, RoundsTheOperandsWhereItIsAllowed) {
  EXPECT_LT(error_of_product(), 1e-6);
  set_allows_tf32(true);
  const double allowed = error_of_product();
  set_allows_tf32(false);
  EXPECT_GT(allowed, 1e-5);
  EXPECT_LT(allowed, 5e-3);
  EXPECT_LT(error_of_product(), 1e-6) << "plans of both kinds are kept apart";
  set_allows_tf32({false, true});
  const double of_convolutions = error_of_product();
  set_allows_tf32({true, false});
  const double of_products = error_of_product();
  set_allows_tf32(false);
  EXPECT_LT(of_convolutions, 1e-6) << "a linear layer is no convolution";
  EXPECT_EQ(of_products, allowed);
}

}  // namespace
}  // namespace hearth::test
