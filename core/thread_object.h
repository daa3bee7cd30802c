// SPDX-License-Identifier: Apache-2.0
// Objects of a thread that may be asked for at any time. A plain thread_local one is gone on the main thread before
// static objects are destroyed, and what those still run would use it after its end.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace hearth::detail {

template <class T>
class ThreadObject {
 public:
  static T& get() {
    if (object == nullptr) {
      // The C library ends the process where it finds no memory to note the guard in; this throws first.
      if (!guarded) ::operator delete(::operator new(note_bytes));
      object = new T;
      // Once: behind its end a guard must not be passed again.
      if (!std::exchange(guarded, true)) guard();
    }
    return *object;
  }

 private:
  static constexpr std::size_t note_bytes = 64;
  struct Guard {
    ~Guard() { delete std::exchange(object, nullptr); }
  };
  static void guard() { static thread_local Guard at_exit; }

  static inline constinit thread_local T* object = nullptr;
  static inline constinit thread_local bool guarded = false;
};

/// The calling thread's T, made at first use and deleted when the thread ends. Who asks later still gets a new one,
/// which is leaked. Each T has one object a thread, so T belongs to who asks for it.
template <class T>
T& thread_object() {
  return ThreadObject<T>::get();
}

}  // namespace hearth::detail
