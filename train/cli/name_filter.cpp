// SPDX-License-Identifier: Apache-2.0
// K. Thompson, "Regular expression search algorithm", CACM 11(6), 1968: all ways are followed at once.
#include "train/cli/name_filter.h"

#include <cctype>
#include <utility>

#include "core/error.h"

namespace hearth::train {

class PatternParser {
 public:
  using Step = NameFilter::Step;
  using Steps = NameFilter::Steps;
  using Kind = Step::Kind;

  explicit PatternParser(std::string_view pattern) : pattern_(pattern) {
    HEARTH_CHECK(UsageError, pattern.size() <= NameFilter::longest_pattern, "--filter: ", pattern.size(),
                 " characters; a pattern may have ", NameFilter::longest_pattern);
  }

  Steps parse() {
    Steps steps = parse_alternatives();
    require(at_ == pattern_.size(), "a ) without its (");
    return steps;
  }

 private:
  void require(bool good, const char* fault) const {
    HEARTH_CHECK(UsageError, good, "--filter \"", pattern_, "\": ", fault, " at character ", at_ + 1,
                 "; known are . [a-z] [^a-z] (...) | * + ? ^ $ and \\ before a sign that is meant itself");
  }
  bool accept(char c) {
    if (at_ == pattern_.size() || pattern_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool at_one_of(std::string_view signs) const {
    return at_ < pattern_.size() && signs.find(pattern_[at_]) != std::string_view::npos;
  }

  static std::ptrdiff_t length(const Steps& steps) { return static_cast<std::ptrdiff_t>(steps.size()); }
  static void append(Steps& steps, const Steps& more) { steps.insert(steps.end(), more.begin(), more.end()); }

  Steps parse_alternatives() {
    Steps first = parse_sequence();
    while (accept('|')) {
      const Steps second = parse_sequence();
      Steps either{{.kind = Kind::split, .or_to = length(first) + 2}};
      append(either, first);
      either.push_back({.kind = Kind::jump, .to = length(second) + 1});
      append(either, second);
      first = std::move(either);
    }
    return first;
  }

  Steps parse_sequence() {
    Steps steps;
    while (at_ < pattern_.size() && !at_one_of("|)")) {
      Steps item = parse_item();
      while (at_one_of("*+?")) item = repeated(std::move(item), pattern_[at_++]);
      append(steps, item);
    }
    return steps;
  }

  static Steps repeated(Steps item, char how) {
    if (how == '+') {
      item.push_back({.kind = Kind::split, .to = -length(item)});
      return item;
    }
    const bool again = how == '*';
    Steps steps{{.kind = Kind::split, .or_to = length(item) + (again ? 2 : 1)}};
    append(steps, item);
    if (again) steps.push_back({.kind = Kind::jump, .to = -length(item) - 1});
    return steps;
  }

  Steps parse_item() {
    require(!at_one_of("*+?{"), "nothing to repeat, or a count");
    if (accept('(')) {
      require(!at_one_of("?"), "a ( with an option");
      Steps steps = parse_alternatives();
      require(accept(')'), "no ) for a (");
      return steps;
    }
    if (accept('^')) return {{.kind = Kind::begin}};
    if (accept('$')) return {{.kind = Kind::end}};
    if (accept('.')) return {{.kind = Kind::set, .set = std::bitset<256>().set()}};
    if (accept('[')) return {{.kind = Kind::set, .set = parse_set()}};
    Steps one{{.kind = Kind::set}};
    one[0].set.set(parse_character());
    return one;
  }

  std::bitset<256> parse_set() {
    std::bitset<256> set;
    const bool others = accept('^');
    do {
      const unsigned char first = parse_character();
      unsigned char last = first;
      if (at_one_of("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        ++at_;
        last = parse_character();
        require(first <= last, "a range that ends before it begins");
      }
      for (unsigned c = first; c <= last; ++c) set.set(c);
    } while (!accept(']'));
    return others ? ~set : set;
  }

  unsigned char parse_character() {
    const bool escaped = accept('\\');
    require(at_ < pattern_.size(), "the pattern ends too early");
    const auto c = static_cast<unsigned char>(pattern_[at_]);
    require(!escaped || std::isalnum(c) == 0, "an unknown sequence");
    ++at_;
    return c;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
};

NameFilter::NameFilter(std::string_view pattern) : steps_(PatternParser(pattern).parse()) {}

// Marks what can be reached from a step without passing a character; behind the last step the pattern was found.
void NameFilter::reach(std::size_t step, std::size_t at, std::size_t size, std::vector<bool>& reached) const {
  std::vector<std::size_t> open{step};
  while (!open.empty()) {
    const std::size_t here = open.back();
    open.pop_back();
    if (reached[here]) continue;
    reached[here] = true;
    if (here == steps_.size()) continue;
    const Step& next = steps_[here];
    const auto go = [&](std::ptrdiff_t by) {
      open.push_back(static_cast<std::size_t>(static_cast<std::ptrdiff_t>(here) + by));
    };
    const bool holds = next.kind == Step::Kind::begin ? at == 0 : next.kind == Step::Kind::end ? at == size : true;
    if (next.kind == Step::Kind::set || !holds) continue;
    go(next.to);
    if (next.kind == Step::Kind::split) go(next.or_to);
  }
}

bool NameFilter::matches(std::string_view name) const {
  std::vector<bool> now(steps_.size() + 1);
  for (std::size_t at = 0;; ++at) {
    reach(0, at, name.size(), now);
    if (now[steps_.size()]) return true;
    if (at == name.size()) return false;
    std::vector<bool> next(steps_.size() + 1);
    for (std::size_t step = 0; step < steps_.size(); ++step)
      if (now[step] && steps_[step].kind == Step::Kind::set && steps_[step].set[static_cast<unsigned char>(name[at])])
        reach(step + 1, at + 1, name.size(), next);
    now = std::move(next);
  }
}

}  // namespace hearth::train
