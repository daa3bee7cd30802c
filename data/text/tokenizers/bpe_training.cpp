// SPDX-License-Identifier: Apache-2.0
// Learning merges. Counts of pairs are kept up to date as words change; a heap holds them, and an entry that is out of
// date is put back with the present count when it comes up.
#include <algorithm>
#include <queue>

#include "core/error.h"
#include "data/text/tokenizers/bpe.h"
#include "data/text/tokenizers/pretokenize.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

struct Pair {
  std::int32_t left, right;
  bool operator==(const Pair&) const = default;
  auto operator<=>(const Pair&) const = default;
};
struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const std::uint64_t both = static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.left)) << 32 |
                               static_cast<std::uint32_t>(pair.right);
    return static_cast<std::size_t>((both ^ both >> 29) * 0x9e3779b97f4a7c15u >> 7);
  }
};

struct Occurrences {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // each that had the pair once, maybe repeated
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct Word {
  std::vector<std::int32_t> ids;
  std::int64_t count;
};

class Learner {
 public:
  Learner(std::vector<Word> words, BpeModel& model, Vocabulary& vocabulary)
      : words_(std::move(words)), model_(model), vocabulary_(vocabulary) {
    for (std::uint32_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].ids.size(); ++i)
        add({words_[w].ids[i], words_[w].ids[i + 1]}, words_[w].count, w);
    push_grown();
  }

  void learn(std::int64_t vocabulary, std::int64_t min_count) {
    while (vocabulary_.size() < vocabulary && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const std::int64_t now = pairs_[best.pair].count;
      if (now != best.count) {
        if (now > 0) heap_.push({now, best.pair});
        continue;
      }
      if (now < std::max<std::int64_t>(1, min_count)) return;
      merge(best.pair);
    }
  }

 private:
  void add(Pair pair, std::int64_t count, std::uint32_t word) {
    Occurrences& found = pairs_[pair];
    found.count += count;
    if (found.words.empty() || found.words.back() != word) found.words.push_back(word);
    grown_.push_back(pair);
  }

  void push_grown() {
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair pair : grown_)
      if (const std::int64_t count = pairs_[pair].count; count > 0) heap_.push({count, pair});
    grown_.clear();
  }

  void merge(Pair pair) {
    const std::string left = vocabulary_.piece(pair.left), right = vocabulary_.piece(pair.right);
    model_.merges.emplace_back(left, right);
    const std::int32_t whole = vocabulary_.add(left + right);
    const std::vector<std::uint32_t> where = std::move(pairs_[pair].words);
    pairs_[pair].words.clear();
    for (const std::uint32_t w : where) merge_in(w, pair, whole);
    push_grown();
  }

  void merge_in(std::uint32_t w, Pair pair, std::int32_t whole) {
    Word& word = words_[w];
    std::vector<std::int32_t>& ids = word.ids;
    std::size_t write = 0;
    for (std::size_t read = 0; read < ids.size(); ++read) {
      if (read + 1 == ids.size() || ids[read] != pair.left || ids[read + 1] != pair.right) {
        ids[write++] = ids[read];
        continue;
      }
      if (write > 0) {
        pairs_[{ids[write - 1], pair.left}].count -= word.count;
        add({ids[write - 1], whole}, word.count, w);
      }
      if (read + 2 < ids.size()) {
        pairs_[{pair.right, ids[read + 2]}].count -= word.count;
        add({whole, ids[read + 2]}, word.count, w);
      }
      pairs_[pair].count -= word.count;
      ids[write++] = whole;
      ++read;
    }
    ids.resize(write);
  }

  std::vector<Word> words_;
  BpeModel& model_;
  Vocabulary& vocabulary_;
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> grown_;
};

std::vector<Word> words_of(Corpus sequences, const Vocabulary& vocabulary) {
  TextMap<std::int64_t> counts;
  std::vector<std::string_view> cuts;
  for (const std::string_view text : sequences) {
    cuts.clear();
    split_gpt2(text, cuts);
    for (const std::string_view cut : cuts) {
      const auto place = counts.find(cut);
      if (place != counts.end())
        ++place->second;
      else
        counts.emplace(std::string(cut), 1);
    }
  }
  std::vector<Word> words;
  words.reserve(counts.size());
  for (const auto& [text, count] : counts) {
    Word& word = words.emplace_back(Word{{}, count});
    for (const char byte : text) {
      std::string written;
      unicode::append(written, printable_of_byte(static_cast<unsigned char>(byte)));
      word.ids.push_back(*vocabulary.find(written));
    }
  }
  return words;
}

}  // namespace

BpeModel train_bpe(Corpus sequences, std::int64_t vocabulary, std::int64_t min_count,
                   const std::vector<std::string>& special) {
  BpeModel model;
  model.pieces = special;
  std::vector<char32_t> alphabet;
  for (unsigned byte = 0; byte < 256; ++byte) alphabet.push_back(printable_of_byte(static_cast<unsigned char>(byte)));
  std::sort(alphabet.begin(), alphabet.end());
  for (const char32_t code : alphabet) unicode::append(model.pieces.emplace_back(), code);
  HEARTH_CHECK(ConfigError, vocabulary >= static_cast<std::int64_t>(model.pieces.size()), "bpe: a vocabulary of ",
               vocabulary, " pieces does not hold the 256 bytes and ", special.size(), " special tokens; at least ",
               model.pieces.size(), " are needed");
  Vocabulary known(std::move(model.pieces), "bpe");
  Learner(words_of(sequences, known), model, known).learn(vocabulary, min_count);
  model.pieces = known.pieces();
  return model;
}

}  // namespace hearth::data
