// SPDX-License-Identifier: Apache-2.0
// Small made-up data in the form of the real data that configurations and pages name.
#pragma once

#include <filesystem>

namespace hearth::test {

/// Writes into `folder` what examples/configs expect in data-sets: cifar-10-batches-bin, fashion-mnist, imagenet,
/// clipart, jane_austen, web_text (text and tokenizer; `hearth data pack` makes the rest), libreoffice_help,
/// wmt_en_de, cmudict, help_sections and minilm (a BERT of width 48). Images need libpng; without it their folders are
/// left out. The same bytes each time.
void write_stand_in_data(const std::filesystem::path& folder);

}  // namespace hearth::test
