// SPDX-License-Identifier: Apache-2.0
// The state registry: one list of everything that affects the next training step. Checkpoints, hashes and copies walk
// the same list, so nothing can be in one and missing from another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/shards.h"
#include "core/tensor.h"

namespace hearth {

struct SafetensorsEntry;

class HEARTH_API State {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    /// The bytes now; for a tensor those of the storage its handle leads to at this moment, in the device's memory.
    /// UsageError if the handle was given a tensor of another kind since it was registered. Of a shard this rank's.
    std::span<std::byte> bytes() const;
    /// The same bytes where the host can read them. What lies on a device is copied, which waits for it. Of a shard
    /// those of all ranks, which all call it.
    struct HostBytes {
      Tensor copy;  ///< owns the bytes, or undefined where nothing had to be copied
      std::span<const std::byte> bytes;
    };
    HostBytes read() const;
    /// Passes the bytes of read() to `take`, part by part, so that those of a shard need not be there at once. All
    /// ranks call it together for a shard.
    void visit(const std::function<void(std::span<const std::byte>)>& take) const;
    /// Overwrites what is registered with as many bytes; a shard with its part of them.
    void write(std::span<const std::byte> from) const;

    Tensor* tensor = nullptr;        ///< a tensor, or
    std::byte* scalar = nullptr;     ///< a single number of `dtype`
    const Shards* shards = nullptr;  ///< of a tensor that is a shard; `shape` is that of the whole
  };

  /// Registers a contiguous tensor on any device, or a number. The pointer must stay valid. UsageError for a name that
  /// is taken and for null pointers.
  void add(const std::string& name, Tensor* tensor);
  /// Registers this rank's part of a tensor of `shape` that `shards`, which must outlive this, divides as [total]. It
  /// is saved, hashed and loaded as the whole: all ranks save and hash together, or call read_shards() where only one
  /// saves.
  void add_shard(const std::string& name, Tensor* part, const Shards& shards, const Shape& shape);
  void add(const std::string& name, std::int64_t* value);
  /// Stored as the i64 with the same bits.
  void add(const std::string& name, std::uint64_t* value);
  void add(const std::string& name, double* value);

  /// Calls add(*this); the names of what it registers begin with `prefix`, within that of a call around it. So that
  /// two optimizers are parts of one state.
  void within(const std::string& prefix, const std::function<void(State&)>& add);

  /// f brings what is registered up to date where it lags behind, as numbers do that a device counts on. It runs before
  /// the entries are saved, hashed or given out.
  void before_reading(std::function<void()> f) { before_reading_.push_back(std::move(f)); }

  const std::vector<Entry>& entries() const;
  /// SHA-256 over names, types, shapes and bytes in the order of registration, in hexadecimal.
  std::string hash() const;

  /// While another rank calls save(): gives it this rank's shards.
  void read_shards() const;

  /// Writes a safetensors file with per-block checksums; numbers become tensors of shape []. FileError if it cannot be
  /// written; an earlier file of that name is as before then.
  void save(const std::string& path, const std::map<std::string, std::string>& metadata = {}) const;
  /// Copies the bytes of a file into what is registered; storages stay where they are. FileError if the file is
  /// damaged, or with every missing, unexpected and mis-shaped name; nothing is changed then. Names that begin with one
  /// of `optional` may be missing on either side, or of another shape: what the file lacks so keeps its value.
  void load(const std::string& path, const std::vector<std::string>& optional = {});
  /// The same from a file that may hold more than is registered.
  void load_part(const std::string& path, const std::vector<std::string>& optional = {});

 private:
  void add_entry(Entry entry);
  /// In the order of a file.
  std::vector<SafetensorsEntry> file_entries() const;
  void load_from(const std::string& path, const std::vector<std::string>& optional, bool may_hold_more);
  void add_scalar(const std::string& name, DType dtype, void* value);

  std::vector<Entry> entries_;
  std::vector<std::function<void()>> before_reading_;
  std::set<std::string> names_;
  std::string prefix_;  // of within()
};

}  // namespace hearth
