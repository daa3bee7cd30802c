// SPDX-License-Identifier: Apache-2.0
#include "dist/routes.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "dist/agreement.h"
#include "dist/ordered_sum.h"

namespace hearth::dist {
namespace {

// What is summed at a time: the buffers are no larger, whatever the tensor is.
constexpr std::int64_t part_bytes = std::int64_t{16} << 20;
// What ranks of a host sum while the chunk before it is summed between hosts.
constexpr std::int64_t chunk_bytes = std::int64_t{2} << 20;

constexpr const char* route_names[] = {"auto", "direct", "ring", "tree", "hierarchical"};

bool is_16_bit(DType type) { return type == DType::f16 || type == DType::bf16; }
DType sum_type_of(DType type) { return is_16_bit(type) ? DType::f32 : type; }
std::int64_t grain_of(DType type) { return grain_bytes / static_cast<std::int64_t>(size_of(type)); }
bool is_power_of_2(std::size_t n) { return std::has_single_bit(n); }

/// The ranks of each host.
std::map<int, std::vector<int>> ranks_by_host(const std::vector<int>& hosts) {
  std::map<int, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) ranks[hosts[rank]].push_back(static_cast<int>(rank));
  return ranks;
}

std::string why_not_by_host(const std::vector<int>& hosts, bool ordered) {
  const auto ranks = ranks_by_host(hosts);
  std::size_t least = hosts.size(), most = 0;
  bool are_neighbours = true;
  for (const auto& [host, on_it] : ranks) {
    least = std::min(least, on_it.size()), most = std::max(most, on_it.size());
    are_neighbours = are_neighbours && on_it.back() - on_it.front() + 1 == static_cast<int>(on_it.size());
  }
  if (ranks.size() == 1) return "all ranks are on one host";
  if (most == 1) return "no host has several ranks";
  if (least != most)
    return join_text("some hosts have ", least, " ranks, others ", most, "; it takes as many on each host");
  if (ordered && !is_power_of_2(least))
    return join_text("hosts have ", least,
                     " ranks; sums by pairs of neighbouring ranks, which train.deterministic wants, take 2, 4, 8 or "
                     "another power of 2");
  if (ordered && !are_neighbours)
    return "neighbouring ranks are on different hosts; sums by their pairs, which train.deterministic wants, take "
           "hosts that have ranks 0 to m - 1, m to 2 m - 1 and so on";
  return "";
}

Route chosen(Route route, const std::vector<int>& hosts, bool ordered) {
  if (route != Route::automatic) {
    const std::string why = why_not(route, hosts, ordered);
    HEARTH_CHECK(ConfigError, why.empty(), "dist.route: ", name_of(route), ": ", why, "; auto takes what is possible");
    return route;
  }
  return why_not(Route::hierarchical, hosts, ordered).empty() && hosts.size() > 1 ? Route::hierarchical : Route::direct;
}

}  // namespace

const char* name_of(Route route) { return route_names[static_cast<int>(route)]; }

std::string why_not(Route route, const std::vector<int>& hosts, bool ordered) {
  if (hosts.size() == 1) return "";
  if (route == Route::ring && ordered)
    return "it adds in an order of its own, and train.deterministic wants sums by pairs of neighbouring ranks";
  if (route == Route::tree && !is_power_of_2(hosts.size()))
    return join_text("it takes 2, 4, 8 or another power of 2 of ranks; there are ", hosts.size());
  return route == Route::hierarchical ? why_not_by_host(hosts, ordered) : "";
}

/// Elements of a tensor from `x` on, of which each rank of a host has one of `pieces`.
struct SumRoute::Chunk {
  std::byte* x;
  DType type;
  Pieces pieces;
  std::byte* piece;    ///< this rank's
  std::byte* sum;      ///< of this rank's piece on its host: the piece, or in the type in which sums are formed
  std::int64_t count;  ///< of the piece
};

/// How far the two threads of a sum are. Each waits for the other; where one fails, the other does not go on.
class SumRoute::Pipeline {
 public:
  void advance(int& stage) {
    const std::lock_guard lock(mutex_);
    ++stage;
    changed_.notify_all();
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }
  /// False where the other thread has failed.
  bool wait_for(const int& stage, int chunks) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stage >= chunks || failed_; });
    return !failed_;
  }

  int on_host = 0, between_hosts = 0;  ///< chunks that are summed

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false;
};

SumRoute::SumRoute(Route route, bool ordered, int rank, std::vector<int> hosts, Exchange exchange, Abort abort)
    : ordered_(ordered),
      route_(chosen(route, hosts, ordered)),
      rank_(rank),
      hosts_(std::move(hosts)),
      exchange_(std::move(exchange)),
      abort_(std::move(abort)),
      all_(hosts_.size()) {
  std::iota(all_.begin(), all_.end(), 0);
  const auto ranks = ranks_by_host(hosts_);
  local_ = ranks.at(hosts_[static_cast<std::size_t>(rank_)]);
  const auto number = static_cast<std::size_t>(index_in(local_));
  for (const auto& [host, on_it] : ranks) {
    ring_.insert(ring_.end(), on_it.begin(), on_it.end());
    if (number < on_it.size()) peers_.push_back(on_it[number]);
  }
}

void SumRoute::use(Route route) { route_ = chosen(route, hosts_, ordered_); }

std::string SumRoute::text() const {
  if (route_ != Route::hierarchical) return name_of(route_);
  return join_text(name_of(route_), ", ", peers_.size(), " hosts of ", local_.size(), " ranks");
}

int SumRoute::index_in(const std::vector<int>& ranks) const {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
}

SumRoute::Rows SumRoute::scatter(const std::vector<int>& ranks, const std::byte* x, std::size_t element,
                                 const Pieces& pieces, std::vector<std::byte>& received) {
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * element; };
  const int me = index_in(ranks);
  const std::size_t mine = bytes(pieces.size(me));
  // Only ever larger: a resize to more fills with zeros, which takes as long as a reduction.
  received.resize(std::max(received.size(), mine * ranks.size()));
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  Rows rows;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    std::byte* const row = received.data() + mine * static_cast<std::size_t>(i);
    rows.push_back(i == me ? x + bytes(pieces.begin(me)) : row);
    if (i == me) continue;
    out.push_back({ranks[static_cast<std::size_t>(i)], {x + bytes(pieces.begin(i)), bytes(pieces.size(i))}});
    in.push_back({ranks[static_cast<std::size_t>(i)], {row, mine}});
  }
  exchange_(out, in);
  return rows;
}

void SumRoute::gather(const std::vector<int>& ranks, std::byte* x, std::size_t element, const Pieces& pieces) {
  const auto piece = [&](int of) {
    return std::span(x + static_cast<std::size_t>(pieces.begin(of)) * element,
                     static_cast<std::size_t>(pieces.size(of)) * element);
  };
  const int me = index_in(ranks);
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    if (i == me) continue;
    out.push_back({ranks[static_cast<std::size_t>(i)], piece(me)});
    in.push_back({ranks[static_cast<std::size_t>(i)], piece(i)});
  }
  exchange_(out, in);
}

std::byte* SumRoute::sums_of(std::byte* x, DType type, std::int64_t count) {
  if (!is_16_bit(type)) return x;
  std::vector<std::byte>& sums = sums_[0];
  sums.resize(std::max(sums.size(), static_cast<std::size_t>(count) * sizeof(float)));
  const std::byte* const row = x;
  reduce_rows({&row, 1}, type, sums.data(), DType::f32, count, Reduce::sum);
  return sums.data();
}

void SumRoute::all_reduce(std::byte* x, DType type, std::int64_t count, Reduce op) {
  const auto element = static_cast<std::int64_t>(size_of(type)), step = part_bytes / element;
  for (std::int64_t begin = 0; begin < count; begin += step)
    sum_part(x + begin * element, type, std::min(step, count - begin), op);
}

void SumRoute::sum_part(std::byte* x, DType type, std::int64_t count, Reduce op) {
  switch (route_) {
    case Route::ring:
      return sum_round_ring(x, type, count, op);
    case Route::tree:
      return sum_by_halves(x, type, count, op);
    case Route::hierarchical:
      return sum_hierarchically(x, type, count, op);
    case Route::automatic:
    case Route::direct:
      return sum_direct(x, type, count, op);
  }
}

void SumRoute::sum_direct(std::byte* x, DType type, std::int64_t count, Reduce op) {
  const std::size_t element = size_of(type);
  const Pieces pieces(count, static_cast<int>(all_.size()), grain_of(type));
  const Rows rows = scatter(all_, x, element, pieces, received_);
  reduce_rows(rows, type, x + static_cast<std::size_t>(pieces.begin(rank_)) * element, type, pieces.size(rank_), op);
  gather(all_, x, element, pieces);
}

void SumRoute::sum_hierarchically(std::byte* x, DType type, std::int64_t count, Reduce op) {
  const auto element = static_cast<std::int64_t>(size_of(type)), step = chunk_bytes / element;
  const auto chunks = static_cast<int>((count + step - 1) / step);
  const auto chunk_of = [&](int number) {
    std::byte* const begin = x + number * step * element;
    const Pieces pieces(std::min(step, count - number * step), static_cast<int>(local_.size()), grain_of(type));
    const int me = index_in(local_);
    std::byte* const piece = begin + pieces.begin(me) * element;
    std::vector<std::byte>& sums = sums_[static_cast<std::size_t>(number % 2)];
    if (is_16_bit(type)) sums.resize(std::max(sums.size(), static_cast<std::size_t>(pieces.size(me)) * sizeof(float)));
    return Chunk{begin, type, pieces, piece, is_16_bit(type) ? sums.data() : piece, pieces.size(me)};
  };
  const auto gather_on_host = [&](int number) {
    const Chunk chunk = chunk_of(number);
    gather(local_, chunk.x, size_of(type), chunk.pieces);
  };
  if (chunks == 1) {
    const Chunk chunk = chunk_of(0);
    sum_on_host(chunk, op);
    sum_between_hosts(chunk, op);
    return gather_on_host(0);
  }

  Pipeline pipeline;
  const auto guarded = [&](const auto& f) {
    try {
      f();
    } catch (const std::exception& error) {
      // The other thread may wait for other ranks, which wait for this one.
      pipeline.fail();
      abort_(failure_text(error));
      throw;
    }
  };
  std::future<void> between_hosts = std::async(std::launch::async, [&] {
    guarded([&] {
      for (int number = 0; number < chunks && pipeline.wait_for(pipeline.on_host, number + 1); ++number) {
        sum_between_hosts(chunk_of(number), op);
        pipeline.advance(pipeline.between_hosts);
      }
    });
  });
  // A fixed order, as exchanges of the ranks of a host pair up: chunk i + 1 goes before the gathering of chunk i.
  guarded([&] {
    for (int number = 0; number <= chunks; ++number) {
      if (number < chunks) {
        sum_on_host(chunk_of(number), op);
        pipeline.advance(pipeline.on_host);
      }
      if (number == 0) continue;
      if (!pipeline.wait_for(pipeline.between_hosts, number)) break;
      gather_on_host(number - 1);
    }
  });
  between_hosts.get();
}

void SumRoute::sum_on_host(const Chunk& chunk, Reduce op) {
  const Rows rows = scatter(local_, chunk.x, size_of(chunk.type), chunk.pieces, received_);
  reduce_rows(rows, chunk.type, chunk.sum, sum_type_of(chunk.type), chunk.count, op);
}

void SumRoute::sum_between_hosts(const Chunk& chunk, Reduce op) {
  const DType sum_type = sum_type_of(chunk.type);
  const std::size_t element = size_of(chunk.type);
  const Pieces pieces(chunk.count, static_cast<int>(peers_.size()), grain_of(chunk.type));
  const int host = index_in(peers_);
  const Rows rows = scatter(peers_, chunk.sum, size_of(sum_type), pieces, received_remotely_);
  reduce_rows(rows, sum_type, chunk.piece + static_cast<std::size_t>(pieces.begin(host)) * element, chunk.type,
              pieces.size(host), op);
  gather(peers_, chunk.piece, element, pieces);
}

void SumRoute::sum_round_ring(std::byte* x, DType type, std::int64_t count, Reduce op) {
  const int n = static_cast<int>(ring_.size()), me = index_in(ring_);
  const int next = ring_[static_cast<std::size_t>((me + 1) % n)],
            before = ring_[static_cast<std::size_t>((me + n - 1) % n)];
  const Pieces pieces(count, n, grain_of(type));
  const DType sum_type = sum_type_of(type);
  const auto piece = [&](std::byte* of, DType of_type, int number) {
    const std::size_t element = size_of(of_type);
    return std::span(of + static_cast<std::size_t>(pieces.begin(number)) * element,
                     static_cast<std::size_t>(pieces.size(number)) * element);
  };
  const auto pass = [&](std::span<const std::byte> to_next, std::span<std::byte> from_before) {
    const Outgoing out{next, to_next};
    const Incoming in{before, from_before};
    exchange_({&out, 1}, {&in, 1});
  };
  std::byte* const sums = sums_of(x, type, count);
  received_.resize(std::max(received_.size(), piece(sums, sum_type, 0).size()));
  for (int round = 0; round + 1 < n; ++round) {
    const int sent = (me + n - round) % n, added = (sent + n - 1) % n;
    const std::span<std::byte> target = piece(sums, sum_type, added);
    pass(piece(sums, sum_type, sent), std::span(received_).first(target.size()));
    reduce_rows(Rows{received_.data(), target.data()}, sum_type, target.data(), sum_type, pieces.size(added), op);
  }
  const int complete = (me + 1) % n;
  if (sum_type != type)
    reduce_rows(Rows{piece(sums, sum_type, complete).data()}, sum_type, piece(x, type, complete).data(), type,
                pieces.size(complete), op);
  for (int round = 0; round + 1 < n; ++round) {
    const int sent = (complete + n - round) % n;
    pass(piece(x, type, sent), piece(x, type, (sent + n - 1) % n));
  }
}

void SumRoute::sum_by_halves(std::byte* x, DType type, std::int64_t count, Reduce op) {
  const DType sum_type = sum_type_of(type);
  const std::size_t element = size_of(type), sum_element = size_of(sum_type);
  const auto at = [](std::int64_t index, std::size_t size) { return static_cast<std::size_t>(index) * size; };
  std::byte* const sums = sums_of(x, type, count);
  struct Cut {
    int other;
    std::int64_t begin, middle, end;
    bool is_low;  ///< this rank has the first half
  };
  std::vector<Cut> cuts;
  std::int64_t begin = 0, end = count;
  for (int distance = 1; distance < static_cast<int>(all_.size()); distance *= 2) {
    const Pieces halves(end - begin, 2, grain_of(type));
    const Cut cut{rank_ ^ distance, begin, begin + halves.size(0), end, (rank_ & distance) == 0};
    cuts.push_back(cut);
    begin = cut.is_low ? cut.begin : cut.middle;
    end = cut.is_low ? cut.middle : cut.end;
    const std::int64_t sent = cut.is_low ? cut.middle : cut.begin;
    const std::size_t mine = at(end - begin, sum_element), theirs = at(cut.end - cut.begin, sum_element) - mine;
    received_.resize(std::max(received_.size(), mine));
    const Outgoing out{cut.other, {sums + at(sent, sum_element), theirs}};
    const Incoming in{cut.other, std::span(received_).first(mine)};
    exchange_({&out, 1}, {&in, 1});
    std::byte* const half = sums + at(begin, sum_element);
    // In the order of ranks.
    const Rows rows = cut.is_low ? Rows{half, received_.data()} : Rows{received_.data(), half};
    reduce_rows(rows, sum_type, half, sum_type, end - begin, op);
  }
  if (sum_type != type)
    reduce_rows(Rows{sums + at(begin, sum_element)}, sum_type, x + at(begin, element), type, end - begin, op);
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const std::span low(x + at(cut->begin, element), at(cut->middle - cut->begin, element));
    const std::span high(x + at(cut->middle, element), at(cut->end - cut->middle, element));
    const Outgoing out{cut->other, cut->is_low ? low : high};
    const Incoming in{cut->other, cut->is_low ? high : low};
    exchange_({&out, 1}, {&in, 1});
  }
}

void SumRoute::reduce_scatter(const std::byte* x, DType type, std::int64_t count, std::byte* part) {
  const Pieces pieces(count * static_cast<std::int64_t>(all_.size()), static_cast<int>(all_.size()), count);
  reduce_rows(scatter(all_, x, size_of(type), pieces, received_), type, part, type, count, Reduce::sum);
}

}  // namespace hearth::dist
