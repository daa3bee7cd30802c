// SPDX-License-Identifier: Apache-2.0
// Ranks that keep a part of the optimizer's state each end with the bits of ranks that keep all of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <ostream>
#include <set>

#include "autograd/backward.h"
#include "core/error.h"
#include "core/io/json_text.h"
#include "core/random.h"
#include "dist/process_group.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/ranks.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "train/memory/rank_memory.h"
#include "train/report/trust_ratios.h"
#include "train/trainer.h"

namespace hearth::train::zero_test {
namespace {

using test::contains;

struct Problem {
  const char *name, *model, *optimizer;
  std::vector<std::string> overrides{};
};
void PrintTo(const Problem& problem, std::ostream* out) { *out << problem.name; }

// Its middle matrix is cut, and one of four ranks has nothing.
constexpr const char* mlp = R"({"type": "mlp", "hidden": [256, 128]})";
constexpr const char* resnet = R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 16})";

const Problem problems[] = {
    // Some pieces are of no rows.
    {"sgd",
     mlp,
     R"({"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01})",
     {"train.clip_norm=0.5", "train.batch_size=3"}},
    {"adamw_ema_accumulate",
     mlp,
     R"({"type": "adamw", "lr": 0.003})",
     {"train.ema=0.9", "train.accumulate=2", "train.clip_norm=0.1"}},
    {"lamb", mlp, R"({"type": "lamb", "lr": 0.01, "max_grad_norm": 0.2})"},
    {"lars_O1", mlp, R"({"type": "lars", "lr": 0.5})", {R"(precision={"level": "O1", "dtype": "bf16"})"}},
    {"lamb_O2_f16_ema",
     resnet,
     R"({"type": "lamb", "lr": 0.01})",
     {R"(precision={"level": "O2", "dtype": "f16"})", "train.ema=0.9", "train.clip_norm=0.5"}},
    {"adamw_O2_bf16_ema",
     resnet,
     R"({"type": "adamw", "lr": 0.003})",
     {R"(precision={"level": "O2", "dtype": "bf16"})", "train.ema=0.9", R"(train.freeze=["layer1"])"}},
};

class Zero : public testing::TestWithParam<Problem> {
 protected:
  LoadedConfig config(const Problem& problem, std::vector<std::string> overrides) const {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cpu", "optimizer": )" << problem.optimizer << R"(, "model": )"
                        << problem.model << R"(,
        "data": {"type": "digits", "valid_fraction": 0.1}, "train": {"batch_size": 16, "steps": 4},
        "checkpoint": {"every_steps": 2}, "log": {"every_steps": 1, "tensorboard": false, "report": false}})";
    overrides.insert(overrides.begin(), problem.overrides.begin(), problem.overrides.end());
    return load_config(path, overrides);
  }

  struct Result {
    std::string weights, state;  // hashes
    double last_loss = 0;        // of the valid split, by the averages where there are some
    std::string ratios{};        // trust_ratio of the last step
  };
  Result train(int ranks, int zero, const std::string& out, std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), {"train.deterministic=true", "dist.shards=4", "dist.bucket_mb=0.02",
                                         join_text("dist.zero=", zero)});
    Result result;
    std::mutex mutex;
    const auto run = [&](Collective& group) {
      Session session(config(GetParam(), overrides), &group);
      RunFolder run_folder(folder_ / out, group.rank() == 0);
      std::ostream nowhere(nullptr);
      Progress progress(nowhere, false);
      Trainer trainer(session, run_folder, progress);
      if (!trainer.resume(run_folder.path())) {
        run_folder.clear();
        EXPECT_TRUE(session.load_start_weights().left_out.empty());
      }
      const TrainResult done = trainer.run("test");
      const FlatParameters& parameters = *session.parameters;
      EXPECT_EQ(parameters.shards() != nullptr, zero > 0);
      if (ranks > 1) {
        const bool divides_values = zero > 1 || (zero == 1 && session.config().precision.level == PrecisionLevel::O2);
        EXPECT_EQ(parameters.values().size() < parameters.total(), divides_values);
        EXPECT_EQ(parameters.grads().size() < parameters.total(), zero > 1);
        EXPECT_EQ(parameters.divides_values(), zero > 2);
      }
      const std::lock_guard lock(mutex);
      const std::string weights = done.metrics.at("weights_sha256").as_string();
      Json record = Json::object();
      write_trust_ratios(record, *session.optimizer);
      if (result.weights.empty()) result.weights = weights, result.ratios = to_text(record);
      EXPECT_EQ(weights, result.weights);
      EXPECT_EQ(to_text(record), result.ratios);
      result.state = done.metrics.at("state_sha256").as_string();
      result.last_loss = done.metrics.at("loss").as_number();
    };
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), run))
      EXPECT_EQ(failure, "");
    return result;
  }

  test::TempDir folder_;
};

TEST_P(Zero, GivesTheBitsOfUndividedStateOnAnyNumberOfRanks) {
  const Result whole = train(1, 0, "whole");
  for (const int ranks : {1, 2, 4}) {
    const Result undivided = train(ranks, 0, join_text("whole", ranks));
    for (const int zero : {1, 2, 3}) {
      if (zero > 1 && ranks == 1) continue;
      const Result divided = train(ranks, zero, join_text("divided", ranks, zero));
      EXPECT_EQ(divided.weights, whole.weights) << ranks << " ranks, zero " << zero;
      EXPECT_EQ(divided.ratios, whole.ratios) << ranks << " ranks, zero " << zero;
      EXPECT_NEAR(divided.last_loss, whole.last_loss, 1e-12 * whole.last_loss) << ranks << " ranks, zero " << zero;
      // Moments and averages as they are saved; the order of the losses' sums depends on the ranks and their pieces.
      if (zero == 1) {
        EXPECT_EQ(divided.state, undivided.state) << ranks << " ranks";
      }
    }
  }
}

TEST_P(Zero, GoesOnFromAnyNumberOfRanksDividedOrNot) {
  const Result straight = train(1, 0, "straight");
  const std::vector<std::string> half{"train.steps=2"};
  for (const int zero : {1, 2, 3}) {
    const auto out = [&](const char* name) { return join_text(name, zero); };
    (void)train(2, zero, out("divided"), half);
    EXPECT_EQ(train(4, zero, out("divided")).weights, straight.weights) << zero;
    (void)train(4, zero, out("joined"), half);
    EXPECT_EQ(train(1, 0, out("joined")).weights, straight.weights) << zero;
    (void)train(2, 0, out("separated"), half);
    EXPECT_EQ(train(2, zero, out("separated")).weights, straight.weights) << zero;
  }
  (void)train(4, 3, "deeper", half);
  EXPECT_EQ(train(2, 2, "deeper").weights, straight.weights);
}

TEST_P(Zero, StartsFromWeights) {
  (void)train(1, 0, "before", {"train.steps=2"});
  const std::vector<std::string> weights{
      join_text("weights.path=", folder_ / "before/checkpoints/latest/model.safetensors")};
  const Result whole = train(2, 0, "whole", weights);
  for (const int zero : {1, 2, 3})
    EXPECT_EQ(train(2, zero, join_text("divided", zero), weights).weights, whole.weights) << zero;
  EXPECT_NE(whole.weights, train(2, 0, "drawn").weights);
}

TEST_P(Zero, ChangesNothingWithoutDeterministicMode) {
  // With one piece for each rank.
  std::vector<std::string> free{"train.deterministic=false", "dist.shards=null", "train.accumulate=1"};
  if (GetParam().model == resnet) free.emplace_back("dist.sync_batch_norm=true");
  if (GetParam().name == std::string("sgd")) free.emplace_back("train.batch_size=4");
  const Result whole = train(2, 0, "whole", free);
  for (const int zero : {1, 2, 3}) {
    const Result divided = train(2, zero, join_text("divided", zero), free);
    EXPECT_EQ(divided.weights, whole.weights) << zero;
    EXPECT_EQ(divided.state, whole.state) << zero;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Zero, testing::ValuesIn(problems),
                         [](const auto& one) { return std::string(one.param.name); });

/// Blocks of few elements, so that there are several.
std::optional<Division> division_of(Collective& group, int zero) {
  return zero < 2 ? std::nullopt : std::optional(Division{&group, 100, zero == 3});
}

/// Weights of a loop by hand after some steps; each rank sees its rows.
std::vector<double> loop(Collective& group, int zero) {
  constexpr std::int64_t rows = 24;
  const auto drawn = [](const Shape& shape, std::uint64_t seed) {
    Random random(seed, 0);
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (double& value : values) value = random.normal();
    return Tensor::of(shape, values);
  };
  Tensor w1 = drawn({10, 16}, 1), b1 = drawn({16}, 3), w2 = drawn({16, 3}, 2);
  FlatParameters parameters({{"w1", &w1}, {"b1", &b1}, {"w2", &w2}}, {}, division_of(group, zero));
  dist::DataParallel parallel(group, parameters, {.zero = zero});
  optim::Adam optimizer(parameters, {.lr = 0.01});
  for (int step = 0; step < 5; ++step) {
    const std::int64_t each = rows / group.size();
    const Tensor x = slice(drawn({rows, 10}, 100 + static_cast<std::uint64_t>(step)), 0, group.rank() * each,
                           (group.rank() + 1) * each);
    const Tensor loss = mean(square(matmul(tanh(add(matmul(x.contiguous(), w1), b1)), w2)));
    backward(loss, 1.0 / group.size());
    parallel.reduce();
    (void)optimizer.clip_grad_norm(0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
  std::vector<double> weights;
  for (const FlatParameters::Entry& entry : parameters.entries())
    for (const double value : entry.value.to_doubles()) weights.push_back(value);
  return weights;
}

TEST(ZeroLoop, HasTheBitsOfUndividedState) {
  for (const int ranks : {1, 2, 3, 4})
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), [](Collective& group) {
           const std::vector<double> whole = loop(group, 0);
           for (const int zero : {1, 2, 3})
             EXPECT_EQ(loop(group, zero), whole) << group.size() << " ranks, zero " << zero;
         }))
      EXPECT_EQ(failure, "");
}

TEST(ZeroLoop, SavesAndLoadsTheWholeState) {
  const test::TempDir folder;
  const auto with_optimizer = [&](int ranks, int zero, const std::function<void(Collective&, optim::Adam&)>& use) {
    const auto run = [&](Collective& group) {
      Tensor w = Tensor::full({64, 64}, 0.5), v = Tensor::full({64, 64}, 0.25);
      FlatParameters parameters({{"w", &w}, {"v", &v}}, {}, division_of(group, zero));
      dist::DataParallel parallel(group, parameters, {.zero = zero});
      optim::Adam optimizer(parameters, {});
      use(group, optimizer);
      backward(sum(add(mul(w, w), v)), 1.0 / group.size());
      parallel.reduce();
      optimizer.step();
    };
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), run))
      EXPECT_EQ(failure, "");
  };
  const auto hash_of = [](optim::Adam& optimizer) {
    State state;
    optimizer.register_state(state);
    return state.hash();
  };
  std::string saved;
  with_optimizer(1, 0, [&](Collective&, optim::Adam& optimizer) {
    State state;
    optimizer.register_state(state);
    for (const State::Entry& entry : state.entries())
      if (entry.tensor != nullptr)
        for (std::int64_t i = 0; i < entry.tensor->size(); ++i) entry.tensor->data<float>()[i] = static_cast<float>(i);
    optim::save(optimizer, folder / "whole");
    saved = hash_of(optimizer);
  });
  for (const int zero : {1, 2, 3}) {
    with_optimizer(2, zero, [&](Collective& group, optim::Adam& optimizer) {
      optim::load(optimizer, folder / "whole");
      EXPECT_EQ(hash_of(optimizer), saved);
      State state;
      optimizer.register_state(state);
      if (group.rank() == 0)
        state.save(folder / "of two");
      else
        state.read_shards();
    });
    with_optimizer(3, 0, [&](Collective& group, optim::Adam& optimizer) {
      optim::load(optimizer, folder / "of two");
      EXPECT_EQ(hash_of(optimizer), saved) << "rank " << group.rank();
    });
  }
}

/// As a program may add: says nothing of parts.
class Own : public optim::Optimizer {
 public:
  explicit Own(FlatParameters& parameters) : Optimizer(parameters, 0.1, {}) {}

 private:
  void prepare(double, double) override {}
  void update(const optim::UpdateBuffers&) override {}
  optim::UpdateCells cells() override { return {}; }
};

TEST(ZeroLoop, IsRefusedWhereItCannotWork) {
  const auto failures = [](int zero, const std::function<void(Collective&, FlatParameters&)>& f, bool early = false) {
    return test::failures_of_ranks(dist::loopback_groups(2), [&](Collective& group) {
      Tensor w = Tensor::full({4}, 1.0);
      FlatParameters parameters({{"w", &w}});
      std::optional<optim::Adam> made_before;
      if (early) made_before.emplace(parameters, optim::AdamOptions{});
      const dist::DataParallel parallel(group, parameters, {.zero = zero});
      if (early) {
        backward(sum(w));
        made_before->step();
      }
      f(group, parameters);
    });
  };
  const auto nothing = [](Collective&, FlatParameters&) {};
  for (const int zero : {-1, 4})
    for (const std::string& failure : failures(zero, nothing))
      EXPECT_PRED2(contains, failure, join_text("data parallel: zero ", zero, "; it is 0, or 1"));
  for (const int zero : {2, 3})
    for (const std::string& failure : failures(zero, nothing))
      EXPECT_PRED2(contains, failure,
                   join_text("data parallel: zero ", zero, "; make the FlatParameters with a Division"));
  for (const std::string& failure : failures(1, nothing, true))
    EXPECT_PRED2(contains, failure, "updates were divided among ranks after it was made; make DataParallel first");
  for (const std::string& failure :
       failures(1, [](Collective&group, FlatParameters&parameters) { parameters.shard_updates(group); }))
    EXPECT_PRED2(contains, failure, "divided among ranks already");
  for (const std::string& failure : failures(1, [](Collective&, FlatParameters& parameters) {
         Own own(parameters);
         backward(sum(parameters.entries()[0].value));
         own.step();
       }))
    EXPECT_PRED2(contains, failure, "override can_shard()");
  for (const std::string& failure :
       failures(1, [](Collective&, FlatParameters& parameters) { (void)parameters.own(Tensor::zeros({3})); }))
    EXPECT_PRED2(contains, failure, "is not contiguous or not of 16 elements");
}

/// Whether its bytes are given back.
bool is_away(const Storage& storage) {
  try {
    (void)storage.bytes();
    return false;
  } catch (const UsageError&) {
    return true;
  }
}

/// Bytes that a rank really keeps.
RankStates states_kept(Session& session) {
  RankStates kept{.values = static_cast<std::int64_t>(session.parameters->values().storage()->size()),
                  .gradients = static_cast<std::int64_t>(session.parameters->grads().storage()->size())};
  std::set<const Storage*> seen{session.parameters->values().storage().get()};
  if (const Tensor& low = session.parameters->low_precision(); low.defined()) seen.insert(low.storage().get());
  for (const FlatParameters::Entry& entry : session.parameters->entries())
    if (!is_away(*entry.value.storage()) && seen.insert(entry.value.storage().get()).second)
      kept.values += static_cast<std::int64_t>(entry.value.storage()->size());
  for (const State::Entry& entry : session.training_state.entries()) {
    if (entry.tensor == nullptr) continue;
    const auto bytes = static_cast<std::int64_t>(entry.tensor->storage()->size());
    if (entry.name.starts_with("optimizer.")) kept.optimizer += bytes;
    if (entry.name == "ema.average") kept.averages += bytes;
  }
  return kept;
}

TEST(ZeroMemory, IsThatOfTheSummary) {
  const test::TempDir folder;
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"device": "cpu", "optimizer": {"type": "adamw"}, "train": {"batch_size": 16, "steps": 2,
      "ema": 0.9}, "model": {"type": "mlp", "hidden": [1024, 2048]}, "data": {"type": "digits"}})";
  constexpr int ranks = 4;
  for (const auto& [zero, precision] : {std::pair{0, R"({})"},
                                        {1, R"({})"},
                                        {1, R"({"level": "O2", "dtype": "bf16"})"},
                                        {2, R"({})"},
                                        {3, R"({})"},
                                        {3, R"({"level": "O2", "dtype": "bf16"})"}}) {
    const std::vector<std::string> overrides{
        join_text("dist.zero=", zero), join_text("precision=", precision),
        R"(model={"type": "resnet", "blocks": [1, 1, 1, 1], "stem": "small", "width": 32})"};
    const auto config = [&] { return load_config(path, overrides); };
    Session whole(config());
    const std::vector<RankStates> predicted = states_of_ranks(whole, ranks);
    const RankStates all = states_kept(whole);
    const test::ProgramResult program =
        test::run_program({test::hearth_program(), "plan", path, "--json", "--ranks", "4", "--set", overrides[0],
                           "--set", overrides[1], "--set", overrides[2]},
                          folder.path());
    ASSERT_EQ(program.exit_code, 0) << program.err;
    const Json summary = parse_json(program.out, "summary");
    std::mutex mutex;
    std::vector<LoadedConfig> configs;
    for (int rank = 0; rank < ranks; ++rank) configs.push_back(config());
    const auto check = [&](Collective& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      Session session(configs[rank], &group);
      const RankStates kept = states_kept(session);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(kept.values, predicted[rank].values) << rank;
      EXPECT_EQ(kept.gradients, predicted[rank].gradients) << rank;
      EXPECT_EQ(kept.optimizer, predicted[rank].optimizer) << rank;
      EXPECT_EQ(kept.averages, predicted[rank].averages) << rank;
      const Json& of_rank = summary.at("ranks").items()[rank];
      std::int64_t of_buffers = 0;
      for (const State::Entry& entry : session.training_state.entries())
        if (entry.name.starts_with("ema.") && entry.name != "ema.average" && entry.tensor != nullptr)
          of_buffers += static_cast<std::int64_t>(entry.tensor->storage()->size());
      EXPECT_EQ(of_rank.at("average_bytes").as_integer(), kept.averages + of_buffers);
      // Coefficients of an update are there, too.
      EXPECT_NEAR(static_cast<double>(of_rank.at("optimizer_bytes").as_integer()), static_cast<double>(kept.optimizer),
                  1024);
      const double share = zero > 0 ? 1.0 / ranks : 1.0;
      EXPECT_NEAR(static_cast<double>(kept.optimizer), share * static_cast<double>(all.optimizer),
                  0.06 * share * static_cast<double>(all.optimizer));
      EXPECT_EQ(2 * kept.averages, kept.optimizer) << "two moments";
    };
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), check))
      EXPECT_EQ(failure, "");
  }
}

TEST(ZeroLoop, DividedValuesAreRefusedWhereTheyCannotBe) {
  const auto failures = [](LowPrecisionCopy::Use use, const std::function<void(Collective&, FlatParameters&)>& f) {
    return test::failures_of_ranks(dist::loopback_groups(2), [&](Collective& group) {
      Tensor w = Tensor::full({4, 4}, 1.0);
      FlatParameters parameters({{"w", &w}}, LowPrecisionCopy{DType::bf16, use, &group});
      f(group, parameters);
    });
  };
  for (const std::string& failure : failures(LowPrecisionCopy::Use::beside, [](Collective&, FlatParameters&) {}))
    EXPECT_PRED2(contains, failure, "give LowPrecisionCopy::shards with Use::instead");
  for (const std::string& failure : failures(
           LowPrecisionCopy::Use::instead,
           [](Collective&group, FlatParameters&parameters) { const dist::DataParallel parallel(group, parameters); }))
    EXPECT_PRED2(contains, failure, "give it this group and zero 1 or 2 here");
  for (const std::string& failure : failures(
           LowPrecisionCopy::Use::instead, [](Collective&, FlatParameters& parameters) { (void)parameters.masters(); }))
    EXPECT_PRED2(contains, failure, "use register_masters()");
}

TEST(ZeroConfig, OptimizersThatCannotAreRefusedByName) {
  static const bool added = [] {
    optim::optimizers().add<NoOptions>(
        "own_of_zero", "Of this test.",
        [](const NoOptions&, FlatParameters& parameters) { return std::make_unique<Own>(parameters); });
    return true;
  }();
  ASSERT_TRUE(added);
  const test::TempDir folder;
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"device": "cpu", "optimizer": {"type": "own_of_zero"}, "model": {"type": "mlp"},
      "data": {"type": "digits"}, "train": {"batch_size": 16, "steps": 4}, "dist": {"zero": 1}})";
  for (const std::string& failure : test::failures_of_ranks(
           dist::loopback_groups(2), [&](Collective& group) { const Session session(load_config(path, {}), &group); }))
    EXPECT_PRED2(contains, failure, "/dist/zero: the optimizer \"own_of_zero\"");
}

TEST(ZeroConfig, WhatDoesNotGoWithDividedGradientsIsRefusedByName) {
  const test::TempDir folder;
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"device": "cpu", "optimizer": {"type": "sgd", "lr": 0.1}, "model": {"type": "mlp"},
      "data": {"type": "digits"}, "train": {"batch_size": 24, "steps": 4, "deterministic": true}, "dist": {"zero": 2}})";
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { load_config(path, {"dist.zero=4"}); }), "/dist/zero");
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] { load_config(path, {"dist.wire=bf16"}); }),
               "leave wire out, or use zero 1");
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] {
                 load_config(path, {R"(dist.compress={"type": "int8"})", "optimizer.lr=0.1"});
               }),
               "compress does not go with zero");
  const auto refused = [&](int ranks, const std::vector<std::string>& overrides) {
    return test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
      const Session session(load_config(path, overrides), &group);
    });
  };
  for (const std::string& failure : refused(3, {"dist.shards=6"}))
    EXPECT_PRED2(contains, failure, "/dist/zero: 2 in deterministic mode, with 2 pieces for each of 3 ranks");
  for (const std::string& failure : refused(3, {"dist.shards=3"})) EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace hearth::train::zero_test
