// SPDX-License-Identifier: Apache-2.0
#include "dist/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

#include "core/error.h"

namespace hearth::dist {
namespace {

using Clock = std::chrono::steady_clock;

// Moved before the other side is told: it reads these from the cache that both share.
constexpr std::size_t chunk = std::size_t{256} << 10;
constexpr std::size_t line = 64;
// So that a failure is seen even if the wake-up for it comes while nobody sleeps yet.
constexpr long longest_sleep_ns = 50'000'000;
// By then the side channel knows why a rank left.
constexpr double reason_seconds = 1.5;

/// Wakes a rank that waits for something to move.
struct alignas(line) Bell {
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> sleeping{0};  ///< threads of the rank
  std::atomic<std::uint32_t> left{0};      ///< the rank will move nothing any more
};
/// Bytes on the way from one rank to another: a ring, of which `written - read` bytes are filled.
struct Channel {
  alignas(line) std::atomic<std::uint64_t> written{0};
  alignas(line) std::atomic<std::uint64_t> read{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

using Nonce = std::array<std::uint64_t, 2>;

/// Where what lies in the segment of `size` ranks: a nonce, bells, channels, rings. Pages that nobody touches take no
/// memory.
struct Layout {
  explicit Layout(std::size_t size) : ranks(size) {
    constexpr std::size_t all = std::size_t{64} << 20, least = std::size_t{64} << 10, most = std::size_t{1} << 20;
    ring = std::clamp(std::bit_floor(all / (ranks * ranks)), least, most);
    channels = line + ranks * sizeof(Bell);
    rings = channels + ranks * ranks * sizeof(Channel);
    bytes = rings + ranks * ranks * ring;
  }
  std::size_t ranks, ring, channels, rings, bytes;
};

long futex(std::atomic<std::uint32_t>& word, int call, std::uint32_t value, const timespec* timeout) {
  static_assert(sizeof word == 4);
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), call, value, timeout, nullptr, 0);
}

/// A mapping of the segment.
class Segment {
 public:
  Segment(int file, std::size_t bytes) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) at_ = static_cast<std::byte*>(at);
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment() {
    if (at_ != nullptr) munmap(at_, bytes_);
  }
  std::byte* at() const { return at_; }

 private:
  std::byte* at_ = nullptr;
  std::size_t bytes_;
};

class File {
 public:
  explicit File(int file) : file_(file) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file_ >= 0) close(file_);
  }
  int get() const { return file_; }

 private:
  int file_;
};

class SharedMemory : public Transport {
 public:
  SharedMemory(Control& control, std::vector<int> ranks, std::unique_ptr<Segment> segment, double timeout_seconds)
      : control_(control),
        ranks_(std::move(ranks)),
        layout_(ranks_.size()),
        segment_(std::move(segment)),
        timeout_seconds_(timeout_seconds) {
    control.on_failure(this, [this](const std::string& reason) { interrupt(reason); });
  }
  ~SharedMemory() override {
    control_.on_failure(this, nullptr);
    bell(rank()).left.store(1);
    for (int other : ranks_) wake(other);
  }

  int rank() const override { return control_.rank(); }
  int size() const override { return static_cast<int>(layout_.ranks); }
  const char* name() const override { return "shared memory"; }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::vector<Outgoing> sent(out.begin(), out.end());
    std::vector<Incoming> received(in.begin(), in.end());
    auto last = Clock::now();
    while (true) {
      check();
      const std::uint32_t heard = bell(rank()).rings.load();
      const int gone = one_that_left(sent, received);  // before what it sent is looked for
      const bool moved = move_some(sent, received);
      std::erase_if(sent, [](const Outgoing& one) { return one.bytes.empty(); });
      std::erase_if(received, [](const Incoming& one) { return one.bytes.empty(); });
      if (sent.empty() && received.empty()) return;
      if (moved) {
        last = Clock::now();
        continue;
      }
      if (gone >= 0) {
        const std::string reason = control_.failure(reason_seconds);
        throw PeerError(reason.empty() ? control_.who(gone) + " has left the group" : reason);
      }
      if (std::chrono::duration<double>(Clock::now() - last).count() > timeout_seconds_)
        throw PeerError(received.empty()
                            ? join_text("rank ", rank(), " cannot send to ", control_.who(sent.front().to),
                                        ": it took nothing for ", timeout_seconds_, " s")
                            : join_text("rank ", rank(), " cannot receive from ", control_.who(received.front().from),
                                        ": nothing came for ", timeout_seconds_, " s"));
      sleep(heard);
    }
  }

  void abort(const std::string& reason) override {
    interrupt(reason);
    if (control_.failure().empty()) control_.give_up(reason);
  }
  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  Bell& bell(int of) const {
    return *std::launder(reinterpret_cast<Bell*>(segment_->at() + line + place(of) * sizeof(Bell)));
  }
  /// In the segment.
  std::size_t place(int rank) const {
    return static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }
  /// One of those that this rank waits for; -1 where all are there.
  int one_that_left(std::span<const Outgoing> sent, std::span<const Incoming> received) const {
    for (const Incoming& one : received)
      if (bell(one.from).left.load() != 0) return one.from;
    for (const Outgoing& one : sent)
      if (bell(one.to).left.load() != 0) return one.to;
    return -1;
  }
  std::size_t index(int from, int to) const { return place(from) * layout_.ranks + place(to); }
  Channel& channel(int from, int to) const {
    return *std::launder(
        reinterpret_cast<Channel*>(segment_->at() + layout_.channels + index(from, to) * sizeof(Channel)));
  }
  std::byte* ring(int from, int to) const { return segment_->at() + layout_.rings + index(from, to) * layout_.ring; }

  /// f(in the ring, offset, bytes) for the one or two pieces of `size` bytes from `position` on.
  template <class F>
  void pieces(std::byte* ring, std::uint64_t position, std::size_t size, F&& f) const {
    const std::size_t begin = position % layout_.ring, first = std::min(size, layout_.ring - begin);
    f(ring + begin, std::size_t{0}, first);
    if (size > first) f(ring, first, size - first);
  }

  /// A chunk of each, as far as there is one; whether anything moved.
  bool move_some(std::span<Outgoing> sent, std::span<Incoming> received) {
    bool moved = false;
    for (Outgoing& one : sent) {
      Channel& way = channel(rank(), one.to);
      const std::uint64_t written = way.written.load(std::memory_order_relaxed);
      const std::size_t room = layout_.ring - (written - way.read.load(std::memory_order_acquire));
      const std::size_t n = std::min({room, chunk, one.bytes.size()});
      if (n == 0) continue;
      pieces(ring(rank(), one.to), written, n, [&](std::byte* to, std::size_t offset, std::size_t size) {
        std::memcpy(to, one.bytes.data() + offset, size);
      });
      way.written.store(written + n, std::memory_order_release);
      one.bytes = one.bytes.subspan(n);
      wake(one.to);
      moved = true;
    }
    for (Incoming& one : received) {
      Channel& way = channel(one.from, rank());
      const std::uint64_t read = way.read.load(std::memory_order_relaxed);
      const std::size_t filled = way.written.load(std::memory_order_acquire) - read;
      const std::size_t n = std::min({filled, chunk, one.bytes.size()});
      if (n == 0) continue;
      pieces(ring(one.from, rank()), read, n, [&](const std::byte* from, std::size_t offset, std::size_t size) {
        std::memcpy(one.bytes.data() + offset, from, size);
      });
      way.read.store(read + n, std::memory_order_release);
      one.bytes = one.bytes.subspan(n);
      wake(one.from);
      moved = true;
    }
    return moved;
  }

  void wake(int other) const {
    Bell& of = bell(other);
    ++of.rings;
    if (of.sleeping.load() != 0) futex(of.rings, FUTEX_WAKE, INT_MAX, nullptr);
  }
  /// Until the bell rings again after `heard`.
  void sleep(std::uint32_t heard) const {
    Bell& own = bell(rank());
    const timespec timeout{.tv_sec = 0, .tv_nsec = longest_sleep_ns};
    ++own.sleeping;
    futex(own.rings, FUTEX_WAIT, heard, &timeout);
    --own.sleeping;
  }

  void interrupt(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    failed_ = true;
    wake(rank());
  }
  void check() const {
    if (!failed_) return;
    const std::lock_guard lock(mutex_);
    throw PeerError(reason_);
  }

  Control& control_;
  const std::vector<int> ranks_;
  const Layout layout_;
  const std::unique_ptr<Segment> segment_;
  const double timeout_seconds_;
  mutable std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> failed_{false};
};

/// What the rank that makes a segment tells: where it runs, its process and file, and what stands at the segment's
/// beginning.
struct Offer {
  std::string place;
  long process = 0;
  int file = -1;
  Nonce nonce{};

  std::string text() const { return join_text(place, ' ', process, ' ', file, ' ', nonce[0], ' ', nonce[1]); }
  static Offer read(const std::string& text) {
    Offer offer;
    std::istringstream in(text);
    in >> offer.place >> offer.process >> offer.file >> offer.nonce[0] >> offer.nonce[1];
    return offer;
  }
};

/// The segment of `rank`, filled; or why not.
std::unique_ptr<Segment> make_segment(const File& file, const Layout& layout, Nonce nonce, int rank, std::string& why) {
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(layout.bytes)) != 0) {
    why = join_text("rank ", rank, " gets no shared memory: ", std::strerror(errno));
    return {};
  }
  auto segment = std::make_unique<Segment>(file.get(), layout.bytes);
  if (segment->at() == nullptr) {
    why = join_text("rank ", rank, " cannot map shared memory: ", std::strerror(errno));
    return {};
  }
  for (std::size_t i = 0; i < layout.ranks; ++i) new (segment->at() + line + i * sizeof(Bell)) Bell;
  for (std::size_t i = 0; i < layout.ranks * layout.ranks; ++i)
    new (segment->at() + layout.channels + i * sizeof(Channel)) Channel;
  std::memcpy(segment->at(), &nonce, sizeof nonce);
  return segment;
}

/// The segment of rank `maker` as another rank sees it; or why not.
std::unique_ptr<Segment> open_segment(const Offer& offer, const Layout& layout, const std::string& place, int maker,
                                      int rank, std::string& why) {
  if (offer.file < 0 || place.empty() || offer.place != place) {
    why = join_text("rank ", rank, " is on another machine, or in another container, than rank ", maker);
    return {};
  }
  const File file(
      open(join_text("/proc/", offer.process, "/fd/", offer.file).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  Nonce nonce{};
  if (file.get() >= 0 && fstat(file.get(), &found) == 0 && static_cast<std::size_t>(found.st_size) == layout.bytes) {
    auto segment = std::make_unique<Segment>(file.get(), layout.bytes);
    if (segment->at() != nullptr) std::memcpy(&nonce, segment->at(), sizeof nonce);
    if (nonce == offer.nonce && nonce != Nonce{}) return segment;
  }
  why = join_text("rank ", rank, " cannot see the memory of rank ", maker);
  return {};
}

}  // namespace

std::string place_of_process() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  for (const char* kind : {"pid", "net"}) {
    std::array<char, 64> text{};
    const ssize_t length = readlink(join_text("/proc/self/ns/", kind).c_str(), text.data(), text.size());
    if (id.empty() || length <= 0) return "";
    id += "," + std::string(text.data(), static_cast<std::size_t>(length));
  }
  return id;
}

std::unique_ptr<Transport> shared_memory_transport(Control& control, int size, std::string& why,
                                                   const SharedMemoryOptions& options) {
  std::vector<int> ranks = options.ranks;
  for (int rank = 0; options.ranks.empty() && rank < size; ++rank) ranks.push_back(rank);
  const Layout layout(ranks.size());
  const int maker = ranks.front();
  const bool makes = control.rank() == maker;
  const std::string place = place_of_process(), offer_key = join_text("memory of ", maker);
  std::string own;  // why this rank cannot
  std::unique_ptr<Segment> segment;
  const File file(makes ? memfd_create("hearth ranks", MFD_CLOEXEC) : -1);
  if (makes) {
    Offer offer{.place = place, .process = getpid(), .file = file.get()};
    if (getrandom(offer.nonce.data(), sizeof offer.nonce, 0) != sizeof offer.nonce) offer.file = -1;
    segment = make_segment(file, layout, offer.nonce, maker, own);
    if (!segment || place.empty()) offer.file = -1;
    control.set(offer_key, offer.text());
  } else {
    const Offer offer = Offer::read(control.get(offer_key, options.join_seconds));
    segment = open_segment(offer, layout, place, maker, control.rank(), own);
  }
  const auto key = [](int rank) { return join_text("memory/", rank); };
  control.set(key(control.rank()), own);
  why.clear();
  for (int rank = 0; rank < size; ++rank) {
    const std::string theirs = control.get(key(rank), options.join_seconds);
    if (why.empty()) why = theirs;
  }
  if (!why.empty()) return nullptr;
  return std::make_unique<SharedMemory>(control, std::move(ranks), std::move(segment), options.timeout_seconds);
}

}  // namespace hearth::dist
