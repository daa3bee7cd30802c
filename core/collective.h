// SPDX-License-Identifier: Apache-2.0
// What the ranks of a data parallel run do together. Abstract here, so that layers and optimizers can take a reference;
// dist has the implementations.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/export.h"
#include "core/tensor.h"

namespace hearth {

enum class Reduce : std::uint8_t { sum, min, max };

/// A collective that was started. Its tensors must stay as they are until wait() has returned.
class HEARTH_API Work {
 public:
  /// One that is done.
  Work() = default;
  /// Done when `future` is there and `then`, which each wait() calls, has returned. What wait() waits for `future` is
  /// added to `exposed_ns`, in nanoseconds.
  explicit Work(std::shared_future<void> future, std::function<void()> then = {},
                std::shared_ptr<std::atomic<std::int64_t>> exposed_ns = {})
      : future_(std::move(future)), then_(std::move(then)), exposed_ns_(std::move(exposed_ns)) {}

  /// Returns when this rank has its result; throws what made the collective fail. May be called again. With NCCL the
  /// host does not wait for the device: what is queued from now on comes after the result.
  void wait() const {
    if (future_.valid()) {
      const auto begin = std::chrono::steady_clock::now();
      future_.wait();
      if (exposed_ns_) *exposed_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
      future_.get();
    }
    if (then_) then_();
  }
  bool done() const {
    return !future_.valid() || future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::shared_future<void> future_;
  std::function<void()> then_;
  std::shared_ptr<std::atomic<std::int64_t>> exposed_ns_;
};

/// Elements begin to begin + size of a flat tensor, as a view.
HEARTH_API Tensor slice_of(const Tensor& flat, std::int64_t begin, std::int64_t size);

/// Returns when all are done; throws then what made the first of them fail that did.
HEARTH_API void wait_for_all(std::span<const Work> works);

/// What the collectives of one rank have cost so far.
struct Traffic {
  std::int64_t bytes = 0;         ///< sent to other ranks, with what the ranks compare before a collective
  double seconds = 0;             ///< in which a collective was under way, with the wait for slower ranks
  double exposed_seconds = 0;     ///< in which Work::wait() waited
  std::int64_t remote_bytes = 0;  ///< of the bytes, those to ranks on other hosts; 0 of NCCL's

  Traffic& operator+=(const Traffic& more) {
    bytes += more.bytes, seconds += more.seconds, exposed_seconds += more.exposed_seconds;
    remote_bytes += more.remote_bytes;
    return *this;
  }
  Traffic operator-(const Traffic& earlier) const {
    return {bytes - earlier.bytes, seconds - earlier.seconds, exposed_seconds - earlier.exposed_seconds,
            remote_bytes - earlier.remote_bytes};
  }
};

/// A collective that has been under way.
struct CollectiveSpan {
  const char* what = "";   ///< "all_reduce"
  std::int64_t bytes = 0;  ///< sent by this rank
  std::chrono::steady_clock::time_point begin{}, end{};
};

/// A group of ranks 0..size()-1, of which this object is one. Every rank calls the same collectives in the same order
/// with tensors of the same shapes and types; PeerError, naming the rank, where one does not, dies or gives up. After
/// a failure every later collective fails with the same message.
///
/// send() and receive() concern two ranks. Messages from one rank to another arrive in the order of the calls; they
/// wait neither for other ranks nor for those of the other direction, so two ranks may both send first. A collective
/// begins when all messages that its rank started before are through, and messages begin after earlier collectives.
///
/// Results have the same bits on every rank, and from run to run: sums are formed by pairs of neighbouring ranks, then
/// pairs of these, in the precision of the tensor but at least in f32. Tensors must be contiguous (ShapeError).
class HEARTH_API Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "loopback", "shared memory", "tcp" or "nccl".
  virtual const char* backend() const = 0;
  /// Where this rank's tensors lie that are not copied to the host for a collective: its own CUDA device, or the CPU.
  virtual Device device() const { return {}; }

  /// Replaces x by its sum (minimum, maximum) over all ranks. With `wire`, a low-precision type, f32 elements travel in
  /// that type: each rank's and the sum are rounded to it, the sum is formed in f32.
  virtual Work all_reduce(const Tensor& x, Reduce op = Reduce::sum, std::optional<DType> wire = {}) = 0;
  /// part becomes this rank's piece of the sum of x over all ranks: x [size * n], part [n].
  virtual Work reduce_scatter(const Tensor& x, const Tensor& part) = 0;
  /// all becomes the parts of all ranks in order: part [n], all [size * n].
  virtual Work all_gather(const Tensor& part, const Tensor& all) = 0;
  /// Each part of x [n] becomes that of its rank: elements cuts[r] to cuts[r + 1] are those of rank r. `cuts`, size() +
  /// 1 numbers that rise from 0 to n (ShapeError), are the same on all ranks.
  virtual Work gather_parts(const Tensor& x, const std::vector<std::int64_t>& cuts);
  /// part becomes the elements cuts[r] to cuts[r + 1] of the sum of x [n] over all ranks, r being this rank. What x
  /// holds afterwards is not defined.
  virtual Work reduce_parts(const Tensor& x, const std::vector<std::int64_t>& cuts, const Tensor& part);
  /// x becomes that of rank `root`.
  virtual Work broadcast(const Tensor& x, int root = 0) = 0;
  /// Piece r of y, of size() pieces, becomes piece rank() of the x of rank r: x and y [size * n], without common
  /// elements (UsageError).
  virtual Work all_to_all(const Tensor& x, const Tensor& y) = 0;
  /// Sends x to another rank, which calls receive() with a tensor of the same shape and type. When wait() returns, x
  /// may change; the message may still be on its way. PeerError of the receiver where the two calls differ, of this
  /// rank at the latest in its next call. IndexError for this rank itself and ranks outside of the group.
  ///
  /// Messages of CUDA tensors over NCCL run one after the other on the group's stream: of two ranks that send to each
  /// other, one calls receive() first.
  virtual Work send(const Tensor& x, int to) = 0;
  /// x becomes what rank `from` sends; see send().
  virtual Work receive(const Tensor& x, int from) = 0;
  /// Returns when every rank has come here.
  virtual void barrier() = 0;

  /// Of collectives on the host, and the bytes of NCCL's. To be read while none is under way.
  virtual Traffic traffic() const { return {}; }
  /// From now on collectives on the host are added to `spans`, which must outlive them; null: no more. To be called
  /// while none is under way.
  virtual void record_spans(std::vector<CollectiveSpan>* spans) { static_cast<void>(spans); }

  /// Tells the other ranks that this one gives up: what they wait for fails with its name and `reason`.
  virtual void abort(const std::string& reason) = 0;

 protected:
  /// ShapeError unless x has parts by these cuts; `op` is the collective's name.
  void check_cuts(const char* op, const Tensor& x, std::span<const std::int64_t> cuts) const;
};

}  // namespace hearth
