// SPDX-License-Identifier: Apache-2.0
#include "models/text/decoder.h"

#include "autograd/grad_mode.h"
#include "core/error.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

Device device_of(nn::Module& model) {
  const std::vector<NamedTensor> parameters = model.parameters();
  return parameters.empty() ? Device{} : parameters.front().tensor->device();
}

/// Rows of x, each `times` times in a row.
Tensor repeated(const Tensor& x, std::int64_t times) {
  return reshape(expand(reshape(x, {x.dim(0), 1, x.dim(1)}), {x.dim(0), times, x.dim(1)}), {-1, x.dim(1)});
}

/// Keeps the ids only.
class WholeDecoder : public TextDecoder {
 public:
  WholeDecoder(nn::Module& model, const DecoderOptions& options)
      : TextDecoder("decoder", options, options.capacity),
        model_(model),
        ids_(Tensor::empty({options.sequences, capacity()}, DType::i64, device_of(model))) {
    if (options.source.defined())
      source_ = repeated(options.source.to(ids_.device()), options.sequences / options.source.dim(0)).contiguous();
  }

  Tensor append(const Tensor& ids) override {
    check_appended(ids);
    const NoGrad no_grad;
    slice(ids_, 1, length_, length_ + ids.dim(1)).copy_from(ids.to(DType::i64));
    length_ += ids.dim(1);
    const Tensor so_far = slice(ids_, 1, 0, length_).contiguous();
    const Tensor y = source_.defined() ? model_(source_, so_far) : model_(so_far);
    HEARTH_CHECK(ShapeError, y.rank() == 3 && y.dim(0) == sequences_ && y.dim(1) == length_,
                 "decoder: the model makes ", describe(y), " of ids ", describe(so_far),
                 "; logits are [N, T, vocabulary]");
    return reshape(slice(y, 1, length_ - 1, length_), {sequences_, y.dim(2)});
  }
  void select(std::span<const std::int64_t> from) override {
    check_selected(from);
    const NoGrad no_grad;
    const Tensor rows = Tensor::of<std::int64_t>({static_cast<std::int64_t>(from.size())}, from).to(ids_.device());
    ids_ = index_select(ids_, 0, rows);
    if (source_.defined()) source_ = index_select(source_, 0, rows);
    sequences_ = rows.size();
  }
  void clear() override { length_ = 0; }

 private:
  nn::Module& model_;
  Tensor ids_;     // [sequences, room]
  Tensor source_;  // [sequences, S]
};

}  // namespace

TextDecoder::TextDecoder(const char* name, const DecoderOptions& options, std::int64_t capacity)
    : name_(name), sequences_(options.sequences), max_sequences_(options.sequences), capacity_(capacity) {
  HEARTH_CHECK(ShapeError, sequences_ >= 1 && capacity_ >= 1, name, ": ", sequences_, " sequences with room for ",
               capacity_, " ids; both are at least 1");
  const Tensor& source = options.source;
  HEARTH_CHECK(ShapeError,
               !source.defined() || (source.rank() == 2 && source.dim(0) >= 1 && sequences_ % source.dim(0) == 0), name,
               ": ", sequences_, " sequences answer sources ", describe(source),
               "; these are ids [M, S], as many sequences to each");
}

void TextDecoder::check_appended(const Tensor& ids) const {
  HEARTH_CHECK(ShapeError, ids.rank() == 2 && ids.dim(0) == sequences_ && ids.dim(1) >= 1, name_, ": ids ",
               describe(ids), " for ", sequences_, " sequences; they are [sequences, T]");
  HEARTH_CHECK(ShapeError, ids.dim(1) <= capacity_ - length_, name_, ": ", ids.dim(1), " ids behind sequences of ",
               length_, ", whose capacity is ", capacity_);
}

void TextDecoder::check_selected(std::span<const std::int64_t> from) const {
  HEARTH_CHECK(ShapeError, !from.empty() && static_cast<std::int64_t>(from.size()) <= max_sequences_, name_, ": ",
               from.size(), " sequences are selected; there are from 1 to ", max_sequences_);
  for (const std::int64_t text : from)
    HEARTH_CHECK(IndexError, text >= 0 && text < sequences_, name_, ": text ", text, " of ", sequences_,
                 " is selected");
}

std::unique_ptr<TextDecoder> make_decoder(nn::Module& model, const DecoderOptions& options) {
  if (auto* const own = dynamic_cast<TextModel*>(&model)) return own->make_decoder(options);
  HEARTH_CHECK(UsageError, !model.is_training(), "decoder: the model is in training; call eval() first");
  return std::make_unique<WholeDecoder>(model, options);
}

}  // namespace hearth::models
