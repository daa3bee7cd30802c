// SPDX-License-Identifier: Apache-2.0
#include "dist/control.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/build.h"
#include "core/cpu/signals.h"
#include "core/error.h"
#include "dist/frame.h"

namespace hearth::dist {
namespace {

constexpr double send_seconds = 10;
constexpr double longest_handshake = 20;

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
  do {
    socket_ = connect_to(address, port, deadline);
    local_address_ = address_of(socket_);
    if (try_join(std::min(deadline, in_seconds(longest_handshake)))) break;
    HEARTH_CHECK(PeerError, milliseconds_left(deadline) > 0, "what listens at ", server_, " does not answer rank ",
                 rank_, "; is it a server of Hearth's?");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (true);
  heard_ = now_ms();
  listens_ = std::thread([this] { listen(); });
  beats_ = std::thread([this] { beat(); });
}

bool Control::try_join(Deadline deadline) {
  // One that is pressed by strangers may hang up on a rank before it has proved itself.
  const auto hello = receive_frame(socket_, deadline);
  if (!hello) return false;
  HEARTH_CHECK(PeerError, hello->first == Frame::hello && hello->second.size() == nonce_size, "what listens at ",
               server_, " is no server of Hearth's");
  JoinRequest request;
  request.nonce = random_nonce();
  request.proof = std::string(proof_size, '\0');
  request.rank = rank_, request.size = options_.size, request.pid = static_cast<std::int32_t>(getpid());
  request.give_up_seconds = options_.give_up_seconds;
  request.host = host_name();
  request.version = build::version;
  const std::string text = request.signed_text(hello->second);
  request.proof = hmac_sha256(options_.token, "rank" + text);
  send(Frame::join, request.text());
  const auto answer = receive_frame(socket_, deadline);
  if (!answer) return false;
  HEARTH_CHECK(PeerError, answer->first != Frame::refused, "the server at ", server_, " refuses rank ", rank_, ": ",
               answer->second);
  const std::string proof = answer->second.substr(0, proof_size);
  server_process_ = answer->second.substr(proof.size());
  HEARTH_CHECK(PeerError,
               answer->first == Frame::welcome &&
                   same_proof(proof, hmac_sha256(options_.token, "server" + text + server_process_)),
               "the server at ", server_, " does not know the token (HEARTH_TOKEN) of rank ", rank_);
  return true;
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
  if (reason.empty()) return;
  for (const auto& [listener, f] : std::exchange(failed_, {})) f(reason);
}

void Control::warn(const std::string& text) {
  const std::lock_guard lock(calling_);
  if (warned_) warned_(text);
}

void Control::on_failure(const void* listener, std::function<void(const std::string&)> f) {
  const std::string failed = failure();
  const std::lock_guard lock(calling_);
  failed_.erase(listener);
  if (f) failed_.emplace(listener, std::move(f));
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

void Control::meet(const std::string& options, double seconds) {
  std::vector<std::string> keys, its_options;
  for (int rank = 0; rank < options_.size; ++rank) keys.push_back(join_text("rank/", rank));
  set(keys[static_cast<std::size_t>(rank_)],
      join_text("rank ", rank_, " (pid ", getpid(), " on ", host_name(), ')', '\0', options));
  std::string absent;
  const auto texts = wait_for(keys, seconds);
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::string text = texts[static_cast<std::size_t>(rank)].value_or("");
    if (text.empty()) absent += join_text(absent.empty() ? "" : ", ", rank);
    const std::size_t end = std::min(text.find('\0'), text.size());
    names_.push_back(text.substr(0, end));
    its_options.push_back(text.substr(std::min(end + 1, text.size())));
  }
  HEARTH_CHECK(PeerError, absent.empty(), absent.find(',') == absent.npos ? "rank " : "ranks ", absent,
               " did not join within ", seconds, " s; look at what it printed, or wait longer by dist.join_timeout");
  for (std::size_t rank = 1; rank < names_.size(); ++rank)
    HEARTH_CHECK(PeerError, its_options[rank] == its_options[0], "the ranks disagree: ", names_[rank], " has ",
                 its_options[rank], ", ", names_[0], " has ", its_options[0]);
}

std::string Control::who(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return at < names_.size() ? names_[at] : join_text("rank ", rank);
}

void Control::set(const std::string& key, const std::string& value) { send(Frame::set, key + '\0' + value); }

std::string Control::get(const std::string& key, double seconds) {
  const std::optional<std::string> value = wait_for({key}, seconds)[0];
  HEARTH_CHECK(PeerError, value, "rank ", rank_, ": no rank has set \"", key, "\" within ", seconds, " s");
  return *value;
}

std::vector<std::optional<std::string>> Control::wait_for(const std::vector<std::string>& keys, double seconds) {
  for (const std::string& key : keys) send(Frame::get, key);
  std::unique_lock lock(mutex_);
  const auto all_set = [&] {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.count(key) > 0; });
  };
  changed_.wait_until(lock, in_seconds(seconds), [&] { return all_set() || !failure_.empty(); });
  HEARTH_CHECK(PeerError, all_set() || failure_.empty(), failure_);
  std::vector<std::optional<std::string>> values;
  for (const std::string& key : keys) {
    const auto found = values_.find(key);
    found != values_.end() ? values.emplace_back(found->second) : values.emplace_back();
  }
  return values;
}

void Control::set_status(const std::string& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
}

void Control::give_up(const std::string& reason) {
  // First: the server hangs up on who has given up.
  fail(join_text("rank ", rank_, " gave up: ", reason));
  std::unique_lock lock(mutex_);
  const std::string status = status_;
  lock.unlock();
  send(Frame::beat, status);
  send(Frame::give_up, reason);
}

}  // namespace hearth::dist
