// SPDX-License-Identifier: Apache-2.0
// Registration, hashing, saving and loading of the state registry.
#include "core/io/state.h"

#include <algorithm>
#include <utility>

#include "core/io/checksum.h"
#include "core/io/printable.h"
#include "core/io/safetensors.h"

namespace hearth {
namespace {

// Of a divided state, as many are there as a whole at a time.
constexpr std::int64_t visited_elements = 1 << 18;

}  // namespace

std::span<std::byte> State::Entry::bytes() const {
  if (tensor == nullptr) return {scalar, size_of(dtype)};
  // The handle is the owner's: nothing else would keep a reassigned one from being read or written past its end.
  HEARTH_CHECK(UsageError,
               tensor->defined() && tensor->dtype() == dtype && tensor->is_contiguous() &&
                   tensor->shape() == (shards != nullptr ? Shape{shards->size()} : shape),
               "state: '", name, "' was registered as ", dtype, " ", shape, " and is now ", hearth::describe(*tensor),
               tensor->defined() && !tensor->is_contiguous() ? " (not contiguous)" : "",
               "; copy into a registered tensor, do not replace it by another kind");
  return {tensor->bytes(), tensor->byte_size()};
}

State::Entry::HostBytes State::Entry::read() const {
  const std::span<std::byte> own = bytes();
  if (shards != nullptr) {
    Tensor whole = Tensor::empty(shape, dtype);
    shards->put(tensor->to(Device{}), whole);
    shards->gather(whole);
    const std::span<const std::byte> gathered{whole.bytes(), whole.byte_size()};
    return {std::move(whole), gathered};
  }
  if (tensor == nullptr || tensor->device().is_cpu()) return {Tensor(), own};
  Tensor copy = tensor->to(Device{});
  const std::span<const std::byte> copied{copy.bytes(), copy.byte_size()};
  return {std::move(copy), copied};
}

void State::Entry::visit(const std::function<void(std::span<const std::byte>)>& take) const {
  if (shards == nullptr) return take(read().bytes);
  (void)bytes();  // throws where it is no such part
  const Tensor local = tensor->to(Device{});
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t block = 0; block < shards->blocks(); ++block) {
    const std::vector<std::int64_t> cuts = shards->cuts_of(block);
    const Shards::Range mine = shards->range(block);
    for (std::int64_t begin = cuts.front(); begin < cuts.back(); begin += visited_elements) {
      const std::int64_t end = std::min(begin + visited_elements, cuts.back());
      std::vector<std::int64_t> within;
      for (const std::int64_t cut : cuts) within.push_back(std::clamp(cut, begin, end) - begin);
      const Tensor part = Tensor::empty({end - begin}, dtype);
      const std::int64_t first = std::clamp(mine.begin, begin, end), last = std::clamp(mine.end, begin, end);
      std::copy_n(local.bytes() + (mine.place + first - mine.begin) * width, (last - first) * width,
                  part.bytes() + (first - begin) * width);
      shards->group->gather_parts(part, within).wait();
      take({part.bytes(), part.byte_size()});
    }
  }
}

void State::Entry::write(std::span<const std::byte> from) const {
  const std::span<std::byte> own = bytes();
  std::vector<std::byte> parts;
  if (shards != nullptr) {
    const std::size_t element = size_of(dtype);
    HEARTH_CHECK(InternalError, from.size() == static_cast<std::size_t>(shards->total()) * element, "state: '", name,
                 "' takes ", shards->total(), " elements, not ", from.size(), " bytes");
    parts.reserve(own.size());
    for (const auto& [begin, end, place] : shards->ranges()) {
      const auto part =
          from.subspan(static_cast<std::size_t>(begin) * element, static_cast<std::size_t>(end - begin) * element);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    from = parts;
  }
  HEARTH_CHECK(InternalError, from.size() == own.size(), "state: '", name, "' takes ", own.size(), " bytes, not ",
               from.size());
  if (tensor == nullptr || tensor->device().is_cpu()) {
    std::copy(from.begin(), from.end(), own.begin());
    if (tensor != nullptr) tensor->storage()->bump_version();
    return;
  }
  const Tensor staged = Tensor::empty(tensor->shape(), dtype);
  std::copy(from.begin(), from.end(), staged.bytes());
  tensor->copy_from(staged);
}

void State::within(const std::string& prefix, const std::function<void(State&)>& add) {
  HEARTH_CHECK(UsageError, add != nullptr, "state: within('", prefix,
               "') of an empty function; give one that adds to it");
  const std::string around = std::exchange(prefix_, prefix_ + prefix);
  try {
    add(*this);
  } catch (...) {
    prefix_ = around;
    throw;
  }
  prefix_ = around;
}

void State::add_entry(Entry entry) {
  entry.name = prefix_ + entry.name;
  HEARTH_CHECK(UsageError, names_.insert(entry.name).second, "state: '", entry.name,
               "' is registered already; give every tensor and number a name of its own");
  entries_.push_back(std::move(entry));
}

void State::add_scalar(const std::string& name, DType dtype, void* value) {
  HEARTH_CHECK(UsageError, value != nullptr, "state: '", name, "' is a null pointer");
  add_entry({name, dtype, {}, nullptr, static_cast<std::byte*>(value)});
}

void State::add(const std::string& name, Tensor* tensor) {
  HEARTH_CHECK(UsageError, tensor != nullptr && tensor->defined(), "state: '", name, "' is no tensor yet");
  HEARTH_CHECK(UsageError, tensor->is_contiguous(), "state: '", name, "' is not contiguous; copy it first");
  add_entry({name, tensor->dtype(), tensor->shape(), tensor, nullptr});
}

void State::add_shard(const std::string& name, Tensor* part, const Shards& shards, const Shape& shape) {
  HEARTH_CHECK(UsageError, part != nullptr && part->defined(), "state: '", name, "' is no tensor yet");
  HEARTH_CHECK(UsageError, shape.size() == shards.total(), "state: '", name, "' ", shape, " has no ", shards.total(),
               " elements");
  Entry entry{name, part->dtype(), shape, part, nullptr, &shards};
  (void)entry.bytes();  // throws where it is no such part
  add_entry(std::move(entry));
}

std::vector<SafetensorsEntry> State::file_entries() const {
  std::vector<SafetensorsEntry> list;
  for (const Entry& entry : entries()) {
    list.push_back({entry.name, entry.dtype, entry.shape, {}, {}});
    list.back().parts = [&entry](const ByteSink& take) { entry.visit(take); };
  }
  std::sort(list.begin(), list.end(), comes_first);
  return list;
}

void State::read_shards() const {
  const std::vector<SafetensorsEntry> list = file_entries();
  std::set<std::string> divided;
  for (const Entry& entry : entries_)
    if (entry.shards != nullptr) divided.insert(entry.name);
  // Once for the checksums, once to write.
  for (int i = 0; i < 2; ++i)
    for (const SafetensorsEntry& entry : list)
      if (divided.contains(entry.name)) entry.parts([](std::span<const std::byte>) {});
}

void State::add(const std::string& name, std::int64_t* value) { add_scalar(name, DType::i64, value); }

void State::add(const std::string& name, std::uint64_t* value) { add_scalar(name, DType::i64, value); }

void State::add(const std::string& name, double* value) { add_scalar(name, DType::f64, value); }

const std::vector<State::Entry>& State::entries() const {
  for (const auto& f : before_reading_) f();
  return entries_;
}

std::string State::hash() const {
  Sha256 digest;
  for (const Entry& entry : entries()) {
    digest.update(join_text(entry.name, '\0', entry.dtype, entry.shape, '\0'));
    entry.visit([&](std::span<const std::byte> part) { digest.update(part); });
  }
  return digest.hex();
}

void State::save(const std::string& path, const std::map<std::string, std::string>& metadata) const {
  write_safetensors(path, file_entries(), metadata);
}

void State::load(const std::string& path, const std::vector<std::string>& optional) {
  load_from(path, optional, false);
}

void State::load_part(const std::string& path, const std::vector<std::string>& optional) {
  load_from(path, optional, true);
}

void State::load_from(const std::string& path, const std::vector<std::string>& optional, bool may_hold_more) {
  const auto may_lack = [&](const std::string& name) {
    return std::any_of(optional.begin(), optional.end(),
                       [&](const std::string& beginning) { return name.starts_with(beginning); });
  };
  const auto fits = [](const Entry& entry, const TensorRecord& record) {
    return record.dtype == entry.dtype && record.shape == entry.shape;
  };
  const SafetensorsFile file(path);
  file.verify();
  std::string faults;
  for (const Entry& entry : entries_) {
    const TensorRecord* record = file.find(entry.name);
    if (record == nullptr) {
      if (!may_lack(entry.name)) faults += "; missing " + entry.name;
    } else if (!fits(entry, *record) && !may_lack(entry.name)) {
      faults += join_text("; ", entry.name, " is ", record->dtype, " ", record->shape, ", expected ", entry.dtype, " ",
                          entry.shape);
    }
  }
  for (const TensorRecord& record : file.records()) {
    if (!may_hold_more && !names_.contains(record.name) && !may_lack(record.name))
      faults += "; unexpected " + record.name;
  }
  HEARTH_CHECK(FileError, faults.empty(), path, ": does not fit this run", printable(faults),
               "; load it into the configuration it was saved with");
  for (const Entry& entry : entries_) (void)entry.bytes();  // throws before anything is written
  for (const Entry& entry : entries_)
    if (const TensorRecord* record = file.find(entry.name); record != nullptr && fits(entry, *record))
      entry.write(file.read(*record));
}

}  // namespace hearth
