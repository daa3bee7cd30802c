// SPDX-License-Identifier: Apache-2.0
#include "dist/gloo.h"

#include "core/build.h"
#include "core/cpu/signals.h"
#include "core/error.h"
#include "dist/frame.h"

#if HEARTH_HAS_GLOO
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#endif

#include <future>
#include <mutex>
#include <thread>

namespace hearth::dist {

#if HEARTH_HAS_GLOO
namespace {

// By then the side channel knows why a connection broke.
constexpr double verdict_seconds = 1.5;

/// Where ranks find each other's addresses, until it is closed.
class ControlStore : public gloo::rendezvous::Store {
 public:
  ControlStore(Control& control, double seconds) : control_(&control), seconds_(seconds) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    const std::lock_guard lock(mutex_);
    control().set("gloo/" + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const std::string value = control().get("gloo/" + key, seconds_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) (void)get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }
  void close() {
    const std::lock_guard lock(mutex_);
    control_ = nullptr;
  }

 private:
  Control& control() const {
    HEARTH_CHECK(PeerError, control_ != nullptr, "the group has failed");
    return *control_;
  }

  std::mutex mutex_;
  Control* control_;
  double seconds_;
};

using Buffer = gloo::transport::UnboundBuffer;

class GlooTransport : public Transport {
 public:
  GlooTransport(Control& control, int size, const GlooOptions& options)
      : control_(control),
        timeout_(milliseconds_of(options.timeout_seconds)),
        context_(std::make_shared<gloo::rendezvous::Context>(control.rank(), size)) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.address.empty() ? control.local_address() : options.address;
    try {
      connect(attributes, options.join_seconds);
      timeout_ = milliseconds_of(options.join_seconds);
      prove_connections(options.join_seconds);
      timeout_ = milliseconds_of(options.timeout_seconds);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw_peer_error(
          join_text("rank ", rank(), " cannot connect with the others from ", attributes.hostname, ": ", error.what()));
    }
    control.on_failure([this](const std::string& reason) { interrupt(reason); });
  }
  ~GlooTransport() override { control_.on_failure(nullptr); }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  const char* name() const override { return "gloo"; }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    const std::uint64_t slot = next_slot_++;
    std::vector<std::unique_ptr<Buffer>> sent, received;
    int peer = -1;
    const char* doing = "send to";
    try {
      for (const Incoming& one : in) received.push_back(buffer(one.bytes.data(), one.bytes.size()));
      for (const Outgoing& one : out)
        sent.push_back(buffer(const_cast<std::byte*>(one.bytes.data()), one.bytes.size()));
      const Waiting waiting(*this, sent, received);
      for (std::size_t i = 0; i < in.size(); ++i)
        if (received[i] != nullptr) received[i]->recv(peer = in[i].from, slot);
      for (std::size_t i = 0; i < out.size(); ++i)
        if (sent[i] != nullptr) sent[i]->send(peer = out[i].to, slot);
      doing = "receive from";
      for (std::size_t i = 0; i < in.size(); ++i)
        if (received[i] != nullptr && !received[i]->waitRecv(&(peer = in[i].from), timeout_)) throw_interrupted();
      doing = "send to";
      for (std::size_t i = 0; i < out.size(); ++i)
        if (sent[i] != nullptr && !sent[i]->waitSend(&(peer = out[i].to), timeout_)) throw_interrupted();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw_peer_error(join_text("rank ", rank(), " cannot ", doing, ' ', control_.who(peer), ": ", error.what()));
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
  static std::chrono::milliseconds milliseconds_of(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  }

  /// A rank takes the first who connects while it waits for another. Each shows that it has read what the other has
  /// set, as only ranks can.
  void prove_connections(double seconds) {
    const auto key = [](int rank) { return join_text("gloo proof/", rank); };
    const auto proof = [](const std::string& secret, int from) { return hmac_sha256(secret, std::to_string(from)); };
    const std::string secret = random_nonce();
    control_.set(key(rank()), secret);
    std::vector<std::string> sent(static_cast<std::size_t>(size())), received(sent);
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      std::string &to = sent[static_cast<std::size_t>(other)], &from = received[static_cast<std::size_t>(other)];
      to = proof(control_.get(key(other), seconds), rank());
      from.resize(proof_size);
      out.push_back({other, std::as_bytes(std::span(to))});
      in.push_back({other, std::as_writable_bytes(std::span(from))});
    }
    exchange(out, in);
    for (const Incoming& one : in)
      HEARTH_CHECK(PeerError, same_proof(received[static_cast<std::size_t>(one.from)], proof(secret, one.from)),
                   "another process than ", control_.who(one.from), " has connected to rank ", rank(),
                   " in its stead; let nobody else onto the ranks' subnet");
  }

  /// Connects with all ranks. The library waits for a rank that has died in between as for a slow one, and cannot be
  /// told: its thread is left alone then.
  void connect(const gloo::transport::tcp::attr& attributes, double join_seconds) {
    context_->setTimeout(timeout_);
    const auto store = std::make_shared<ControlStore>(control_, join_seconds);
    std::packaged_task<void()> task([context = context_, store, attributes] {
      cpu::block_signals_for_good();
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
      context->connectFullMesh(*store, device);
    });
    std::future<void> done = task.get_future();
    std::thread thread(std::move(task));
    while (done.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
      const std::string failure = control_.failure();
      if (failure.empty()) continue;
      store->close();
      thread.detach();
      throw PeerError(failure);
    }
    thread.join();
    done.get();
  }

  /// The buffers of an exchange, as long as somebody may wait for them.
  struct Waiting {
    Waiting(GlooTransport& transport, std::vector<std::unique_ptr<Buffer>>& sent,
            std::vector<std::unique_ptr<Buffer>>& received)
        : of(transport) {
      const std::lock_guard lock(of.mutex_);
      if (!of.reason_.empty()) throw PeerError(of.reason_);
      of.sent_ = &sent, of.received_ = &received;
    }
    ~Waiting() {
      const std::lock_guard lock(of.mutex_);
      of.sent_ = of.received_ = nullptr;
    }
    GlooTransport& of;
  };

  /// Null for nothing, which is not sent.
  std::unique_ptr<Buffer> buffer(std::byte* bytes, std::size_t size) {
    return size == 0 ? nullptr : context_->createUnboundBuffer(bytes, size);
  }

  void interrupt(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    if (received_ == nullptr) return;
    for (const std::unique_ptr<Buffer>& one : *received_)
      if (one != nullptr) one->abortWaitRecv();
    for (const std::unique_ptr<Buffer>& one : *sent_)
      if (one != nullptr) one->abortWaitSend();
  }
  [[noreturn]] void throw_interrupted() {
    const std::lock_guard lock(mutex_);
    throw PeerError(reason_);
  }
  /// With what the side channel says, which knows better; else with `otherwise`.
  [[noreturn]] void throw_peer_error(const std::string& otherwise) {
    const std::string reason = control_.failure(verdict_seconds);
    throw PeerError(reason.empty() ? otherwise : reason);
  }

  Control& control_;
  std::chrono::milliseconds timeout_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  std::uint64_t next_slot_ = 1;
  mutable std::mutex mutex_;
  std::string reason_;
  std::vector<std::unique_ptr<Buffer>>* sent_ = nullptr;
  std::vector<std::unique_ptr<Buffer>>* received_ = nullptr;
};

}  // namespace

std::string why_no_gloo() { return ""; }

std::unique_ptr<Transport> gloo_transport(Control& control, int size, const GlooOptions& options) {
  return std::make_unique<GlooTransport>(control, size, options);
}

#else

std::string why_no_gloo() { return "this build of Hearth has none, install libgloo-dev and build again"; }

std::unique_ptr<Transport> gloo_transport(Control&, int, const GlooOptions& options) {
  throw UsageError(
      join_text("dist: the ranks need Gloo", options.reason.empty() ? "" : ": ", options.reason, "; ", why_no_gloo()));
}

#endif

}  // namespace hearth::dist
