// SPDX-License-Identifier: Apache-2.0
#include "train/attach/live_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "core/cpu/signals.h"
#include "core/error.h"
#include "core/io/descriptor.h"
#include "core/io/file.h"
#include "core/text_stream.h"
#include "train/attach/local_socket.h"

namespace hearth::train {
namespace {

constexpr std::size_t most_clients = 16;
constexpr auto patience = std::chrono::seconds(5);
constexpr int poll_ms = 1000;

Json failure_answer(const std::string& reason) { return Json::object().set("error", reason); }

std::string line_of(const Json& answer) { return to_text(answer) + "\n"; }

/// The first line of a request's file, where it is one of this user's or of root's; else "".
std::string request_in(const std::string& path) {
  const int descriptor = above_standard_streams(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (descriptor < 0) return "";
  struct stat file {};
  char bytes[longest_request + 2] = {};
  ssize_t count = 0;
  if (fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) && (file.st_uid == geteuid() || file.st_uid == 0))
    count = read(descriptor, bytes, sizeof bytes);
  close(descriptor);
  const std::string text(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return text.substr(0, text.find('\n'));
}

}  // namespace

/// A connection.
struct LiveRun::Client {
  explicit Client(int of) : descriptor(of) {}
  ~Client() {
    if (descriptor >= 0) close(descriptor);
  }
  Client(Client&& other) noexcept
      : descriptor(std::exchange(other.descriptor, -1)),
        heard(std::move(other.heard)),
        until(other.until),
        trace_id(std::move(other.trace_id)) {}
  Client& operator=(Client&& other) noexcept {
    std::swap(descriptor, other.descriptor);
    std::swap(heard, other.heard);
    std::swap(until, other.until);
    std::swap(trace_id, other.trace_id);
    return *this;
  }

  /// An answer fits into the socket's buffer, unless the client is not one.
  void answer(const Json& what) const {
    const std::string line = line_of(what);
    (void)!send(descriptor, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  int descriptor;
  std::string heard;
  Clock::time_point until = Clock::now() + patience;  ///< its request must have come
  std::string trace_id;                               ///< of the trace that it waits for; "" where it waits for none
};

LiveRun::LiveRun(std::string folder, LiveFacts facts) : folder_(std::move(folder)), facts_(std::move(facts)) {
  wake_ = above_standard_streams(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  HEARTH_CHECK(DeviceError, wake_ >= 0,
               "attach: no descriptor is free: ", reason_of(std::error_code(errno, std::generic_category())));
  listener_ = listen_at(folder_, socket_file, why_no_socket_);
  for (const char* name : {request_file, answer_file}) unlink(path(name).c_str());
  thread_ = std::thread([this] {
    cpu::block_signals_for_good();
    serve();
  });
}

LiveRun::~LiveRun() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!traced_) traced_ = Trace{{}, "the run has ended"};
  }
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
  if (listener_ < 0) return;
  close(listener_);
  unlink(path(socket_file).c_str());
}

void LiveRun::publish(const LiveStep& step) {
  const std::lock_guard lock(mutex_);
  rank_times_.assign(step.ranks.begin(), step.ranks.end());
  step_ = step;
  step_.ranks = {};
  stepped_ = Clock::now();
}

void LiveRun::publish(const Json& record) {
  const std::lock_guard lock(mutex_);
  const Json* const split = record.find("split");
  (split != nullptr && split->as_string() == "train" ? training_ : evaluation_) = record;
}

LiveRun::Doing::Doing(LiveRun* run, const char* what) : run_(run) {
  if (run_ == nullptr) return;
  const std::lock_guard lock(run_->mutex_);
  run_->doing_ = what;
}
LiveRun::Doing::~Doing() {
  if (run_ == nullptr) return;
  const std::lock_guard lock(run_->mutex_);
  run_->doing_ = "";
}

std::int64_t LiveRun::trace_asked() const {
  const std::lock_guard lock(mutex_);
  return tracing_ ? 0 : trace_steps_;
}

void LiveRun::begin_trace() {
  const std::lock_guard lock(mutex_);
  tracing_ = true;
}

void LiveRun::finish_trace(std::vector<std::string> events, const std::string& failure) {
  {
    const std::lock_guard lock(mutex_);
    traced_ = Trace{std::move(events), failure};
  }
  eventfd_write(wake_, 1);
}

Json LiveRun::status() const {
  const std::lock_guard lock(mutex_);
  Json status = Json::object()
                    .set("name", facts_.name)
                    .set("pid", std::int64_t{getpid()})
                    .set("device", facts_.device)
                    .set("step", step_.step)
                    .set("total_steps", facts_.total_steps)
                    .set("epoch", step_.epoch)
                    .set("doing", *doing_ == '\0' ? "steps" : doing_);
  if (stepped_ != Clock::time_point{})
    status.set("seconds_since_step", std::chrono::duration<double>(Clock::now() - stepped_).count());
  if (step_.steps > 0 && step_.seconds > 0)
    status.set("throughput", static_cast<double>(step_.samples) / step_.seconds)
        .set("unit", facts_.unit)
        .set("step_seconds", step_.seconds / static_cast<double>(step_.steps));
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < rank_times_.size(); ++rank)
    ranks.push_back(Json::object()
                        .set("rank", static_cast<std::int64_t>(rank))
                        .set("step_seconds", rank_times_[rank].whole)
                        .set("busy_seconds", rank_times_[rank].busy));
  status.set("ranks", std::move(ranks));
  if (!training_.is_null()) status.set("training", training_);
  if (!evaluation_.is_null()) status.set("evaluation", evaluation_);
  return status;
}

void LiveRun::ask_trace(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  // Who asks while a trace is asked for or made gets that one.
  if (trace_steps_ == 0) trace_steps_ = steps;
}

bool LiveRun::hear(Client& client) {
  char bytes[longest_request + 2];
  const ssize_t count = recv(client.descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (count <= 0) return false;
  // After its request a client has nothing to say.
  if (!client.trace_id.empty()) return false;
  client.heard.append(bytes, static_cast<std::size_t>(count));
  const std::size_t end = client.heard.find('\n');
  if (end == std::string::npos && client.heard.size() <= longest_request) return true;
  try {
    const AttachRequest request = parse_request(std::string_view(client.heard).substr(0, end));
    if (request.kind == AttachRequest::Kind::trace) {
      client.trace_id = request.id;
      ask_trace(request.steps);
      return true;
    }
    client.answer(status());
  } catch (const UsageError& error) {
    client.answer(failure_answer(error.what()));
  }
  return false;
}

void LiveRun::read_request_file() {
  const std::string name = path(request_file);
  const std::string line = request_in(name);
  if (line.empty()) return;
  unlink(name.c_str());
  try {
    const AttachRequest request = parse_request(line);
    HEARTH_CHECK(UsageError, request.kind == AttachRequest::Kind::trace, "the file ", request_file,
                 " asks for traces only");
    file_id_ = request.id;
    ask_trace(request.steps);
  } catch (const UsageError& error) {
    write_file_synced(path(answer_file), line_of(failure_answer(error.what())));
  }
}

void LiveRun::answer_traces(std::vector<Client>& clients) {
  std::optional<Trace> trace;
  {
    const std::lock_guard lock(mutex_);
    if (!traced_) return;
    trace = std::exchange(traced_, {});
    tracing_ = false;
    trace_steps_ = 0;
  }
  Json answer = failure_answer(trace->failure);
  if (trace->failure.empty()) {
    std::string text = "{\"displayTimeUnit\": \"ms\", \"otherData\": " +
                       to_text(Json::object().set("run", facts_.name).set("world_size", facts_.ranks)) +
                       ",\n\"traceEvents\": [\n";
    for (std::size_t rank = 0; rank < trace->events.size(); ++rank)
      text += (rank > 0 ? ",\n" : "") + trace->events[rank];
    text += "\n]}\n";
    try {
      write_file_synced(path(trace_file), text);
      answer = Json::object().set("trace", trace_file).set("bytes", static_cast<std::int64_t>(text.size()));
    } catch (const Error& error) {
      answer = failure_answer(error.what());
    }
  }
  for (const Client& client : clients)
    if (!client.trace_id.empty()) client.answer(Json(answer).set("id", client.trace_id));
  std::erase_if(clients, [](const Client& client) { return !client.trace_id.empty(); });
  if (!file_id_.empty()) write_file_synced(path(answer_file), line_of(answer.set("id", std::exchange(file_id_, ""))));
}

void LiveRun::accept_client(std::vector<Client>& clients) const {
  Client client(above_standard_streams(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  if (client.descriptor < 0 || !is_trusted_peer(client.descriptor)) return;
  // Who has asked for nothing yet makes room.
  if (clients.size() >= most_clients) {
    const auto silent = std::ranges::find(clients, "", &Client::trace_id);
    if (silent == clients.end()) return;
    clients.erase(silent);
  }
  clients.push_back(std::move(client));
}

void LiveRun::serve() {
  std::vector<Client> clients;
  const auto turn = [&] {
    std::vector<pollfd> polled{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Client& client : clients) polled.push_back({client.descriptor, POLLIN, 0});
    (void)poll(polled.data(), polled.size(), poll_ms);
    eventfd_t count = 0;
    (void)eventfd_read(wake_, &count);
    std::vector<Client> remaining;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const bool is_late = clients[i].trace_id.empty() && Clock::now() > clients[i].until;
      if (polled[i + 2].revents == 0 ? !is_late : hear(clients[i])) remaining.push_back(std::move(clients[i]));
    }
    clients = std::move(remaining);
    if ((polled[1].revents & POLLIN) != 0) accept_client(clients);
    read_request_file();
    answer_traces(clients);
  };
  bool stopping = false;
  while (!stopping) {
    {
      const std::lock_guard lock(mutex_);
      stopping = stopping_;
    }
    try {
      turn();
    } catch (const std::exception&) {
      // Short memory, or a full disk: the run is what matters, and whoever asked asks again.
      clients.clear();
    }
  }
}

}  // namespace hearth::train
