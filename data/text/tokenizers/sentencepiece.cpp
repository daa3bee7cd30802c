// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/sentencepiece.h"

#include "core/error.h"
#include "data/text/unicode.h"

#if HEARTH_HAS_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace hearth::data {

std::string bytes_of_digits(std::string_view digits, const std::string& source) {
  const auto value = [&](char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    HEARTH_CHECK(DataError, digit >= 'a' && digit <= 'f', source, ": '", digit, "' is no hexadecimal digit");
    return digit - 'a' + 10;
  };
  HEARTH_CHECK(DataError, digits.size() % 2 == 0, source, ": ", digits.size(), " hexadecimal digits are no bytes");
  std::string bytes(digits.size() / 2, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(value(digits[2 * i]) * 16 + value(digits[2 * i + 1]));
  return bytes;
}

#if HEARTH_HAS_SENTENCEPIECE
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, const std::string& source) {
    // The library takes no bytes at all for a model without pieces.
    const bool loaded = !model.empty() && processor_.LoadFromSerializedProto(model).ok();
    HEARTH_CHECK(DataError, loaded && processor_.GetPieceSize() > 0, source, ": not a SentencePiece model");
    special_ = {.pad = processor_.pad_id(),
                .unknown = processor_.unk_id(),
                .begin = processor_.bos_id(),
                .end = processor_.eos_id(),
                .mask = id_of("<mask>").value_or(id_of("[MASK]").value_or(-1))};
  }

  std::int64_t size() const override { return processor_.GetPieceSize(); }
  const SpecialIds& special() const override { return special_; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    unicode::require_utf8(text, "tokenizer");
    std::vector<int> ids;
    require_ok(processor_.Encode(text, &ids));
    return {ids.begin(), ids.end()};
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    for (std::size_t i = 0; i < ids.size(); ++i)
      HEARTH_CHECK(IndexError, ids[i] >= 0 && ids[i] < size(), "tokenizer: id ", ids[i], " at position ", i,
                   " of a vocabulary of ", size());
    std::string text;
    require_ok(processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text));
    return text;
  }

  const std::string& piece(std::int32_t id) const override {
    HEARTH_CHECK(IndexError, id >= 0 && id < size(), "tokenizer: id ", id, " of a vocabulary of ", size());
    return processor_.IdToPiece(id);
  }

  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    // The library answers with the unknown piece for what it does not have.
    const int id = processor_.PieceToId(piece);
    if (id < 0 || processor_.IdToPiece(id) != piece) return std::nullopt;
    return id;
  }

  Json to_json() const override {
    constexpr char digits[] = "0123456789abcdef";
    std::string bytes;
    for (const char c : processor_.serialized_model_proto()) {
      bytes += digits[static_cast<unsigned char>(c) / 16];
      bytes += digits[static_cast<unsigned char>(c) % 16];
    }
    Json node = Json::object();
    node.set("type", "SentencePiece").set("bytes", std::move(bytes));
    Json document = Json::object();
    document.set("model", std::move(node));
    return document;
  }

 private:
  static void require_ok(const sentencepiece::util::Status& status) {
    HEARTH_CHECK(DataError, status.ok(), "tokenizer: sentencepiece: ", status.message());
  }

  sentencepiece::SentencePieceProcessor processor_;
  SpecialIds special_;
};

}  // namespace

TokenizerPointer sentencepiece_tokenizer(const std::string& model, const std::string& source) {
  return std::make_shared<SentencePieceTokenizer>(model, source);
}
#else
TokenizerPointer sentencepiece_tokenizer(const std::string&, const std::string& source) {
  throw DataError(join_text(source,
                            ": this build of Hearth has no SentencePiece; install libsentencepiece-dev and "
                            "build again, or give a tokenizer.json"));
}
#endif

}  // namespace hearth::data
