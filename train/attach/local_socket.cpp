// SPDX-License-Identifier: Apache-2.0
#include "train/attach/local_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/io/descriptor.h"
#include "core/io/file.h"
#include "core/text_stream.h"

namespace hearth::train {
namespace {

std::string last_error() { return reason_of(std::error_code(errno, std::generic_category())); }

/// The address of a file whose path may be longer than addresses are, and a descriptor that it needs until it is used.
class Address {
 public:
  Address(const std::string& folder, const char* name) {
    value_.sun_family = AF_UNIX;
    std::string path = folder + "/" + name;
    if (path.size() >= sizeof value_.sun_path) {
      folder_ = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
      path = join_text("/proc/self/fd/", folder_, "/", name);
    }
    std::memcpy(value_.sun_path, path.c_str(), path.size() + 1);
  }
  ~Address() {
    if (folder_ >= 0) close(folder_);
  }
  Address(const Address&) = delete;
  Address& operator=(const Address&) = delete;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&value_); }
  static constexpr socklen_t size = sizeof(sockaddr_un);

 private:
  sockaddr_un value_{};
  int folder_ = -1;
};

int new_socket(int flags) { return above_standard_streams(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)); }

int give_up(int descriptor, std::string& why) {
  why = last_error();
  if (descriptor >= 0) close(descriptor);
  return -1;
}

}  // namespace

int listen_at(const std::string& folder, const char* name, std::string& why) {
  constexpr mode_t only_user = S_IRUSR | S_IWUSR;
  const int descriptor = new_socket(SOCK_NONBLOCK);
  const Address address(folder, name);
  const std::string path = folder + "/" + name;
  // Only a socket goes: a file of this name is somebody else's.
  struct stat before {};
  if (lstat(path.c_str(), &before) == 0 && S_ISSOCK(before.st_mode)) unlink(path.c_str());
  // A socket's file has the mode of the descriptor, so that nobody else can connect before it is set.
  if (descriptor < 0 || fchmod(descriptor, only_user) != 0 || bind(descriptor, address.raw(), Address::size) != 0)
    return give_up(descriptor, why);
  constexpr int waiting = 8;
  if (chmod(path.c_str(), only_user) == 0 && listen(descriptor, waiting) == 0) return descriptor;
  const int failed = give_up(descriptor, why);
  unlink(path.c_str());
  return failed;
}

int connect_to(const std::string& folder, const char* name, std::string& why) {
  const int descriptor = new_socket(0);
  const Address address(folder, name);
  if (descriptor < 0 || connect(descriptor, address.raw(), Address::size) != 0) return give_up(descriptor, why);
  return descriptor;
}

bool is_trusted_peer(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

}  // namespace hearth::train
