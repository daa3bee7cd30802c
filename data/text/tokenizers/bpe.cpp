// SPDX-License-Identifier: Apache-2.0
// Applying merges: neighbours are kept in a linked list, candidate pairs in a heap ordered by rank and place.
#include "data/text/tokenizers/bpe.h"

#include <algorithm>
#include <queue>

#include "core/error.h"
#include "data/text/tokenizers/pretokenize.h"
#include "data/text/tokenizers/special.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

// Cuts repeat; beyond so many different ones in a text memory counts for more.
constexpr std::size_t max_known = 1 << 16;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) unicode::append(text, printable_of_byte(static_cast<unsigned char>(byte)));
  return text;
}

}  // namespace

BytePairTokenizer::BytePairTokenizer(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                     std::vector<AddedToken> added, BpeOptions options, const std::string& source)
    : VocabularyTokenizer(std::move(vocabulary)), options_(options), source_(source) {
  model_size_ = static_cast<std::size_t>(vocabulary_.size());
  add_tokens(vocabulary_, added, source);
  added_ = AddedTokens(std::move(added));
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary_.id_or_none(printable({&character, 1}));
    lacks_bytes_ = lacks_bytes_ || byte_ids_[byte] < 0;
  }
  special_ = find_special(vocabulary_, lacks_bytes_ ? options_.unknown : "");
  if (lacks_bytes_ && !options_.unknown.empty()) {
    HEARTH_CHECK(DataError, special_.unknown >= 0, source, ": unk_token \"", options_.unknown,
                 "\" is not in the vocabulary");
    HEARTH_CHECK(DataError, !options_.fuse_unknown, source,
                 ": fuse_unk is not supported for a vocabulary that lacks bytes");
  }
  joins_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto left_id = vocabulary_.find(left), right_id = vocabulary_.find(right);
    const auto whole = vocabulary_.find(left + right);
    HEARTH_CHECK(DataError, left_id && right_id && whole, source, ": merge ", rank + 1, ", '", left, "' with '", right,
                 "', names a piece that the vocabulary lacks");
    merges_.emplace_back(*left_id, *right_id);
    joins_.try_emplace(pair_key(*left_id, *right_id), Joined{static_cast<std::int32_t>(rank), *whole});
  }
}

const BytePairTokenizer::Joined* BytePairTokenizer::joined(std::int32_t left, std::int32_t right) const {
  const auto place = joins_.find(pair_key(left, right));
  return place == joins_.end() ? nullptr : &place->second;
}

std::vector<std::int32_t> BytePairTokenizer::encode(std::string_view text) const {
  unicode::require_utf8(text, "tokenizer");
  std::vector<std::int32_t> ids;
  TextMap<std::vector<std::int32_t>> known;
  added_.split(
      text, [&](std::string_view part) { encode_part(part, known, ids); }, [&](std::int32_t id) { ids.push_back(id); });
  return ids;
}

void BytePairTokenizer::encode_part(std::string_view text, TextMap<std::vector<std::int32_t>>& known,
                                    std::vector<std::int32_t>& ids) const {
  std::string prefixed;
  if (options_.add_prefix_space && text.front() != ' ') {
    prefixed = " " + std::string(text);
    text = prefixed;
  }
  std::vector<std::string_view> cuts;
  split_gpt2(text, cuts);
  for (const std::string_view cut : cuts) {
    const auto place = known.find(cut);
    if (place != known.end()) {
      ids.insert(ids.end(), place->second.begin(), place->second.end());
      continue;
    }
    const std::size_t first = ids.size();
    encode_cut(cut, ids);
    if (known.size() < max_known)
      known.emplace(std::string(cut), std::vector(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end()));
  }
}

void BytePairTokenizer::encode_cut(std::string_view cut, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.find(printable(cut))) {
      ids.push_back(*whole);
      return;
    }
  }
  const std::size_t first = ids.size();
  for (const char byte : cut) {
    std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id < 0 && !options_.unknown.empty()) id = special_.unknown;
    HEARTH_CHECK(DataError, id >= 0, source_, ": the vocabulary has no piece for the byte ",
                 static_cast<int>(static_cast<unsigned char>(byte)), ", which the text contains");
    ids.push_back(id);
  }
  join(ids, first);
}

// Joins within ids[first..]: the pair learned first, of equals the leftmost, until no neighbours make a pair.
void BytePairTokenizer::join(std::vector<std::int32_t>& ids, std::size_t first) const {
  struct Candidate {
    std::int32_t rank;
    std::uint32_t place;
    std::int32_t left, right, id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const auto count = static_cast<std::uint32_t>(ids.size() - first);
  std::int32_t* const symbol = ids.data() + first;
  constexpr std::uint32_t none = UINT32_MAX;
  std::vector<std::uint32_t> before(count), after(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::uint32_t left, std::uint32_t right) {
    if (left == none || right == none) return;
    if (const Joined* found = joined(symbol[left], symbol[right]))
      candidates.push({found->rank, left, symbol[left], symbol[right], found->id});
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    before[i] = i == 0 ? none : i - 1;
    after[i] = i + 1 == count ? none : i + 1;
    consider(i, after[i]);
  }
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const std::uint32_t left = best.place, right = symbol[left] == best.left ? after[left] : none;
    if (right == none || symbol[right] != best.right) continue;  // one of them was joined meanwhile
    symbol[left] = best.id;
    symbol[right] = -1;
    after[left] = after[right];
    if (after[right] != none) before[after[right]] = left;
    consider(before[left], left);
    consider(left, after[left]);
  }
  ids.erase(std::remove(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), -1), ids.end());
}

std::string BytePairTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& written = vocabulary_.piece(id);
    if (const AddedToken* token = added_.with_id(id)) {
      if (!token->special) text += written;
      continue;
    }
    for (std::size_t at = 0; at < written.size();) {
      const unicode::Character c = unicode::checked_character_at(written, at, source_);
      const int byte = byte_of_printable(c.code);
      if (byte >= 0)
        text += static_cast<char>(byte);
      else
        text.append(written, at, c.bytes);
      at += c.bytes;
    }
  }
  return text;
}

Json BytePairTokenizer::to_json() const {
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < model_size_; ++id)
    vocabulary.members().push_back({vocabulary_.pieces()[id], Json(static_cast<std::int64_t>(id)), {}});
  Json merges = Json::array();
  for (const auto& [left, right] : merges_)
    merges.push_back(Json::array().push_back(piece(left)).push_back(piece(right)));
  Json model = Json::object();
  model.set("type", "BPE").set("dropout", nullptr);
  const bool says_unknown = lacks_bytes_ && !options_.unknown.empty();
  model.set("unk_token", says_unknown ? Json(options_.unknown) : Json(nullptr));
  model.set("continuing_subword_prefix", nullptr).set("end_of_word_suffix", nullptr);
  model.set("fuse_unk", false).set("byte_fallback", false).set("ignore_merges", options_.ignore_merges);
  model.set("vocab", std::move(vocabulary)).set("merges", std::move(merges));
  Json cutting = Json::object();
  cutting.set("type", "ByteLevel").set("add_prefix_space", options_.add_prefix_space);
  cutting.set("trim_offsets", true).set("use_regex", true);
  Json joining = cutting;
  return tokenizer_document(added_, nullptr, std::move(cutting), std::move(joining), std::move(model));
}

}  // namespace hearth::data
