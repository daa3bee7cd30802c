// SPDX-License-Identifier: Apache-2.0
// Shared by the files that call oneDNN: engine, stream, descriptors, the plan registry. Private to core/cpu.
// The one position that knows that the descriptor interface changed between oneDNN 2 and 3.
#pragma once

#include "core/build.h"

#if HEARTH_HAS_DNNL

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/cpu/reserve.h"
#include "core/cpu/signals.h"
#include "core/dtype.h"
#include "core/error.h"
#include "ops/onednn/onednn.h"
#include "ops/onednn/pack.h"

namespace hearth::cpu::dnn {

dnnl::engine& engine();
/// The calling thread's stream.
dnnl::stream& stream();

/// f32 and bf16 only; others are unsupported.
dnnl::memory::data_type library_type(DType dtype);

/// The library's own reference code is a thousand times slower than what it replaces.
bool is_reference(std::string_view implementation);

/// Sets the number of threads that library calls of this thread use, for the life of the object: the library and
/// its plans read it from OpenMP. Nor may OpenMP give fewer when the machine is busy: plans that count on a thread pool
/// of this size would wait for ever for the rest of it. Signals are kept away from the other threads of the thread
/// pool.
class ThreadsScope {
 public:
  explicit ThreadsScope(int pool) : threads_(omp_get_max_threads()), dynamic_(omp_get_dynamic()) {
    reserve_threads(pool);
    omp_set_num_threads(pool);
    omp_set_dynamic(0);
    block_signals_in_thread_pool(pool);
  }
  ~ThreadsScope() {
    omp_set_num_threads(threads_);
    omp_set_dynamic(dynamic_);
  }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int threads_, dynamic_;
};

/// The thread pool that a call made here and now would use.
inline int current_threads() { return omp_in_parallel() ? 1 : threads(); }

/// Copies between layouts and types; nothing to do when both descriptors are equal. Filters go into the blocked
/// layouts that are known here by own code, which does it several times faster than the library.
struct Reorder {
  dnnl::memory::desc from, to, scratchpad;
  dnnl::reorder primitive;
  std::optional<FilterBlocks> blocks;
  bool needed = false;

  Reorder() = default;
  Reorder(const dnnl::memory::desc& from_desc, const dnnl::memory::desc& to_desc);
  void run(const void* source, void* destination) const;
};

/// How the filters `from`, if they are in plain [g, k, r, s, c] order, lie in `to`; nothing if that is not a layout
/// that pack_filters knows.
std::optional<FilterBlocks> blocks_of(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

inline std::size_t bytes_of(const dnnl::memory::desc& desc) { return desc.get_size(); }

/// Takes the library's failure for a problem that it does not take; OutOfMemory where memory was what it lacked.
std::string reason_of(const dnnl::error& error);
/// OutOfMemory or InternalError unless the status says success.
void check_status(dnnl_status_t status, const char* call);

/// Runs a primitive on raw pointers. The scratchpad comes from the calling thread's scratch stack.
struct Argument {
  int index;
  const dnnl::memory::desc* desc;
  const void* data;
};
void execute(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad, const Argument* arguments,
             int count);

/// What the plans of all kinds hold.
struct LibraryPlan {
  std::string reason;  ///< why there is no plan; empty if there is one
  std::string implementation;
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;

  /// The primitive that the library describes, unless that is its slow reference code.
  template <class Primitive>
  void take(const typename Primitive::primitive_desc& description) {
    implementation = description.impl_info_str();
    scratchpad = description.scratchpad_desc();
    if (is_reference(implementation))
      reason = "oneDNN has only its slow reference code (" + implementation + ") for this problem";
    else
      primitive = Primitive(description);
  }
};

/// All plans of one kind, as plans() and clear() see them. Lives as long as the process.
class PlanList {
 public:
  PlanList(const PlanList&) = delete;
  PlanList& operator=(const PlanList&) = delete;
  virtual void list(std::vector<PlanInfo>& found) const = 0;
  virtual void clear() = 0;

 protected:
  /// Joins those of the other kinds.
  PlanList();
  ~PlanList() = default;
};

/// Plans of one kind by key, `max_plans` of them at a time: a program whose images or sequences have ever new sizes
/// drops those that it has used least recently. A plan that could not be made is kept too, with its reason.
template <class Key, class Plan>
class Registry final : public PlanList {
 public:
  static constexpr std::size_t max_plans = 1024;

  explicit Registry(std::string (*text_of)(const Key&)) : text_of_(text_of) {}
  /// The key's plan; where there is none, make() makes it, while other threads that ask wait.
  template <class Make>
  std::shared_ptr<const Plan> get(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      std::shared_ptr<const Plan> made = make();
      if (plans_.size() >= max_plans) drop_oldest();
      found = plans_.emplace(key, Kept{std::move(made)}).first;
    }
    found->second.used = ++uses_;
    return found->second.plan;
  }
  void list(std::vector<PlanInfo>& found) const override {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, kept] : plans_)
      found.push_back({text_of_(key), kept.plan->implementation, is_reference(kept.plan->implementation),
                       kept.plan->scratchpad.get_size()});
  }
  void clear() override {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }

 private:
  struct Kept {
    std::shared_ptr<const Plan> plan;
    std::uint64_t used = 0;
  };

  void drop_oldest() {
    plans_.erase(std::min_element(plans_.begin(), plans_.end(),
                                  [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }

  std::string (*text_of_)(const Key&);
  mutable std::mutex mutex_;
  std::map<Key, Kept> plans_;
  std::uint64_t uses_ = 0;
};

}  // namespace hearth::cpu::dnn

#endif
