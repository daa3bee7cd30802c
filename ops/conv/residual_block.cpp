// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/residual_block.h"

#include <optional>
#include <utility>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/conv/conv_norm.h"
#include "ops/conv/kernels.h"
#include "ops/epilogue/operands.h"
#include "ops/norm/batch_norm_pair.h"
#include "ops/norm/folded_rows.h"
#include "ops/norm/parameter.h"
#include "ops/plan_check.h"

namespace hearth {
namespace {

using detail::BlockLayer;
using kernels::BatchNormSaved;
using kernels::ReluGate;

std::int64_t values_of(const Tensor& x) { return x.size() / x.dim(-1); }

// Inputs are x, and w, gamma and beta of each layer, the shortcut's last. Forward, v_i being what convolution i makes:
//   convolution i   reads v_(i-1) through norm and ReLU (the first one and the shortcut's x), writes v_i and its
//   moments norm i          moments -> coefficients at the end      reads v and x, or the shortcut's v through its
//   norm, writes y and the bits of y > 0
// Saved are x, all v, the coefficients and the bits. Backward:
//   last norm       reads dy, bits and v twice, writes dv over v; likewise that of the shortcut in the same passes
//   convolution i   weights: reads dv_i and, through norm and ReLU, v_(i-1)
//                   images: reads dv_i and v_(i-1), writes g_(i-1) behind the ReLU; sums -> corrections
//   norm i-1        reads g and v, writes dv_(i-1) over g
//   first images    reads dv_0; adds what the shortcut gives: dy where the bits are, or its convolution's gradient
struct ResidualBlock {
  static constexpr OpInfo info{.name = "residual_block", .autocast = Autocast::low_precision, .autocast_inputs = 1};
  std::vector<BlockLayer> layers;  ///< the shortcut's last, where it is a convolution
  bool projects = false;           ///< it is

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
  };

  /// Of the layers that follow each other.
  std::size_t depth() const { return layers.size() - (projects ? 1 : 0); }

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
      const bool reads_x = i == 0 || i == depth();
      const kernels::Conv2dFusion fusion = reads_x ? kernels::Conv2dFusion{} : norm_of(made.back());
      made.push_back(layer_forward(stream, layers[i], reads_x ? x : made.back().v, inputs[1 + 3 * i],
                                   reads_x ? nullptr : &fusion));
    }
    const SavedLayer &last = made[depth() - 1], &other = made.back();
    const Tensor& residual = projects ? other.v : x;
    HEARTH_CHECK(ShapeError, residual.shape() == last.v.shape(), "residual_block: the shortcut's ", residual.shape(),
                 " must have the shape of the result ", last.v.shape());
    const Tensor y = Tensor::empty_like(last.v);
    Tensor mask;
    if (is_recording()) {
      const kernels::FoldedRows folded(y);
      mask = Tensor::empty({folded.rows, folded.mask_bytes()}, DType::u8, y.device());
    }
    if (projects)
      kernels::batch_norm_pair(stream, {last.v, last.coefficients}, {other.v, other.coefficients}, y, mask);
    else
      kernels::batch_norm(stream, last.v, last.coefficients, x, true, y, mask);
    if (is_recording()) {
      saved.x = x;
      saved.layers = std::move(made);
      saved.mask = mask;
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
    for (std::size_t input = 0; input < 1 + 3 * layer; ++input)
      if (needs[input]) return true;
    return false;
  }

  /// Room for the gradients of a layer's norm; gives that for its corrections.
  static Tensor parameters_of(const NeedsGrad& needs, std::size_t layer, const SavedLayer& of,
                              std::vector<Tensor>& gradients) {
    const Tensor& table = of.coefficients;
    for (const std::size_t input : {2 + 3 * layer, 3 + 3 * layer})
      if (needs[input]) gradients[input] = needs.make(input, {table.dim(1)}, table.dtype());
    return Tensor::empty({2, table.dim(1)}, table.dtype(), table.device());
  }

  /// dv of the last layer, over its v; `behind`, unless undefined, becomes dy behind the ReLU, and may be dy. Where the
  /// shortcut is a layer, its dv too, over its v.
  template <class Stream>
  Tensor last_norm_backward(Stream& stream, const Saved& saved, const Tensor& dy, const Tensor& behind,
                            const NeedsGrad& needs, std::vector<Tensor>& gradients) const {
    const std::size_t i = depth() - 1, of_shortcut = depth();
    const SavedLayer& last = saved.layers[i];
    const Tensor corrections = parameters_of(needs, i, last, gradients);
    const Tensor &d_gamma = gradients[2 + 3 * i], &d_beta = gradients[3 + 3 * i];
    if (projects) {
      const SavedLayer& other = saved.layers[of_shortcut];
      const Tensor other_corrections = parameters_of(needs, of_shortcut, other, gradients);
      const kernels::BatchNormGradient a{last.v, last.coefficients, last.rstd, d_gamma, d_beta, corrections};
      const kernels::BatchNormGradient b{other.v,
                                         other.coefficients,
                                         other.rstd,
                                         gradients[2 + 3 * of_shortcut],
                                         gradients[3 + 3 * of_shortcut],
                                         other_corrections};
      kernels::batch_norm_pair_grad_sums(stream, a, b, saved.mask, dy);
      kernels::batch_norm_pair_grad(stream, a, b, saved.mask, dy);
      return last.v;
    }
    const BatchNormSaved given{last.v, last.coefficients, ReluGate::from_mask, saved.mask};
    kernels::batch_norm_grad_sums(stream, given, dy, last.rstd, d_gamma, d_beta, corrections);
    kernels::batch_norm_grad(stream, given, dy, corrections, last.v, behind);
    return last.v;
  }

  /// The gradient of a layer's filters, and what it is made from.
  struct Filters {
    ConvShape shape;
    Tensor x, dw, dv;
    std::optional<kernels::Conv2dFusion> norm;  ///< that x is read through
    Tensor parts = {};                          ///< where it is unfinished
    Tensor none = {};

    kernels::Conv2dOperands operands() {
      return {x, dw, none, dv, nullptr, false, norm ? &*norm : nullptr, detail::checks_plans() ? nullptr : &parts};
    }
  };

  /// Of layer i, unless it wants none.
  std::optional<Filters> filters_of(const Saved& saved, std::size_t i, const Tensor& dv, const NeedsGrad& needs,
                                    std::vector<Tensor>& gradients) const {
    const std::size_t input = 1 + 3 * i;
    if (!needs[input]) return {};
    const SavedLayer& of = saved.layers[i];
    const ConvShape& s = of.shape;
    gradients[input] = needs.make(input, {s.k, s.r, s.s, s.c}, needs.type_for(input, of.weight_type));
    if (i == 0 || i == depth()) return Filters{s, saved.x.get(), gradients[input], dv, {}};
    return Filters{s, saved.layers[i - 1].v, gradients[input], dv, norm_of(saved.layers[i - 1])};
  }

  /// The pass of a layer's images, with its filters' gradient if that is wanted.
  template <class Stream>
  static void make_gradients(Stream& stream, const ConvShape& shape, std::optional<Filters>& filters,
                             const kernels::Conv2dOperands& images) {
    if (filters)
      kernels::conv2d_gradients(stream, shape, filters->operands(), images);
    else
      kernels::conv2d(stream, shape, Pass::backward_data, images);
  }

  /// dv of the layer before, from that of layer i, whose filters' gradient is made too.
  template <class Stream>
  Tensor images_backward(Stream& stream, const Saved& saved, std::size_t i, const Tensor& dv, const NeedsGrad& needs,
                         std::vector<Tensor>& gradients, std::optional<Filters>& filters) const {
    const SavedLayer &of = saved.layers[i], &before = saved.layers[i - 1];
    const Tensor g = Tensor::empty_like(before.v), corrections = parameters_of(needs, i - 1, before, gradients);
    const Tensor &d_gamma = gradients[3 * i - 1], &d_beta = gradients[3 * i];
    BatchNormSaved given{before.v, before.coefficients, ReluGate::none, {}};
    if (kernels::convolves_natively(stream, of.shape, Pass::backward_data, g.dtype())) {
      const kernels::BatchNormGradient norm{before.v, before.coefficients, before.rstd, d_gamma, d_beta, corrections};
      const kernels::Conv2dFusion fusion{.coefficients = {}, .gradient = &norm};
      make_gradients(stream, of.shape, filters, {g, of.w.get(), {}, dv, nullptr, false, &fusion});
    } else {
      given.gate = ReluGate::from_input;
      make_gradients(stream, of.shape, filters, {g, of.w.get(), {}, dv});
      kernels::batch_norm_grad_sums(stream, given, g, before.rstd, d_gamma, d_beta, corrections);
    }
    kernels::batch_norm_grad(stream, given, g, corrections, g, {});
    return g;
  }

  /// dx of a block whose shortcut is x: over dy where nobody else reads that, or over `behind` where a library adds to
  /// that.
  template <class Stream>
  Tensor first_images_backward(Stream& stream, const Saved& saved, const Tensor& dv, const Tensor& dy, bool reuse,
                               const Tensor& behind, const NeedsGrad& needs, std::optional<Filters>& filters) const {
    const SavedLayer& first = saved.layers[0];
    const kernels::Conv2dFusion sum{.coefficients = {}, .added = dy, .mask = saved.mask};
    const bool adds = !behind.defined();
    const Tensor dx = !adds ? behind : reuse ? dy : needs.make(0, dy.shape(), dy.dtype());
    make_gradients(stream, first.shape, filters, {dx, first.w.get(), {}, dv, nullptr, !adds, adds ? &sum : nullptr});
    return dx;
  }

  /// dx of a block whose shortcut is a layer: a native kernel adds the gradient of the pixels that the shortcut reads,
  /// a library the shortcut's whole gradient.
  template <class Stream>
  Tensor images_backward_of_both(Stream& stream, const Saved& saved, const Tensor& dv, const NeedsGrad& needs,
                                 std::optional<Filters>& filters) const {
    const SavedLayer &first = saved.layers[0], &other = saved.layers[depth()];
    const ConvShape& s = first.shape;
    const Tensor dx = needs.make(0, {s.n, s.h, s.w, s.c}, dv.dtype());
    ConvShape read = other.shape;
    read.h = read.p, read.w = read.q;
    read.stride_h = read.stride_w = 1;
    if (kernels::convolves_natively(stream, s, Pass::backward_data, dx.dtype())) {
      const Tensor added = Tensor::empty({read.n, read.p, read.q, read.c}, dx.dtype(), dx.device());
      kernels::conv2d(stream, read, Pass::backward_data, {added, other.w.get(), {}, other.v});
      const kernels::Conv2dFusion sum{
          .coefficients = {}, .added = added, .added_stride = {other.shape.stride_h, other.shape.stride_w}};
      make_gradients(stream, s, filters, {dx, first.w.get(), {}, dv, nullptr, false, &sum});
    } else {
      make_gradients(stream, s, filters, {dx, first.w.get(), {}, dv});
      kernels::conv2d(stream, other.shape, Pass::backward_data, {dx, other.w.get(), {}, other.v, nullptr, true});
    }
    return dx;
  }

  template <class Stream>
  std::vector<Tensor> backward_on(Stream& stream, const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    std::vector<Tensor> gradients(needs.size());
    // Where nobody else reads dy, its memory becomes a gradient.
    const bool reuse = dy.sole_owner();
    Tensor behind;
    if (!projects && needs[0] &&
        !kernels::convolves_natively(stream, saved.layers[0].shape, Pass::backward_data, dy.dtype()))
      behind = reuse ? dy : needs.make(0, dy.shape(), dy.dtype());
    Tensor dv = last_norm_backward(stream, saved, dy, behind, needs, gradients);
    std::vector<kernels::FilterParts> unfinished;
    const auto make_filters = [&](std::size_t i, const auto& make) {
      std::optional<Filters> filters = filters_of(saved, i, i == depth() ? saved.layers[i].v : dv, needs, gradients);
      make(filters);
      if (filters && filters->parts.defined()) unfinished.push_back({filters->parts, filters->dw});
    };
    const auto alone = [&](std::optional<Filters>& filters) {
      if (filters) kernels::conv2d(stream, filters->shape, Pass::backward_weights, filters->operands());
    };
    if (projects) make_filters(depth(), alone);
    for (std::size_t i = depth(); i-- > 0;) {
      const bool goes_on = wants_before(needs, i);
      make_filters(i, [&](std::optional<Filters>& filters) {
        if (!goes_on)
          alone(filters);
        else if (i > 0)
          dv = images_backward(stream, saved, i, dv, needs, gradients, filters);
        else
          gradients[0] = projects ? images_backward_of_both(stream, saved, dv, needs, filters)
                                  : first_images_backward(stream, saved, dv, dy, reuse, behind, needs, filters);
      });
      if (!goes_on) break;
    }
    kernels::sum_filter_parts(stream, unfinished, dy.dtype());
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

std::string detail::why_no_residual_block(const Tensor& x, std::span<const BlockLayer> layers,
                                          const BlockLayer* shortcut) {
  if (!x.defined() || !x.device().is_cuda()) return "it runs on a CUDA device";
  if (layers.empty() || x.rank() != 4 || x.size() == 0)
    return "it takes layers, and images [N, H, W, C] that are there";
  std::int64_t channels = x.dim(3);
  const auto why_not = [&](const BlockLayer& layer, Activation activation) -> std::string {
    if (!layer.norm.training) return "a norm is in evaluation";
    if (layer.norm.group != nullptr) return "a norm takes its statistics of all ranks";
    if (layer.norm.activation != activation || layer.convolution.activation != Activation::none)
      return "its ReLUs are those of the norms, but the shortcut's";
    if (layer.convolution.groups != 1) return "a convolution has groups";
    if (channels % 8 != 0 || layer.w.dim(0) % 8 != 0) return "channels are not in multiples of 8";
    return "";
  };
  for (const BlockLayer& layer : layers) {
    if (std::string reason = why_not(layer, Activation::relu); !reason.empty()) return reason;
    channels = layer.w.dim(0);
  }
  if (shortcut == nullptr) return "";
  channels = x.dim(3);
  if (shortcut->w.dim(1) != 1 || shortcut->w.dim(2) != 1 || shortcut->convolution.padding != Pair(0))
    return "the shortcut's filters are not 1x1, or it has padding";
  return why_not(*shortcut, Activation::none);
}

bool detail::prefers_residual_block(const Tensor& x, std::span<const BlockLayer> layers, const BlockLayer* shortcut) {
  const DType images = autocast_dtype().value_or(x.dtype());
  if (size_of(images) != 2) return false;
  bool all = true;
  run_on(x.device(), [&]<class Stream>(Stream& stream) {
    if constexpr (std::is_same_v<Stream, cuda::Stream>) {
      const auto takes = [&](const Shape& of, const BlockLayer& layer, bool inside) {
        const ConvShape s = conv2d_shape(of, layer.w.shape(), {}, layer.convolution);
        const auto takes_norm = [&](Pass pass) {
          return images == DType::f16 && kernels::library_takes_norm(stream, s, pass, images, inside);
        };
        all = all && (kernels::convolves_natively(stream, s, Pass::forward, images) ||
                      (takes_norm(Pass::forward) && (!inside || takes_norm(Pass::backward_weights))));
        return Shape{s.n, s.p, s.q, s.k};
      };
      Shape shape = x.shape();
      for (const BlockLayer& layer : layers) shape = takes(shape, layer, &layer != &layers.front());
      if (shortcut != nullptr) takes(x.shape(), *shortcut, false);
    }
  });
  return all;
}

Tensor detail::residual_block(const Tensor& x, std::span<const BlockLayer> layers, const BlockLayer* shortcut) {
  const std::string reason = why_no_residual_block(x, layers, shortcut);
  HEARTH_CHECK(UsageError, reason.empty(), "residual_block: ", reason, " (x ", describe(x), "); run the layers apart");
  ResidualBlock op{{layers.begin(), layers.end()}, shortcut != nullptr};
  if (shortcut != nullptr) op.layers.push_back(*shortcut);
  std::vector<Tensor> inputs{x};
  for (const BlockLayer& layer : op.layers) inputs.insert(inputs.end(), {layer.w, layer.gamma, layer.beta});
  return record_list(std::move(op), std::move(inputs));
}

}  // namespace hearth
