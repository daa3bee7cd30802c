// SPDX-License-Identifier: Apache-2.0
#include "models/text/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "core/error.h"
#include "core/random.h"

namespace hearth::models {
namespace {

void check(const GenerateOptions& options) {
  check_limits("generate", options.limits);
  HEARTH_CHECK(UsageError, options.temperature >= 0 && std::isfinite(options.temperature),
               "generate: a temperature of ", options.temperature, "; it is at least 0, which takes the argmax");
  HEARTH_CHECK(UsageError, options.top_k >= 0, "generate: top_k ", options.top_k,
               "; it is at least 0, which is all ids");
  HEARTH_CHECK(UsageError, options.top_p > 0 && options.top_p <= 1, "generate: top_p ", options.top_p,
               "; it is above 0 and at most 1, which is all ids");
}

/// The ids that may be drawn, the most probable first where the choice is cast down.
std::vector<std::int32_t> candidates(std::span<const double> logits, const GenerateOptions& options) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const bool by_count = options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ids.size();
  if (!by_count && options.top_p == 1) return ids;
  const auto count = by_count ? options.top_k : static_cast<std::int64_t>(ids.size());
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  ids.resize(static_cast<std::size_t>(count));
  return ids;
}

std::int32_t drawn(std::span<const double> logits, const GenerateOptions& options, Random random) {
  if (options.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> ids = candidates(logits, options);
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> shares;
  double sum = 0;
  for (const std::int32_t id : ids) {
    shares.push_back(std::exp((logits[static_cast<std::size_t>(id)] - most) / options.temperature));
    sum += shares.back();
  }
  if (options.top_p < 1) {
    double nucleus = 0;
    std::size_t kept = 0;
    while (kept < shares.size() && nucleus < options.top_p * sum) nucleus += shares[kept++];
    shares.resize(kept);
    sum = nucleus;
  }
  double left = random.uniform() * sum;
  std::size_t chosen = 0, last = 0;
  for (; chosen < shares.size(); ++chosen) {
    if (shares[chosen] > 0) last = chosen;
    left -= shares[chosen];
    if (left < 0) break;
  }
  // Rounding may leave a little over.
  return ids[chosen < shares.size() ? chosen : last];
}

/// The sequences that are not over yet, beside the decoder's.
class Writer {
 public:
  Writer(TextDecoder& decoder, const std::vector<std::vector<std::int32_t>>& prompts, const GenerateOptions& options)
      : decoder_(decoder), options_(options), sequences_(prompts), written_(prompts.size()) {
    // Else where the longest begins would hang on the shortest beside it.
    const auto capacity = static_cast<std::size_t>(decoder.capacity());
    for (auto& text : sequences_)
      if (text.size() > capacity) text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(half_of(capacity)));
    active_.resize(prompts.size());
    std::iota(active_.begin(), active_.end(), std::size_t{0});
  }

  std::vector<Written> run() {
    while (!active_.empty()) {
      const Tensor logits = advance();
      const std::vector<double> values = writable_logits("generate", logits, options_.limits);
      choose(values, static_cast<std::size_t>(logits.dim(1)));
    }
    return std::move(written_);
  }

 private:
  static std::size_t half_of(std::size_t capacity) { return std::max<std::size_t>(1, capacity / 2); }

  /// Gives the decoder what it lacks of the shortest text, and as much of the others.
  Tensor advance() {
    std::size_t shortest = sequences_[active_.front()].size();
    for (const std::size_t text : active_) shortest = std::min(shortest, sequences_[text].size());
    const auto capacity = static_cast<std::size_t>(decoder_.capacity());
    if (static_cast<std::size_t>(decoder_.length()) + shortest - fed_ > capacity) {
      decoder_.clear();
      fed_ = shortest - half_of(capacity);
    }
    const std::size_t count = shortest - fed_;
    const Tensor ids =
        Tensor::empty({static_cast<std::int64_t>(active_.size()), static_cast<std::int64_t>(count)}, DType::i32);
    std::int32_t* to = ids.data<std::int32_t>();
    for (const std::size_t text : active_)
      to = std::copy_n(sequences_[text].begin() + static_cast<std::ptrdiff_t>(fed_), count, to);
    fed_ = shortest;
    return decoder_.append(ids);
  }

  void choose(const std::vector<double>& logits, std::size_t vocabulary) {
    std::vector<std::int64_t> kept;
    std::vector<std::size_t> still_active;
    for (std::size_t row = 0; row < active_.size(); ++row) {
      const std::size_t text = active_[row];
      if (sequences_[text].size() == fed_ &&
          is_over_after_next(text, std::span(logits).subspan(row * vocabulary, vocabulary)))
        continue;
      kept.push_back(static_cast<std::int64_t>(row));
      still_active.push_back(text);
    }
    active_ = std::move(still_active);
    if (!active_.empty()) decoder_.select(kept);
  }

  bool is_over_after_next(std::size_t text, std::span<const double> logits) {
    Written& written = written_[text];
    const std::int32_t id =
        drawn(logits, options_, Random(options_.seed, text, static_cast<std::uint32_t>(written.ids.size())));
    if (id == options_.limits.end) return written.ended = true;
    written.ids.push_back(id);
    sequences_[text].push_back(id);
    return static_cast<std::int64_t>(written.ids.size()) == options_.limits.most;
  }

  TextDecoder& decoder_;
  const GenerateOptions& options_;
  std::vector<std::vector<std::int32_t>> sequences_;  // prompts and what was written
  std::vector<Written> written_;
  std::vector<std::size_t> active_;  // the text of each row of the decoder
  std::size_t fed_ = 0;              // ids of each active text that the decoder was given or passed over
};

}  // namespace

void check_limits(const char* name, const WritingLimits& limits) {
  HEARTH_CHECK(UsageError, limits.most >= 1, name, ": at most ", limits.most, " ids are to be written; 1 is the least");
  HEARTH_CHECK(UsageError, limits.vocabulary >= 0, name, ": a vocabulary of ", limits.vocabulary,
               "; it is at least 0, which is all ids");
  for (const std::int32_t id : limits.never)
    HEARTH_CHECK(UsageError, id >= 0 && id != limits.end, name, ": id ", id,
                 " is never to be written; such ids are at least 0, and not the end");
}

std::vector<double> writable_logits(const char* name, const Tensor& logits, const WritingLimits& limits) {
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  const std::int64_t rows = logits.dim(0), vocabulary = logits.dim(1);
  std::vector<double> values = logits.to_doubles();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span<double> of_row =
        std::span(values).subspan(static_cast<std::size_t>(row * vocabulary), static_cast<std::size_t>(vocabulary));
    for (const double value : of_row)
      HEARTH_CHECK(DivergedError, value < std::numeric_limits<double>::infinity(), name, ": a logit is ", value,
                   "; the weights are those of a run that diverged, or of another model");
    for (const std::int32_t id : limits.never)
      if (id < vocabulary) of_row[static_cast<std::size_t>(id)] = hidden;
    if (limits.vocabulary > 0 && limits.vocabulary < vocabulary)
      std::fill(of_row.begin() + limits.vocabulary, of_row.end(), hidden);
    HEARTH_CHECK(UsageError, *std::max_element(of_row.begin(), of_row.end()) > hidden, name,
                 ": no id is left to be written; is all of the vocabulary in `never`?");
  }
  return values;
}

std::vector<Written> generate(TextDecoder& decoder, const std::vector<std::vector<std::int32_t>>& prompts,
                              const GenerateOptions& options) {
  check(options);
  HEARTH_CHECK(UsageError, decoder.length() == 0 && static_cast<std::int64_t>(prompts.size()) == decoder.sequences(),
               "generate: ", prompts.size(), " prompts for ", decoder.sequences(), " sequences of ", decoder.length(),
               " ids; there is one prompt for each text of a new decoder");
  for (const auto& prompt : prompts)
    HEARTH_CHECK(UsageError, !prompt.empty(),
                 "generate: a prompt without ids; begin it with one, as the begin or end id");
  return Writer(decoder, prompts, options).run();
}

}  // namespace hearth::models
