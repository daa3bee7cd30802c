// SPDX-License-Identifier: Apache-2.0
#include "models/text/decoder.h"

#include "autograd/grad_mode.h"
#include "core/error.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

Device device_of(nn::Module& network) {
  const std::vector<NamedTensor> parameters = network.parameters();
  return parameters.empty() ? Device{} : parameters.front().tensor->device();
}

/// Rows of x, each `times` times in a row.
Tensor repeated(const Tensor& x, std::int64_t times) {
  return reshape(expand(reshape(x, {x.dim(0), 1, x.dim(1)}), {x.dim(0), times, x.dim(1)}), {-1, x.dim(1)});
}

/// Keeps the ids only.
class WholeDecoder : public TextDecoder {
 public:
  WholeDecoder(nn::Module& network, const DecoderOptions& options)
      : TextDecoder("decoder", options, options.room),
        network_(network),
        ids_(Tensor::empty({options.texts, room()}, DType::i64, device_of(network))) {
    if (options.source.defined())
      source_ = repeated(options.source.to(ids_.device()), options.texts / options.source.dim(0)).contiguous();
  }

  Tensor append(const Tensor& ids) override {
    check_appended(ids);
    const NoGrad no_grad;
    slice(ids_, 1, length_, length_ + ids.dim(1)).copy_from(ids.to(DType::i64));
    length_ += ids.dim(1);
    const Tensor so_far = slice(ids_, 1, 0, length_).contiguous();
    const Tensor y = source_.defined() ? network_(source_, so_far) : network_(so_far);
    HEARTH_CHECK(ShapeError, y.rank() == 3 && y.dim(0) == texts_ && y.dim(1) == length_, "decoder: the network makes ",
                 describe(y), " of ids ", describe(so_far), "; logits are [N, T, vocabulary]");
    return reshape(slice(y, 1, length_ - 1, length_), {texts_, y.dim(2)});
  }
  void select(std::span<const std::int64_t> from) override {
    check_selected(from);
    const NoGrad no_grad;
    const Tensor rows = Tensor::of<std::int64_t>({static_cast<std::int64_t>(from.size())}, from).to(ids_.device());
    ids_ = index_select(ids_, 0, rows);
    if (source_.defined()) source_ = index_select(source_, 0, rows);
    texts_ = rows.size();
  }
  void clear() override { length_ = 0; }

 private:
  nn::Module& network_;
  Tensor ids_;     // [texts, room]
  Tensor source_;  // [texts, S]
};

}  // namespace

TextDecoder::TextDecoder(const char* name, const DecoderOptions& options, std::int64_t room)
    : name_(name), texts_(options.texts), most_texts_(options.texts), room_(room) {
  HEARTH_CHECK(ShapeError, texts_ >= 1 && room_ >= 1, name, ": ", texts_, " texts with room for ", room_,
               " ids; both are at least 1");
  const Tensor& source = options.source;
  HEARTH_CHECK(
      ShapeError, !source.defined() || (source.rank() == 2 && source.dim(0) >= 1 && texts_ % source.dim(0) == 0), name,
      ": ", texts_, " texts answer sources ", describe(source), "; these are ids [M, S], as many texts to each");
}

void TextDecoder::check_appended(const Tensor& ids) const {
  HEARTH_CHECK(ShapeError, ids.rank() == 2 && ids.dim(0) == texts_ && ids.dim(1) >= 1, name_, ": ids ", describe(ids),
               " for ", texts_, " texts; they are [texts, T]");
  HEARTH_CHECK(ShapeError, ids.dim(1) <= room_ - length_, name_, ": ", ids.dim(1), " ids behind texts of ", length_,
               ", which have room for ", room_);
}

void TextDecoder::check_selected(std::span<const std::int64_t> from) const {
  HEARTH_CHECK(ShapeError, !from.empty() && static_cast<std::int64_t>(from.size()) <= most_texts_, name_, ": ",
               from.size(), " texts are selected; there are from 1 to ", most_texts_);
  for (const std::int64_t text : from)
    HEARTH_CHECK(IndexError, text >= 0 && text < texts_, name_, ": text ", text, " of ", texts_, " is selected");
}

std::unique_ptr<TextDecoder> make_decoder(nn::Module& network, const DecoderOptions& options) {
  if (auto* const own = dynamic_cast<TextNetwork*>(&network)) return own->make_decoder(options);
  HEARTH_CHECK(UsageError, !network.is_training(), "decoder: the network is in training; call eval() first");
  return std::make_unique<WholeDecoder>(network, options);
}

}  // namespace hearth::models
