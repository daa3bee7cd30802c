// SPDX-License-Identifier: Apache-2.0
#include "data/loading/quarantine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/io/state.h"

namespace hearth::data {
namespace {

constexpr std::int64_t most_listed = 5;

std::size_t byte_of(std::int64_t sample) { return static_cast<std::size_t>(sample) / 8; }
std::uint8_t bit_of(std::int64_t sample) { return static_cast<std::uint8_t>(1u << (sample % 8)); }

}  // namespace

bool is_bad_sample(const Error& error) { return error.exit_code() == 3; }

std::int64_t limit_of(const BadSampleOptions& options, std::int64_t size) {
  if (!options.budget) return size;
  const double share = *options.budget;
  return share < 1 ? static_cast<std::int64_t>(std::ceil(share * static_cast<double>(size)))
                   : static_cast<std::int64_t>(std::min(share, static_cast<double>(size)));
}

Quarantine::Quarantine(std::string split, std::string source, std::int64_t size, std::int64_t limit)
    : split_(std::move(split)),
      source_(std::move(source)),
      size_(size),
      limit_(limit),
      found_(byte_of(size + 7)),
      bits_(Tensor::zeros({static_cast<std::int64_t>(byte_of(size + 7))}, DType::u8)) {}

bool Quarantine::holds(std::int64_t sample) const {
  return (found_[byte_of(sample)].load(std::memory_order_relaxed) & bit_of(sample)) != 0;
}

std::int64_t Quarantine::stand_in(std::int64_t sample, SampleRuns& passed) const {
  if (!holds(sample)) return sample;
  const std::lock_guard lock(mutex_);
  for (std::int64_t left = size_, at = sample; left > 0; at %= size_) {
    const std::int64_t end = std::min(bad_.end_of(at), at + left);
    if (end == at) return at;
    passed.add(at, end, limit_ + 1 - passed.size());
    HEARTH_CHECK(DataError, passed.size() <= limit_, source_, ": more than the ", limit_, " samples of the ", split_,
                 " split that may be bad are: ", list_of(passed));
    left -= end - at;
    at = end;
  }
  throw DataError(
      join_text(source_, ": none of the ", size_, " samples of the ", split_, " split can be read: ", list_of(passed)));
}

void Quarantine::find(std::int64_t sample, const std::string& fault) {
  HEARTH_CHECK(IndexError, sample >= 0 && sample < size_, source_, ": bad sample ", sample, " of ", size_);
  const std::lock_guard lock(mutex_);
  faults_.emplace(sample, fault);
  bad_.add(sample, sample + 1);
  found_[byte_of(sample)].fetch_or(bit_of(sample), std::memory_order_relaxed);
}

void Quarantine::deliver_one(std::int64_t sample) {
  if (delivered_.holds(sample)) return;
  delivered_.add(sample, sample + 1);
  bits_.data<std::uint8_t>()[byte_of(sample)] |= bit_of(sample);
  new_.push_back(sample);
}

void Quarantine::deliver(const SampleRuns& passed) {
  if (passed.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, end] : passed.runs())
    for (std::int64_t sample = begin; (sample = delivered_.end_of(sample)) < end;) deliver_one(sample);
  require_limit();
}

void Quarantine::deliver(std::span<const Entry> entries) {
  for (const Entry& entry : entries) find(entry.sample, entry.fault);
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries) deliver_one(entry.sample);
  require_limit();
}

void Quarantine::require_limit() const {
  HEARTH_CHECK(DataError, delivered_.size() <= limit_, source_, ": ", delivered_.size(), " samples of the ", split_,
               " split are bad, and ", limit_, " of ", size_,
               " may be (data.bad_samples.budget): ", list_of(delivered_));
}

std::string Quarantine::list_of(const SampleRuns& samples) const {
  std::string text;
  std::int64_t listed = 0;
  for (const auto& [begin, end] : samples.runs())
    for (std::int64_t sample = begin; sample < end; ++sample) {
      if (++listed > most_listed) return text + join_text("; and ", samples.size() - most_listed, " more");
      const auto fault = faults_.find(sample);
      text += join_text(listed > 1 ? "; " : "", "sample ", sample,
                        fault == faults_.end() || fault->second.empty() ? "" : " (" + fault->second + ")");
    }
  return text;
}

std::vector<Quarantine::Entry> Quarantine::delivered() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [begin, end] : delivered_.runs())
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const auto fault = faults_.find(sample);
      entries.push_back({sample, fault != faults_.end() ? fault->second : std::string()});
    }
  return entries;
}

std::int64_t Quarantine::count() const {
  const std::lock_guard lock(mutex_);
  return delivered_.size();
}

std::vector<Quarantine::Entry> Quarantine::take_new() {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const std::int64_t sample : std::exchange(new_, {})) entries.push_back({sample, faults_[sample]});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.sample < b.sample; });
  return entries;
}

void Quarantine::register_state(State& state, const std::string& name) { state.add(name, &bits_); }

void Quarantine::after_load(std::span<const Entry> known) {
  const std::lock_guard lock(mutex_);
  std::map<std::int64_t, std::string> faults;
  for (const Entry& entry : known) faults[entry.sample] = entry.fault;
  faults_.clear();
  bad_.clear();
  delivered_.clear();
  new_.clear();
  const std::uint8_t* const bits = bits_.data<const std::uint8_t>();
  for (std::size_t i = 0; i < found_.size(); ++i) found_[i].store(bits[i], std::memory_order_relaxed);
  for (std::int64_t sample = 0; sample < size_; ++sample) {
    if (!holds(sample)) continue;
    bad_.add(sample, sample + 1);
    delivered_.add(sample, sample + 1);
    faults_[sample] = faults[sample];
  }
}

void Quarantine::clear() {
  {
    const std::lock_guard lock(mutex_);
    std::fill_n(bits_.data<std::uint8_t>(), found_.size(), std::uint8_t{0});
  }
  after_load({});
}

}  // namespace hearth::data
