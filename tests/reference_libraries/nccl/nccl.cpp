// SPDX-License-Identifier: Apache-2.0
// An NCCL for tests: the functions that Hearth calls, with the documented meaning, between emulated GPUs of one
// process, each with a thread of its own. Collectives run in the order of their streams, and in replays of what was
// recorded. It checks Hearth's calls; of NVIDIA's library, its speed and its choice of algorithms it says nothing.
#include <nccl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/nccl/clique.h"
#include "tests/reference_libraries/nccl/controls.h"

using namespace hearth::reference_nccl;
namespace emulate = hearth::cuda::emulate;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
};

namespace {

constexpr std::chrono::seconds to_come_together{30};

/// Ranks that are coming together.
struct Rendezvous {
  std::shared_ptr<Clique> clique;
  std::set<int> ranks, devices;
  bool one_device_twice = false;
};

struct Everything {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Rendezvous> rendezvous;
  std::set<ncclComm_t> alive;
  std::set<const ncclComm*> connected;
  int next_id = 0;
};
Everything& everything() {
  static Everything& all = *new Everything;
  return all;
}

Controls& controls() {
  static Controls& all = *new Controls;
  return all;
}

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  Operation operation;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;
thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t result, const char* text) {
  last_error = text;
  return result;
}

/// A line of the log, as NCCL writes it, if the environment asks for one into a file. The caller holds the mutex.
void log_line(int device, const std::string& message) {
  static std::FILE* file = nullptr;
  const char *const level = std::getenv("NCCL_DEBUG"), *const name = std::getenv("NCCL_DEBUG_FILE");
  if (file == nullptr && level != nullptr && std::string(level) == "INFO" && name != nullptr)
    file = std::fopen(name, "w");
  if (file == nullptr) return;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  host[std::strcspn(host, ".")] = 0;
  std::fprintf(file, "%s:%d:%d [%d] NCCL INFO %s\n", host, getpid(), getpid(), device, message.c_str());
  std::fflush(file);
}

/// Connections are made at the first collective, as from NCCL 2.22 on.
void log_connection(const ncclComm& comm) {
  const std::lock_guard lock(everything().mutex);
  if (!everything().connected.insert(&comm).second || comm.clique->size() < 2) return;
  const int next = (comm.rank + 1) % comm.clique->size();
  log_line(comm.device, "Channel 00/0 : " + std::to_string(comm.rank) + "[" + std::to_string(comm.rank) + "] -> " +
                            std::to_string(next) + "[" + std::to_string(next) + "] via " +
                            controls().connection.load());
  log_line(comm.device, "Connected all rings, use ring PXN 0 GDR 1");
}

bool is_alive(ncclComm_t comm) {
  const std::lock_guard lock(everything().mutex);
  return everything().alive.count(comm) > 0;
}

/// Whether all of it lies in one live block of the communicator's device.
bool is_on_device(const ncclComm& comm, const void* data, std::size_t bytes) {
  if (bytes == 0) return true;
  const auto block = emulate::block_at(data);
  const auto* const begin = static_cast<const std::byte*>(data);
  return block && block->kind == emulate::MemoryKind::device && block->device == comm.device &&
         begin + bytes <= block->begin + block->bytes;
}

ncclResult_t queue(const Pending& one) {
  log_connection(*one.comm);
  switch (one.operation.kind) {
    case Kind::all_reduce:
      ++controls().all_reduces;
      break;
    case Kind::point_to_point:
      ++controls().point_to_points;
      break;
    default:
      ++controls().others;
  }
  const std::shared_ptr<Clique> clique = one.comm->clique;
  const int rank = one.comm->rank;
  const auto operation = std::make_shared<const Operation>(one.operation);
  const cudaError_t status = emulate::enqueue_meeting(
      one.stream, "NCCL", [=] { return clique->arrive(rank, *operation); }, [=] { clique->pass(rank); });
  return status == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, cudaGetErrorString(status));
}

ncclResult_t submit(ncclComm_t comm, cudaStream_t stream, Operation operation, std::size_t send_bytes,
                    std::size_t receive_bytes) {
  if (!is_alive(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  if (controls().refuses == comm->rank) return refuse(ncclSystemError, "refused, as the test asks");
  if (operation.root < 0 || operation.root >= comm->clique->size())
    return refuse(ncclInvalidArgument, "there is no such rank");
  if (!is_on_device(*comm, operation.send, send_bytes) || !is_on_device(*comm, operation.receive, receive_bytes))
    return refuse(ncclInvalidArgument, "a buffer is not memory of the communicator's device");
  if (depth > 0) {
    pending.push_back({comm, stream, std::move(operation)});
    return ncclSuccess;
  }
  return queue({comm, stream, std::move(operation)});
}

ncclResult_t exchange(Operation operation, ncclComm_t comm, cudaStream_t stream) {
  const ncclResult_t begun = ncclGroupStart();
  const ncclResult_t submitted = submit(comm, stream, std::move(operation), 0, 0);
  const ncclResult_t ended = ncclGroupEnd();
  return begun != ncclSuccess ? begun : submitted != ncclSuccess ? submitted : ended;
}

ncclResult_t message(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream,
                     bool sends) {
  if (!is_alive(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  const std::size_t bytes = count * size_of(type);
  if (peer < 0 || peer >= comm->clique->size()) return refuse(ncclInvalidArgument, "there is no such peer");
  if (!is_on_device(*comm, data, bytes))
    return refuse(ncclInvalidArgument, "a buffer is not memory of the communicator's device");
  Operation operation{.kind = Kind::point_to_point};
  (sends ? operation.sends : operation.receives).push_back({peer, static_cast<std::byte*>(data), bytes});
  return exchange(std::move(operation), comm, stream);
}

ncclResult_t let_go(ncclComm_t comm) {
  {
    const std::lock_guard lock(everything().mutex);
    if (everything().alive.erase(comm) == 0) return refuse(ncclInvalidArgument, "there is no such communicator");
    everything().connected.erase(comm);
  }
  --controls().communicators;
  delete comm;
  return ncclSuccess;
}

}  // namespace

extern "C" {

Controls* hearth_runs_on_the_emulated_gpu() { return &controls(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = controls().version != 0 ? controls().version.load() : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(everything().mutex);
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "reference %d", ++everything().next_id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  int device = 0;
  if (size < 1 || rank < 0 || rank >= size || cudaGetDevice(&device) != cudaSuccess)
    return refuse(ncclInvalidArgument, "there is no such rank");
  if (controls().refuses == rank) return refuse(ncclSystemError, "refused, as the test asks");
  Everything& all = everything();
  std::unique_lock lock(all.mutex);
  Rendezvous& here = all.rendezvous[std::string(id.internal, sizeof id.internal)];
  if (here.clique == nullptr) here.clique = std::make_shared<Clique>(size);
  if (here.clique->size() != size || !here.ranks.insert(rank).second)
    return refuse(ncclInvalidUsage, "a rank came twice, or the ranks do not agree how many they are");
  here.one_device_twice = !here.devices.insert(device).second || here.one_device_twice;
  all.changed.notify_all();
  if (!all.changed.wait_for(lock, to_come_together, [&] { return static_cast<int>(here.ranks.size()) == size; }))
    return refuse(ncclSystemError, "not all ranks have come");
  if (here.one_device_twice) return refuse(ncclInvalidUsage, "two ranks have the same device");
  *comm = new ncclComm{here.clique, rank, device};
  all.alive.insert(*comm);
  if (rank == 0) log_line(device, "=== System : maxBw 360.0 totalBw 360.0 ===");
  if (rank == 0) log_line(device, "              + NVL[360.0] - NVS/0");
  log_line(device, "Using network Socket");
  log_line(device, "ncclCommInitRank comm 0x1 rank " + std::to_string(rank) + " nranks " + std::to_string(size) +
                       " cudaDev " + std::to_string(device) + " nvmlDev " + std::to_string(device) +
                       " busId 3d000 commId 0x1 - Init COMPLETE");
  ++controls().communicators;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return is_alive(comm) ? ncclSuccess : refuse(ncclInvalidArgument, "there is no such communicator");
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return let_go(comm); }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!is_alive(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  emulate::under_the_lock([&] { comm->clique->abort(comm->rank); });
  emulate::meetings_changed();
  ++controls().aborted;
  return let_go(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!is_alive(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  *error = static_cast<ncclResult_t>(controls().async_error[static_cast<std::size_t>(comm->rank)].load());
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  std::vector<Pending> merged;
  for (Pending& one : pending) {
    const bool joins = !merged.empty() && one.operation.kind == Kind::point_to_point &&
                       merged.back().operation.kind == Kind::point_to_point && merged.back().comm == one.comm &&
                       merged.back().stream == one.stream;
    if (!joins) {
      merged.push_back(std::move(one));
      continue;
    }
    Operation& into = merged.back().operation;
    into.sends.insert(into.sends.end(), one.operation.sends.begin(), one.operation.sends.end());
    into.receives.insert(into.receives.end(), one.operation.receives.begin(), one.operation.receives.end());
  }
  pending.clear();
  ncclResult_t result = ncclSuccess;
  for (const Pending& one : merged)
    if (const ncclResult_t queued = queue(one); result == ncclSuccess) result = queued;
  return result;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return submit(comm, stream,
                {.kind = Kind::all_reduce,
                 .send = static_cast<const std::byte*>(send),
                 .receive = static_cast<std::byte*>(receive),
                 .count = count,
                 .type = type,
                 .op = op},
                bytes, bytes);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return submit(comm, stream,
                {.kind = Kind::reduce_scatter,
                 .send = static_cast<const std::byte*>(send),
                 .receive = static_cast<std::byte*>(receive),
                 .count = count,
                 .type = type,
                 .op = op},
                bytes * (is_alive(comm) ? static_cast<std::size_t>(comm->clique->size()) : 0), bytes);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return submit(comm, stream,
                {.kind = Kind::all_gather,
                 .send = static_cast<const std::byte*>(send),
                 .receive = static_cast<std::byte*>(receive),
                 .count = count,
                 .type = type},
                bytes, bytes * (is_alive(comm) ? static_cast<std::size_t>(comm->clique->size()) : 0));
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return submit(comm, stream,
                {.kind = Kind::broadcast,
                 .send = static_cast<const std::byte*>(send),
                 .receive = static_cast<std::byte*>(receive),
                 .count = count,
                 .type = type,
                 .root = root},
                bytes, bytes);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(const_cast<void*>(data), count, type, peer, comm, stream, true);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return message(data, count, type, peer, comm, stream, false);
}

}  // extern "C"
