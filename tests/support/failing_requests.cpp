// SPDX-License-Identifier: Apache-2.0
// Loaded before a program (LD_PRELOAD), lets one of its requests for memory or for a thread fail:
//
//   HEARTH_TEST_FAIL=n      the request numbered n, from 1, gets nothing
//   HEARTH_TEST_FAIL=n+     nor does any that follows
//   HEARTH_TEST_CALLS=FILE  each request adds its number and a hash of the calls that led to it
//   HEARTH_TEST_NO_LINKS=1  no symbolic link can be made, as on file systems that have none
//
// Requests that a library makes of its own, where it does not survive a refusal, are counted, but served and not
// listed.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

std::atomic<std::uint64_t> requests{0};
std::uint64_t first_failing = UINT64_MAX, last_failing = 0;
int calls = -1;
thread_local bool inside = false;  // what this file does needs memory too

__attribute__((constructor)) void read_environment() {
  if (const char* text = std::getenv("HEARTH_TEST_FAIL")) {
    char* end = nullptr;
    first_failing = std::strtoull(text, &end, 10);
    last_failing = *end == '+' ? UINT64_MAX : first_failing;
  }
  if (const char* path = std::getenv("HEARTH_TEST_CALLS"))
    calls = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0644);
}

_Unwind_Reason_Code add_to_hash(_Unwind_Context* context, void* hash) {
  // Programs are loaded anywhere, but pages of them lie whole.
  auto& sum = *static_cast<std::uint64_t*>(hash);
  sum = (sum ^ (_Unwind_GetIP(context) & 0xfff)) * 0x100000001b3u;
  return _URC_NO_REASON;
}

_Unwind_Reason_Code look_for_library(_Unwind_Context* context, void* found) {
  Dl_info place{};
  if (dladdr(reinterpret_cast<void*>(_Unwind_GetIP(context)), &place) == 0 || place.dli_fname == nullptr)
    return _URC_NO_REASON;
  for (const char* name : {"libdnnl", "libgomp", "libsentencepiece", "libprotobuf", "ld-linux"})
    if (std::strstr(place.dli_fname, name) != nullptr) *static_cast<bool*>(found) = true;
  // The C library's note of an object to destroy with its thread.
  if (place.dli_sname != nullptr && std::strstr(place.dli_sname, "thread_atexit") != nullptr)
    *static_cast<bool*>(found) = true;
  return _URC_NO_REASON;
}

bool made_by_library() {
  inside = true;
  bool found = false;
  _Unwind_Backtrace(look_for_library, &found);
  inside = false;
  return found;
}

void write_calls(std::uint64_t number) {
  if (made_by_library()) return;
  inside = true;
  std::uint64_t hash = 0xcbf29ce484222325u;
  _Unwind_Backtrace(add_to_hash, &hash);
  char line[64];
  const int length = std::snprintf(line, sizeof line, "%llu %016llx\n", static_cast<unsigned long long>(number),
                                   static_cast<unsigned long long>(hash));
  if (write(calls, line, static_cast<std::size_t>(length)) != length) _exit(125);
  inside = false;
}

bool fails() {
  if (inside) return false;
  const std::uint64_t number = ++requests;
  if (calls >= 0) write_calls(number);
  if (number < first_failing || number > last_failing || made_by_library()) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) { return fails() ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) { return fails() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* block, std::size_t bytes) { return fails() ? nullptr : __libc_realloc(block, bytes); }
void* memalign(std::size_t alignment, std::size_t bytes) {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  void* const made = memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails()) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
int symlink(const char* target, const char* path) {
  if (std::getenv("HEARTH_TEST_NO_LINKS") == nullptr)
    return static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, path));
  errno = EPERM;
  return -1;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (fails()) return EAGAIN;
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}

}  // extern "C"
