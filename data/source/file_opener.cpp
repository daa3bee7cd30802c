// SPDX-License-Identifier: Apache-2.0
#include "data/source/file_opener.h"

#include "data/source/read_cache.h"

namespace hearth::data {

FileOpener::FileOpener() : cache_(CacheScope::current()) {}

SourceFilePointer FileOpener::open(const std::string& name) const {
  return cache_ ? cache_->open(name) : sources().of(name).open(name);
}

SourceFilePointer open_source(const std::string& name) { return FileOpener().open(name); }

}  // namespace hearth::data
