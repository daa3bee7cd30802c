// SPDX-License-Identifier: Apache-2.0
#include "train/attach/attach_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/printable.h"
#include "train/attach/attach_request.h"
#include "train/attach/local_socket.h"
#include "train/checkpoint/run_info.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t longest_answer = std::size_t{4} << 20;

/// A descriptor that is closed at the end.
struct Connection {
  ~Connection() {
    if (descriptor >= 0) close(descriptor);
  }
  int descriptor;
};

/// The line that comes back, without its end; "" where none does in time.
std::string ask(int descriptor, const std::string& request, Clock::time_point until) {
  if (send(descriptor, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return "";
  std::string answer;
  while (answer.find('\n') == std::string::npos && answer.size() < longest_answer) {
    pollfd polled{descriptor, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0 || poll(&polled, 1, static_cast<int>(left)) <= 0) return "";
    char bytes[4096];
    const ssize_t count = recv(descriptor, bytes, sizeof bytes, 0);
    if (count <= 0) return "";
    answer.append(bytes, static_cast<std::size_t>(count));
  }
  return answer.substr(0, answer.find('\n'));
}

std::string new_id() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(getpid());
}

/// The path in an answer.
std::string trace_in(const std::string& folder, const std::string& answer) {
  const Json read = parse_json(answer, "the run's answer");
  if (const Json* const error = read.find("error"))
    throw DataError(join_text("trace of ", printable(folder), ": ", printable(error->as_string())));
  return folder + "/" + trace_file;
}

/// Over files.
std::string ask_by_file(const std::string& folder, const AttachRequest& request, Clock::time_point until) {
  const std::string answer_path = folder + "/" + answer_file;
  write_file_synced(folder + "/" + request_file, to_line(request));
  while (Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (!file_exists(answer_path)) continue;
    const std::string answer = read_text(answer_path);
    const Json* const id = parse_json(answer, answer_path).find("id");
    if (id == nullptr || id->as_string() == request.id) return answer;
  }
  remove_tree(folder + "/" + request_file);
  return "";
}

}  // namespace

Json live_status(const std::string& folder, std::string& why) {
  const Connection connection{connect_to(folder, socket_file, why)};
  if (connection.descriptor < 0) return {};
  const std::string answer = ask(connection.descriptor, to_line({}), Clock::now() + std::chrono::seconds(5));
  if (!answer.empty()) return parse_json(answer, "the run's answer");
  why = "the run does not answer";
  return {};
}

std::string trace_run(const std::string& folder, std::int64_t steps, std::chrono::seconds patience) {
  const std::string status = status_in(folder + "/run.json");
  HEARTH_CHECK(UsageError, status == "running", "trace: no run trains in ", printable(folder),
               status.empty() ? "; it has no run.json" : "; it is " + status);
  const AttachRequest request{.kind = AttachRequest::Kind::trace, .steps = steps, .id = new_id()};
  const Clock::time_point until = Clock::now() + patience;
  std::string why;
  const Connection connection{connect_to(folder, socket_file, why)};
  const std::string answer = connection.descriptor >= 0 ? ask(connection.descriptor, to_line(request), until)
                                                        : ask_by_file(folder, request, until);
  HEARTH_CHECK(UsageError, !answer.empty(), "trace: the run in ", printable(folder), " has not traced ", steps,
               " steps within ", patience.count(), " s; ask for fewer steps, or wait longer (--patience)",
               why.empty() ? "" : "; its socket: " + why);
  return trace_in(folder, answer);
}

}  // namespace hearth::train
