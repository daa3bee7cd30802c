// SPDX-License-Identifier: Apache-2.0
#include "dist/agreement.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "core/error.h"
#include "core/io/checksum.h"

namespace hearth::dist {
namespace {

constexpr std::size_t named_differences = 3;
constexpr std::size_t longest_value = 100;

std::string text_of(const std::string& what, const NamedValues& values) {
  std::string text = what;
  for (const auto& [name, value] : values) text.append(1, '\0').append(name).append(1, '\0').append(value);
  return text;
}

/// `what`, then the names and values.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string shown(const std::string& value) {
  if (value.empty()) return "nothing";
  return value.size() <= longest_value ? value : value.substr(0, longest_value) + "...";
}

/// "lr 0.1, rank 0 has 0.2; seed 3, rank 0 has 4"
std::string differences(const std::vector<std::string>& theirs, const std::vector<std::string>& first,
                        const std::string& first_rank) {
  const auto map_of = [](const std::vector<std::string>& words) {
    std::map<std::string, std::string> values;
    for (std::size_t i = 1; i + 1 < words.size(); i += 2) values[words[i]] = words[i + 1];
    return values;
  };
  const auto theirs_by_name = map_of(theirs), first_by_name = map_of(first);
  std::vector<std::string> names;
  const auto add = [&](const std::vector<std::string>& words) {
    for (std::size_t i = 1; i < words.size(); i += 2)
      if (std::find(names.begin(), names.end(), words[i]) == names.end()) names.push_back(words[i]);
  };
  add(first);
  add(theirs);
  const auto value = [](const std::map<std::string, std::string>& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
  };
  std::string text;
  std::size_t differing = 0;
  for (const std::string& name : names) {
    const std::string a = value(theirs_by_name, name), b = value(first_by_name, name);
    if (a == b || ++differing > named_differences) continue;
    text += join_text(text.empty() ? "" : "; ", name, ' ', shown(a), ", ", first_rank, " has ", shown(b));
  }
  if (differing == 0) return "the same in another order";
  return differing <= named_differences ? text : text + join_text("; and ", differing - named_differences, " more");
}

}  // namespace

std::string who(const Collective& group, int rank) {
  const auto* const peers = dynamic_cast<const Peers*>(&group);
  return peers != nullptr ? peers->who(rank) : join_text("rank ", rank);
}

std::string failure_text(const std::exception& error) {
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return lacks_memory ? "the system is out of memory on its machine" : error.what();
}

void set_status(Collective& group, const std::string& status) {
  if (auto* const peers = dynamic_cast<Peers*>(&group)) peers->set_status(status);
}

std::string route_of(const Collective& group) {
  const auto* const peers = dynamic_cast<const Peers*>(&group);
  return peers != nullptr ? peers->route() : "";
}

std::vector<std::int64_t> gather(Collective& group, std::int64_t number) {
  const Tensor all = Tensor::zeros({group.size()}, DType::i64);
  group.all_gather(Tensor::of<std::int64_t>({1}, {number}), all).wait();
  const std::int64_t* const numbers = all.data<const std::int64_t>();
  return {numbers, numbers + group.size()};
}

std::vector<std::string> gather(Collective& group, const std::string& text) {
  const std::vector<std::int64_t> sizes = gather(group, static_cast<std::int64_t>(text.size()));
  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  const Tensor mine = Tensor::zeros({longest}, DType::u8), all = Tensor::zeros({longest * group.size()}, DType::u8);
  std::memcpy(mine.bytes(), text.data(), text.size());
  group.all_gather(mine, all).wait();
  std::vector<std::string> texts;
  for (std::int64_t size : sizes)
    texts.emplace_back(reinterpret_cast<const char*>(all.bytes()) + static_cast<std::int64_t>(texts.size()) * longest,
                       static_cast<std::size_t>(size));
  return texts;
}

void require_same(Collective& group, const std::string& what, const NamedValues& mine, const std::string& remedy) {
  const std::string text = text_of(what, mine);
  Sha256 digest;
  digest.update(text);
  std::int64_t told = 0;
  std::memcpy(&told, digest.digest().data(), sizeof told);
  const std::vector<std::int64_t> all = gather(group, told);
  if (std::count(all.begin(), all.end(), told) == group.size()) return;
  const std::vector<std::string> texts = gather(group, text);
  const std::vector<std::string> first = words_of(texts[0]);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::vector<std::string> theirs = words_of(texts[static_cast<std::size_t>(rank)]);
    if (theirs == first) continue;
    const std::string name = who(group, rank), first_rank = who(group, 0);
    HEARTH_CHECK(PeerError, theirs[0] == first[0], "the ranks disagree: ", name, " compares its ", theirs[0], ", ",
                 first_rank, " its ", first[0], "; ", remedy);
    throw PeerError(join_text(what, ": ", name, " has ", differences(theirs, first, first_rank), "; ", remedy));
  }
}

}  // namespace hearth::dist
