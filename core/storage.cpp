// SPDX-License-Identifier: Apache-2.0
// Owned bytes, and the chain of those that are alive. A chain costs a tensor no memory of its own to be reported.
#include <algorithm>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/tensor.h"

namespace hearth {

struct StorageChain {
  std::mutex mutex;
  Storage* first = nullptr;

  void add(Storage& storage) {
    const std::lock_guard lock(mutex);
    storage.next_ = first;
    if (first != nullptr) first->previous_ = &storage;
    first = &storage;
  }

  void remove(Storage& storage) {
    const std::lock_guard lock(mutex);
    (storage.previous_ != nullptr ? storage.previous_->next_ : first) = storage.next_;
    if (storage.next_ != nullptr) storage.next_->previous_ = storage.previous_;
  }

  std::vector<StorageRecord> on(Device device) {
    std::vector<StorageRecord> records;
    const std::lock_guard lock(mutex);
    for (const Storage* storage = first; storage != nullptr; storage = storage->next_)
      if (storage->record_.device == device && !storage->released_) records.push_back(storage->record_);
    return records;
  }
};

namespace {

// Leaked on purpose: tensors in static objects may outlive everything else.
StorageChain& chain() {
  static auto* const instance = new StorageChain;
  return *instance;
}

}  // namespace

Storage::Storage(const Shape& shape, DType dtype, Device device)
    : resource_(&memory_of(device)),
      record_{device, static_cast<std::size_t>(shape.size()) * size_of(dtype), shape, dtype, current_origin()} {
  bytes_ = static_cast<std::byte*>(resource_->allocate(record_.bytes));
  chain().add(*this);
}

Storage::~Storage() {
  chain().remove(*this);
  if (!released_) resource_->deallocate(bytes_, record_.bytes);
}

void Storage::release() {
  if (released_.exchange(true)) return;
  resource_->deallocate(std::exchange(bytes_, nullptr), record_.bytes);
}

void Storage::refill() {
  if (!released_) return;
  bytes_ = static_cast<std::byte*>(resource_->allocate(record_.bytes));
  released_ = false;
}

void Storage::throw_released() {
  throw UsageError(
      "a tensor has no bytes now: ranks keep a part of these values each (zero 3), and gather them while ops use them; "
      "read a parameter by clone() or to(), on all ranks together");
}

std::vector<StorageRecord> largest_storages(Device device, std::size_t count) {
  std::vector<StorageRecord> records = chain().on(device);
  std::stable_sort(records.begin(), records.end(),
                   [](const StorageRecord& a, const StorageRecord& b) { return a.bytes > b.bytes; });
  if (records.size() > count) records.resize(count);
  return records;
}

}  // namespace hearth
