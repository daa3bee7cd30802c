// SPDX-License-Identifier: Apache-2.0
#include "core/build.h"
#if __has_include(<nccl.h>)
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <optional>
#include <utility>

#include "core/convert.h"
#include "core/cpu/signals.h"
#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/graph.h"
#include "core/cuda/launch.h"
#include "core/cuda/runtime.h"
#include "dist/nccl/functions.h"
#include "dist/nccl/group.h"
#include "dist/nccl/sum_rows.h"

namespace hearth::dist::nccl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds between_looks{20};
// By then the side channel knows why NCCL's connections broke.
constexpr milliseconds until_verdict{1500};
// For a call into NCCL that does not come back; then it is aborted all the same.
constexpr milliseconds until_forced{2000};

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t op_of(Reduce op) { return op == Reduce::sum ? ncclSum : op == Reduce::min ? ncclMin : ncclMax; }

Tensor tensor_of(const Call& call) {
  constexpr std::int64_t numbers = sizeof(Call) / sizeof(std::int64_t);
  static_assert(std::has_unique_object_representations_v<Call> && numbers * sizeof(std::int64_t) == sizeof(Call));
  const Tensor x = Tensor::empty({numbers}, DType::i64);
  std::memcpy(x.bytes(), &call, sizeof call);
  return x;
}
Call call_in(const Tensor& x, int index) {
  Call call;
  std::memcpy(&call, x.bytes() + static_cast<std::size_t>(index) * sizeof call, sizeof call);
  return call;
}

cuda::Stream make_stream(Device device) {
  (void)cuda::state_of(device);
  int least = 0, greatest = 0;
  HEARTH_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t raw = nullptr;
  HEARTH_TRY(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, greatest));
  return {device, raw};
}

}  // namespace

/// Why the group has failed; outlives it as long as a Work asks.
struct Group::Failure {
  std::mutex mutex;
  std::string reason;

  std::string text() {
    const std::lock_guard lock(mutex);
    return reason;
  }
  void check() {
    const std::string why = text();
    if (!why.empty()) throw PeerError(why);
  }
};

/// A collective on the device, and what it uses. That goes back to memory which the computing stream orders, so the
/// computing stream is put behind it at the latest when nobody waits for it any more.
class Group::Flight {
 public:
  Flight(Device device, std::vector<Tensor> held) : device_(device), held_(std::move(held)) {
    (void)cuda::state_of(device_);  // events belong to the thread's current device
    HEARTH_TRY(cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming));
  }
  ~Flight() {
    if (!joined_) try {
        join();
      } catch (const Error&) {  // a recording that was given up
      }
    cudaEventDestroy(passed_);
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// Puts `stream` behind what is queued on the computing stream now.
  void fork(const cuda::Stream& stream) {
    HEARTH_TRY(cudaEventRecord(passed_, cuda::stream_of(device_).raw()));
    HEARTH_TRY(cudaStreamWaitEvent(stream.raw(), passed_, 0));
  }
  /// What is queued on `stream` now is the collective.
  void queued_on(const cuda::Stream& stream) { HEARTH_TRY(cudaEventRecord(passed_, stream.raw())); }
  /// Puts the computing stream behind the collective.
  void join() {
    if (std::exchange(joined_, true)) return;
    HEARTH_TRY(cudaStreamWaitEvent(cuda::stream_of(device_).raw(), passed_, 0));
    held_.clear();
  }

 private:
  const Device device_;
  std::vector<Tensor> held_;
  bool joined_ = false;
  cudaEvent_t passed_ = nullptr;
};

Group::Group(std::unique_ptr<HostGroup> host, Device device, const NcclOptions& options)
    : host_(std::move(host)),
      device_(device),
      ordered_(options.ordered),
      stream_(make_stream(device)),
      failure_(std::make_shared<Failure>()) {
  ncclUniqueId id{};
  // One that fails here has the others hear of it by the host group.
  try {
    if (rank() == 0) check(library().unique_id(&id), "ncclGetUniqueId");
    const Tensor bytes = Tensor::empty({NCCL_UNIQUE_ID_BYTES}, DType::u8);
    std::memcpy(bytes.bytes(), id.internal, sizeof id.internal);
    host_->broadcast(bytes).wait();
    std::memcpy(id.internal, bytes.bytes(), sizeof id.internal);
    init(id);
    host_->barrier();
  } catch (const Error& error) {
    host_->abort(error.what());
    if (comm_ != nullptr) library().abort(comm_);
    cudaStreamDestroy(stream_.raw());
    throw;
  }
  watcher_ = std::thread([this] { watch(); });
}

/// ncclCommInitRank, which waits for the other ranks without an end. So it has a thread of its own, and this one looks
/// whether they are there; a call that never comes back keeps that thread.
void Group::init(const ncclUniqueId& id) {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<ncclResult_t> result;
    ncclComm_t comm = nullptr;
    std::string more;  // some versions keep it by thread
    bool abandoned = false;
  };
  const auto outcome = std::make_shared<Outcome>();
  std::thread([outcome, id, device = device_, size = size(), rank = rank()] {
    cpu::block_signals_for_good();
    (void)cuda::state_of(device);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = library().init_rank(&comm, size, id, rank);
    const char* const more = library().last_error(nullptr);
    const std::lock_guard lock(outcome->mutex);
    if (outcome->abandoned && result == ncclSuccess) library().abort(comm);
    outcome->result = result;
    outcome->comm = comm;
    if (result != ncclSuccess && more != nullptr) outcome->more = more;
    outcome->changed.notify_all();
  }).detach();
  std::unique_lock lock(outcome->mutex);
  while (!outcome->changed.wait_for(lock, between_looks, [&] { return outcome->result.has_value(); })) {
    const std::string gone = host_->failure();
    outcome->abandoned = !gone.empty();
    if (outcome->abandoned) throw PeerError(gone);
  }
  comm_ = outcome->comm;
  check(*outcome->result, "ncclCommInitRank", outcome->more);
}

Group::~Group() {
  (void)cuda::state_of(device_);
  // What has failed is aborted by the watcher, and then ends.
  while (cudaStreamQuery(stream_.raw()) == cudaErrorNotReady) std::this_thread::sleep_for(milliseconds(1));
  (void)cudaGetLastError();
  stopping_ = true;
  watcher_.join();
  // Among ranks of which one has gone, finalizing would wait for it.
  if (comm_ != nullptr && (!host_->failure().empty() || library().finalize(comm_) != ncclSuccess))
    library().abort(comm_);
  else if (comm_ != nullptr)
    library().destroy(comm_);
  cudaStreamDestroy(stream_.raw());
}

void Group::watch() {
  cpu::block_signals_for_good();
  (void)cuda::state_of(device_);
  std::chrono::steady_clock::time_point broken{};
  while (!stopping_) {
    std::string reason = host_->failure();
    ncclResult_t status = ncclSuccess;
    if (reason.empty() &&
        (library().async_error(comm_, &status) != ncclSuccess || (status != ncclSuccess && status != ncclInProgress))) {
      const auto now = std::chrono::steady_clock::now();
      if (broken == std::chrono::steady_clock::time_point{}) broken = now;
      if (now - broken >= until_verdict) {
        reason = join_text("NCCL: ", library().text(status), ": ", library().last_error(nullptr));
        host_->abort(reason);
        reason = join_text("rank ", rank(), " gave up: ", reason);
      }
    }
    if (!reason.empty()) return fail(reason);
    std::this_thread::sleep_for(between_looks);
  }
}

void Group::fail(const std::string& reason) {
  {
    const std::lock_guard lock(failure_->mutex);
    if (!failure_->reason.empty()) return;
    failure_->reason = reason;
  }
  const bool mine = calling_.try_lock_for(until_forced);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (mine) calling_.unlock();
  // Waits for recorded steps with NCCL in them to be destroyed, which a thread may have to do that is about to call.
  library().abort(comm);
}

void Group::abort(const std::string& reason) { host_->abort(reason); }

void Group::throw_failure(const std::string& otherwise) {
  const auto until = std::chrono::steady_clock::now() + until_verdict;
  while (host_->failure().empty() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(between_looks);
  const std::string known = host_->failure();
  if (known.empty()) host_->abort(otherwise);
  throw PeerError(known.empty() ? join_text("rank ", rank(), " gave up: ", otherwise) : known);
}

void Group::check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const more = library().last_error(nullptr);
  check(result, call, more != nullptr ? more : "");
}

void Group::check(ncclResult_t result, const char* call, const std::string& more) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw_failure(join_text("NCCL: ", call, ": ", library().text(result), more.empty() ? "" : ": ", more));
}

void Group::require(const Call& expected, const Call& theirs, int other, const Call& mine, HostGroup& host) {
  if (theirs == expected) return;
  const std::string text = join_text("the ranks disagree: ", host.who(other), " calls ", text_of(theirs), "; ",
                                     host.who(host.rank()), " calls ", text_of(mine), " with tensors of a device");
  host.abort(text);
  throw PeerError(text);
}

std::function<void()> Group::agree(const Call& call) {
  const Tensor mine = tensor_of(call), all = Tensor::empty({mine.size() * size()}, DType::i64);
  const Work told = host_->all_gather(mine, all);
  return [told, all, call, host = host_.get()] {
    told.wait();
    for (int other = 0; other < host->size(); ++other) require(call, call_in(all, other), other, call, *host);
  };
}

std::function<void()> Group::agree_on_message(const Call& call) {
  const Tensor told = tensor_of(call);
  if (call.kind == Kind::send) return [work = host_->send(told, call.root)] { work.wait(); };
  return [work = host_->receive(told, call.root), told, call, host = host_.get()] {
    work.wait();
    const Call theirs = call_in(told, 0);
    Call expected = call;
    expected.kind = Kind::send, expected.root = host->rank(), expected.status = theirs.status;
    require(expected, theirs, call.root, call, *host);
  };
}

Work Group::start(Call call, std::vector<Tensor> held, const Tensor& output, const Queue& queue) {
  std::int64_t bytes = cuda::bytes_of(output);
  for (const Tensor& tensor : held) bytes += cuda::bytes_of(tensor);
  failure_->check();
  const bool is_message = call.kind == Kind::send || call.kind == Kind::receive;
  if (call.kind != Kind::send) output.storage()->bump_version();
  std::function<void()> agreed;
  if (!cuda::is_recording(device_)) {
    call = host_->at_status(call);
    call.sequence = is_message ? messages_[{call.root, call.kind == Kind::send}]++ : sequence_++;
    agreed = is_message ? agree_on_message(call) : agree(call);
  }
  const auto flight = std::make_shared<Flight>(device_, std::move(held));
  flight->fork(stream_);
  {
    const std::lock_guard lock(calling_);
    failure_->check();
    if (output.size() > 0) queue(stream_);
  }
  ++cuda::live_counters().library_calls;
  cuda::count_work({"NCCL", bytes});
  flight->queued_on(stream_);
  return Work({}, [flight, agreed, failure = failure_] {
    if (agreed) agreed();
    failure->check();
    flight->join();
  });
}

void Group::call(const std::function<void()>& calls) {
  check(library().group_start(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    (void)library().group_end();
    throw;
  }
  check(library().group_end(), "ncclGroupEnd");
}

bool Group::sums_in_order(const Tensor& x) const {
  // NCCL's own sums of 16-bit types round at every rank that they pass.
  return x.dtype() == DType::f16 || x.dtype() == DType::bf16 || (ordered_ && is_floating(x.dtype()));
}

void Group::gather_rows(cuda::Stream& stream, const Tensor& x, const Pieces& pieces, const Tensor& rows) {
  const std::size_t element = size_of(x.dtype());
  const auto count_of = [&](int of) { return static_cast<std::size_t>(pieces.size(of)); };
  call([&] {
    for (int other = 0; other < size(); ++other) {
      std::byte* const row = rows.bytes() + static_cast<std::size_t>(other) * count_of(rank()) * element;
      if (count_of(other) > 0)
        check(library().send(x.bytes() + static_cast<std::size_t>(pieces.begin(other)) * element, count_of(other),
                             type_of(x.dtype()), other, comm_, stream.raw()),
              "ncclSend");
      if (count_of(rank()) > 0)
        check(library().receive(row, count_of(rank()), type_of(x.dtype()), other, comm_, stream.raw()), "ncclRecv");
    }
  });
}

void Group::sum_in_order(cuda::Stream& stream, const Tensor& x, const Pieces& pieces, const Tensor& rows) {
  const std::size_t element = size_of(x.dtype());
  const auto piece = [&](int of) { return x.bytes() + static_cast<std::size_t>(pieces.begin(of)) * element; };
  const auto count_of = [&](int of) { return static_cast<std::size_t>(pieces.size(of)); };
  gather_rows(stream, x, pieces, rows);
  sum_rows(stream, x.dtype(), rows.bytes(), size(), pieces.size(rank()), piece(rank()));
  if (size() == 1) return;
  call([&] {
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      if (count_of(rank()) > 0)
        check(library().send(piece(rank()), count_of(rank()), type_of(x.dtype()), other, comm_, stream.raw()),
              "ncclSend");
      if (count_of(other) > 0)
        check(library().receive(piece(other), count_of(other), type_of(x.dtype()), other, comm_, stream.raw()),
              "ncclRecv");
    }
  });
}

Traffic Group::traffic() const {
  Traffic traffic = host_->traffic();
  traffic.bytes += bytes_;
  return traffic;
}

void Group::count_bytes(std::size_t tensor_bytes) {
  bytes_ += static_cast<std::int64_t>(tensor_bytes) * (size() - 1) / size();
}

Work Group::all_reduce(const Tensor& x, Reduce op, std::optional<DType> wire) {
  check_all_reduce(x, wire);
  if (x.device() != device_) return host_->all_reduce(x, op, wire);
  const Tensor sent = wire ? Tensor::empty(x.shape(), *wire, device_) : x;
  count_bytes(2 * sent.byte_size());
  std::vector<Tensor> held{x, sent};
  const bool in_order = op == Reduce::sum && sums_in_order(sent);
  const Pieces pieces(x.size(), size(), grain_bytes / static_cast<std::int64_t>(size_of(sent.dtype())));
  if (in_order) held.push_back(Tensor::empty({pieces.size(rank()) * size()}, sent.dtype(), device_));
  const Tensor rows = in_order ? held.back() : Tensor();
  return start(call_of_all_reduce(x, op, wire), std::move(held), x, [&](cuda::Stream& stream) {
    if (wire) kernels::convert(stream, x.dtype(), x.bytes(), *wire, sent.bytes(), x.size());
    if (in_order)
      sum_in_order(stream, sent, pieces, rows);
    else
      check(library().all_reduce(sent.bytes(), sent.bytes(), static_cast<std::size_t>(sent.size()),
                                 type_of(sent.dtype()), op_of(op), comm_, stream.raw()),
            "ncclAllReduce");
    if (wire) kernels::convert(stream, *wire, sent.bytes(), x.dtype(), x.bytes(), x.size());
  });
}

Work Group::reduce_scatter(const Tensor& x, const Tensor& part) {
  check_parts("reduce_scatter", x, part, size());
  if (x.device() != device_ || part.device() != device_) return host_->reduce_scatter(x, part);
  HEARTH_CHECK(DTypeError, x.dtype() != DType::boolean, "reduce_scatter: ", describe(x), ": bool has no sum; take u8");
  const Pieces pieces(x.size(), size(), std::max<std::int64_t>(part.size(), 1));
  count_bytes(x.byte_size());
  std::vector<Tensor> held{x, part};
  if (sums_in_order(x)) held.push_back(Tensor::empty(x.shape(), x.dtype(), device_));
  const Tensor rows = held.back();
  return start(call_of(Kind::reduce_scatter, x), std::move(held), part, [&](cuda::Stream& stream) {
    if (!sums_in_order(x)) {
      check(library().reduce_scatter(x.bytes(), part.bytes(), static_cast<std::size_t>(part.size()), type_of(x.dtype()),
                                     ncclSum, comm_, stream.raw()),
            "ncclReduceScatter");
      return;
    }
    gather_rows(stream, x, pieces, rows);
    sum_rows(stream, x.dtype(), rows.bytes(), size(), part.size(), part.bytes());
  });
}

Work Group::all_gather(const Tensor& part, const Tensor& all) {
  check_parts("all_gather", all, part, size());
  if (part.device() != device_ || all.device() != device_) return host_->all_gather(part, all);
  count_bytes(all.byte_size());
  return start(call_of(Kind::all_gather, all), {part, all}, all, [&](cuda::Stream& stream) {
    check(library().all_gather(part.bytes(), all.bytes(), part.byte_size(), ncclUint8, comm_, stream.raw()),
          "ncclAllGather");
  });
}

Work Group::broadcast(const Tensor& x, int root) {
  check_broadcast(x, root, size());
  if (x.device() != device_) return host_->broadcast(x, root);
  count_bytes(x.byte_size());
  return start(call_of(Kind::broadcast, x, root), {x}, x, [&](cuda::Stream& stream) {
    check(library().broadcast(x.bytes(), x.bytes(), x.byte_size(), ncclUint8, root, comm_, stream.raw()),
          "ncclBroadcast");
  });
}

Work Group::all_to_all(const Tensor& x, const Tensor& y) {
  check_all_to_all(x, y, size());
  if (x.device() != device_ || y.device() != device_) return host_->all_to_all(x, y);
  count_bytes(x.byte_size());
  return start(call_of(Kind::all_to_all, x), {x, y}, y, [&](cuda::Stream& stream) {
    const std::size_t piece = x.byte_size() / static_cast<std::size_t>(size());
    call([&] {
      for (int other = 0; other < size(); ++other) {
        const std::size_t offset = piece * static_cast<std::size_t>(other);
        check(library().send(x.bytes() + offset, piece, ncclUint8, other, comm_, stream.raw()), "ncclSend");
        check(library().receive(y.bytes() + offset, piece, ncclUint8, other, comm_, stream.raw()), "ncclRecv");
      }
    });
  });
}

Work Group::send(const Tensor& x, int to) {
  check_message("send", x, to, rank(), size());
  if (x.device() != device_) return host_->send(x, to);
  bytes_ += static_cast<std::int64_t>(x.byte_size());
  return start(call_of(Kind::send, x, to), {x}, x, [&](cuda::Stream& stream) {
    check(library().send(x.bytes(), x.byte_size(), ncclUint8, to, comm_, stream.raw()), "ncclSend");
  });
}

Work Group::receive(const Tensor& x, int from) {
  check_message("receive", x, from, rank(), size());
  if (x.device() != device_) return host_->receive(x, from);
  return start(call_of(Kind::receive, x, from), {x}, x, [&](cuda::Stream& stream) {
    check(library().receive(x.bytes(), x.byte_size(), ncclUint8, from, comm_, stream.raw()), "ncclRecv");
  });
}

}  // namespace hearth::dist::nccl

#endif
