// SPDX-License-Identifier: Apache-2.0
// Opening the files of datasets: what all formats read through.
#pragma once

#include <memory>
#include <string>

#include "core/export.h"
#include "data/source/source.h"

namespace hearth::data {

class ReadCache;

/// Opens the files of one dataset: by their sources, and through the cache that was in force (CacheScope) when this was
/// made.
class HEARTH_API FileOpener {
 public:
  FileOpener();
  /// FileError if the file cannot be opened.
  SourceFilePointer open(const std::string& name) const;

 private:
  std::shared_ptr<ReadCache> cache_;
};

/// Opens one file as a FileOpener made here would.
HEARTH_API SourceFilePointer open_source(const std::string& name);

}  // namespace hearth::data
