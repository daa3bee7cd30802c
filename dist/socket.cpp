// SPDX-License-Identifier: Apache-2.0
#include "dist/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/error.h"
#include "core/io/descriptor.h"

namespace hearth::dist {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// What a name or number stands for; null with `reason` where it stands for nothing.
Addresses resolve(const std::string& address, int port, bool passive, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) reason = gai_strerror(code);
  return {code == 0 ? found : nullptr, &freeaddrinfo};
}

Socket open_socket(const addrinfo& at) {
  return Socket(
      above_standard_streams(socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol)));
}

std::string error_text() { return std::strerror(errno); }

/// Whether poll() reports one of `events`, or an error, in time.
bool ready(int descriptor, short events, Deadline deadline) {
  pollfd one{descriptor, events, 0};
  int count = 0;
  do count = poll(&one, 1, milliseconds_left(deadline));
  while (count < 0 && errno == EINTR);
  return count > 0;
}

/// One attempt; an empty reason where it worked.
Socket try_connect(const addrinfo& at, Deadline deadline, std::string& reason) {
  Socket socket = open_socket(at);
  if (!socket) {
    reason = error_text();
    return {};
  }
  int code = 0;
  if (connect(socket.descriptor(), at.ai_addr, at.ai_addrlen) != 0) {
    code = errno;
    if (code == EINPROGRESS) {
      socklen_t size = sizeof code;
      if (!ready(socket.descriptor(), POLLOUT, std::min(deadline, in_seconds(5))))
        code = ETIMEDOUT;
      else
        getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &code, &size);
    }
  }
  reason = code == 0 ? "" : std::strerror(code);
  if (code != 0) return {};
  send_at_once(socket);
  return socket;
}

sockaddr_storage name_of(const Socket& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  HEARTH_CHECK(InternalError, getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&name), &size) == 0,
               "getsockname: ", error_text());
  return name;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

int milliseconds_left(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

Socket listen_on(const std::string& address, int port) {
  std::string reason;
  const Addresses found = resolve(address, port, true, reason);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Socket socket = open_socket(*at);
    const int on = 1;
    if (socket) setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket && bind(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(socket.descriptor(), SOMAXCONN) == 0)
      return socket;
    reason = error_text();
  }
  throw PeerError(join_text("cannot listen on ", address, " port ", port, ": ", reason));
}

void send_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket connect_to(const std::string& address, int port, Deadline deadline, const std::string& who) {
  std::string reason;
  for (bool first = true; first || milliseconds_left(deadline) > 0; first = false) {
    const Addresses found = resolve(address, port, false, reason);
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next)
      if (Socket socket = try_connect(*at, deadline, reason)) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(50, milliseconds_left(deadline))));
  }
  throw PeerError(join_text("cannot reach ", address, " port ", port, ": ", reason, "; is ", who,
                            " running there, and does the network let this port through?"));
}

int port_of(const Socket& socket) {
  const sockaddr_storage name = name_of(socket);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

std::string address_of(const Socket& socket) {
  const sockaddr_storage name = name_of(socket);
  char text[INET6_ADDRSTRLEN] = {};
  const void* const bytes = name.ss_family == AF_INET6
                                ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(name).sin6_addr)
                                : &reinterpret_cast<const sockaddr_in&>(name).sin_addr;
  inet_ntop(name.ss_family, bytes, text, sizeof text);
  return text;
}

bool is_loopback(const std::string& address) {
  std::string reason;
  const Addresses found = resolve(address, 1, false, reason);
  if (found == nullptr) return false;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    const bool loops = at->ai_family == AF_INET6
                           ? IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(at->ai_addr)->sin6_addr)
                           : (ntohl(reinterpret_cast<const sockaddr_in*>(at->ai_addr)->sin_addr.s_addr) >> 24) == 127;
    if (!loops) return false;
  }
  return true;
}

bool send_fully(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    else if (errno != EAGAIN && errno != EINTR)
      return false;
    else if (milliseconds_left(deadline) == 0 || !ready(socket.descriptor(), POLLOUT, deadline))
      return false;
  }
  return true;
}

bool receive_fully(const Socket& socket, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      return false;
    else if (milliseconds_left(deadline) == 0 || !ready(socket.descriptor(), POLLIN, deadline))
      return false;
  }
  return true;
}

}  // namespace hearth::dist
