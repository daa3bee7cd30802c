// SPDX-License-Identifier: Apache-2.0
// POSIX calls behind core/io/file.h. Every call is repeated when a signal interrupts it and every result is looked at,
// that of close() included: network file systems report a failed write there.
#include "core/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <istream>
#include <memory>
#include <system_error>
#include <utility>

#include "core/cpu/free_memory.h"
#include "core/io/descriptor.h"
#include "core/io/printable.h"

namespace hearth {

namespace {

namespace fs = std::filesystem;

// Linux transfers at most 2^31 - 4096 bytes a call.
constexpr std::size_t longest_transfer = std::size_t{1} << 30;

// The umask takes more away; without one nobody else may write all the same.
constexpr mode_t file_mode = 0644, directory_mode = 0755;

std::string shown(const fs::path& path) { return printable(path.string()); }

/// An error of the system in words, with what to do about those of shares and disks.
std::string reason(int error) {
  static constexpr std::pair<int, const char*> meanings[] = {
      {ESTALE, "the server has restarted, or the folder was replaced there; mount the share anew"},
      {EIO, "the disk or the connection to the share failed"},
      {EROFS, "the file system is mounted for reading only, as after a fault of the disk"},
      {EDQUOT, "free some of your space, or have the quota raised"},
      {EXDEV, "the two names are on different file systems, as where one of them is mounted by itself"},
      {EBUSY, "it is in use, on a share also by another machine, or is a mount point"},
      {ENOTCONN, "the program behind this mount has ended; mount it anew"},
      {EHOSTDOWN, "the share's server does not answer"},
      {ETIMEDOUT, "the share's server does not answer"},
  };
  const std::string text = std::system_category().message(error);
  for (const auto& [code, meaning] : meanings)
    if (code == error) return join_text(text, " (", meaning, ")");
  return text;
}

/// Raises the limit of open files as far as the process may, if it is reached (no descriptor was given), or will be
/// soon. False where nothing was changed.
bool make_room(int descriptor) {
  constexpr rlim_t spare = 64;  // for what other parts of the program open
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  if (descriptor >= 0 && static_cast<rlim_t>(descriptor) + spare < limit.rlim_cur) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

[[noreturn]] void fail(const fs::path& path, std::string_view action, int error) {
  struct rlimit limit {};
  HEARTH_CHECK(FileError, error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0, shown(path), ": ", action,
               " failed: ", reason(error), ": this process may have ", limit.rlim_cur,
               " open at once; raise that limit (ulimit -n), or keep the data in fewer files");
  HEARTH_CHECK(OutOfMemory, error != ENOMEM, shown(path), ": ", action, " failed: the system is out of memory");
  throw FileError(join_text(shown(path), ": ", action, " failed: ", reason(error)));
}

fs::path directory_of(const fs::path& path) {
  fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

[[noreturn]] void fail_write(const fs::path& path, int error, std::uint64_t needed) {
  if (error == ENOSPC || error == EDQUOT) {
    struct statvfs space {};
    std::string free_text = "unknown";
    if (::statvfs(directory_of(path).c_str(), &space) == 0) {
      free_text = std::to_string(static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize);
    }
    throw FileError(join_text(shown(path), ": writing failed: ", reason(error), ": ", needed, " bytes needed, ",
                              free_text, " bytes free on that file system; free some space or write elsewhere"));
  }
  const std::string failed = join_text(shown(path), ": writing ", needed, " bytes failed: ", reason(error));
  struct rlimit limit {};
  HEARTH_CHECK(FileError, error != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY,
               failed, ": no file of this process may exceed ", limit.rlim_cur,
               " bytes; raise that limit (ulimit -f), or write smaller files");
  throw FileError(failed);
}

/// Repeats an interrupted call that returns -1 on failure.
template <class F>
auto retried(F&& call) {
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// What a call that opens a file gives, with as many open files as the process may have, and none of the standard
/// streams' numbers.
template <class F>
int opened_by(F&& open) {
  const auto call = [&] { return above_standard_streams(open()); };
  const int descriptor = retried(call), error = errno;
  if (descriptor < 0 && error != EMFILE) return descriptor;
  if (make_room(descriptor) && descriptor < 0) return retried(call);
  errno = error;
  return descriptor;
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }
  /// Zero or the error number. Not repeated: after EINTR the descriptor is gone.
  int close() {
    const int closed = ::close(std::exchange(value_, -1));
    return closed == -1 && errno != EINTR ? errno : 0;
  }

 private:
  int value_;
};

/// Zero or the error number.
int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), longest_transfer);
    const ssize_t written = retried([&] { return ::write(descriptor, bytes.data(), wanted); });
    if (written == -1) return errno;
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Bytes of what `status` tells of; FileError if that is no regular file.
std::uint64_t regular_size(const struct stat& status, const fs::path& path) {
  const mode_t mode = status.st_mode;
  const char* const found = S_ISDIR(mode)                    ? "a directory"
                            : S_ISFIFO(mode)                 ? "a pipe"
                            : S_ISSOCK(mode)                 ? "a socket"
                            : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                                             : "no regular file";
  HEARTH_CHECK(FileError, S_ISREG(mode), shown(path), ": is ", found, "; a regular file was expected",
               S_ISFIFO(mode) ? "; write what it gives to one" : "");
  return static_cast<std::uint64_t>(status.st_size);
}

std::uint64_t regular_size(int descriptor, const fs::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) == -1) fail(path, "reading its status", errno);
  return regular_size(status, path);
}

/// Opens a regular file for reading. A look before keeps pipes and devices from being opened; if one takes the file's
/// place in between, O_NONBLOCK does not wait for a pipe's writer.
int open_regular(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == -1) fail(path, "opening", errno);
  static_cast<void>(regular_size(status, path));
  const int descriptor = opened_by([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (descriptor < 0) fail(path, "opening", errno);
  return descriptor;
}

template <class Bytes>
Bytes read_whole(const fs::path& path, ReadLimit limit) {
  const FileReader file(path);
  require_readable_size(shown(path), file.size(), limit);
  Bytes bytes;
  bytes.resize(static_cast<std::size_t>(file.size()));
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// Creates a file that did not exist beside `path`.
std::pair<fs::path, int> open_sibling(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  while (true) {
    const std::string name = join_text(".", path.filename().string(), ".tmp-", ::getpid(), "-", counter.fetch_add(1));
    const fs::path sibling = directory_of(path) / name;
    const int descriptor =
        opened_by([&] { return ::open(sibling.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file_mode); });
    if (descriptor >= 0) return {sibling, descriptor};
    if (errno != EEXIST) fail(sibling, "creating", errno);
  }
}

}  // namespace

void require_readable_size(const std::string& source, std::uint64_t bytes, ReadLimit limit) {
  // What is smaller fits wherever Hearth runs; asking the system takes longer than reading it.
  constexpr std::uint64_t always_fits = std::uint64_t{64} << 20;
  HEARTH_CHECK(FileError, bytes <= limit.bytes, source, ": ", bytes, " bytes; ", limit.what, " may have at most ",
               limit.bytes);
  if (bytes <= always_fits) return;
  const auto free = static_cast<std::uint64_t>(std::max<std::int64_t>(0, cpu::free_memory()));
  HEARTH_CHECK(OutOfMemory, bytes <= free, source, ": ", bytes, " bytes are to be held in memory, of which ", free,
               " are free; use a smaller file or a machine with more memory");
}

std::vector<std::byte> read_file(const fs::path& path, ReadLimit limit) {
  return read_whole<std::vector<std::byte>>(path, limit);
}

std::string read_text(const fs::path& path, ReadLimit limit) { return read_whole<std::string>(path, limit); }

std::string read_stream(std::istream& stream, const std::string& source, ReadLimit limit) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  std::string text;
  while (stream) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    stream.read(text.data() + before, static_cast<std::streamsize>(piece));
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
    HEARTH_CHECK(FileError, text.size() <= limit.bytes, source, ": more than ", limit.bytes, " bytes, which is the ",
                 "most that ", limit.what, " may have");
  }
  HEARTH_CHECK(FileError, !stream.bad(), source, ": cannot be read to its end");
  return text;
}

void write_file_synced(const fs::path& path, std::uint64_t size, const std::function<void(const ByteSink&)>& give) {
  HEARTH_CHECK(FileError, path.has_filename(), "'", shown(path), "': is no name for a file");
  auto [sibling, opened] = open_sibling(path);
  Descriptor file(opened);
  int error = 0;
  try {
    give([&](std::span<const std::byte> part) {
      if (error == 0) error = write_all(file.get(), part);
    });
  } catch (...) {
    ::unlink(sibling.c_str());
    throw;
  }
  if (error == 0 && retried([&] { return ::fsync(file.get()); }) == -1) error = errno;
  if (const int closed = file.close(); error == 0) error = closed;
  if (error == 0 && ::rename(sibling.c_str(), path.c_str()) == -1) error = errno;
  if (error != 0) {
    ::unlink(sibling.c_str());
    fail_write(path, error, size);
  }
  sync_directory(directory_of(path));
}

void write_file_synced(const fs::path& path, std::span<const std::span<const std::byte>> parts) {
  std::uint64_t size = 0;
  for (const auto& part : parts) size += part.size();
  write_file_synced(path, size, [&](const ByteSink& take) {
    for (const auto& part : parts) take(part);
  });
}

void write_file_synced(const fs::path& path, std::span<const std::byte> bytes) {
  write_file_synced(path, std::span<const std::span<const std::byte>>(&bytes, 1));
}

void write_file_synced(const fs::path& path, std::string_view text) { write_file_synced(path, bytes_of(text)); }

void sync_directory(const fs::path& directory) {
  Descriptor opened(opened_by([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.get() < 0) fail(directory, "opening the directory", errno);
  // Some network file systems answer EINVAL: their directories are durable without it.
  if (retried([&] { return ::fsync(opened.get()); }) == -1 && errno != EINVAL) {
    fail(directory, "syncing the directory", errno);
  }
}

void sync_file(const fs::path& path) {
  const Descriptor file(open_regular(path));
  if (retried([&] { return ::fsync(file.get()); }) == -1) fail(path, "syncing", errno);
}

std::string reason_of(const std::error_code& error) { return reason(error.value()); }

bool file_exists(const fs::path& path) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  HEARTH_CHECK(FileError, !error, shown(path), ": cannot be looked up: ", reason_of(error));
  return exists;
}

std::uint64_t size_of_file(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == -1) fail(path, "reading its status", errno);
  return regular_size(status, path);
}

std::vector<std::string> list_directory(const fs::path& directory) {
  // Not by std::filesystem, whose iterators end the process where memory runs out.
  Descriptor descriptor(opened_by([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (descriptor.get() < 0) fail(directory, "reading the directory", errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::fdopendir(descriptor.get()), ::closedir);
  if (opened == nullptr) fail(directory, "reading the directory", errno);
  static_cast<void>(descriptor.release());
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(opened.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) fail(directory, "reading the directory", errno);
  std::sort(names.begin(), names.end());
  return names;
}

void remove_tree(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == -1) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    fail(path, "looking it up", errno);
  }
  const bool is_directory = S_ISDIR(status.st_mode);
  if (is_directory)
    for (const std::string& name : list_directory(path)) remove_tree(path / name);
  if (::unlinkat(AT_FDCWD, path.c_str(), is_directory ? AT_REMOVEDIR : 0) == -1 && errno != ENOENT)
    fail(path, "removing", errno);
}

void make_directories(const fs::path& directory) {
  std::error_code absent;
  if (fs::is_directory(directory, absent)) return;
  if (directory != directory_of(directory)) make_directories(directory_of(directory));
  if (::mkdir(directory.c_str(), directory_mode) == 0) return;
  const int error = errno;
  HEARTH_CHECK(FileError, fs::is_directory(directory, absent), shown(directory),
               ": the directory cannot be made: ", reason(error));
}

FileWriter::FileWriter(fs::path path, Mode mode) : path_(std::move(path)) {
  const int flags =
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (mode == Mode::truncate ? O_TRUNC : 0);
  Descriptor file(opened_by([&] { return ::open(path_.c_str(), flags, file_mode); }));
  if (file.get() < 0) fail(path_, "opening for writing", errno);
  size_ = regular_size(file.get(), path_);
  descriptor_ = file.release();
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void FileWriter::check_open() const {
  HEARTH_CHECK(UsageError, is_open(), shown(path_), ": the file was closed; open a new writer to go on");
}

void FileWriter::append(std::span<const std::byte> bytes) {
  check_open();
  const int error = write_all(descriptor_, bytes);
  if (error != 0) {
    const int cut = ::ftruncate(descriptor_, static_cast<off_t>(size_));
    static_cast<void>(cut);
    fail_write(path_, error, bytes.size());
  }
  size_ += bytes.size();
}

void FileWriter::sync() {
  check_open();
  if (retried([&] { return ::fsync(descriptor_); }) == -1) fail(path_, "syncing", errno);
}

void FileWriter::close() {
  if (!is_open()) return;
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed == -1 && errno != EINTR) fail(path_, "closing", errno);
}

FileReader::FileReader(fs::path path) : path_(std::move(path)) {
  Descriptor file(open_regular(path_));
  size_ = regular_size(file.get(), path_);
  descriptor_ = file.release();
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    const std::size_t wanted = std::min(target.size(), longest_transfer);
    const ssize_t got =
        retried([&] { return ::pread(descriptor_, target.data(), wanted, static_cast<off_t>(offset)); });
    const int error = errno;
    if (got == -1) fail(path_, join_text("reading ", target.size(), " bytes at offset ", offset), error);
    HEARTH_CHECK(FileError, got != 0, shown(path_), ": ends at offset ", offset, ", where ", target.size(),
                 " more bytes are wanted; it had ", size_, " bytes when it was opened");
    offset += static_cast<std::uint64_t>(got);
    target = target.subspan(static_cast<std::size_t>(got));
  }
}

void FileReader::read_ahead(std::uint64_t offset, std::uint64_t bytes) const {
  [[maybe_unused]] const int refused =
      ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

}  // namespace hearth
