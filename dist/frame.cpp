// SPDX-License-Identifier: Apache-2.0
#include "dist/frame.h"

#include <sys/random.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/checksum.h"

namespace hearth::dist {
namespace {

std::string digest_of(std::string_view first, std::string_view second) {
  Sha256 hash;
  hash.update(first);
  hash.update(second);
  const std::array<std::uint8_t, 32> digest = hash.digest();
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

template <class T>
void put(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string random_nonce() {
  std::string bytes(nonce_size, '\0');
  HEARTH_CHECK(InternalError, getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "getrandom gives no random bytes");
  return bytes;
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  constexpr std::size_t block = 64;
  std::string padded(key.size() > block ? digest_of(key, "") : std::string(key));
  padded.resize(block);
  std::string inner = padded, outer = padded;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return digest_of(outer, digest_of(inner, text));
}

bool same_proof(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string framed(Frame kind, std::string_view payload) {
  std::string frame;
  put(frame, static_cast<std::uint32_t>(payload.size() + 1));
  frame += static_cast<char>(kind);
  return frame.append(payload);
}

std::optional<std::pair<Frame, std::string>> take_frame(std::string& bytes, std::size_t limit, bool& broken) {
  std::uint32_t length = 0;
  if (bytes.size() < sizeof length) return {};
  std::memcpy(&length, bytes.data(), sizeof length);
  broken = length == 0 || length > limit;
  if (broken || bytes.size() < sizeof length + length) return {};
  const auto kind = static_cast<Frame>(bytes[sizeof length]);
  std::pair<Frame, std::string> frame{kind, bytes.substr(sizeof length + 1, length - 1)};
  bytes.erase(0, sizeof length + length);
  return frame;
}

std::string JoinRequest::text() const {
  std::string text = nonce + proof;
  put(text, rank);
  put(text, size);
  put(text, pid);
  put(text, give_up_seconds);
  return text + host.substr(0, 200) + '\0' + version;
}

std::optional<JoinRequest> JoinRequest::of(std::string_view text) {
  std::int32_t numbers[3];
  double seconds = 0;
  constexpr std::size_t fixed = nonce_size + proof_size + sizeof numbers + sizeof seconds;
  if (text.size() < fixed) return {};
  JoinRequest request;
  request.nonce = text.substr(0, nonce_size);
  request.proof = text.substr(nonce_size, proof_size);
  std::memcpy(numbers, text.data() + nonce_size + proof_size, sizeof numbers);
  std::memcpy(&seconds, text.data() + fixed - sizeof seconds, sizeof seconds);
  request.rank = numbers[0], request.size = numbers[1], request.pid = numbers[2];
  request.give_up_seconds = seconds;
  const std::string_view names = text.substr(fixed);
  const std::size_t end = names.find('\0');
  if (end == std::string_view::npos) return {};
  request.host = names.substr(0, end);
  request.version = names.substr(end + 1);
  return request;
}

std::string JoinRequest::signed_text(std::string_view server_nonce) const {
  JoinRequest plain = *this;
  plain.proof = std::string(proof_size, '\0');
  return std::string(server_nonce) + plain.text();
}

}  // namespace hearth::dist
