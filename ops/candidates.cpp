// SPDX-License-Identifier: Apache-2.0
// The process-wide record of ops with several implementations, and the pins set on them.
#include "hearth/ops/candidates.h"

#include <algorithm>
#include <cstdlib>
#include <list>

namespace hearth {
namespace {

struct Registry {
  std::mutex mutex;
  std::list<detail::CandidateRecord> records;
  std::map<std::string, std::string, std::less<>> pins;
  std::atomic<std::uint64_t> generation{1};
};

std::map<std::string, std::string, std::less<>> pins_of_environment() {
  std::map<std::string, std::string, std::less<>> pins;
  const char* text = std::getenv("HEARTH_PICK");
  if (text == nullptr) return pins;
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    HEARTH_CHECK(ConfigError, colon != std::string_view::npos && colon > 0 && colon + 1 < item.size(),
                 "HEARTH_PICK is \"", text,
                 "\"; it must read op:implementation[,op:implementation], as in conv2d:portable");
    pins.emplace(item.substr(0, colon), item.substr(colon + 1));
  }
  return pins;
}

// Leaked: ops may run while static objects are destroyed.
Registry& registry() {
  static Registry& made = [&]() -> Registry& {
    auto pins = pins_of_environment();
    auto* fresh = new Registry;
    fresh->pins = std::move(pins);
    return *fresh;
  }();
  return made;
}

void set_pin(const std::string& op, const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (name.empty())
    all.pins.erase(op);
  else
    all.pins[op] = name;
  ++all.generation;
}

std::string listed(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace

std::string last_choice(std::string_view op) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& record : all.records) {
    if (record.op != op) continue;
    const char* name = record.last.load(std::memory_order_relaxed);
    return name == nullptr ? "" : name;
  }
  return "";
}

std::vector<std::string> candidate_names(std::string_view op) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& record : all.records)
    if (record.op == op) return record.names;
  return {};
}

PinCandidate::PinCandidate(std::string op, std::string name) : op_(std::move(op)) {
  HEARTH_CHECK(UsageError, !name.empty(), op_, ": the name of an implementation to pin is empty");
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.pins.find(op_); found != all.pins.end()) previous_ = found->second;
  }
  set_pin(op_, name);
}

PinCandidate::~PinCandidate() { set_pin(op_, previous_); }

namespace detail {

CandidateRecord& register_candidates(const char* op, const std::vector<std::string>& names,
                                     const std::vector<std::string>& elsewhere) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto found = std::find_if(all.records.begin(), all.records.end(), [&](const auto& r) { return r.op == op; });
  if (found == all.records.end()) {
    found = all.records.emplace(all.records.end());
    found->op = op;
  }
  const auto add = [](const std::vector<std::string>& from, std::vector<std::string>& to) {
    for (const std::string& name : from)
      if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
  };
  add(names, found->names);
  add(elsewhere, found->elsewhere);
  return *found;
}

std::string pinned_candidate(const CandidateRecord& record) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.pins.find(record.op);
  if (found == all.pins.end()) return "";
  bool known = false;
  for (const auto* names : {&record.names, &record.elsewhere})
    for (const std::string& name : *names) known = known || name == found->second;
  HEARTH_CHECK(ConfigError, known, record.op, ": pinned to \"", found->second,
               "\", which is not one of its implementations (", listed(record.names, ", "), ")");
  return found->second;
}

std::uint64_t pin_generation() { return registry().generation.load(std::memory_order_relaxed); }

void throw_declined(const CandidateRecord& record, const std::string& pinned, const std::vector<std::string>& reasons) {
  if (pinned.empty())
    throw UsageError(join_text(record.op, ": no implementation takes this problem: ", listed(reasons, "; ")));
  throw UsageError(join_text(record.op, ": pinned to ", pinned, ", which declines this problem: ",
                             listed(reasons, "; "), "; remove the pin (HEARTH_PICK)"));
}

void throw_absent(const CandidateRecord& record, const std::string& pinned, const std::string& reason) {
  throw DeviceError(join_text(record.op, ": pinned to ", pinned, ", which is not here: ", reason,
                              "; or remove the pin (HEARTH_PICK)"));
}

}  // namespace detail
}  // namespace hearth
