// SPDX-License-Identifier: Apache-2.0
// The shared memory of the block that runs. Every variable starts as all-ones bytes, which are NaN in each
// floating type, and lies between zones that must stay untouched.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulated_gpu/engine.h"

namespace hearth::cuda::emulate {

class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// `most`: of static and dynamic memory together.
  void begin_block(std::size_t dynamic_bytes, std::size_t most);
  /// Names the variable that was overrun, or is empty.
  std::string overrun() const;

  /// Null if it does not fit.
  void* declare(const SharedSlot& slot);
  /// Null if the launch gave none.
  void* dynamic();
  /// Whether the address is where variables of some block are.
  bool in_arena(const void* p) const;
  /// Whether all of the bytes are in one variable.
  bool holds(const void* p, std::size_t bytes) const;

 private:
  struct Variable {
    const char* name;
    std::size_t begin;
    std::size_t bytes;
  };
  std::byte* add(const char* name, std::size_t bytes);

  std::unique_ptr<std::byte[]> arena_;
  std::vector<Variable> variables_;
  std::size_t end_ = 0;  // of the arena's used part, behind the last zone
  std::size_t static_bytes_ = 0;
  std::size_t dynamic_bytes_ = 0;
  std::size_t max_ = 0;
  std::byte* dynamic_ = nullptr;
};

}  // namespace hearth::cuda::emulate
