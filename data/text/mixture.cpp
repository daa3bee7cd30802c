// SPDX-License-Identifier: Apache-2.0
#include "data/text/mixture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"

namespace hearth::data {
namespace {

using Sets = std::vector<std::shared_ptr<const TokenDataset>>;

std::string names_of(const Sets& sets) {
  std::string names = "mixture of ";
  for (std::size_t i = 0; i < sets.size(); ++i) names += (i > 0 ? ", " : "") + sets[i]->source();
  return names;
}

class Mixture : public TokenDataset {
 public:
  Mixture(Sets sets, std::vector<double> weights)
      : TokenDataset(sets.front()->shared_tokenizer(), names_of(sets)),
        sets_(std::move(sets)),
        weights_(std::move(weights)) {
    for (const auto& set : sets_) require_alike(*sets_.front(), *set);
  }

  std::int64_t size() const override {
    return total([](const TokenDataset& set) { return set.size(); });
  }
  std::int64_t longest() const override { return sets_.front()->longest(); }
  std::int64_t predicted_tokens() const override {
    return total([](const TokenDataset& set) { return set.predicted_tokens(); });
  }
  std::int64_t characters() const override {
    for (const auto& set : sets_)
      if (set->characters() == 0) return 0;  // those of a part nobody wrote down
    return total([](const TokenDataset& set) { return set.characters(); });
  }
  void verify() const override {
    for (const auto& set : sets_) set->verify();
  }
  std::vector<Share> shares() const override;
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override;

  const Sets& sets() const { return sets_; }
  const std::vector<double>& weights() const { return weights_; }

 private:
  template <class F>
  std::int64_t total(F&& of) const {
    std::int64_t sum = 0;
    for (const auto& set : sets_) sum += of(*set);
    return sum;
  }

  static Batch first_row(const TokenDataset& set) {
    const LoaderOptions options{.batch_size = 1};
    const std::unique_ptr<BatchMaker> maker = set.batches(no_transforms(), options);
    Batch batch;
    Workspace space;
    batch.samples = maker->samples_of(0, 0);
    maker->fill(batch, space, [] { return false; });
    return batch;
  }

  static void require_alike(const TokenDataset& first, const TokenDataset& other) {
    if (&first == &other) return;
    HEARTH_CHECK(DataError, first.tokenizer().digest() == other.tokenizer().digest(), "mixture: ", first.source(),
                 " has a tokenizer of ", first.tokenizer().size(), " pieces and ", other.source(), " another of ",
                 other.tokenizer().size(), "; give all sources one tokenizer, by its path");
    HEARTH_CHECK(DataError, same_but_for_rows(first_row(first), first_row(other)), "mixture: rows of ", first.source(),
                 " have ", first.longest(), " ids and those of ", other.source(), " ", other.longest(),
                 ", or only one of them is packed; give all sources the same length and packing");
  }

  Sets sets_;
  std::vector<double> weights_;
};

/// One set, and how it gives its rows: batches of one.
struct Source {
  std::unique_ptr<LoaderOptions> options;  // which the maker refers to
  std::unique_ptr<BatchMaker> maker;
  std::int64_t first = 0;  ///< of its rows among those of an epoch
  std::int64_t rows = 0;   ///< of an epoch
};

std::vector<Source> sources_of(const Mixture& mixture, const LoaderOptions& options) {
  std::vector<Source> sources;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < mixture.sets().size(); ++i) {
    Source source;
    source.options = std::make_unique<LoaderOptions>(options);
    source.options->batch_size = 1;
    source.options->drop_last = false;
    source.options->part = {};
    source.options->seed += 0x9e3779b97f4a7c15u * (i + 1);
    source.maker = mixture.sets()[i]->batches(no_transforms(), *source.options);
    source.rows = source.maker->per_epoch();
    all += source.rows;
    sources.push_back(std::move(source));
  }
  if (options.shuffle) {
    const std::vector<std::int64_t> rows = rows_by_weight(mixture.weights(), all);
    for (std::size_t i = 0; i < sources.size(); ++i) sources[i].rows = rows[i];
  }
  // A batch has rows of all epochs of a source that an epoch of the mixture goes through; two epochs are in flight.
  for (const Source& source : sources) {
    const std::int64_t per_epoch = source.maker->per_epoch();
    source.maker->keep_epochs(2 * ((source.rows + per_epoch - 1) / per_epoch) + 2);
  }
  for (std::size_t i = 1; i < sources.size(); ++i) sources[i].first = sources[i - 1].first + sources[i - 1].rows;
  return sources;
}

/// A sample is the number of a row of an epoch, counted through the sources. It is the next one of its source, whose
/// rows are counted through all epochs.
class MixtureBatches : public OrderedBatches {
 public:
  MixtureBatches(const Mixture& set, const LoaderOptions& options, std::vector<Source> sources)
      : OrderedBatches(sources.back().first + sources.back().rows, options, set.source(), "rows"),
        sources_(std::move(sources)) {}

  /// A row is another one of its source in each shuffled epoch.
  bool samples_stay() const override { return !options().shuffle; }
  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    struct Part {
      Batch batch{};
      std::vector<std::int64_t> rows{};
    };
    std::map<std::pair<std::size_t, std::int64_t>, Part> parts;  // by source and its epoch
    for (std::int64_t row = 0; row < batch.size(); ++row) {
      const std::int64_t slot = batch.samples[static_cast<std::size_t>(row)];
      std::size_t number = sources_.size() - 1;
      while (sources_[number].first > slot) --number;
      const Source& source = sources_[number];
      const std::int64_t drawn = (options().shuffle ? batch.epoch * source.rows : 0) + slot - source.first;
      const std::int64_t epoch = drawn / source.maker->per_epoch();
      Part& part = parts[{number, epoch}];
      part.batch.epoch = epoch;
      part.batch.samples.push_back(source.maker->samples_of(epoch, drawn % source.maker->per_epoch()).front());
      part.rows.push_back(row);
    }
    batch.counted = 0;
    for (auto& [key, part] : parts) {
      if (!sources_[key.first].maker->fill(part.batch, space, cancelled)) return false;
      batch.counted += part.batch.count();
      batch.tokens += part.batch.tokens;
      batch.positions += part.batch.positions;
      for (const Batch::Named& one : part.batch.tensors()) put(one, part.rows, batch);
    }
    return true;
  }

 private:
  static void put(const Batch::Named& part, const std::vector<std::int64_t>& rows, Batch& batch) {
    if (!batch.has(part.name))
      batch.set(part.name, Tensor::empty(part.tensor.shape().with(0, batch.size()), part.tensor.dtype()), part.axis);
    const Tensor to = batch[part.name], from = part.tensor.contiguous();
    const std::size_t bytes =
        static_cast<std::size_t>(from.size() / from.dim(0)) * static_cast<std::size_t>(size_of(from.dtype()));
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(to.bytes() + static_cast<std::size_t>(rows[i]) * bytes, from.bytes() + i * bytes, bytes);
  }

  std::vector<Source> sources_;
};

std::unique_ptr<BatchMaker> Mixture::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<MixtureBatches>(*this, options, sources_of(*this, options));
}

std::vector<TokenDataset::Share> Mixture::shares() const {
  const LoaderOptions options{.workers = 0, .shuffle = true};
  const std::vector<Source> sources = sources_of(*this, options);
  std::vector<Share> found;
  for (std::size_t i = 0; i < sources.size(); ++i)
    found.push_back({sets_[i]->source(), weights_[i], sources[i].maker->per_epoch(), sources[i].rows});
  return found;
}

/// What the mixture says, or cannot do, for all of its sources.
void require_no_reading(const DataOptions& options, std::size_t number) {
  HEARTH_CHECK(ConfigError, !options.cache.is_used(), "/data/sources/", number,
               "/cache: a mixture has one cache for all; say it beside \"sources\"");
  HEARTH_CHECK(ConfigError, options.bad_samples.policy == BadSamplePolicy::fail, "/data/sources/", number,
               "/bad_samples: rows of a mixture do not stand in for one another; leave it out, and pack the text again "
               "where a block is damaged");
}

std::shared_ptr<const TokenDataset> stream_of(const DatasetPointer& set, std::size_t number) {
  const auto tokens = std::dynamic_pointer_cast<const TokenDataset>(set);
  HEARTH_CHECK(ConfigError, tokens != nullptr && tokens->labelled() == nullptr && tokens->pairs() == nullptr,
               "/data/sources/", number, ": ", set->source(),
               " is no token stream; a mixture is of sources of type \"text\"");
  return tokens;
}

}  // namespace

std::vector<std::int64_t> rows_by_weight(const std::vector<double>& weights, std::int64_t rows) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> shares;
  std::vector<std::pair<double, std::size_t>> rests;
  std::int64_t left = rows;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * static_cast<double>(rows);
    shares.push_back(static_cast<std::int64_t>(exact));
    rests.emplace_back(static_cast<double>(shares[i]) - exact, i);
    left -= shares[i];
  }
  std::sort(rests.begin(), rests.end());
  for (std::size_t i = 0; left > 0; ++i, --left) ++shares[rests[i % rests.size()].second];
  return shares;
}

std::shared_ptr<const TokenDataset> mixture(Sets sets, std::vector<double> weights) {
  HEARTH_CHECK(ConfigError, !sets.empty() && sets.size() == weights.size(), "mixture: ", sets.size(), " sources and ",
               weights.size(), " weights; give each source one");
  for (const double weight : weights)
    HEARTH_CHECK(ConfigError, weight > 0 && weight <= 1e9, "mixture: the weight ", weight,
                 " is not above 0; leave out the source");
  return std::make_shared<Mixture>(std::move(sets), std::move(weights));
}

void describe(Fields<MixtureData>& fields) {
  fields.component("sources", &MixtureData::sources, datasets(), "Datasets of type text, with one tokenizer.")
      .required();
  fields
      .number("weights", &MixtureData::weights, {.above = 0, .max = 1e9},
              "Of each source: its part of the rows of an epoch. They need not add up to 1.")
      .required();
  fields.integer("workers", &DataOptions::workers, {.min = 0, .max = 256},
                 "Threads that prepare batches; 0 prepares them in the training thread.");
  fields.integer("prefetch", &DataOptions::prefetch, {.min = 1, .max = 4096},
                 "Batches prepared ahead; small ones further, as many as steps take in 0.1 s, up to 64 and 1 MiB.");
  fields.object("cache", &DataOptions::cache, "What was read of slow sources is kept in memory and on a local disk.");
  fields.rule([](const MixtureData& o) {
    return o.sources.empty() || o.sources.size() != o.weights.size() ? "each source needs one weight" : "";
  });
}

Splits mixture_data(const MixtureData& options) {
  const auto count = options.sources.size();
  std::vector<Splits> all;
  for (std::size_t i = 0; i < count; ++i) {
    OpenedData source = options.sources[i].make(Opening::all);
    require_no_reading(source.options, i);
    all.push_back(std::move(source.splits));
  }
  const auto mixed = [&](DatasetPointer Splits::*part) -> DatasetPointer {
    Sets sets;
    std::vector<double> weights;
    for (std::size_t i = 0; i < count; ++i) {
      if (all[i].*part == nullptr) continue;
      sets.push_back(stream_of(all[i].*part, i));
      weights.push_back(options.weights[i]);
    }
    return sets.empty() ? nullptr : mixture(std::move(sets), std::move(weights));
  };
  return {mixed(&Splits::train), mixed(&Splits::valid), mixed(&Splits::test)};
}

}  // namespace hearth::data
