// SPDX-License-Identifier: Apache-2.0
// Exceptions of the library. Each class carries a stable kind and the process
// exit code that the command line maps it to (CONTRACT of the `hearth` program).
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/export.h"

namespace hearth {

/// Base of every exception the library throws. what() names the op or file, what was found and the remedy.
class HEARTH_API Error : public std::runtime_error {
 public:
  Error(const char* kind, int exit_code, const std::string& message)
      : std::runtime_error(message), kind_(kind), exit_code_(exit_code) {}
  /// Stable one-word class, as in `hearth: error: <kind>: <message>`.
  const char* kind() const noexcept { return kind_; }
  int exit_code() const noexcept { return exit_code_; }

 private:
  const char* kind_;
  int exit_code_;
};

#define HEARTH_ERROR_CLASS(Name, kind, code)                                  \
  class HEARTH_API Name : public Error {                                      \
   public:                                                                    \
    explicit Name(const std::string& message) : Error(kind, code, message) {} \
  };
HEARTH_ERROR_CLASS(ShapeError, "shape", 2)         ///< shapes, ranks, sizes or options that do not fit together
HEARTH_ERROR_CLASS(DTypeError, "dtype", 2)         ///< a data type the operation does not take
HEARTH_ERROR_CLASS(IndexError, "index", 3)         ///< an index or label outside its range
HEARTH_ERROR_CLASS(UsageError, "usage", 2)         ///< a call in the wrong state or with the wrong words
HEARTH_ERROR_CLASS(ConfigError, "config", 2)       ///< a run configuration that cannot be accepted
HEARTH_ERROR_CLASS(DataError, "data", 3)           ///< unreadable or inconsistent input data
HEARTH_ERROR_CLASS(FileError, "file", 3)           ///< a file that cannot be read or written
HEARTH_ERROR_CLASS(DeviceError, "device", 4)       ///< a device that is absent or failed
HEARTH_ERROR_CLASS(OutOfMemory, "memory", 4)       ///< an allocation that did not fit
HEARTH_ERROR_CLASS(DivergedError, "diverged", 5)   ///< training produced values that are not finite
HEARTH_ERROR_CLASS(PeerError, "peer", 6)           ///< another rank failed, or does something else than this one
HEARTH_ERROR_CLASS(InternalError, "internal", 70)  ///< a defect of Hearth or of a library below it
#undef HEARTH_ERROR_CLASS

namespace detail {

/// A part of a text with its type erased, so that messages are joined in one place.
struct TextPart {
  const void* value;
  void (*write)(std::ostream& out, const void* value);
};

HEARTH_API void write_characters(std::ostream& out, const void* value);
template <class T>
void write_part(std::ostream& out, const void* value) {
  out << *static_cast<const T*>(value);
}
template <class T>
TextPart part_of(const T& value) {
  if constexpr (std::is_array_v<T>)
    return {value, write_characters};
  else if constexpr (std::is_function_v<T>)  // a manipulator
    return {reinterpret_cast<const void*>(&value),
            [](std::ostream& out, const void* function) { out << reinterpret_cast<T*>(const_cast<void*>(function)); }};
  else
    return {std::addressof(value), write_part<T>};
}

HEARTH_API std::string join_parts(const TextPart* parts, std::size_t count);

template <class ErrorType, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void throw_joined(const Parts&... parts) {
  const TextPart all[] = {part_of(parts)...};
  throw ErrorType(join_parts(all, sizeof...(parts)));
}

}  // namespace detail

/// The parts written one after the other, as with operator<<, in no country's way.
template <class... Parts>
std::string join_text(const Parts&... parts) {
  const detail::TextPart all[] = {detail::part_of(parts)...};
  return detail::join_parts(all, sizeof...(parts));
}

}  // namespace hearth

/// Throws ErrorType with the joined parts unless `condition` holds. Active in every build type.
#define HEARTH_CHECK(ErrorType, condition, ...)                         \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::hearth::detail::throw_joined<::hearth::ErrorType>(__VA_ARGS__); \
  } while (false)
