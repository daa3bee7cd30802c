// SPDX-License-Identifier: Apache-2.0
#include "core/origin.h"

#include <cstring>
#include <mutex>
#include <ostream>
#include <set>

#include "core/build.h"
#include "core/error.h"
#if HEARTH_HAS_CUDA
#include "core/cuda/ranges.h"
#endif

namespace hearth {
namespace {

thread_local Origin origin_of_thread;

bool same_text(const char* a, const char* b) {
  return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0);
}

}  // namespace

bool Origin::operator==(const Origin& other) const {
  return backward == other.backward && same_text(op, other.op) && same_text(layer, other.layer);
}

std::ostream& operator<<(std::ostream& out, const Origin& origin) {
  out << (origin.op == nullptr ? "no op" : origin.op);
  if (origin.backward) out << " (backward)";
  if (origin.layer != nullptr) out << " of " << origin.layer;
  return out;
}

const Origin& current_origin() noexcept { return origin_of_thread; }

OriginScope::OriginScope(const Origin& origin) noexcept : previous_(origin_of_thread) {
  origin_of_thread = origin;
#if HEARTH_HAS_CUDA
  marked_ = cuda::marks_ranges();
  if (marked_) cuda::push_range(join_text(origin));
#endif
}
OriginScope::~OriginScope() {
  origin_of_thread = previous_;
#if HEARTH_HAS_CUDA
  if (marked_) cuda::pop_range();
#endif
}

OriginScope OriginScope::of_op(const char* op) noexcept {
  return OriginScope({op, origin_of_thread.layer, origin_of_thread.backward});
}
OriginScope OriginScope::of_layer(const char* layer) noexcept {
  return OriginScope({origin_of_thread.op, layer, origin_of_thread.backward});
}

const char* lasting_text(const std::string& text) {
  static std::mutex mutex;
  static auto* const strings = new std::set<std::string>;  // leaked: storages in static objects may refer to it
  const std::lock_guard lock(mutex);
  return strings->insert(text).first->c_str();
}

}  // namespace hearth
