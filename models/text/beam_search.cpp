// SPDX-License-Identifier: Apache-2.0
#include "models/text/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.h"

namespace hearth::models {
namespace {

constexpr double impossible = -std::numeric_limits<double>::infinity();

/// A text that is still written.
struct Open {
  std::vector<std::int32_t> ids{};
  double sum = impossible;  // of the logarithms of its ids' probabilities; impossible: only fills the beam up
};

/// An open text and one more id.
struct Step {
  double sum;
  std::size_t row;  // of the open text within its search
  std::int32_t id;
};

bool is_better(const Step& a, const Step& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  return a.row != b.row ? a.row < b.row : a.id < b.id;
}

double penalty(std::size_t length, double exponent) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, exponent);
}

/// The search for one prompt.
class Search {
 public:
  Search(std::size_t number, const BeamOptions& options, std::int64_t most)
      : number_(number), options_(options), max_(static_cast<std::size_t>(most)), open_(beam()) {
    open_.front().sum = 0;
  }

  /// Takes the logits [beam, vocabulary] of what follows its open sequences. True when it is over.
  bool advance(std::span<const double> logits) {
    const std::vector<Step> steps = top_k_steps(logits);
    std::vector<Open> next;
    parents_.clear();
    for (std::size_t rank = 0; rank < steps.size() && next.size() < beam(); ++rank) {
      const Step& step = steps[rank];
      const Open& before = open_[step.row];
      if (step.id == options_.limits.end) {
        if (rank < beam()) end(before, step.sum);
        continue;
      }
      next.push_back({before.ids, step.sum});
      next.back().ids.push_back(step.id);
      parents_.push_back(static_cast<std::int64_t>(step.row));
    }
    const bool is_over = next.empty() || ended_ >= beam() || next.front().ids.size() == max_ || cannot_win(next);
    if (is_over) {
      if (ended_ == 0 && !next.empty()) best_ = {next[0].ids, next[0].sum / length_penalty(next[0].ids.size()), false};
      return true;
    }
    parents_.resize(beam(), parents_.front());
    next.resize(beam(), {next.front().ids, impossible});
    open_ = std::move(next);
    return false;
  }

  std::size_t number() const { return number_; }
  const Found& best() const { return best_; }
  /// Of each open text, the row of the one it was.
  const std::vector<std::int64_t>& parents() const { return parents_; }
  const std::vector<Open>& open() const { return open_; }

 private:
  std::size_t beam() const { return static_cast<std::size_t>(options_.beam); }
  double length_penalty(std::size_t length) const { return penalty(length, options_.length_penalty); }

  /// Of all that may follow, enough for a whole beam that goes on: each open text can end but once.
  std::vector<Step> top_k_steps(std::span<const double> logits) const {
    const std::size_t vocabulary = logits.size() / beam(), wanted = std::min(2 * beam(), vocabulary);
    std::vector<Step> steps;
    std::vector<std::int32_t> ids(vocabulary);
    for (std::size_t row = 0; row < beam(); ++row) {
      if (open_[row].sum == impossible) continue;
      const auto of_row = logits.subspan(row * vocabulary, vocabulary);
      std::iota(ids.begin(), ids.end(), 0);
      std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(wanted), ids.end(),
                        [&](std::int32_t a, std::int32_t b) {
                          const double x = of_row[static_cast<std::size_t>(a)], y = of_row[static_cast<std::size_t>(b)];
                          return x != y ? x > y : a < b;
                        });
      const double most = of_row[static_cast<std::size_t>(ids[0])];
      double sum = 0;
      for (const double logit : of_row) sum += std::exp(logit - most);
      for (std::size_t i = 0; i < wanted; ++i) {
        const double logit = of_row[static_cast<std::size_t>(ids[i])];
        if (logit > impossible) steps.push_back({open_[row].sum + (logit - most - std::log(sum)), row, ids[i]});
      }
    }
    std::sort(steps.begin(), steps.end(), is_better);
    steps.resize(std::min(steps.size(), 2 * beam()));
    return steps;
  }

  void end(const Open& text, double sum) {
    const double score = sum / length_penalty(text.ids.size() + 1);
    if (ended_ == 0 || score > best_.score) best_ = {text.ids, score, true};
    ++ended_;
  }

  /// Sums only fall, and the penalty is at most that of the longest text.
  bool cannot_win(const std::vector<Open>& open) const {
    return ended_ > 0 && best_.score >= open.front().sum / length_penalty(max_);
  }

  std::size_t number_;
  const BeamOptions& options_;
  std::size_t max_;
  std::vector<Open> open_;
  std::vector<std::int64_t> parents_;
  Found best_;
  std::size_t ended_ = 0;
};

std::int64_t checked_most(const TextDecoder& decoder, const std::vector<std::vector<std::int32_t>>& prompts,
                          const BeamOptions& options) {
  check_limits("beam search", options.limits);
  HEARTH_CHECK(UsageError, options.beam >= 1, "beam search: a beam of ", options.beam, "; 1 is the least");
  HEARTH_CHECK(UsageError, options.length_penalty >= 0 && std::isfinite(options.length_penalty),
               "beam search: a length penalty of ", options.length_penalty, "; it is at least 0");
  HEARTH_CHECK(UsageError, !prompts.empty() && !prompts.front().empty(), "beam search: no prompt, or one without ids; ",
               "begin it with one, as the begin id");
  const auto count = static_cast<std::int64_t>(prompts.size());
  HEARTH_CHECK(UsageError,
               decoder.length() == 0 && decoder.sequences() % count == 0 && decoder.sequences() / count == options.beam,
               "beam search: ", decoder.sequences(), " sequences of ", decoder.length(), " ids for ", count,
               " prompts and a beam of ", options.beam, "; a new decoder has a beam of sequences for each prompt");
  const std::size_t length = prompts.front().size();
  for (const auto& prompt : prompts)
    HEARTH_CHECK(UsageError, prompt.size() == length, "beam search: prompts of ", length, " and ", prompt.size(),
                 " ids; they are of one length");
  // The last id is not looked behind.
  const std::int64_t capacity = decoder.capacity() - static_cast<std::int64_t>(length) + 1;
  HEARTH_CHECK(UsageError, capacity >= 1, "beam search: prompts of ", length, " ids, but the capacity is ",
               decoder.capacity());
  return std::min(options.limits.most, capacity);
}

/// Each prompt for all of its sequences.
Tensor first_ids(const std::vector<std::vector<std::int32_t>>& prompts, std::int64_t beam) {
  std::vector<std::int32_t> ids;
  for (const auto& prompt : prompts)
    for (std::int64_t i = 0; i < beam; ++i) ids.insert(ids.end(), prompt.begin(), prompt.end());
  return Tensor::of<std::int32_t>(
      {static_cast<std::int64_t>(prompts.size()) * beam, static_cast<std::int64_t>(prompts.front().size())}, ids);
}

/// The last id of each open text.
Tensor last_ids(const std::vector<Search>& searches) {
  std::vector<std::int32_t> ids;
  for (const Search& search : searches)
    for (const Open& text : search.open()) ids.push_back(text.ids.back());
  return Tensor::of<std::int32_t>({static_cast<std::int64_t>(ids.size()), 1}, ids);
}

}  // namespace

std::vector<Found> beam_search(TextDecoder& decoder, const std::vector<std::vector<std::int32_t>>& prompts,
                               const BeamOptions& options) {
  const std::int64_t most = checked_most(decoder, prompts, options);
  std::vector<Search> searches;
  for (std::size_t i = 0; i < prompts.size(); ++i) searches.emplace_back(i, options, most);
  std::vector<Found> found(prompts.size());
  Tensor ids = first_ids(prompts, options.beam);
  while (true) {
    const Tensor logits = decoder.append(ids);
    const std::vector<double> values = writable_logits("beam search", logits, options.limits);
    const auto of_search = static_cast<std::size_t>(options.beam * logits.dim(1));
    std::vector<Search> open;
    std::vector<std::int64_t> from;
    for (std::size_t i = 0; i < searches.size(); ++i) {
      if (searches[i].advance(std::span(values).subspan(i * of_search, of_search))) {
        found[searches[i].number()] = searches[i].best();
        continue;
      }
      for (const std::int64_t parent : searches[i].parents())
        from.push_back(static_cast<std::int64_t>(i) * options.beam + parent);
      open.push_back(std::move(searches[i]));
    }
    if (open.empty()) return found;
    searches = std::move(open);
    decoder.select(from);
    ids = last_ids(searches);
  }
}

}  // namespace hearth::models
