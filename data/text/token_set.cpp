// SPDX-License-Identifier: Apache-2.0
#include "data/text/token_set.h"

#include <algorithm>

#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"

namespace hearth::data {

TokenDataset::TokenDataset(TokenizerPointer tokenizer, std::string source)
    : tokenizer_(std::move(tokenizer)), source_(std::move(source)) {
  pieces_.reserve(static_cast<std::size_t>(tokenizer_->size()));
  for (std::int64_t id = 0; id < tokenizer_->size(); ++id)
    pieces_.push_back(tokenizer_->piece(static_cast<std::int32_t>(id)));
}

Padding TokenDataset::padding(LoaderOptions options) const {
  options.shuffle = options.drop_last = false;
  const std::unique_ptr<BatchMaker> maker = batches(no_transforms(), options);
  Workspace space;
  Padding sums;
  for (std::int64_t i = 0; i < maker->per_epoch(); ++i) {
    Batch batch;
    batch.samples = maker->samples_of(0, i);
    maker->fill(batch, space, [] { return false; });
    sums.tokens += batch.tokens;
    sums.positions += batch.positions;
  }
  return sums;
}

Tensor padded_rows(const std::vector<std::vector<std::int32_t>>& rows, std::int32_t pad) {
  std::size_t longest = 0;
  for (const std::vector<std::int32_t>& row : rows) longest = std::max(longest, row.size());
  const Tensor batch =
      Tensor::full({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(longest)}, pad, DType::i32);
  std::int32_t* to = batch.data<std::int32_t>();
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy(rows[i].begin(), rows[i].end(), to + i * longest);
  return batch;
}

}  // namespace hearth::data
