// SPDX-License-Identifier: Apache-2.0
// The candidates of a convolution on the device.
#include <limits>

#include "hearth/core/cuda/dnn.h"
#include "hearth/core/shape.h"
#include "hearth/ops/conv/kernels.h"
#include "hearth/ops/epilogue/epilogue.h"

namespace hearth::kernels {
namespace {

using cpu::dnn::Pass;

/// `tensor` in this type at an address that is a multiple of 16.
Tensor aligned(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() != dtype) return tensor.to(dtype);
  return reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 16 == 0 ? tensor : tensor.clone();
}

bool is_result_of(Pass pass, const Conv2dOperands& o, const Tensor& tensor) {
  const Tensor& result = pass == Pass::forward ? o.y : pass == Pass::backward_data ? o.x : o.w;
  return &tensor == &result;
}

/// The problem with f32 filters rounded to the type of the images where they are only read.
cpu::dnn::Conv2d in_type_of_images(const Conv2dProblem& problem) {
  cpu::dnn::Conv2d conv = problem.conv;
  if (problem.pass != Pass::backward_weights && conv.weights == DType::f32) conv.weights = conv.activations;
  return conv;
}

std::string library_declines(const Conv2dProblem& problem) {
  return cuda::dnn::declines(Device{DeviceType::cuda}, in_type_of_images(problem), problem.pass);
}

/// What the library's plan does beside the pass itself. A bias of another type than the images' would need an engine
/// that is compiled when it is used.
cuda::dnn::Epilogue library_epilogue(const Conv2dProblem& problem, const cpu::dnn::Conv2d& conv, bool with_sums) {
  cuda::dnn::Epilogue epilogue;
  if (problem.pass != Pass::forward) return {};
  epilogue.bias = problem.bias == conv.activations;
  epilogue.relu = epilogue.bias && problem.relu;
  epilogue.sums = with_sums && problem.moments && !problem.bias;
  return cuda::dnn::declines(Device{DeviceType::cuda}, conv, problem.pass, epilogue).empty() ? epilogue
                                                                                             : cuda::dnn::Epilogue{};
}

/// The sums that the library left, as the moments of one run of rows.
void take_sums(cuda::Stream& stream, const Tensor& sums, const Tensor& y, ChannelMoments& moments) {
  const std::int64_t channels = y.dim(-1), rows = y.size() / channels;
  moments = {Tensor::empty({2, channels, 1}, DType::f64, y.device()), rows};
  moments_of_sums(stream, sums, rows, moments.parts);
}

void run_plan(const Conv2dProblem& problem, const Conv2dOperands& o, bool with_sums) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  const cpu::dnn::Conv2d conv = in_type_of_images(problem);
  const auto ready = [&](const Tensor& tensor) {
    if (!is_result_of(problem.pass, o, tensor)) return aligned(tensor, conv.activations);
    return reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 16 == 0 ? tensor : Tensor::empty_like(tensor);
  };
  const Tensor x = ready(o.x), w = ready(o.w), y = ready(o.y);
  const cuda::dnn::Epilogue epilogue = library_epilogue(problem, conv, with_sums);
  const Tensor b = epilogue.bias ? aligned(o.b, conv.activations) : Tensor();
  const Tensor sums = epilogue.sums ? Tensor::empty({2, o.y.dim(-1)}, DType::f32, o.y.device()) : Tensor();
  cuda::dnn::ConvOperands memory{x.bytes(), w.bytes(), y.bytes()};
  if (epilogue.bias) memory.bias = b.bytes();
  if (epilogue.sums) {
    memory.sum = sums.data<float>();
    memory.squares = sums.data<float>() + sums.dim(1);
  }
  cuda::dnn::conv2d(stream, conv, problem.pass, epilogue, memory);
  const auto give_back = [&](const Tensor& result, const Tensor& wanted) {
    if (is_result_of(problem.pass, o, wanted) && !result.same_storage(wanted)) wanted.copy_from(result);
  };
  give_back(x, o.x);
  give_back(w, o.w);
  give_back(y, o.y);
  if (problem.pass == Pass::forward && o.b.defined() && !epilogue.bias) add_bias(stream, o.b, o.y);
  if (epilogue.relu) o.epilogue->activation = Activation::none;
  if (epilogue.sums) take_sums(stream, sums, o.y, *o.epilogue->moments);
  if (problem.pass == Pass::backward_weights && o.b.defined()) sum_rows(stream, o.y, o.b);
}

void run_library(const Conv2dProblem& problem, const Conv2dOperands& o) { run_plan(problem, o, false); }

/// The sums of y squared are kept in f32 around 0, so that a mean far larger than the deviations costs their precision:
/// for those who ask for it.
void run_library_with_sums(const Conv2dProblem& problem, const Conv2dOperands& o) { run_plan(problem, o, true); }

/// The own kernels count pixels, and elements of a filter, in 32 bits.
std::string portable_declines(const Conv2dProblem& problem) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const Conv2dShape& s = problem.conv.shape;
  const char* what = "conv2d: pixels of the batch";
  for (const std::int64_t count :
       {checked_mul(s.n, s.p * s.q, what), checked_mul(s.n, s.h * s.w, what), checked_mul(s.r * s.s, s.c, what),
        checked_mul(s.r * s.s, s.k, what), s.h + 2 * s.pad_h, s.w + 2 * s.pad_w})
    if (count > most) return "2^31 or more pixels, or elements of a filter";
  return "";
}

std::string mma_declines(const Conv2dProblem& problem) {
  const Conv2dShape& s = problem.conv.shape;
  if (size_of(problem.conv.activations) != 2)
    return join_text("images are ", problem.conv.activations, "; tensor cores take f16 and bf16 here");
  const std::int64_t channels = s.c / s.groups, filters = s.k / s.groups;
  // The filters of a group are rows of w and, in the gradients, neighbours in memory.
  const bool by_filters = problem.pass != Pass::forward;
  if (channels % 8 != 0) return join_text(channels, " channels in a group, not a multiple of 8");
  if (by_filters && filters % 8 != 0) return join_text(filters, " filters in a group, not a multiple of 8");
  return portable_declines(problem);
}

/// f32 filters beside 16-bit images are rounded to their type, as the CPU's library does.
void run_mma(const Conv2dProblem& problem, const Conv2dOperands& o) {
  cuda::Stream& stream = cuda::stream_of(o.x.device());
  const DType dtype = problem.conv.activations;
  const bool reads_x = problem.pass != Pass::backward_data;
  const bool reads_w = problem.pass != Pass::backward_weights;
  const bool reads_y = problem.pass != Pass::forward;
  const Tensor x = reads_x ? aligned(o.x, dtype) : o.x, w = reads_w ? aligned(o.w, dtype) : o.w,
               y = reads_y ? aligned(o.y, dtype) : o.y;
  conv2d_mma(stream, problem, {x, w, o.b, y, o.epilogue});
}

void run_portable(const Conv2dProblem& problem, const Conv2dOperands& operands) {
  conv2d_tiles(cuda::stream_of(operands.x.device()), problem, operands);
}

}  // namespace

void conv2d(cuda::Stream&, const Conv2dShape& shape, cpu::dnn::Pass pass, const Conv2dOperands& operands) {
  static Conv2dCandidates candidates("conv2d",
                                     {{"cudnn", library_declines, run_library, cuda::dnn::why_absent},
                                      {"mma", mma_declines, run_mma},
                                      {"portable", portable_declines, run_portable},
                                      {"cudnn_sums", library_declines, run_library_with_sums, cuda::dnn::why_absent}},
                                     {"onednn"});
  run_conv2d(candidates, shape, pass, operands);
}

}  // namespace hearth::kernels
