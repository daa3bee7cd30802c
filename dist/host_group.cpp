// SPDX-License-Identifier: Apache-2.0
#include "dist/host_group.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/cpu/cores.h"
#include "core/cpu/signals.h"
#include "core/error.h"
#include "dist/agreement.h"
#include "dist/call.h"
#include "dist/ordered_sum.h"

namespace hearth::dist {
namespace {

constexpr std::size_t inline_bytes = 448;

/// What comes before the data of a collective or of a message, or has it inside.
struct Opening {
  Call call;
  std::byte data[inline_bytes];
};
static_assert(std::has_unique_object_representations_v<Call>);

Opening opening_of(const Call& call, std::span<const std::byte> inlined) {
  Opening opening{};
  opening.call = call;
  if (!inlined.empty()) std::memcpy(opening.data, inlined.data(), inlined.size());
  return opening;
}

// By this thread since it began.
thread_local std::int64_t sent_bytes = 0;

/// The exception that is handled; a PeerError with what this rank did then, unless it tells.
std::exception_ptr fault_at(const std::string& status, const std::string& text) {
  try {
    throw;
  } catch (const PeerError&) {
    if (status.empty() || text.find(" at " + status) != text.npos) return std::current_exception();
    return std::make_exception_ptr(PeerError(join_text(text, "; noticed at ", status)));
  } catch (...) {
    return std::current_exception();
  }
}

std::span<const std::byte> bytes_of(const Tensor& x) { return {x.bytes(), x.byte_size()}; }

/// Elements cuts[rank] to cuts[rank + 1] of x.
std::span<std::byte> part_of_cuts(const Tensor& x, const std::vector<std::int64_t>& cuts, int rank) {
  const auto begin = static_cast<std::size_t>(cuts[static_cast<std::size_t>(rank)]),
             end = static_cast<std::size_t>(cuts[static_cast<std::size_t>(rank) + 1]);
  return {x.bytes() + begin * size_of(x.dtype()), (end - begin) * size_of(x.dtype())};
}

}  // namespace

HostGroup::HostGroup(std::unique_ptr<Transport> transport, Route route, bool ordered)
    : transport_(std::move(transport)),
      sums_(
          route, ordered, transport_->rank(), transport_->hosts(),
          [this](std::span<const Outgoing> out, std::span<const Incoming> in) { exchange(out, in); },
          [this](const std::string& reason) { transport_->abort(reason); }) {
  collectives_.thread = std::thread([this] { work(collectives_); });
}

HostGroup::~HostGroup() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  collectives_.thread.join();
  for (auto& [key, lane] : messages_)
    if (lane.thread.joinable()) lane.thread.join();
}

int HostGroup::rank() const { return transport_->rank(); }
int HostGroup::size() const { return transport_->size(); }
const char* HostGroup::backend() const { return transport_->name(); }

void HostGroup::abort(const std::string& reason) { transport_->abort(reason); }

Traffic HostGroup::traffic() const {
  const auto seconds = [](std::int64_t ns) { return 1e-9 * static_cast<double>(ns); };
  return {bytes_, seconds(busy_ns_), seconds(*exposed_ns_), remote_bytes_};
}

void HostGroup::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  transport_->exchange(out, in);
  std::int64_t bytes = 0, remote = 0;
  for (const Outgoing& message : out) {
    bytes += static_cast<std::int64_t>(message.bytes.size());
    if (sums_.is_remote(message.to)) remote += static_cast<std::int64_t>(message.bytes.size());
  }
  bytes_ += bytes;
  remote_bytes_ += remote;
  sent_bytes += bytes;
}

void HostGroup::set_status(const std::string& status) {
  status_ = status;
  transport_->set_status(status);
}

void HostGroup::use_route(Route route) {
  std::exception_ptr refusal;
  const Call call = at_status({.root = static_cast<std::int32_t>(route), .kind = Kind::use_route});
  start(collectives_, call.kind, [&] {
    agree(call, {});
    try {
      sums_.use(route);
    } catch (const ConfigError&) {
      refusal = std::current_exception();
    }
  }).wait();
  if (refusal) std::rethrow_exception(refusal);
}

Call HostGroup::at_status(Call call) const {
  status_.copy(call.status.data(), call.status.size());
  return call;
}

Work HostGroup::start(Lane& lane, Kind kind, std::function<void()> run) {
  const auto now = std::chrono::steady_clock::now();
  Job job{0, kind_names[static_cast<int>(kind)], std::move(run), now, status_, {}};
  Work started(job.done.get_future().share(), {}, exposed_ns_);
  {
    const std::lock_guard lock(mutex_);
    job.number = started_++;
    if (unfinished_++ == 0) busy_since_ = now;
    lane.jobs.push_back(std::move(job));
  }
  changed_.notify_all();
  return started;
}

HostGroup::Lane& HostGroup::lane_of(int other, bool sends) {
  const std::lock_guard lock(mutex_);
  Lane& lane = messages_[{other, sends}];
  if (!lane.thread.joinable()) lane.thread = std::thread([this, &lane] { work(lane); });
  return lane;
}

/// Whether all is done that has to come before the lane's first job.
bool HostGroup::is_next(const Lane& lane) const {
  const std::uint64_t number = lane.jobs.front().number;
  const auto is_later = [&](const Lane& other) { return other.jobs.empty() || other.jobs.front().number > number; };
  if (&lane != &collectives_) return is_later(collectives_);
  return std::all_of(messages_.begin(), messages_.end(), [&](const auto& other) { return is_later(other.second); });
}

void HostGroup::work(Lane& lane) {
  cpu::block_signals_for_good();
  cpu::use_all_cores();
  pthread_setname_np(pthread_self(), "hearth-dist");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return lane.jobs.empty() ? stopping_ : is_next(lane); });
    if (lane.jobs.empty()) return;
    Job& job = lane.jobs.front();
    std::exception_ptr fault = failure_;
    lock.unlock();
    if (!fault) try {
        run(lane, job);
      } catch (const std::exception& error) {
        const std::string reason = failure_text(error);
        fault = fault_at(job.status, reason);
        transport_->abort(reason);
      }
    // What the job refers to goes before its owner goes on.
    job.run = nullptr;
    lock.lock();
    if (!failure_) failure_ = fault;
    if (--unfinished_ == 0)
      busy_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - busy_since_).count();
    std::promise<void> done = std::move(job.done);
    lane.jobs.pop_front();
    lock.unlock();
    changed_.notify_all();
    fault ? done.set_exception(fault) : done.set_value();
    lock.lock();
  }
}

void HostGroup::run(Lane& lane, const Job& job) {
  // The lane may have been idle.
  const auto begin = std::max(job.started, lane.last_end);
  // A route may send by two threads, and no messages are under way then; of messages each lane has its own.
  const auto sent = [&] { return &lane == &collectives_ ? bytes_.load() : sent_bytes; };
  const std::int64_t before = sent();
  job.run();
  lane.last_end = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (spans_ != nullptr) spans_->push_back({job.what, sent() - before, begin, lane.last_end});
}

Work HostGroup::start_on(Kind kind, const Tensor& input, const Tensor& output,
                         std::function<void(const Tensor&, const Tensor&)> on_host) {
  output.storage()->bump_version();
  if (output.device().is_cpu() && input.device().is_cpu())
    return start(collectives_, kind, [=, run = std::move(on_host)] { run(input, output); });
  const Tensor in = input.to(Device{});
  const Tensor out = input.same_storage(output) ? in : output.to(Device{});
  start(collectives_, kind, [&] { on_host(in, out); }).wait();
  output.copy_from(out);
  return {};
}

std::vector<std::vector<std::byte>> HostGroup::agree(const Call& mine, std::span<const std::byte> inlined) {
  Call call = mine;
  call.sequence = sequence_++;
  const Opening opening = opening_of(call, inlined);
  std::vector<Opening> all(static_cast<std::size_t>(size()));
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    out.push_back({other, std::as_bytes(std::span(&opening, 1))});
    in.push_back({other, std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(other)], 1))});
  }
  all[static_cast<std::size_t>(rank())] = opening;
  exchange(out, in);
  for (int other = 0; other < size(); ++other) {
    const Call& theirs = all[static_cast<std::size_t>(other)].call;
    HEARTH_CHECK(PeerError, theirs == call, "the ranks disagree: ", who(other), " calls ", text_of(theirs), "; ",
                 who(rank()), " calls ", text_of(call));
  }
  std::vector<std::vector<std::byte>> data;
  for (const Opening& of : all) data.emplace_back(of.data, of.data + inlined.size());
  return data;
}

void HostGroup::run_all_reduce(const Call& call, const Tensor& x, Reduce op, std::optional<DType> wire) {
  const DType type = wire.value_or(x.dtype());
  // In the type that travels: x itself, or a rounded copy.
  const Tensor sent = wire ? x.to(type) : x;
  const bool is_small = sent.byte_size() <= inline_bytes;
  const std::vector<std::vector<std::byte>> inlined = agree(call, is_small ? bytes_of(sent) : std::span<std::byte>{});
  if (size() == 1 || x.size() == 0) {
    if (wire) x.copy_from(sent);
    return;
  }
  if (is_small) {
    std::vector<const std::byte*> rows;
    for (const std::vector<std::byte>& one : inlined) rows.push_back(one.data());
    reduce_rows(rows, type, sent.bytes(), type, x.size(), op);
  } else {
    sums_.all_reduce(sent.bytes(), type, x.size(), op);
  }
  if (wire) x.copy_from(sent);
}

Work HostGroup::all_reduce(const Tensor& x, Reduce op, std::optional<DType> wire) {
  check_all_reduce(x, wire);
  const Call call = at_status(call_of_all_reduce(x, op, wire));
  return start_on(Kind::all_reduce, x, x,
                  [=, this](const Tensor&, const Tensor& y) { run_all_reduce(call, y, op, wire); });
}

Work HostGroup::reduce_scatter(const Tensor& x, const Tensor& part) {
  check_parts("reduce_scatter", x, part, size());
  const Call call = at_status(call_of(Kind::reduce_scatter, x));
  return start_on(Kind::reduce_scatter, x, part, [this, call](const Tensor& from, const Tensor& to) {
    agree(call, {});
    if (to.size() == 0) return;
    sums_.reduce_scatter(from.bytes(), from.dtype(), to.size(), to.bytes());
  });
}

Work HostGroup::all_gather(const Tensor& part, const Tensor& all) {
  check_parts("all_gather", all, part, size());
  const Call call = at_status(call_of(Kind::all_gather, all));
  return start_on(Kind::all_gather, part, all, [this, call](const Tensor& from, const Tensor& to) {
    const bool is_small = from.byte_size() <= inline_bytes;
    const auto inlined = agree(call, is_small ? bytes_of(from) : std::span<const std::byte>{});
    const auto part_of = [&](int rank) {
      return std::span(to.bytes() + static_cast<std::size_t>(rank) * from.byte_size(), from.byte_size());
    };
    const auto put = [&](int rank, const std::byte* bytes) {
      if (from.byte_size() > 0 && bytes != part_of(rank).data())
        std::memmove(part_of(rank).data(), bytes, from.byte_size());
    };
    put(rank(), from.bytes());
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size(); ++other) {
      if (is_small) put(other, inlined[static_cast<std::size_t>(other)].data());
      if (is_small || other == rank()) continue;
      out.push_back({other, part_of(rank())});
      in.push_back({other, part_of(other)});
    }
    if (!is_small) exchange(out, in);
  });
}

Work HostGroup::gather_parts(const Tensor& x, const std::vector<std::int64_t>& cuts) {
  check_cuts("gather_parts", x, cuts);
  const Call call = at_status(call_of(Kind::gather_parts, x));
  return start_on(Kind::gather_parts, x, x, [this, call, cuts](const Tensor&, const Tensor& y) {
    agree(call, {});
    const auto part_of = [&](int of) { return part_of_cuts(y, cuts, of); };
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      if (!part_of(rank()).empty()) out.push_back({other, part_of(rank())});
      if (!part_of(other).empty()) in.push_back({other, part_of(other)});
    }
    exchange(out, in);
  });
}

Work HostGroup::reduce_parts(const Tensor& x, const std::vector<std::int64_t>& cuts, const Tensor& part) {
  check_cuts("reduce_parts", x, cuts);
  check_contiguous("reduce_parts", part);
  const auto mine = static_cast<std::size_t>(rank());
  HEARTH_CHECK(ShapeError, part.size() == cuts[mine + 1] - cuts[mine] && part.dtype() == x.dtype(),
               "reduce_parts: ", describe(part), " is no part of ", cuts[mine + 1] - cuts[mine], " elements of ",
               describe(x));
  const Call call = at_status(call_of(Kind::reduce_parts, x));
  return start_on(Kind::reduce_parts, x, part, [this, call, cuts](const Tensor& from, const Tensor& to) {
    agree(call, {});
    const auto part_of = [&](int of) { return part_of_cuts(from, cuts, of); };
    // Only ever larger: a resize to more fills with zeros.
    rows_.resize(std::max(rows_.size(), to.byte_size() * static_cast<std::size_t>(size())));
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    std::vector<const std::byte*> rows;
    for (int other = 0; other < size(); ++other) {
      const std::span<std::byte> row(rows_.data() + to.byte_size() * static_cast<std::size_t>(other), to.byte_size());
      rows.push_back(other == rank() ? part_of(other).data() : row.data());
      if (other == rank()) continue;
      if (!part_of(other).empty()) out.push_back({other, part_of(other)});
      if (!row.empty()) in.push_back({other, row});
    }
    exchange(out, in);
    if (to.size() > 0) reduce_rows(rows, to.dtype(), to.bytes(), to.dtype(), to.size(), Reduce::sum);
  });
}

Work HostGroup::broadcast(const Tensor& x, int root) {
  check_broadcast(x, root, size());
  const Call call = at_status(call_of(Kind::broadcast, x, root));
  return start_on(Kind::broadcast, x, x, [this, root, call](const Tensor&, const Tensor& y) {
    const bool is_small = y.byte_size() <= inline_bytes;
    const auto inlined = agree(call, is_small ? bytes_of(y) : std::span<const std::byte>{});
    if (y.size() == 0 || size() == 1) return;
    if (is_small) {
      std::memcpy(y.bytes(), inlined[static_cast<std::size_t>(root)].data(), y.byte_size());
      return;
    }
    // The root sends each rank a piece; the ranks exchange these.
    const Pieces pieces(static_cast<std::int64_t>(y.byte_size()), size(), grain_bytes);
    const auto piece = [&](int of) {
      return std::span(y.bytes() + pieces.begin(of), static_cast<std::size_t>(pieces.size(of)));
    };
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size(); ++other)
      if (rank() == root && other != root) out.push_back({other, piece(other)});
    if (rank() != root) in.push_back({root, piece(rank())});
    exchange(out, in);
    out.clear();
    in.clear();
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      if (other != root) out.push_back({other, piece(rank())});
      if (rank() != root) in.push_back({other, piece(other)});
    }
    exchange(out, in);
  });
}

Work HostGroup::all_to_all(const Tensor& x, const Tensor& y) {
  check_all_to_all(x, y, size());
  const Call call = at_status(call_of(Kind::all_to_all, x));
  return start_on(Kind::all_to_all, x, y, [this, call](const Tensor& from, const Tensor& to) {
    const std::size_t piece = from.byte_size() / static_cast<std::size_t>(size());
    const auto offset = [&](int of) { return piece * static_cast<std::size_t>(of); };
    const bool is_small = from.byte_size() <= inline_bytes;
    const auto inlined = agree(call, is_small ? bytes_of(from) : std::span<const std::byte>{});
    if (piece == 0) return;
    std::memcpy(to.bytes() + offset(rank()), from.bytes() + offset(rank()), piece);
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      if (is_small)
        std::memcpy(to.bytes() + offset(other), inlined[static_cast<std::size_t>(other)].data() + offset(rank()),
                    piece);
      else
        out.push_back({other, {from.bytes() + offset(other), piece}}),
            in.push_back({other, {to.bytes() + offset(other), piece}});
    }
    if (!is_small) exchange(out, in);
  });
}

Work HostGroup::send(const Tensor& x, int to) {
  check_message("send", x, to, rank(), size());
  const Call call = at_status(call_of(Kind::send, x, to));
  Lane& lane = lane_of(to, true);
  return start(lane, Kind::send, [this, call, &lane, host = x.to(Device{})] { run_send(lane, call, host); });
}

Work HostGroup::receive(const Tensor& x, int from) {
  check_message("receive", x, from, rank(), size());
  const Call call = at_status(call_of(Kind::receive, x, from));
  Lane& lane = lane_of(from, false);
  x.storage()->bump_version();
  const Tensor host = x.device().is_cpu() ? x : Tensor::empty(x.shape(), x.dtype());
  const Work work = start(lane, Kind::receive, [this, call, &lane, host] { run_receive(lane, call, host); });
  if (x.device().is_cpu()) return work;
  // Only once, as x may change after the first wait().
  return Work({}, [work, x, host, is_copied = std::make_shared<bool>(false)] {
    work.wait();
    if (!std::exchange(*is_copied, true)) x.copy_from(host);
  });
}

void HostGroup::run_send(Lane& lane, Call call, const Tensor& x) {
  call.sequence = lane.messages++;
  const bool is_small = x.byte_size() <= inline_bytes;
  const Opening opening = opening_of(call, is_small ? bytes_of(x) : std::span<const std::byte>{});
  std::vector<Outgoing> out{{call.root, std::as_bytes(std::span(&opening, 1))}};
  if (!is_small) out.push_back({call.root, bytes_of(x)});
  exchange(out, {});
}

void HostGroup::run_receive(Lane& lane, Call call, const Tensor& x) {
  call.sequence = lane.messages++;
  Opening opening;
  const Incoming first{call.root, std::as_writable_bytes(std::span(&opening, 1))};
  exchange({}, {&first, 1});
  Call expected = call;
  expected.kind = Kind::send, expected.root = rank(), expected.status = opening.call.status;
  HEARTH_CHECK(PeerError, opening.call == expected, "the ranks disagree: ", who(call.root), " calls ",
               text_of(opening.call), "; ", who(rank()), " calls ", text_of(call));
  if (x.byte_size() <= inline_bytes) {
    std::copy_n(opening.data, x.byte_size(), x.bytes());
    return;
  }
  const Incoming data{call.root, {x.bytes(), x.byte_size()}};
  exchange({}, {&data, 1});
}

void HostGroup::barrier() { all_reduce(Tensor::zeros({1}, DType::u8)).wait(); }

}  // namespace hearth::dist
