// SPDX-License-Identifier: Apache-2.0
#include "dist/control.h"

#include <sys/socket.h>
#include <unistd.h>

#include "core/build.h"
#include "core/cpu/signals.h"
#include "core/error.h"
#include "dist/frame.h"

namespace hearth::dist {
namespace {

constexpr double send_seconds = 10;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The next frame; nothing where the server has closed, or at the deadline.
std::optional<std::pair<Frame, std::string>> receive_frame(const Socket& socket, Deadline deadline) {
  std::uint32_t length = 0;
  if (!receive_fully(socket, std::as_writable_bytes(std::span(&length, 1)), deadline) || length == 0 ||
      length > max_frame)
    return {};
  std::string bytes(length, '\0');
  if (!receive_fully(socket, std::as_writable_bytes(std::span(bytes)), deadline)) return {};
  return {{static_cast<Frame>(bytes[0]), bytes.substr(1)}};
}

}  // namespace

Control::Control(const std::string& address, int port, int rank, const ControlOptions& options, double seconds)
    : rank_(rank), options_(options), server_(join_text(address, " port ", port)) {
  const Deadline deadline = in_seconds(seconds);
  socket_ = connect_to(address, port, deadline);
  local_address_ = address_of(socket_);
  join(options, seconds);
  heard_ = now_ms();
  listens_ = std::thread([this] { listen(); });
  beats_ = std::thread([this] { beat(); });
}

void Control::join(const ControlOptions& options, double seconds) {
  const Deadline deadline = in_seconds(std::min(seconds, 20.0));
  const auto hello = receive_frame(socket_, deadline);
  HEARTH_CHECK(PeerError, hello && hello->first == Frame::hello && hello->second.size() == nonce_size,
               "what listens at ", server_, " is no server of Hearth's");
  JoinRequest request;
  request.nonce = random_nonce();
  request.proof = std::string(proof_size, '\0');
  request.rank = rank_, request.size = options.size, request.pid = static_cast<std::int32_t>(getpid());
  request.host = host_name();
  request.version = build::version;
  const std::string text = request.signed_text(hello->second);
  request.proof = hmac_sha256(options.token, "rank" + text);
  send(Frame::join, request.text());
  const auto answer = receive_frame(socket_, deadline);
  HEARTH_CHECK(PeerError, answer, "the server at ", server_, " does not let rank ", rank_,
               " in; do all ranks have the same token (HEARTH_TOKEN)?");
  HEARTH_CHECK(PeerError, answer->first != Frame::refused, "the server at ", server_, ": ", answer->second);
  const std::string proof = answer->second.substr(0, proof_size);
  server_process_ = answer->second.substr(proof.size());
  HEARTH_CHECK(PeerError,
               answer->first == Frame::welcome &&
                   same_proof(proof, hmac_sha256(options.token, "server" + text + server_process_)),
               "the server at ", server_, " does not know the token (HEARTH_TOKEN) of rank ", rank_);
}

Control::~Control() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  beats_.join();
  send(Frame::leave, "");
  // The server closes when it has read that; what does not is cut off.
  const Deadline deadline = in_seconds(2);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return !failure_.empty(); });
  }
  shutdown(socket_.descriptor(), SHUT_RDWR);
  listens_.join();
}

void Control::send(Frame kind, const std::string& payload) {
  const std::lock_guard lock(sending_);
  const std::string frame = framed(kind, payload.substr(0, max_frame - 1));
  send_fully(socket_, std::as_bytes(std::span(frame)), in_seconds(send_seconds));
}

void Control::beat() {
  cpu::block_signals_for_good();
  std::unique_lock lock(mutex_);
  bool silent = false;
  while (!stopping_ && failure_.empty()) {
    const std::string status = status_;
    lock.unlock();
    send(Frame::beat, status);
    const double silence = static_cast<double>(now_ms() - heard_) / 1000;
    if (silence > options_.give_up_seconds)
      fail(join_text(server_process_, " gave no sign of life for ", options_.give_up_seconds, " s"));
    else if ((silence > options_.warn_seconds) != silent) {
      silent = !silent;
      warn(silent ? join_text(server_process_, " has given no sign of life for ", options_.warn_seconds, " s")
                  : join_text(server_process_, " is there again"));
    }
    lock.lock();
    changed_.wait_until(lock, in_seconds(options_.beat_seconds), [&] { return stopping_ || !failure_.empty(); });
  }
}

void Control::listen() {
  cpu::block_signals_for_good();
  while (const auto frame = receive_frame(socket_, Deadline::max())) {
    heard_ = now_ms();
    take(frame->first, frame->second);
  }
  fail(server_process_ + " died or ended; it had the server of the group");
}

void Control::take(Frame kind, const std::string& payload) {
  switch (kind) {
    case Frame::value: {
      const std::size_t end = payload.find('\0');
      const std::lock_guard lock(mutex_);
      values_[payload.substr(0, end)] = payload.substr(end + 1);
      changed_.notify_all();
      return;
    }
    case Frame::failed:
      fail(payload);
      return;
    case Frame::warning:
      warn(payload);
      return;
    default:
      return;
  }
}

void Control::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = reason;
    changed_.notify_all();
    // A rank that leaves does not call back.
    if (stopping_) return;
  }
  const std::lock_guard lock(calling_);
  tell_failure(reason);
}

void Control::tell_failure(const std::string& reason) {
  if (reason.empty() || !failed_ || told_) return;
  told_ = true;
  failed_(reason);
}

void Control::warn(const std::string& text) {
  const std::lock_guard lock(calling_);
  if (warned_) warned_(text);
}

void Control::on_failure(std::function<void(const std::string&)> f) {
  const std::string failed = failure();
  const std::lock_guard lock(calling_);
  failed_ = std::move(f);
  told_ = false;
  tell_failure(failed);
}

void Control::on_warning(std::function<void(const std::string&)> f) {
  const std::lock_guard lock(calling_);
  warned_ = std::move(f);
}

std::string Control::failure(double wait_seconds) const {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, in_seconds(wait_seconds), [&] { return !failure_.empty(); });
  return failure_;
}

void Control::set(const std::string& key, const std::string& value) { send(Frame::set, key + '\0' + value); }

std::string Control::get(const std::string& key, double seconds) {
  send(Frame::get, key);
  std::unique_lock lock(mutex_);
  const bool there =
      changed_.wait_until(lock, in_seconds(seconds), [&] { return values_.count(key) > 0 || !failure_.empty(); });
  const auto found = values_.find(key);
  if (found != values_.end()) return found->second;
  HEARTH_CHECK(PeerError, !there, failure_);
  throw PeerError(join_text("rank ", rank_, ": no rank has set \"", key, "\" within ", seconds, " s"));
}

void Control::set_status(const std::string& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
}

void Control::give_up(const std::string& reason) {
  // First: the server hangs up on who has given up.
  fail(join_text("rank ", rank_, " gave up: ", reason));
  send(Frame::give_up, reason);
}

}  // namespace hearth::dist
