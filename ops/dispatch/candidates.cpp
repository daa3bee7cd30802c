// SPDX-License-Identifier: Apache-2.0
// The process-wide record of ops with several implementations, and the candidates that are forced.
#include "ops/dispatch/candidates.h"

#include <algorithm>
#include <cstdlib>
#include <list>

#include "core/nearest.h"
#include "core/origin.h"
#include "core/warning.h"
#include "ops/dispatch/forget_choices.h"

namespace hearth {
namespace {

struct Registry {
  std::mutex mutex;
  std::list<detail::CandidateRecord> records;
  detail::Forced picked;  ///< by HEARTH_PICK
  detail::Forced forced;  ///< by ForceCandidate
  std::atomic<std::uint64_t> generation{1};
  std::atomic<bool> counts{false};
  ChoiceLog::Runs runs;
  std::map<PortableRun, std::int64_t> portable;
};

/// Those of the library with the implementations on any device, as this build may have but one, and makes its lists
/// when ops are first called.
const std::map<std::string, std::vector<std::string>, std::less<>>& ops_of_library() {
  static const std::vector<std::string> products{"amx",      "avx512_bf16",      "onednn", "gemm",
                                                 "cublaslt", "cublaslt_unfused", "mma",    "portable"};
  static const std::map<std::string, std::vector<std::string>, std::less<>> ops{
      {"activation", {"avx512_bf16", "portable"}},
      {"attention", {"rows", "avx512_bf16", "cudnn", "mma", "portable"}},
      {"conv2d",
       {"matmul", "amx", "winograd", "direct_bf16", "paired_bf16", "stem_bf16", "unfolded", "onednn", "im2col",
        "cublaslt", "stem", "cudnn", "mma", "portable"}},
      {"cross_entropy", {"avx512_bf16", "portable"}},
      {"linear", products},
      {"matmul", products},
      {"window_attention", {"avx512_bf16", "mma", "portable"}}};
  return ops;
}

/// Null for an op that is none of these.
const std::vector<std::string>* names_of_library(std::string_view op) {
  const auto entry = ops_of_library().find(op);
  return entry != ops_of_library().end() ? &entry->second : nullptr;
}

bool is_among(std::string_view name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Leaked: ops may run while static objects are destroyed.
Registry& registry() {
  static Registry& made = [&]() -> Registry& {
    const char* const text = std::getenv("HEARTH_PICK");
    auto picked = detail::forced_of(text == nullptr ? "" : text);
    auto* fresh = new Registry;
    fresh->picked = std::move(picked);
    return *fresh;
  }();
  return made;
}

void set_forced(const std::string& op, const std::string& name) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  if (name.empty())
    state.forced.erase(op);
  else
    state.forced[op] = name;
  ++state.generation;
}

std::string listed(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace

void forget_choices() { ++registry().generation; }

std::string last_choice(std::string_view op) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  for (const auto& record : state.records) {
    if (record.op != op) continue;
    const char* name = record.last.load(std::memory_order_relaxed);
    return name == nullptr ? "" : name;
  }
  return "";
}

std::vector<std::string> candidate_names(std::string_view op) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  for (const auto& record : state.records)
    if (record.op == op) return record.names;
  return {};
}

ForceCandidate::ForceCandidate(std::string op, std::string name) : op_(std::move(op)) {
  HEARTH_CHECK(UsageError, !name.empty(), op_, ": the name of an implementation to force is empty");
  {
    Registry& state = registry();
    const std::lock_guard lock(state.mutex);
    if (const auto found = state.forced.find(op_); found != state.forced.end()) previous_ = found->second;
  }
  set_forced(op_, name);
}

ForceCandidate::~ForceCandidate() { set_forced(op_, previous_); }

ChoiceLog::ChoiceLog() {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  state.runs.clear();
  state.portable.clear();
  state.counts = true;
}
ChoiceLog::~ChoiceLog() { registry().counts = false; }

ChoiceLog::Runs ChoiceLog::runs() const {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  return state.runs;
}

std::map<PortableRun, std::int64_t> ChoiceLog::portable_runs() const {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  return state.portable;
}

namespace detail {

Forced forced_of(std::string_view text) {
  Forced forced;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    HEARTH_CHECK(ConfigError, colon != std::string_view::npos && colon > 0 && colon + 1 < item.size(),
                 "HEARTH_PICK is \"", text,
                 "\"; it must read op:implementation[,op:implementation], as in conv2d:portable");
    const std::string_view op = item.substr(0, colon);
    const std::string_view name = item.substr(colon + 1);
    const std::vector<std::string>* const names = names_of_library(op);
    if (names == nullptr) {
      std::vector<std::string> ops;
      for (const auto& known : ops_of_library()) ops.push_back(known.first);
      throw ConfigError(join_text("HEARTH_PICK is \"", text, "\": no op \"", op, "\" has several implementations; ",
                                  suggest(op, ops, "those that have")));
    }
    HEARTH_CHECK(ConfigError, is_among(name, *names), "HEARTH_PICK is \"", text, "\": ", op,
                 " has no implementation \"", name, "\"; ", suggest(name, *names, "it has"));
    const bool is_new = forced.emplace(op, name).second;
    HEARTH_CHECK(ConfigError, is_new, "HEARTH_PICK is \"", text, "\": ", op, " is forced twice; leave one of the two");
  }
  return forced;
}

CandidateRecord& register_candidates(const char* op, const std::vector<std::string>& names) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  const std::vector<std::string>* const of_library = names_of_library(op);
  auto found = std::find_if(state.records.begin(), state.records.end(), [&](const auto& r) { return r.op == op; });
  if (found == state.records.end()) {
    found = state.records.emplace(state.records.end());
    found->op = op;
  }
  for (const std::string& name : names) {
    HEARTH_CHECK(InternalError, of_library == nullptr || is_among(name, *of_library), op, ": \"", name,
                 "\" is missing from the list of implementations");
    if (!is_among(name, found->names)) found->names.push_back(name);
  }
  return *found;
}

Preference preference_of(const CandidateRecord& record) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  const auto forced = state.forced.find(record.op), picked = state.picked.find(record.op);
  const bool strict = forced != state.forced.end();
  if (!strict && picked == state.picked.end()) return {};
  const std::string& name = strict ? forced->second : picked->second;
  const std::vector<std::string>* const of_library = names_of_library(record.op);
  const bool known = is_among(name, record.names) || (of_library != nullptr && is_among(name, *of_library));
  HEARTH_CHECK(ConfigError, known, record.op, ": forced to \"", name, "\", which is not one of its implementations (",
               listed(record.names, ", "), ")");
  return {name, strict};
}

std::uint64_t preference_generation() { return registry().generation.load(std::memory_order_relaxed); }

void throw_unsupported(const CandidateRecord& record, const std::string& forced,
                       const std::vector<std::string>& reasons) {
  if (forced.empty())
    throw UsageError(join_text(record.op, ": no implementation takes this problem: ", listed(reasons, "; ")));
  throw UsageError(join_text(record.op, ": forced to ", forced, ", which does not support this problem: ",
                             listed(reasons, "; "), "; force another, or none"));
}

void throw_absent(const CandidateRecord& record, const std::string& forced, const std::string& reason) {
  throw DeviceError(join_text(record.op, ": forced to ", forced, ", which is not here: ", reason,
                              "; or remove it from there (HEARTH_PICK)"));
}

void tell_left(CandidateRecord& record, const std::string& picked, const std::string& problem,
               const std::vector<std::string>& reasons) {
  if (record.left.exchange(true)) return;
  warn(join_text(record.op, ": HEARTH_PICK's ", picked, " does not support ", problem, " (", listed(reasons, "; "),
                 "); others run this and whatever else it does not support"));
}

void tell_rejected(const CandidateRecord& record, const char* name, const std::string& problem,
                   const std::string& reason) {
  warn(join_text(record.op, ": ", name, " is not used for ", problem, ": ", reason,
                 "; the next implementation runs it"));
}

bool counts_runs() { return registry().counts.load(std::memory_order_relaxed); }

void count_run(const std::string& label, const std::string& problem) {
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  ++state.runs[{label, problem}];
}

void count_portable(const std::string& label, const std::string& problem, const std::vector<std::string>& reasons) {
  const Origin& origin = current_origin();
  Registry& state = registry();
  const std::lock_guard lock(state.mutex);
  ++state.portable[{label, problem, listed(reasons, "; "), origin.layer == nullptr ? "" : origin.layer,
                    origin.backward}];
}

}  // namespace detail
}  // namespace hearth
