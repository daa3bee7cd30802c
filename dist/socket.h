// SPDX-License-Identifier: Apache-2.0
// TCP sockets that close themselves.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace hearth::dist {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline in_seconds(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
}
/// Until then, at least 0.
int milliseconds_left(Deadline deadline);

/// Listens on this address of this machine and no other; port 0 takes a free one. PeerError says what is in the way.
Socket listen_on(const std::string& address, int port);
/// Tries until the deadline, as a listener may come later. PeerError with the last reason; `who` is to listen there.
Socket connect_to(const std::string& address, int port, Deadline deadline, const std::string& who = "rank 0");
/// Small messages are not held back until there are more.
void send_at_once(const Socket& socket);
/// The port and the numeric address that a socket has on this machine.
int port_of(const Socket& socket);
std::string address_of(const Socket& socket);
/// Whether the address is this machine's loopback, by name or by number.
bool is_loopback(const std::string& address);

/// False once the other side has closed, or at the deadline.
bool send_fully(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline);
bool receive_fully(const Socket& socket, std::span<std::byte> bytes, Deadline deadline);

}  // namespace hearth::dist
