// SPDX-License-Identifier: Apache-2.0
#include "train/bench/disk_speed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/io/file.h"
#include "core/random.h"

namespace hearth::train {
namespace {

namespace fs = std::filesystem;

/// Pages of a file, and those of them in memory.
struct Pages {
  std::uint64_t all = 0, held = 0;
};

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void drop() const {
    // What is not on the disk yet cannot be dropped.
    if (descriptor_ >= 0 && ::fdatasync(descriptor_) == 0) [[maybe_unused]]
      const int advice = ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
  }
  Pages pages() const {
    const off_t bytes = descriptor_ >= 0 ? ::lseek(descriptor_, 0, SEEK_END) : 0;
    if (bytes <= 0) return {};
    const auto size = static_cast<std::size_t>(bytes), page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor_, 0);
    if (mapped == MAP_FAILED) return {};
    std::vector<unsigned char> held((size + page - 1) / page);
    const bool known = ::mincore(mapped, size, held.data()) == 0;
    ::munmap(mapped, size);
    const auto in_memory = std::count_if(held.begin(), held.end(), [](unsigned char one) { return (one & 1) != 0; });
    return {held.size(), known ? static_cast<std::uint64_t>(in_memory) : held.size()};
  }

 private:
  int descriptor_;
};

/// Seconds for reading all files; `bytes` becomes how many there were.
double timed_read(const std::vector<std::string>& files, int threads, std::uint64_t& bytes) {
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> all{0};
  std::exception_ptr fault;
  std::mutex mutex;
  const auto read = [&] {
    try {
      std::vector<std::byte> piece(std::size_t{1} << 20);
      for (std::size_t i = next++; i < files.size(); i = next++) {
        const FileReader file(files[i]);
        for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
          const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file.size() - at));
          file.read(at, std::span(piece).first(count));
        }
        all += file.size();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      fault = std::current_exception();
    }
  };
  const auto began = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < std::max(threads, 1); ++i) readers.emplace_back(read);
  }
  if (fault) std::rethrow_exception(fault);
  bytes = all;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

std::vector<std::string> some_files(const std::string& path, std::uint64_t max_bytes) {
  std::error_code absent;
  if (fs::is_regular_file(path, absent)) return {path};
  if (!fs::is_directory(path, absent)) return {};
  std::vector<std::string> found;
  for (auto at = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, absent);
       at != fs::recursive_directory_iterator(); at.increment(absent))
    if (at->is_regular_file(absent)) found.push_back(at->path().string());
  std::sort(found.begin(), found.end());
  Random random(0, 0);
  for (std::size_t i = found.size(); i > 1; --i) std::swap(found[i - 1], found[random.below(i)]);
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  while (count < found.size() && bytes < max_bytes) {
    const std::uintmax_t size = fs::file_size(found[count++], absent);
    bytes += absent ? 0 : size;
  }
  found.resize(count);
  return found;
}

double drop_from_memory(const std::vector<std::string>& files) {
  Pages all;
  for (const std::string& path : files) {
    const OpenFile file(path);
    file.drop();
    const Pages of_file = file.pages();
    all.all += of_file.all, all.held += of_file.held;
  }
  return all.all > 0 ? static_cast<double>(all.held) / static_cast<double>(all.all) : 0;
}

DiskSpeed read_speed(const std::vector<std::string>& files, int threads) {
  constexpr double mostly = 0.02;  // files that others read meanwhile
  DiskSpeed speed;
  const bool cold = drop_from_memory(files) <= mostly;
  const double first = timed_read(files, threads, speed.bytes);
  if (cold) speed.cold_seconds = first;
  speed.warm_seconds = timed_read(files, threads, speed.bytes);
  return speed;
}

}  // namespace hearth::train
