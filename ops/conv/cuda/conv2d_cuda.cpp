// SPDX-License-Identifier: Apache-2.0
// The candidates of a convolution on the device.
#include <limits>

#include "autograd/accumulate.h"
#include "core/cuda/memory.h"
#include "core/shape.h"
#include "core/tf32.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "ops/conv/cuda/stem.h"
#include "ops/conv/kernels.h"
#include "ops/cublaslt/library.h"
#include "ops/epilogue/epilogue.h"
#include "ops/image/padded_images.h"
#include "ops/matmul/cuda/matmul_cublaslt.h"

namespace hearth::kernels {
namespace {

using detail::tensor_core_channels;

/// Whether it is of this type, at an address that is a multiple of 16.
bool fits(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype && reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 16 == 0;
}

/// `tensor` or a copy that fits.
Tensor aligned(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() != dtype) return tensor.to(dtype);
  return fits(tensor, dtype) ? tensor : tensor.clone();
}

bool is_result_of(Pass pass, const Conv2dOperands& o, const Tensor& tensor) {
  const Tensor& result = pass == Pass::forward ? o.y : pass == Pass::backward_data ? o.x : o.w;
  return &tensor == &result;
}

/// The pass as the library is asked for it: f32 filters, and their gradient, rounded to the type of 16-bit images, and
/// nothing done beside the pass.
ConvProblem plain(ConvProblem problem) {
  if (problem.weights == DType::f32) problem.weights = problem.activations;
  problem.bias.reset();
  problem.relu = problem.accumulate = false;
  return problem;
}

/// The same with the bias and the ReLU behind it, or the addition to what is there, that one plan may do with the pass.
/// A bias of another type than the images' would need an engine that is compiled when it is used.
ConvProblem fused(const ConvProblem& problem) {
  ConvProblem result = plain(problem);
  result.accumulate = problem.accumulate;
  if (problem.pass != Pass::forward || problem.bias != problem.activations) return result;
  result.bias = problem.bias;
  result.relu = problem.relu;
  return result;
}

bool has_few_channels(const ConvShape& shape, DType images) {
  return size_of(images) == 2 && shape.groups == 1 && shape.c > 0 && shape.c < tensor_core_channels;
}

/// Channels of images that have few, as the library is given them. cuDNN has kernels for first convolutions in f16 that
/// read 4: on an H200 a third of the time of 8. In bf16 it has none.
std::int64_t library_channels(const ConvShape& shape, DType images) {
  return images == DType::f16 && shape.c <= 4 && cuda::dnn::why_absent().empty() ? 4 : tensor_core_channels;
}

/// The problem in images of so many channels, if it has few.
ConvProblem padded(ConvProblem problem, std::int64_t channels = tensor_core_channels) {
  if (!has_few_channels(problem.shape, problem.activations)) return problem;
  problem.shape.c = channels;
  problem.accumulate = false;
  return problem;
}

ConvProblem padded_for_library(const ConvProblem& problem) {
  return padded(problem, library_channels(problem.shape, problem.activations));
}

/// Readable images of few channels as contiguous ones of so many: the same memory if their pixels are that large.
Tensor whole_pixels(cuda::Stream& stream, const Tensor& x, std::int64_t channels) {
  const Shape shape = x.shape().with(3, channels);
  if (pixel_stride(x) == channels)
    return Tensor::view(x.storage(), shape, contiguous_strides(shape), x.offset(), x.dtype(), x.device());
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  copy_channels(stream, x, y);
  return y;
}

/// `run` on the operands of the padded problem; what it makes is cut to the operands' own channels.
void run_padded(const ConvProblem& problem, const Conv2dOperands& o, std::int64_t channels, Conv2dRun* run) {
  if (!has_few_channels(problem.shape, problem.activations)) return run(problem, o);
  cuda::Stream& stream = cuda::stream_of(o.y.device());
  const bool makes_x = problem.pass == Pass::backward_data, makes_w = problem.pass == Pass::backward_weights;
  const auto room_for = [&](const Tensor& operand, DType dtype) {
    return Tensor::empty(operand.shape().with(3, channels), dtype, operand.device());
  };
  const Tensor x = makes_x ? room_for(o.x, o.x.dtype()) : whole_pixels(stream, o.x, channels);
  const Tensor w = room_for(o.w, makes_w ? o.w.dtype() : o.x.dtype());
  if (!makes_w) copy_channels(stream, o.w, w);
  run(padded(problem, channels), {x, w, o.b, o.y, o.epilogue});
  const Tensor dx = problem.accumulate ? Tensor::empty_like(o.x) : o.x;
  if (makes_x) copy_channels(stream, x, dx);
  if (problem.accumulate) add_into(stream, o.x, dx);
  if (makes_w) copy_channels(stream, w, o.w);
}

std::string library_unsupported(const ConvProblem& problem) {
  return cuda::dnn::unsupported(plain(padded_for_library(problem)));
}

/// Runs what the plan for all of it does, else the plain pass; `planned` becomes what was done.
void run_planned(cuda::Stream& stream, ConvProblem& planned, const cuda::dnn::ConvOperands& memory) {
  if ((planned.bias || planned.accumulate) && cuda::dnn::try_conv2d(stream, planned, memory)) return;
  planned = plain(planned);
  cuda::dnn::conv2d(stream, planned, memory);
}

/// A pass by what cannot add to its result: into memory of its own, which is added then.
void run_beside(ConvProblem problem, const Conv2dOperands& o, Conv2dRun* run) {
  const Tensor dx = Tensor::empty_like(o.x);
  problem.accumulate = false;
  run(problem, {dx, o.w, o.b, o.y, o.epilogue});
  add_into(cuda::stream_of(o.x.device()), o.x, dx);
}

void run_plan(const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.accumulate && !cuda::dnn::unsupported(fused(problem)).empty()) return run_beside(problem, o, run_plan);
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  ConvProblem planned = fused(problem);
  const auto ready = [&](const Tensor& tensor) {
    if (!is_result_of(problem.pass, o, tensor) || problem.accumulate) return aligned(tensor, planned.activations);
    return fits(tensor, planned.activations) ? tensor
                                             : Tensor::empty(tensor.shape(), planned.activations, tensor.device());
  };
  const Tensor x = ready(o.x), w = ready(o.w), y = ready(o.y);
  const Tensor b = planned.bias ? aligned(o.b, planned.activations) : Tensor();
  run_planned(stream, planned, {x.bytes(), w.bytes(), y.bytes(), planned.bias ? b.bytes() : nullptr});
  const auto give_back = [&](const Tensor& result, const Tensor& wanted) {
    if (is_result_of(problem.pass, o, wanted) && !result.same_storage(wanted)) wanted.copy_from(result);
  };
  give_back(x, o.x);
  give_back(w, o.w);
  give_back(y, o.y);
  if (problem.pass == Pass::forward && o.b.defined() && !planned.bias) add_bias(stream, o.b, o.y);
  if (planned.relu) o.epilogue->activation = Activation::none;
  if (problem.pass == Pass::backward_weights && o.b.defined()) sum_rows(stream, o.y, o.b);
}

void run_library(const ConvProblem& problem, const Conv2dOperands& o) {
  run_padded(problem, o, library_channels(problem.shape, problem.activations), run_plan);
}

/// A pass with 1x1 filters as a product over all pixels: y = x w^T, dx = dy w, dw = dy^T x. Nothing is done beside it.
MatmulProblem product_of(const ConvProblem& p) {
  const ConvShape& s = p.shape;
  const std::int64_t pixels = s.n * s.p * s.q;
  const bool makes_w = p.pass == Pass::backward_weights, makes_y = p.pass == Pass::forward;
  return {.m = makes_w ? s.k : pixels,
          .n = makes_y ? s.k : s.c,
          .k = makes_w   ? pixels
               : makes_y ? s.c
                         : s.k,
          .transpose_a = makes_w,
          .transpose_b = makes_y,
          .a = p.activations,
          .b = p.activations,
          .c = makes_w ? p.weights : p.activations,
          .deterministic = p.deterministic,
          .repeatable = p.repeatable,
          .tf32 = p.activations == DType::f32 && allowed_tf32().conv,
          .device = p.device};
}

/// With the bias and the ReLU that a forward pass may have, and the addition to what is there.
MatmulProblem fused_product_of(const ConvProblem& problem) {
  const ConvProblem with = fused(problem);
  MatmulProblem product = product_of(problem);
  product.has_bias = with.bias.has_value();
  product.accumulate = problem.accumulate;
  if (with.relu) product.activation = Activation::relu;
  return product;
}

std::string product_unsupported(const ConvProblem& p) {
  const ConvShape& s = p.shape;
  if (p.activations == DType::f64) return "f64 is left to the portable kernel";
  if (s.r != 1 || s.s != 1 || s.stride_h != 1 || s.stride_w != 1 || s.pad_h != 0 || s.pad_w != 0 || s.groups != 1)
    return "it is for 1x1 filters without stride, padding and groups";
  if (s.h != s.p || s.w != s.q || has_few_channels(s, p.activations)) return "its images are padded";
  return cuda::blas::unsupported(product_of(p));
}

/// By their times, where both were timed. Else cuDNN is first, but for gradients that it would round to 16 bits.
std::string product_slower(const ConvProblem& problem) {
  if (!library_unsupported(problem).empty()) return "";
  const double product = cuda::blas::microseconds(product_of(problem)), pass = cuda::dnn::microseconds(plain(problem));
  if (product > 0 && pass > 0)
    return product <= pass ? "" : join_text("cuDNN takes ", pass, " us, the product ", product);
  const bool rounds = problem.pass == Pass::backward_weights && problem.weights != problem.activations;
  return rounds ? "" : "cuDNN is first where they are not timed";
}

void run_product(const ConvProblem& problem, const Conv2dOperands& o) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  const DType dtype = problem.activations;
  MatmulProblem product = fused_product_of(problem);
  if (!cuda::blas::unsupported(product).empty()) {
    if (problem.accumulate) return run_beside(problem, o, run_product);
    product = product_of(problem);
  }
  const auto operand = [&](const Tensor& tensor) {
    if (!is_result_of(problem.pass, o, tensor) || problem.accumulate) return aligned(tensor, dtype);
    return fits(tensor, product.c) ? tensor : Tensor::empty(tensor.shape(), product.c, tensor.device());
  };
  const Tensor x = operand(o.x), w = operand(o.w), y = operand(o.y);
  const Tensor b = product.has_bias ? aligned(o.b, dtype) : Tensor();
  const bool makes_w = problem.pass == Pass::backward_weights, makes_y = problem.pass == Pass::forward;
  const Tensor &left = makes_y ? x : y, &right = makes_w ? x : w, &result = makes_w ? w : makes_y ? y : x;
  cuda::blas::matmul(
      stream, product,
      {.a = left.bytes(), .b = right.bytes(), .bias = product.has_bias ? b.bytes() : nullptr, .c = result.bytes()});
  const Tensor& wanted = makes_w ? o.w : makes_y ? o.y : o.x;
  if (!result.same_storage(wanted)) wanted.copy_from(result);
  if (makes_y && o.b.defined() && !product.has_bias) add_bias(stream, o.b, o.y);
  if (product.activation == Activation::relu) o.epilogue->activation = Activation::none;
  if (makes_w && o.b.defined()) sum_rows(stream, o.y, o.b);
}

/// The native kernels count pixels, and elements of a filter, in 32 bits.
std::string portable_unsupported(const ConvProblem& problem) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const ConvShape& s = problem.shape;
  const char* what = "conv2d: pixels of the batch";
  for (const std::int64_t count :
       {checked_mul(s.n, s.p * s.q, what), checked_mul(s.n, s.h * s.w, what), checked_mul(s.r * s.s, s.c, what),
        checked_mul(s.r * s.s, s.k, what), s.h + 2 * s.pad_h, s.w + 2 * s.pad_w})
    if (count > most) return "2^31 or more pixels, or elements of a filter";
  return "";
}

std::string mma_unsupported(const ConvProblem& of_op) {
  const ConvProblem problem = padded(of_op);
  const ConvShape& s = problem.shape;
  if (size_of(problem.activations) != 2)
    return join_text("images are ", problem.activations, "; tensor cores take f16 and bf16 here");
  const std::int64_t channels = s.c / s.groups, filters = s.k / s.groups;
  // The filters of a group are rows of w and, in the gradients, neighbours in memory.
  const bool by_filters = problem.pass != Pass::forward;
  if (channels % 8 != 0) return join_text(channels, " channels in a group, not a multiple of 8");
  if (by_filters && filters % 8 != 0) return join_text(filters, " filters in a group, not a multiple of 8");
  return portable_unsupported(problem);
}

/// f32 filters beside 16-bit images are rounded to their type, as the CPU's library does.
void run_tensor_cores(const ConvProblem& problem, const Conv2dOperands& o) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  const DType dtype = problem.activations;
  const bool reads_x = problem.pass != Pass::backward_data;
  const bool reads_w = problem.pass != Pass::backward_weights;
  const bool reads_y = problem.pass != Pass::forward;
  const Tensor x = reads_x ? aligned(o.x, dtype) : o.x, w = reads_w ? aligned(o.w, dtype) : o.w,
               y = reads_y ? aligned(o.y, dtype) : o.y;
  conv2d_mma(stream, problem, {x, w, o.b, y, o.epilogue, o.accumulate});
}

void run_mma(const ConvProblem& problem, const Conv2dOperands& o) {
  run_padded(problem, o, tensor_core_channels, run_tensor_cores);
}

/// As images of few channels are readable_images().
std::string native_stem_unsupported(const ConvProblem& problem) {
  std::string reason = stem_unsupported(problem, cuda::max_shared_memory({DeviceType::cuda, problem.device}));
  return reason.empty() ? portable_unsupported(problem) : reason;
}

void run_stem(const ConvProblem& problem, const Conv2dOperands& o) {
  cuda::Stream& stream = cuda::stream_of(o.y.device());
  const DType dtype = problem.activations;
  const Tensor x = aligned(whole_pixels(stream, o.x, stem_channels), dtype);
  const bool is_forward = problem.pass == Pass::forward;
  conv2d_stem(stream, problem,
              {x, is_forward ? aligned(o.w, dtype) : o.w, o.b, is_forward ? o.y : aligned(o.y, dtype), o.epilogue});
}

void run_portable(const ConvProblem& problem, const Conv2dOperands& operands) {
  conv2d_tiles(cuda::stream_of(operands.x.device()), problem, operands);
}

Conv2dCandidates& candidates() {
  static Conv2dCandidates list("conv2d",
                               {{"cublaslt", product_unsupported, run_product, cuda::blas::why_absent, product_slower},
                                {"stem", native_stem_unsupported, run_stem},
                                {"cudnn", library_unsupported, run_library, cuda::dnn::why_absent},
                                {"mma", mma_unsupported, run_mma},
                                {"portable", portable_unsupported, run_portable}});
  return list;
}

}  // namespace

Tensor readable_images(cuda::Stream& stream, const ConvShape& shape, const Tensor& x) {
  if (!has_few_channels(shape, x.dtype()) || x.size() == 0) return x.contiguous();
  if (detail::is_padded(x)) return x;
  const Tensor y = whole_pixels(stream, x.contiguous(), detail::pixel_capacity(x.dtype(), shape.c, x.device()));
  return Tensor::view(y.storage(), x.shape(), y.strides(), y.offset(), y.dtype(), y.device());
}

void conv2d(cuda::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands) {
  run_conv2d(candidates(), shape, pass, operands);
}

}  // namespace hearth::kernels
