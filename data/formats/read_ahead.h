// SPDX-License-Identifier: Apache-2.0
// Asking the system for parts of a file before they are read, so that many reads of a slow disk are under way at once.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace hearth::data {

class ReadAhead {
 public:
  /// A file that cannot be opened is asked for nothing: reading it tells why.
  explicit ReadAhead(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~ReadAhead() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  ReadAhead(ReadAhead&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ReadAhead& operator=(ReadAhead&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  /// Starts reading the bytes to memory, and does not wait for them.
  void ask(std::uint64_t offset, std::uint64_t bytes) const {
    if (descriptor_ < 0) return;
    // A courtesy: a refusal changes nothing but the time.
    [[maybe_unused]] const int refused =
        ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }

 private:
  int descriptor_ = -1;
};

}  // namespace hearth::data
