// SPDX-License-Identifier: Apache-2.0
// SentencePiece models (Unigram or byte pairs, with the normalisation they were trained with), by the library that
// defines them. A build without it refuses such models by name.
// Source: Kudo and Richardson, "SentencePiece" (2018).
#pragma once

#include <string>
#include <string_view>

#include "data/text/tokenizers/tokenizer.h"

namespace hearth::data {

/// `model` holds the bytes of a .model file. What normalisation changes stays changed in decode(); to_json() is
/// {"model": {"type": "SentencePiece", "bytes": the model in hexadecimal digits}}. DataError, naming `source`, if the
/// bytes are no model, or if this build lacks the library.
TokenizerPointer sentencepiece_tokenizer(const std::string& model, const std::string& source);

/// The bytes that to_json() wrote as hexadecimal digits. DataError naming `source`.
std::string bytes_of_digits(std::string_view digits, const std::string& source);

}  // namespace hearth::data
