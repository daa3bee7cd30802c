// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/residual_block.h"

#include <utility>

#include "autograd/accumulate.h"
#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/conv/conv_norm.h"
#include "ops/conv/kernels.h"
#include "ops/epilogue/operands.h"
#include "ops/norm/folded_rows.h"
#include "ops/norm/parameter.h"

namespace hearth {
namespace {

using detail::BlockLayer;
using kernels::BatchNormSaved;
using kernels::ReluGate;

std::int64_t values_of(const Tensor& x) { return x.size() / x.dim(-1); }

// Inputs are x, residual, and w, gamma and beta of each layer. Forward, v_i being what convolution i makes:
//   convolution i   reads v_(i-1) through norm and ReLU (the first one x), writes v_i and its moments
//   norm i          moments -> coefficients
//   at the end      reads v and the residual, writes y and the bits of y > 0
// Saved are x, all v, the coefficients and the bits. Backward:
//   last norm       reads dy, bits, v twice; writes dv over v, and where the residual is another tensor its gradient
//   convolution i   weights: reads dv_i and, through norm and ReLU, v_(i-1)
//                   images: reads dv_i and v_(i-1), writes g_(i-1) behind the ReLU with its sums
//   norm i-1        sums -> corrections; reads g and v, writes dv_(i-1) over g
//   first images    reads dv_0; where x is the residual also dy and the bits, and writes over dy
struct ResidualBlock {
  static constexpr OpInfo info{.name = "residual_block", .autocast = Autocast::low_precision, .autocast_inputs = 2};
  std::vector<BlockLayer> layers;

  struct SavedLayer {
    ConvShape shape;
    SavedTensor w;
    DType weight_type = DType::f32;
    Tensor v, coefficients, rstd;
    Tensor folded;  ///< the coefficients as a library takes them
  };
  struct Saved {
    SavedTensor x;
    std::vector<SavedLayer> layers;
    Tensor mask;
    bool residual_is_x = false;
  };

  /// How a convolution reads what the layer made.
  static kernels::Conv2dFusion norm_of(const SavedLayer& layer) {
    return {.coefficients = layer.coefficients, .folded = layer.folded};
  }

  template <class Stream>
  SavedLayer layer_forward(Stream& stream, const BlockLayer& layer, const Tensor& x, const Tensor& w_in,
                           const kernels::Conv2dFusion* norm_of_x) const {
    detail::check_operand_types("residual_block", x, w_in, {});
    SavedLayer made;
    made.shape = detail::conv2d_shape(x.shape(), w_in.shape(), {}, layer.convolution);
    const ConvShape& s = made.shape;
    HEARTH_CHECK(ShapeError, s.n * s.p * s.q >= 2, "residual_block: a convolution of x ", x.shape(), " makes ",
                 s.n * s.p * s.q, " values a channel; training needs at least 2, or the variance is undefined");
    const Tensor w = w_in.contiguous();
    made.w = w;
    made.weight_type = w.dtype();
    made.v = Tensor::empty({s.n, s.p, s.q, s.k}, x.dtype(), x.device());
    const bool library = x.dtype() == DType::f16 && !kernels::convolves_natively(stream, s, Pass::forward, x.dtype());
    if (library) made.folded = Tensor::empty({2, s.k}, DType::f16, x.device());
    ChannelMoments moments;
    Tensor sums;
    kernels::Conv2dEpilogue epilogue{Activation::none, &moments, library ? &sums : nullptr};
    kernels::conv2d(stream, s, Pass::forward, {x, w, {}, made.v, &epilogue, false, norm_of_x});
    for (const auto& [name, parameter] : {std::pair{"gamma", &layer.gamma}, {"beta", &layer.beta}})
      check_norm_parameter("residual_block", name, *parameter, made.v);
    made.coefficients = Tensor::empty({4, s.k}, layer.gamma.dtype(), x.device());
    made.rstd = Tensor::empty({s.k}, DType::f64, x.device());
    const Tensor gamma = layer.gamma.contiguous(), beta = layer.beta.contiguous();
    const kernels::ChannelNorm norm{
        gamma, beta, layer.norm, layer.running_mean, layer.running_var, made.coefficients, made.rstd};
    if (sums.defined())
      kernels::batch_norm_folded(stream, sums, values_of(made.v), norm, made.folded);
    else if (moments.parts.defined())
      kernels::batch_norm_coefficients(stream, moments, values_of(made.v), norm);
    else
      kernels::batch_norm_coefficients(stream, made.v, norm);
    if (library && !sums.defined()) kernels::batch_norm_folded(stream, {}, values_of(made.v), norm, made.folded);
    for (const Tensor* const running : {&layer.running_mean, &layer.running_var})
      if (running->defined()) running->storage()->bump_version();
    return made;
  }

  template <class Stream>
  Tensor forward_on(Stream& stream, Saved& saved, std::span<const Tensor> inputs) const {
    const Tensor x = inputs[0].contiguous();
    std::vector<SavedLayer> made;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const kernels::Conv2dFusion fusion = i == 0 ? kernels::Conv2dFusion{} : norm_of(made.back());
      made.push_back(
          layer_forward(stream, layers[i], i == 0 ? x : made.back().v, inputs[2 + 3 * i], i == 0 ? nullptr : &fusion));
    }
    const SavedLayer& last = made.back();
    const Tensor residual = inputs[1].defined() ? inputs[1].contiguous() : x;
    HEARTH_CHECK(ShapeError, residual.shape() == last.v.shape(), "residual_block: residual ", residual.shape(),
                 " must have the shape of the result ", last.v.shape());
    const Tensor y = Tensor::empty_like(last.v);
    Tensor mask;
    if (is_recording()) {
      const kernels::FoldedRows folded(y);
      mask = Tensor::empty({folded.rows, folded.mask_bytes()}, DType::u8, y.device());
    }
    kernels::batch_norm(stream, last.v, last.coefficients, residual, true, y, mask);
    if (is_recording()) {
      saved.x = x;
      saved.layers = std::move(made);
      saved.mask = mask;
      saved.residual_is_x = !inputs[1].defined();
    }
    return y;
  }

  Tensor forward(Saved& saved, std::span<const Tensor> inputs) const {
    Tensor y;
    run_on(inputs[0].device(), [&]<class Stream>(Stream& stream) {
      if constexpr (std::is_same_v<Stream, cuda::Stream>) y = forward_on(stream, saved, inputs);
    });
    return y;
  }

  static bool wants_before(const NeedsGrad& needs, std::size_t layer) {
    if (needs[0]) return true;
    for (std::size_t input = 2; input < 2 + 3 * layer; ++input)
      if (needs[input]) return true;
    return false;
  }

  /// Room for the gradients of a layer's norm; gives that for its corrections.
  static Tensor parameters_of(const NeedsGrad& needs, std::size_t layer, const SavedLayer& of,
                              std::vector<Tensor>& gradients) {
    const Tensor& table = of.coefficients;
    for (const std::size_t input : {3 + 3 * layer, 4 + 3 * layer})
      if (needs[input]) gradients[input] = needs.make(input, {table.dim(1)}, table.dtype());
    return Tensor::empty({2, table.dim(1)}, table.dtype(), table.device());
  }

  /// dv of the last layer, over its v; `behind`, unless undefined, becomes dy behind the ReLU, and may be dy.
  template <class Stream>
  Tensor last_norm_backward(Stream& stream, const Saved& saved, const Tensor& dy, const Tensor& behind,
                            const NeedsGrad& needs, std::vector<Tensor>& gradients) const {
    const SavedLayer& last = saved.layers.back();
    const BatchNormSaved given{last.v, last.coefficients, ReluGate::from_mask, saved.mask};
    const Tensor corrections = parameters_of(needs, layers.size() - 1, last, gradients);
    kernels::batch_norm_grad_sums(stream, given, dy, last.rstd, gradients[gradients.size() - 2], gradients.back(),
                                  corrections);
    kernels::batch_norm_grad(stream, given, dy, corrections, last.v, behind);
    return last.v;
  }

  /// dv of the layer before, from that of layer i.
  template <class Stream>
  Tensor images_backward(Stream& stream, const Saved& saved, std::size_t i, const Tensor& dv, const NeedsGrad& needs,
                         std::vector<Tensor>& gradients) const {
    const SavedLayer &of = saved.layers[i], &before = saved.layers[i - 1];
    const Tensor g = Tensor::empty_like(before.v), corrections = parameters_of(needs, i - 1, before, gradients);
    const Tensor &d_gamma = gradients[3 * i], &d_beta = gradients[3 * i + 1];
    BatchNormSaved given{before.v, before.coefficients, ReluGate::none, {}};
    if (kernels::convolves_natively(stream, of.shape, Pass::backward_data, g.dtype())) {
      ChannelMoments sums;
      const kernels::Conv2dFusion fusion{.coefficients = before.coefficients, .before = before.v, .sums = &sums};
      kernels::conv2d(stream, of.shape, Pass::backward_data, {g, of.w.get(), {}, dv, nullptr, false, &fusion});
      kernels::batch_norm_grad_sums(stream, sums, values_of(g), before.coefficients, before.rstd, d_gamma, d_beta,
                                    corrections);
    } else {
      given.gate = ReluGate::from_input;
      kernels::conv2d(stream, of.shape, Pass::backward_data, {g, of.w.get(), {}, dv});
      kernels::batch_norm_grad_sums(stream, given, g, before.rstd, d_gamma, d_beta, corrections);
    }
    kernels::batch_norm_grad(stream, given, g, corrections, g, {});
    return g;
  }

  template <class Stream>
  std::vector<Tensor> backward_on(Stream& stream, const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    std::vector<Tensor> gradients(needs.size());
    const ConvShape& first = saved.layers[0].shape;
    const bool joins = saved.residual_is_x && needs[0];
    const bool adds = joins && kernels::convolves_natively(stream, first, Pass::backward_data, dy.dtype());
    // Where nobody else reads dy, its memory becomes a gradient.
    const bool reuse = dy.sole_owner();
    Tensor behind;
    if (needs[1] || (joins && !adds)) behind = reuse ? dy : needs.make(1, dy.shape(), dy.dtype());
    if (needs[1]) gradients[1] = behind;
    Tensor dv = last_norm_backward(stream, saved, dy, behind, needs, gradients);
    for (std::size_t i = layers.size(); i-- > 0;) {
      const SavedLayer& of = saved.layers[i];
      const ConvShape& s = of.shape;
      if (const std::size_t input = 2 + 3 * i; needs[input]) {
        const Tensor dw = needs.make(input, {s.k, s.r, s.s, s.c}, needs.type_for(input, of.weight_type));
        const kernels::Conv2dFusion norm = i == 0 ? kernels::Conv2dFusion{} : norm_of(saved.layers[i - 1]);
        kernels::conv2d(
            stream, s, Pass::backward_weights,
            {i == 0 ? saved.x.get() : saved.layers[i - 1].v, dw, {}, dv, nullptr, false, i == 0 ? nullptr : &norm});
        gradients[input] = dw;
      }
      if (!wants_before(needs, i)) return gradients;
      if (i > 0) dv = images_backward(stream, saved, i, dv, needs, gradients);
    }
    const kernels::Conv2dFusion sum{.coefficients = {}, .added = dy, .mask = saved.mask};
    const Tensor dx = adds && reuse ? dy : needs.make(0, {first.n, first.h, first.w, first.c}, dy.dtype());
    kernels::conv2d(stream, first, Pass::backward_data,
                    {dx, saved.layers[0].w.get(), {}, dv, nullptr, false, adds ? &sum : nullptr});
    if (joins && !adds) kernels::add_into(stream, behind, dx);
    gradients[0] = joins && !adds ? behind : dx;
    return gradients;
  }

  std::vector<Tensor> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::vector<Tensor> gradients;
    // dy becomes one of the results where nobody else reads it.
    dy = dy.contiguous();
    run_on(dy.device(), [&]<class Stream>(Stream& stream) {
      if constexpr (std::is_same_v<Stream, cuda::Stream>) gradients = backward_on(stream, saved, dy, needs);
    });
    return gradients;
  }
};

}  // namespace

std::string detail::why_no_residual_block(const Tensor& x, std::span<const BlockLayer> layers) {
  if (!x.defined() || !x.device().is_cuda()) return "it runs on a CUDA device";
  if (layers.empty() || x.rank() != 4 || x.size() == 0)
    return "it takes layers, and images [N, H, W, C] that are there";
  std::int64_t channels = x.dim(3);
  for (const BlockLayer& layer : layers) {
    if (!layer.norm.training) return "a norm is in evaluation";
    if (layer.norm.group != nullptr) return "a norm takes its statistics of all ranks";
    if (layer.norm.activation != Activation::relu || layer.convolution.activation != Activation::none)
      return "its ReLUs are those of the norms";
    if (layer.convolution.groups != 1) return "a convolution has groups";
    if (channels % 8 != 0 || layer.w.dim(0) % 8 != 0) return "channels are not in multiples of 8";
    channels = layer.w.dim(0);
  }
  return "";
}

bool detail::prefers_residual_block(const Tensor& x, std::span<const BlockLayer> layers) {
  const DType images = autocast_dtype().value_or(x.dtype());
  if (size_of(images) != 2) return false;
  bool all = true;
  run_on(x.device(), [&]<class Stream>(Stream& stream) {
    if constexpr (std::is_same_v<Stream, cuda::Stream>) {
      Shape shape = x.shape();
      for (const BlockLayer& layer : layers) {
        const ConvShape s = conv2d_shape(shape, layer.w.shape(), {}, layer.convolution);
        const bool inside = &layer != &layers.front();
        const auto takes_norm = [&](Pass pass) {
          return images == DType::f16 && kernels::library_takes_norm(stream, s, pass, images, inside);
        };
        all = all && (kernels::convolves_natively(stream, s, Pass::forward, images) ||
                      (takes_norm(Pass::forward) && (!inside || takes_norm(Pass::backward_weights))));
        shape = {s.n, s.p, s.q, s.k};
      }
    }
  });
  return all;
}

Tensor detail::residual_block(const Tensor& x, const Tensor& residual, std::span<const BlockLayer> layers) {
  const std::string reason = why_no_residual_block(x, layers);
  HEARTH_CHECK(UsageError, reason.empty(), "residual_block: ", reason, " (x ", describe(x), "); run the layers apart");
  std::vector<Tensor> inputs{x, residual};
  for (const BlockLayer& layer : layers) inputs.insert(inputs.end(), {layer.w, layer.gamma, layer.beta});
  return record_list(ResidualBlock{{layers.begin(), layers.end()}}, std::move(inputs));
}

}  // namespace hearth
