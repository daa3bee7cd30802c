// SPDX-License-Identifier: Apache-2.0
#include "data/source/disk_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/file.h"
#include "data/source/little_endian.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".block", unfinished = ".part";
// A checksum of the key and of the block; then the block.
constexpr std::size_t front_bytes = 4;

std::string name_of(const std::string& key) { return sha256(key) + std::string(suffix); }

std::array<std::byte, front_bytes> front_of(const std::string& key, std::span<const std::byte> block) {
  std::array<std::byte, front_bytes> front{};
  const std::uint32_t checksum[] = {crc32c(block, crc32c(bytes_of(key)))};
  const std::vector<std::byte> bytes = little_endian(checksum);
  std::copy(bytes.begin(), bytes.end(), front.begin());
  return front;
}

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

/// Whether name_of() gives such names. The directory may hold files of other programs, which are none of the cache's.
bool is_block(std::string_view name) {
  constexpr std::size_t digits = 64;
  return name.size() == digits + suffix.size() && name.ends_with(suffix) &&
         std::all_of(name.begin(), name.begin() + digits, is_hex);
}

/// Whether sibling_of() a block gives such names: BLOCK-PROCESS-COUNT.part.
bool is_unfinished(std::string_view name) {
  if (!name.ends_with(unfinished)) return false;
  name.remove_suffix(unfinished.size());
  for (int numbers = 0; numbers < 2; ++numbers) {
    const std::size_t dash = name.rfind('-');
    if (dash == name.npos || dash + 1 == name.size()) return false;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1, name.end(), is_digit)) return false;
    name = name.substr(0, dash);
  }
  return is_block(name);
}

/// A name that no other thread or process writes to.
std::string sibling_of(const std::string& name) {
  static std::atomic<unsigned> counter{0};
  return join_text(name, '-', ::getpid(), '-', counter.fetch_add(1), unfinished);
}

/// Marks a file as used now, which other processes and later runs go by. A refusal changes the order alone.
void touch(const fs::path& path) {
  [[maybe_unused]] const int refused = ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

}  // namespace

DiskBlocks::DiskBlocks(fs::path directory, std::uint64_t limit) : directory_(std::move(directory)), limit_(limit) {
  make_directories(directory_);
  const fs::path probe = directory_ / sibling_of(name_of("can be written to"));
  FileWriter(probe, FileWriter::Mode::truncate).append("can be written to");
  remove_tree(probe);
  scan();
  make_space(0);
}

void DiskBlocks::scan() {
  std::vector<std::tuple<timespec, std::string, std::uint64_t>> found;
  for (const std::string& name : list_directory(directory_)) {
    const bool leftover = is_unfinished(name);
    if (!leftover && !is_block(name)) continue;
    struct stat status {};
    // Another process may be first.
    if (::lstat((directory_ / name).c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    // What a process that was killed left behind.
    if (leftover && status.st_mtim.tv_sec + 3600 < ::time(nullptr)) ::unlink((directory_ / name).c_str());
    if (!leftover) found.emplace_back(status.st_mtim, name, status.st_size);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const timespec &x = std::get<0>(a), &y = std::get<0>(b);
    return std::tie(x.tv_sec, x.tv_nsec, std::get<1>(a)) < std::tie(y.tv_sec, y.tv_nsec, std::get<1>(b));
  });
  recent_.clear();
  files_.clear();
  bytes_ = written_ = 0;
  for (const auto& [time, name, bytes] : found) note(name, bytes);
}

void DiskBlocks::note(const std::string& name, std::uint64_t bytes) {
  forget(name);
  recent_.push_front({name, bytes});
  files_[name] = recent_.begin();
  bytes_ += bytes;
}

void DiskBlocks::forget(const std::string& name) {
  const auto found = files_.find(name);
  if (found == files_.end()) return;
  bytes_ -= found->second->bytes;
  recent_.erase(found->second);
  files_.erase(found);
}

void DiskBlocks::make_space(std::uint64_t bytes) {
  // Other processes write to the directory too.
  if (written_ > limit_ / 8) scan();
  while (!recent_.empty() && bytes_ + bytes > limit_) {
    const std::string name = recent_.back().name;
    ::unlink((directory_ / name).c_str());
    forget(name);
  }
}

DiskBlocks::Found DiskBlocks::get(const std::string& key, std::size_t bytes) {
  const std::string name = name_of(key);
  const fs::path path = directory_ / name;
  std::vector<std::byte> content(front_bytes + bytes);
  try {
    const FileReader file(path);
    if (file.size() == content.size()) {
      file.read(0, content);
      const auto block = std::span(content).subspan(front_bytes);
      const auto front = front_of(key, block);
      if (std::equal(front.begin(), front.end(), content.begin())) {
        touch(path);
        const std::lock_guard lock(mutex_);
        note(name, content.size());
        content.erase(content.begin(), content.begin() + front_bytes);
        return {std::move(content)};
      }
    }
  } catch (const FileError&) {
    if (std::error_code gone; !fs::exists(path, gone)) return {};
  }
  ::unlink(path.c_str());
  const std::lock_guard lock(mutex_);
  forget(name);
  return {std::nullopt, true};
}

void DiskBlocks::put(const std::string& key, std::span<const std::byte> block) {
  const std::uint64_t bytes = front_bytes + block.size();
  const std::string name = name_of(key);
  const fs::path part = directory_ / sibling_of(name);
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!fault_.empty() || bytes > limit_) return;
      make_space(bytes);
    }
    FileWriter file(part, FileWriter::Mode::truncate);
    file.append(front_of(key, block));
    file.append(block);
    file.close();
    fs::rename(part, directory_ / name);
  } catch (const std::exception& error) {
    ::unlink(part.c_str());
    const std::lock_guard lock(mutex_);
    if (fault_.empty()) fault_ = error.what();
    return;
  }
  const std::lock_guard lock(mutex_);
  note(name, bytes);
  written_ += bytes;
}

std::string DiskBlocks::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::uint64_t DiskBlocks::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace hearth::data
