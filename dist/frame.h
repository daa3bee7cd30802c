// SPDX-License-Identifier: Apache-2.0
// Frames of the side channel, and the proof that both ends know the token.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "dist/socket.h"

namespace hearth::dist {

// Kinds of frames: of the handshake, from a rank, from the server.
enum class Frame : char {
  hello = 'H',    ///< server: its random number
  join = 'J',     ///< rank: JoinRequest
  welcome = 'W',  ///< server: its proof, what process it runs in
  refused = 'R',  ///< server: why
  beat = 'B',     ///< both: a sign of life, of a rank with its status
  set = 'S',      ///< rank: key, 0, value
  get = 'G',      ///< rank: key
  value = 'V',    ///< server: key, 0, value
  give_up = 'A',  ///< rank: why
  leave = 'L',    ///< rank
  failed = 'F',   ///< server: why the group has failed
  warning = 'N',  ///< server: what is odd
};

constexpr std::size_t max_frame = 1 << 16;
constexpr std::size_t max_frame_of_strangers = 512;
constexpr std::size_t nonce_size = 16;
constexpr std::size_t proof_size = 32;

std::string random_nonce();
/// HMAC-SHA256 (RFC 2104) of the text, 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);
/// Equal, in a time that does not depend on where they differ.
bool same_proof(std::string_view a, std::string_view b);

/// The name of this machine.
std::string host_name();
std::string framed(Frame kind, std::string_view payload);
/// The first frame of `bytes`, taken off them; nothing while it is incomplete. A length of 0 or above `limit` sets
/// `broken`.
std::optional<std::pair<Frame, std::string>> take_frame(std::string& bytes, std::size_t limit, bool& broken);

/// What a rank says of itself when it joins.
struct JoinRequest {
  std::string nonce, proof;
  std::int32_t rank = 0, size = 0, pid = 0;
  double give_up_seconds = 60;  ///< of silence, after which the others give this rank up
  std::string host, version;

  std::string text() const;
  static std::optional<JoinRequest> of(std::string_view text);
  /// What the proofs are over, but for the side's name.
  std::string signed_text(std::string_view server_nonce) const;
};

}  // namespace hearth::dist
