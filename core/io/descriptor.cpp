// SPDX-License-Identifier: Apache-2.0
#include "core/io/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hearth {

int above_standard_streams(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int above = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
  ::close(descriptor);
  errno = error;
  return above;
}

void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) {
      // The lowest that is free, which is this one. What is written or read there fails, as before.
      [[maybe_unused]] const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

}  // namespace hearth
