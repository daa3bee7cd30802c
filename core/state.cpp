// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/state.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "hearth/core/checksum.h"
#include "hearth/core/safetensors.h"

namespace hearth {

std::span<std::byte> State::Entry::bytes() const {
  if (tensor != nullptr) return {tensor->bytes(), tensor->byte_size()};
  return {scalar, size_of(dtype)};
}

void State::add_entry(Entry entry) {
  for (const Entry& other : entries_)
    HEARTH_CHECK(UsageError, other.name != entry.name, "state: \"", entry.name, "\" is registered already");
  entries_.push_back(std::move(entry));
}

void State::add(const std::string& name, Tensor* tensor) {
  HEARTH_CHECK(UsageError, tensor != nullptr && tensor->defined(), "state: \"", name, "\" is no tensor yet");
  HEARTH_CHECK(UsageError, tensor->is_contiguous(), "state: \"", name, "\" is not contiguous; copy it first");
  add_entry({name, tensor->dtype(), tensor->shape(), tensor, nullptr});
}

void State::add(const std::string& name, std::int64_t* value) {
  add_entry({name, DType::i64, {}, nullptr, reinterpret_cast<std::byte*>(value)});
}

void State::add(const std::string& name, std::uint64_t* value) {
  add_entry({name, DType::i64, {}, nullptr, reinterpret_cast<std::byte*>(value)});
}

void State::add(const std::string& name, double* value) {
  add_entry({name, DType::f64, {}, nullptr, reinterpret_cast<std::byte*>(value)});
}

std::string State::hash() const {
  Sha256 digest;
  for (const Entry& entry : entries_) {
    digest.update(join_text(entry.name, '\0', entry.dtype, entry.shape, '\0'));
    digest.update(std::span<const std::byte>(entry.bytes()));
  }
  return digest.hex();
}

void State::save(const std::string& path, const std::map<std::string, std::string>& metadata) const {
  std::vector<SafetensorsEntry> list;
  for (const Entry& entry : entries_) list.push_back({entry.name, entry.dtype, entry.shape, entry.bytes()});
  write_safetensors(path, list, metadata);
}

void State::load(const std::string& path) {
  const SafetensorsFile file(path);
  file.verify();
  std::string faults;
  std::set<std::string> known;
  for (const Entry& entry : entries_) {
    known.insert(entry.name);
    const TensorRecord* record = file.find(entry.name);
    if (record == nullptr) faults += "; missing " + entry.name;
    else if (record->dtype != entry.dtype || !(record->shape == entry.shape))
      faults += join_text("; ", entry.name, " is ", record->dtype, " ", record->shape, ", expected ", entry.dtype, " ", entry.shape);
  }
  for (const TensorRecord& record : file.records())
    if (known.count(record.name) == 0) faults += "; unexpected " + record.name;
  HEARTH_CHECK(FileError, faults.empty(), path, ": does not fit this run", faults);
  for (const Entry& entry : entries_) {
    const std::span<const std::byte> from = file.bytes(*file.find(entry.name));
    const std::span<std::byte> to = entry.bytes();
    std::copy(from.begin(), from.end(), to.begin());
    if (entry.tensor != nullptr) entry.tensor->storage()->bump_version();
  }
}

}  // namespace hearth
