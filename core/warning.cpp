// SPDX-License-Identifier: Apache-2.0
#include "core/warning.h"

#include <mutex>
#include <utility>

namespace hearth {
namespace {

struct Shared {
  std::mutex mutex;
  WarningHandler handler;
};

// Leaked: ops may warn while static objects are destroyed.
Shared& shared() {
  static Shared& made = *new Shared;
  return made;
}

}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) {
  const std::lock_guard lock(shared().mutex);
  return std::exchange(shared().handler, std::move(handler));
}

void warn(const std::string& text) {
  const std::lock_guard lock(shared().mutex);
  if (shared().handler) shared().handler(text);
}

}  // namespace hearth
