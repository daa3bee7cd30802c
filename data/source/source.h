// SPDX-License-Identifier: Apache-2.0
// Where the files of datasets are read from. A name "scheme://..." belongs to the source of that scheme, any other name
// is a path. A program that keeps its data elsewhere adds a source before it parses a configuration:
//
//   struct Store : data::Source {
//     std::unique_ptr<const data::SourceFile> open(const std::string& name) const override;
//     std::vector<data::SourceEntry> list(const std::string& folder) const override;
//   };
//   data::sources().add("store", std::make_shared<Store>());
//   // "data": {"type": "records", "path": "store://bucket/flowers", "cache": {"memory_mb": 1024}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/export.h"

namespace hearth::data {

/// A file that is read by position, by several threads at once.
class HEARTH_API SourceFile {
 public:
  virtual ~SourceFile() = default;
  /// The name that it was opened by.
  virtual const std::string& name() const = 0;
  /// Bytes of the file when it was opened.
  virtual std::uint64_t size() const = 0;
  /// Fills `target` with the bytes from `offset` on. FileError, naming file and offset, if they cannot all be read.
  virtual void read(std::uint64_t offset, std::span<std::byte> target) const = 0;
  /// What changes with the content beside the size: a time, a number of versions. A cache on disk goes by it.
  virtual std::string version() const { return {}; }
  /// Says that these bytes are read soon, and does not wait for them, where that makes reading faster.
  virtual void read_ahead(std::uint64_t, std::uint64_t) const {}
};

using SourceFilePointer = std::unique_ptr<const SourceFile>;

/// What a folder has.
struct SourceEntry {
  enum class Kind : std::uint8_t { file, folder, other };
  std::string name;  ///< within the folder
  Kind kind = Kind::file;
  std::uint64_t bytes = 0;  ///< of a file
};

/// Files by name, from several threads at once. Names are whole, with the scheme.
class HEARTH_API Source {
 public:
  virtual ~Source() = default;
  /// FileError, with the name and the reason, if the file cannot be opened.
  virtual SourceFilePointer open(const std::string& name) const = 0;
  /// What the folder has, in any order. FileError if it cannot be listed.
  virtual std::vector<SourceEntry> list(const std::string& folder) const = 0;
  /// What is there under the name, or nothing. Here: what list() of the folder around it says.
  virtual std::optional<SourceEntry> find(const std::string& name) const;
};

/// The sources of the process by scheme.
class HEARTH_API Sources {
 public:
  /// UsageError for a scheme that is taken, or is not made of small letters, digits, '+', '-' and '.'.
  void add(const std::string& scheme, std::shared_ptr<const Source> source);
  /// The source of a name. FileError, with the schemes that there are, for an unknown one.
  const Source& of(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Source>> added_;
};
HEARTH_API Sources& sources();

/// Whether a name has no scheme, and is a path.
HEARTH_API bool is_path(std::string_view name);
/// The name of a file in a folder.
HEARTH_API std::string name_in(const std::string& folder, const std::string& name);

/// What is in a folder, sorted by name (bytewise). FileError if it cannot be listed.
HEARTH_API std::vector<SourceEntry> list_source(const std::string& folder);
/// What is there under the name, or nothing. FileError for an unknown scheme.
HEARTH_API std::optional<SourceEntry> find_source(const std::string& name);

}  // namespace hearth::data
