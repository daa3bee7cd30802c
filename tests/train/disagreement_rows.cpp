// SPDX-License-Identifier: Apache-2.0
#include "tests/train/disagreement_rows.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <utility>

#include "core/error.h"
#include "dist/data_parallel.h"
#include "tests/support/error_message.h"

namespace hearth::test {
namespace {

Tensor tensor(const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype); }
void sum(Collective& group) { group.all_reduce(tensor({2, 3})).wait(); }

/// One where all ranks call `usual` at step 12, but the odd one `other`.
Words calls(const std::function<void(Collective&)>& usual, const std::function<void(Collective&)>& other) {
  return others_fail([&](Collective& group) {
    dist::set_status(group, "step 12");
    is_odd(group) ? other(group) : usual(group);
  });
}
Words sums_and(const std::function<void(Collective&)>& other) { return calls(sum, other); }

struct Model {
  std::vector<std::pair<std::string, Shape>> parameters{{"a", {4, 2}}, {"b", {3}}};
  DType dtype = DType::f32;
  std::optional<LowPrecisionCopy> low_precision{};
  dist::DataParallelOptions options{.bucket_mb = 1, .first_bucket_mb = 1e-5};
  bool freezes_last = false;
};
Words models(const std::function<void(Model&)>& change) {
  return others_fail([&](Collective& group) {
    Model model;
    if (is_odd(group)) change(model);
    std::vector<Tensor> tensors;
    std::vector<NamedTensor> named;
    for (const auto& [name, shape] : model.parameters) tensors.push_back(Tensor::zeros(shape, model.dtype));
    for (std::size_t i = 0; i < tensors.size(); ++i) named.push_back({model.parameters[i].first, &tensors[i]});
    named.back().frozen = model.freezes_last;
    FlatParameters parameters(named, model.low_precision);
    const dist::DataParallel parallel(group, parameters, model.options);
  });
}

/// Messages of processes at the start of a group of two.
struct Start {
  const dist::ControlOptions options{.size = 2, .token = "secret", .beat_seconds = 0.02};
  const dist::ControlServer server{"127.0.0.1", 0, options};

  std::string join(int rank, dist::ControlOptions mine, int port = 0) const {
    return error_message<PeerError>(
        [&] { const dist::Control control("127.0.0.1", port ? port : server.port(), rank, mine, 1); });
  }
  std::string refusal(const std::function<void(dist::JoinRequest&)>& change) const {
    const dist::Control first("127.0.0.1", server.port(), 0, options, 5);
    std::string answer;
    dist::JoinRequest request = dist::request_of(1, 2);
    change(request);
    (void)dist::join_by_hand(server.port(), request, options.token, &answer);
    return answer;
  }
  /// Of a rank 1 that joins as this one does, and meets with `theirs`; of both.
  Words meet(const std::string& mine, const std::string& theirs) const {
    const auto one = [this](int rank, const std::string& text) {
      return error_message<PeerError>([&] {
        dist::Control control("127.0.0.1", server.port(), rank, options, 5);
        control.meet(text, 5);
      });
    };
    auto second = std::async(std::launch::async, [&] { return one(1, theirs); });
    const std::string first = one(0, mine);
    return {first, second.get()};
  }
};

/// Says `text` to the first who connects.
std::string joins_what_says(const std::string& text) {
  const dist::Socket listener = dist::listen_on("127.0.0.1", 0);
  auto says = std::async(std::launch::async, [&] {
    dist::Socket socket;
    while (!socket) socket = dist::Socket(accept(listener.descriptor(), nullptr, nullptr));
    dist::send_bytes(socket, text);
    (void)dist::next_frame(socket);
  });
  const dist::ControlOptions options{.size = 2, .token = "secret"};
  return error_message<PeerError>(
      [&] { const dist::Control control("127.0.0.1", dist::port_of(listener), 0, options, 1); });
}

}  // namespace

std::vector<Disagreement> disagreements_at_the_start() {
  return {
      {"token",
       [] { return Words{Start().join(1, {.size = 2, .token = "other"})}; },
       {"refuses rank 1", "another token", "HEARTH_TOKEN"}},
      {"server with another token",
       [] {
         return Words{joins_what_says(dist::framed(dist::Frame::hello, std::string(dist::nonce_size, 'n')) +
                                      dist::framed(dist::Frame::welcome, std::string(dist::proof_size, 'p')))};
       },
       {"does not know the token", "of rank 0"}},
      {"another service at the port",
       [] { return Words{joins_what_says("SSH-2.0-Open\r\n")}; },
       {"Hearth", "127.0.0.1 port"}},
      {"version",
       [] { return Words{Start().refusal([](auto& join) { join.version = "0.0.9"; })}; },
       {"rank 1 on node9 runs Hearth 0.0.9", std::string("the server runs ") + build::version}},
      {"number of ranks",
       [] { return Words{Start().refusal([](auto& join) { join.size = 3; })}; },
       {"rank 1 on node9 expects 3 ranks", "the server expects 2"}},
      {"rank beyond the group",
       [] { return Words{Start().refusal([](auto& join) { join.rank = 2; })}; },
       {"there is no rank 2", "ranks are 0..1"}},
      {"rank that is taken",
       [] { return Words{Start().refusal([](auto& join) { join.rank = 0; })}; },
       {"rank 0 has joined already"}},
      {"rank that does not come",
       [] {
         const Start start;
         return Words{error_message<PeerError>([&] {
           dist::Control control("127.0.0.1", start.server.port(), 0, start.options, 5);
           control.meet("", 0.2);
         })};
       },
       {"rank 1 did not join within 0.2 s", "dist.join_timeout"}},
      {"connection (dist.backend)",
       [] { return Start().meet("dist.backend auto", "dist.backend tcp"); },
       {odd_rank() + " has dist.backend tcp", "rank 0 (pid ", ") has dist.backend auto"}},
  };
}

std::vector<Disagreement> disagreements_in_collectives() {
  return {
      {"kind of collective",
       [] { return sums_and([](Collective& g) {
              g.broadcast(tensor({2, 3})).wait();
            }); },
       {odd_rank() + " calls broadcast of f32 [2, 3] from rank 0 at step 12",
        "calls all_reduce of f32 [2, 3] (sum) at step 12"}},
      {"parts of a collective",
       [] {
         return calls([](Collective& g) { g.all_gather(tensor({1}), tensor({3})).wait(); },
                      [](Collective& g) { g.reduce_scatter(tensor({3}), tensor({1})).wait(); });
       },
       {odd_rank() + " calls reduce_scatter of f32 [3]", "calls all_gather of f32 [3]"}},
      {"element type",
       [] { return sums_and([](Collective& g) {
              g.all_reduce(tensor({2, 3}, DType::f64)).wait();
            }); },
       {odd_rank() + " calls all_reduce of f64 [2, 3]", "calls all_reduce of f32 [2, 3]"}},
      {"number of elements",
       [] { return sums_and([](Collective& g) {
              g.all_reduce(tensor({2, 4})).wait();
            }); },
       {odd_rank() + " calls all_reduce of f32 [2, 4]", "calls all_reduce of f32 [2, 3]"}},
      {"shape of as many elements",
       [] { return sums_and([](Collective& g) {
              g.all_reduce(tensor({3, 2})).wait();
            }); },
       {odd_rank() + " calls all_reduce of f32 [3, 2]", "calls all_reduce of f32 [2, 3]"}},
      {"reduction",
       [] { return sums_and([](Collective& g) {
              g.all_reduce(tensor({2, 3}), Reduce::max).wait();
            }); },
       {odd_rank() + " calls all_reduce of f32 [2, 3] (max)", "[2, 3] (sum)"}},
      {"type on the wire",
       [] { return sums_and([](Collective& g) {
              g.all_reduce(tensor({2, 3}), Reduce::sum, DType::bf16).wait();
            }); },
       {odd_rank() + " calls all_reduce of f32 [2, 3] (sum) sent as bf16", "(sum) at step 12"}},
      {"root",
       [] {
         return calls([](Collective& g) { g.broadcast(tensor({2}), 0).wait(); },
                      [](Collective& g) { g.broadcast(tensor({2}), 2).wait(); });
       },
       {odd_rank() + " calls broadcast of f32 [2] from rank 2", "[2] from rank 0"}},
      {"order",
       [] {
         const auto both = [](Collective& g, DType first, DType second) {
           g.all_reduce(tensor({2}, first)).wait();
           g.all_reduce(tensor({2}, second)).wait();
         };
         return calls([&](Collective& g) { both(g, DType::f32, DType::i64); },
                      [&](Collective& g) { both(g, DType::i64, DType::f32); });
       },
       {odd_rank() + " calls all_reduce of i64 [2]", "calls all_reduce of f32 [2]", "collective number 1"}},
      {"step",
       [] {
         return sums_and([](Collective& g) {
           dist::set_status(g, "step 13");
           sum(g);
         });
       },
       {odd_rank(), "[2, 3] (sum) at step 13", "[2, 3] (sum) at step 12"}},
      {"a collective more",
       [] {
         return calls(
             [](Collective& g) {
               sum(g);
               g.barrier();
             },
             [](Collective& g) {
               sum(g);
               sum(g);
               g.barrier();
             });
       },
       {odd_rank() + " calls all_reduce of f32 [2, 3]", "calls all_reduce of u8 [1]", "collective number 2"}},
      {"an early end",
       [] { return sums_and([](Collective&) {}); },
       {odd_rank() + " has left the group", " at step 12"}},
      {"giving up",
       [] { return sums_and([](Collective&) { throw UsageError("the disk is full"); }); },
       {odd_rank() + " gave up at step 12: the disk is full"}},
      {"what is compared",
       [] {
         return calls(
             [](Collective& g) {
               dist::require_same(g, "data", {{"samples", "5"}});
             },
             [](Collective& g) {
               dist::require_same(g, "checkpoint", {{"step", "5"}});
             });
       },
       {"the ranks disagree: " + odd_rank() + " compares its checkpoint", " its data"}},
      {"bits",
       [] {
         return others_fail([](Collective& group) {
           Tensor x = Tensor::zeros({4});
           FlatParameters parameters({{"x", &x}});
           dist::DataParallel(group, parameters)
               .require_equal(Tensor::full({1}, group.rank() == odd ? 1 : 2), "moments");
         });
       },
       {"moments: " + odd_rank() + " has other bits than rank 0"}},
  };
}

std::vector<Disagreement> disagreements_in_models() {
  return {
      {"number of parameters",
       [] { return models([](Model& m) {
              m.parameters.push_back({"c", {1}});
            }); },
       {odd_rank() + " has parameters 3, rank 0 (pid ", ") has 2"}},
      {"name of a parameter",
       [] { return models([](Model& m) { m.parameters[1].first = "bias"; }); },
       {odd_rank() + " has parameter 1 \"bias\" f32 [3], rank 0 (pid ", ") has \"b\" f32 [3]"}},
      {"shape of a parameter",
       [] { return models([](Model& m) {
              m.parameters[0].second = {2, 4};
            }); },
       {odd_rank() + " has parameter 0 \"a\" f32 [2, 4], rank 0 (pid ", ") has \"a\" f32 [4, 2]"}},
      {"order of parameters",
       [] { return models([](Model& m) { std::swap(m.parameters[0], m.parameters[1]); }); },
       {odd_rank() + " has parameter 0 \"b\" f32 [3], rank 0 (pid ", ") has \"a\" f32 [4, 2]; parameter 1"}},
      {"type of the parameters",
       [] { return models([](Model& m) { m.dtype = DType::f64; }); },
       {odd_rank() + " has parameter 0 \"a\" f64 [4, 2], rank 0 (pid ", "has \"a\" f32 [4, 2]"}},
      {"frozen parameters",
       [] { return models([](Model& m) { m.freezes_last = true; }); },
       {odd_rank() + " has parameters 1, rank 0 (pid ", "parameter 1 nothing, rank 0"}},
      {"weights beside",
       [] { return models([](Model& m) { m.low_precision = LowPrecisionCopy{DType::bf16}; }); },
       {odd_rank() + " has low-precision weights bf16, rank 0 (pid ", ") has nothing"}},
      {"type of low-precision weights",
       [] {
         return models([](Model& m) {
           m.low_precision = LowPrecisionCopy{DType::f16, LowPrecisionCopy::Use::instead};
         });
       },
       {odd_rank() + " has parameter 0 \"a\" f16 [4, 2], rank 0 (pid "}},
      {"division of updates",
       [] { return models([](Model& m) { m.options.zero = 1; }); },
       {odd_rank() + " has zero 1, rank 0 (pid ", ") has 0"}},
      {"wire of the gradients",
       [] { return models([](Model& m) { m.options.wire = DType::bf16; }); },
       {odd_rank() + " has wire bf16, rank 0 (pid ", ") has nothing"}},
      {"layout of the buckets",
       [] { return models([](Model& m) { m.options.first_bucket_mb = 1; }); },
       {odd_rank() + " has bucket 1 of 2 nothing, rank 0 (pid ", "bucket 1 of 1 "}},
      {"a sum that one rank does not come to",
       [] {
         return others_fail([](Collective& group) {
           Tensor x = Tensor::zeros({4}), y = Tensor::zeros({4});
           FlatParameters parameters({{"x", &x}, {"y", &y}});
           dist::DataParallel parallel(group, parameters, {.bucket_mb = 1e-5, .first_bucket_mb = 1e-5});
           dist::set_status(group, "step 7");
           if (group.rank() == odd) throw OutOfMemory("no memory");
           parameters.zero_grads();
           parallel.reduce();
         });
       },
       {odd_rank() + " gave up at step 7: no memory", "the gradients of bucket 1 of 2"}},
  };
}

}  // namespace hearth::test
