// SPDX-License-Identifier: Apache-2.0
// Runs a program as a user would, and keeps what it said.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace hearth::test {

struct ProgramResult {
  int exit_code = -1;           ///< 128 + n where signal n ended it
  std::int64_t peak_bytes = 0;  ///< of memory, at its most; 0 where this process, whose copy it began as, had as much
  std::string out;
  std::string err;

  /// The last line of the error stream.
  std::string last_error_line() const {
    if (err.empty()) return "";
    const std::size_t end = err.size() - (err.back() == '\n' ? 1 : 0);
    const std::size_t before = end == 0 ? std::string::npos : err.rfind('\n', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return err.substr(begin, end - begin);
  }
};

/// Runs `words` (a path and its arguments) in `directory` and waits for its end. After `seconds`, unless they are 0,
/// SIGALRM ends it.
inline ProgramResult run_program(std::vector<std::string> words, const std::filesystem::path& directory,
                                 unsigned seconds = 0) {
  const TempDir streams;
  const std::string out = streams / "out", err = streams / "err";
  rusage own{}, used{};
  getrusage(RUSAGE_SELF, &own);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
    if (dup2(open(out.c_str(), flags, 0600), 1) < 0 || dup2(open(err.c_str(), flags, 0600), 2) < 0 ||
        chdir(directory.c_str()) != 0)
      _exit(126);
    alarm(seconds);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  int status = 0;
  if (wait4(child, &status, 0, &used) != child) throw std::runtime_error("wait4 failed");
  const auto content = [](const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.peak_bytes = used.ru_maxrss > own.ru_maxrss ? std::int64_t{used.ru_maxrss} << 10 : 0;
  result.out = content(out);
  result.err = content(err);
  return result;
}

}  // namespace hearth::test
