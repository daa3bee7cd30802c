// SPDX-License-Identifier: Apache-2.0
// Scheduling of one block. Threads start one after another on the stack that happens to run. A thread that waits keeps
// its stack, and the host goes on with a thread that need not wait any more, else with a thread not yet started, on an
// idle stack. Preferring the former lets a warp finish before the next begins, so that few stacks are in use.
#include "tests/emulated_gpu/block.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "core/error.h"

namespace hearth::cuda::emulate {
namespace {

std::string hex(unsigned value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

}  // namespace

Block& Block::of_host_thread() {
  thread_local const std::unique_ptr<Block> block = std::make_unique<Block>();
  return *block;
}

Block::Block() : fibers_(new Fiber[max_threads]) {}

void Block::run_grid(const Launch& launch, const Order& order, std::uint64_t at_ends, const Call& call) {
  launch_ = launch;
  call_ = call;
  order_ = order;
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  gridDim = launch.grid;
  blockDim = launch.block;
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const BlockOrder blocks_in_order(order_, blocks);
  shuffler_ = Shuffler(order_.seed ^ blocks);
  thread_order(order_, shuffler_, threads_, start_order_);
  running = this;
#if HEARTH_EMULATE_CHECK
  checker_.begin_launch(call.arguments, call.argument_bytes, stacks_.base(), stacks_.bytes());
#endif
  const std::uint64_t run = at_ends == 0 ? blocks : std::min(blocks, at_ends);
  for (std::uint64_t i = 0; i < run && !error_; ++i) {
    const std::uint64_t at = run == blocks ? blocks_in_order.at(i) : i < run / 2 ? i : blocks - run + i;
    blockIdx = {static_cast<unsigned>(at % launch.grid.x), static_cast<unsigned>(at / launch.grid.x % launch.grid.y),
                static_cast<unsigned>(at / launch.grid.x / launch.grid.y)};
    run_block();
  }
  running = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Block::run_block() {
  ++block_serial;
  alive_ = threads_;
  started_ = 0;
  ready_.clear();
  barrier_ = {};
  for (unsigned w = 0; w * 32 < threads_; ++w) {
    const unsigned lanes = std::min(32u, threads_ - w * 32);
    warps_[w].alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warps_[w].open = 0;
  }
  if (order_.kind == Order::Kind::shuffled) thread_order(order_, shuffler_, threads_, start_order_);
  shared_.begin_block(launch_.shared_bytes, launch_.shared_asked > 0 ? shared_limit : static_shared_limit);
#if HEARTH_EMULATE_CHECK
  checker_.begin_block(threads_);
#endif
  fiber_ = &idle_fiber();
  host_.switch_to(*fiber_);
  if (error_) {
    // Threads that still wait are given up where they stand.
    idle_.clear();
    fibers_made_ = 0;
    return;
  }
  if (const std::string overrun = shared_.overrun(); !overrun.empty()) {
    error_ = std::make_exception_ptr(InternalError(join_text("kernel ", launch_.name, ", block (", blockIdx.x, ", ",
                                                             blockIdx.y, ", ", blockIdx.z, "): ", overrun)));
  }
}

Fiber& Block::idle_fiber() {
  if (!idle_.empty()) {
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }
  const unsigned i = fibers_made_++;
  fibers_[i].start(stacks_.stack(i), stacks_.stack_bytes(i), run_fiber);
  return fibers_[i];
}

// What every stack runs, for ever: threads until there is nothing to start, then it is idle until the next block.
void Block::run_fiber() {
  Fiber::entered();
  Block& block = *running;
  for (;;) {
    Fiber* next = &block.host_;
    try {
      block.run_threads();
      if (block.alive_ > 0) next = &block.next_fiber();
    } catch (...) {
      block.error_ = std::current_exception();
      next = &block.host_;
    }
    Fiber& self = *block.fiber_;
    block.idle_.push_back(&self);
    block.fiber_ = next;
    self.switch_to(*next);
  }
}

void Block::run_threads() {
  while (started_ < threads_ && ready_.empty()) {
    start_thread(start_order_[started_++]);
    {
      const Watched watched;
      call_.body(call_.arguments);
    }
    end_thread();
  }
}

void Block::start_thread(unsigned thread) {
  waiters_[thread].what_for = Waiter::For::nothing;
  go_on_as(thread);
}

void Block::go_on_as(unsigned thread) {
  thread_ = thread;
  const dim3& size = launch_.block;
  if (size.y * size.z == 1) {
    threadIdx.x = thread;
    threadIdx.y = threadIdx.z = 0;
  } else {
    threadIdx = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
  }
}

// Others may have waited only for this thread.
void Block::end_thread() {
  --alive_;
  Warp& warp = warps_[thread_ / 32];
  warp.alive &= ~(1u << thread_ % 32);
  for (unsigned i = 0; i < warp.open;) {
    Operation& operation = warp.operations[i];
    if ((operation.mask & warp.alive & ~operation.arrived) == 0)
      complete_operation(warp, thread_ & ~31u, operation, std::nullopt);
    else
      ++i;
  }
  if (barrier_.arrived > 0 && barrier_.arrived == alive_) complete_barrier(std::nullopt);
}

void Block::make_ready(unsigned first_thread, unsigned lanes) {
  const bool reverse = order_.kind == Order::Kind::reverse;
  while (lanes != 0) {
    const unsigned lane = static_cast<unsigned>(reverse ? 31 - std::countl_zero(lanes) : std::countr_zero(lanes));
    lanes &= ~(1u << lane);
    waiters_[first_thread + lane].what_for = Waiter::For::nothing;
    ready_.push(first_thread + lane);
  }
}

// The fiber to go on with when the present one cannot.
Fiber& Block::next_fiber() {
  const bool shuffled = order_.kind == Order::Kind::shuffled, can_start = started_ < threads_;
  if (!ready_.empty() && !(shuffled && can_start && shuffler_.below(16) == 0)) {
    if (shuffled) ready_.prefer(shuffler_.below(ready_.size()));
    return *waiters_[ready_.pop()].fiber;
  }
  if (can_start) return idle_fiber();
  throw InternalError(join_text("kernel ", launch_.name, ", block (", blockIdx.x, ", ", blockIdx.y, ", ", blockIdx.z,
                                "): deadlock, no thread can go on", who_waits()));
}

void Block::wait(Waiter::For what_for, const char* what, unsigned mask, const Place& place) {
  const unsigned thread = thread_;
  Fiber* const self = fiber_;
  waiters_[thread] = {self, place, what, mask, what_for};
  if (what_for == Waiter::For::nothing) ready_.push(thread);
  Fiber& next = next_fiber();
  if (&next != self) {
    fiber_ = &next;
    self->switch_to(next);
    fiber_ = self;
  }
  go_on_as(thread);
}

unsigned Block::barrier(bool vote, const Place& place) {
  if (barrier_.arrived == 0) {
    barrier_.place = place;
  } else if (barrier_.place.line() != place.line() || barrier_.place.file_name() != place.file_name()) {
    fault(join_text("waits at this block barrier while others wait at ", barrier_.place.file_name(), ":",
                    barrier_.place.line(), "; all threads of a block must come to the same barrier"),
          place);
  }
  ++barrier_.arrived;
  barrier_.votes += vote;
  if (barrier_.arrived == alive_)
    complete_barrier(thread_);
  else
    wait(Waiter::For::barrier, "block barrier", 0, place);
  // Still that of this barrier: the next one cannot be complete without this thread.
  return barrier_.result;
}

void Block::complete_barrier(std::optional<unsigned> completer) {
  barrier_.threads = barrier_.arrived;
  barrier_.result = barrier_.votes;
  barrier_.arrived = 0;
  barrier_.votes = 0;
#if HEARTH_EMULATE_CHECK
  checker_.meet();
#endif
  const unsigned warps = (threads_ + 31) / 32;
  const bool reverse = order_.kind == Order::Kind::reverse;
  for (unsigned w = 0; w < warps; ++w) {
    const unsigned at = reverse ? warps - 1 - w : w;
    unsigned lanes = warps_[at].alive;
    if (completer && *completer / 32 == at) lanes &= ~(1u << *completer % 32);
    make_ready(at * 32, lanes);
  }
  // Under a shuffle the thread that came last has no right to go on first.
  if (completer && order_.kind == Order::Kind::shuffled) wait(Waiter::For::nothing, "", 0, barrier_.place);
}

void Block::warp_operation(unsigned mask, const char* what, void* mine, Complete complete, const Place& place) {
  const unsigned my_lane = thread_ % 32, first_thread = thread_ & ~31u;
  if ((mask >> my_lane & 1) == 0)
    fault(join_text(what, " with mask 0x", hex(mask), ", in which the lane itself (", my_lane, ") is not"), place);
  Warp& warp = warps_[thread_ / 32];
  unsigned i = 0;
  while (i < warp.open && warp.operations[i].mask != mask) ++i;
  Operation& operation = warp.operations[i];
  if (i == warp.open) {
    ++warp.open;
    operation = {mask, 0, what, complete, place};
  } else if (operation.complete != complete || operation.what != what) {
    fault(join_text(what, " with mask 0x", hex(mask), ", while other lanes of the mask wait in ", operation.what,
                    " at ", operation.place.file_name(), ":", operation.place.line()),
          place);
  }
  operation.arrived |= 1u << my_lane;
  warp.lanes[my_lane] = mine;
  if ((mask & warp.alive & ~operation.arrived) == 0)
    complete_operation(warp, first_thread, operation, thread_);
  else
    wait(Waiter::For::warp, what, mask, place);
}

void Block::complete_operation(Warp& warp, unsigned first_thread, Operation& operation,
                               std::optional<unsigned> completer) {
  const Operation done = operation;
  operation = warp.operations[--warp.open];
  if (done.complete != nullptr) {
    std::array<void*, 32> lanes;
    for (unsigned i = 0; i < 32; ++i) lanes[i] = (done.arrived >> i & 1) != 0 ? warp.lanes[i] : nullptr;
    done.complete(lanes.data(), done.arrived);
  }
#if HEARTH_EMULATE_CHECK
  // Of the warp operations only __syncwarp orders memory.
  if (done.complete == nullptr) checker_.meet_in_warp(first_thread / 32, done.arrived);
#endif
  make_ready(first_thread, completer ? done.arrived & ~(1u << *completer % 32) : done.arrived);
  if (completer && order_.kind == Order::Kind::shuffled) wait(Waiter::For::nothing, "", 0, done.place);
}

std::string Block::name_of_thread(unsigned thread) const {
  const dim3& size = launch_.block;
  return join_text("thread (", thread % size.x, ", ", thread / size.x % size.y, ", ", thread / size.x / size.y, ")");
}

void Block::fault(const std::string& message, const Place& place) const {
  throw InternalError(join_text("kernel ", launch_.name, ", block (", blockIdx.x, ", ", blockIdx.y, ", ", blockIdx.z,
                                "), ", name_of_thread(thread_), ", ", place.file_name(), ":", place.line(), ": ",
                                message));
}

#if HEARTH_EMULATE_CHECK
void Block::check_access(const void* p, std::size_t bytes, Access access, const void* site) {
  const std::string wrong = checker_.check(thread_, p, bytes, access, site, shared_);
  if (wrong.empty()) return;
  error_ = std::make_exception_ptr(
      InternalError(join_text("kernel ", launch_.name, ", block (", blockIdx.x, ", ", blockIdx.y, ", ", blockIdx.z,
                              "), ", name_of_thread(thread_), ", ", source_of(site), ": ", wrong)));
  fiber_->switch_to(host_);
}
#endif

std::string Block::who_waits() const {
  std::string text;
  for (unsigned first = 0; first < threads_;) {
    const auto same = [&](unsigned thread) {
      const Waiter &a = waiters_[first], &b = waiters_[thread];
      return a.what_for == b.what_for && (a.what_for == Waiter::For::nothing ||
                                          (a.place.line() == b.place.line() && a.what == b.what && a.mask == b.mask));
    };
    unsigned last = first;
    while (last + 1 < threads_ && same(last + 1)) ++last;
    const Waiter& waiter = waiters_[first];
    text += join_text("; ", name_of_thread(first), last > first ? " to " + name_of_thread(last) : "");
    if (waiter.what_for == Waiter::For::nothing)
      text += " returned";
    else
      text += join_text(last > first ? " wait in " : " waits in ", waiter.what, " at ", waiter.place.file_name(), ":",
                        waiter.place.line());
    if (waiter.what_for == Waiter::For::warp) text += join_text(" with mask 0x", hex(waiter.mask));
    first = last + 1;
  }
  return text;
}

}  // namespace hearth::cuda::emulate
