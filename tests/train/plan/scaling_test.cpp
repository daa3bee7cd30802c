// SPDX-License-Identifier: Apache-2.0
#include "train/plan/scaling.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::scaling_test {
namespace {

TEST(Link, IsARateInEachDirection) {
  EXPECT_DOUBLE_EQ(parse_link("25gbit").gbs, 3.125 * 1448 / 1538) << "Ethernet and TCP take the rest";
  EXPECT_DOUBLE_EQ(parse_link("800mbit").gbs, 0.1 * 1448 / 1538);
  EXPECT_DOUBLE_EQ(parse_link("1.5gbyte").gbs, 1.5);
  EXPECT_DOUBLE_EQ(parse_link("50mbyte").gbs, 0.05);
  for (const char* bad : {"", "gbit", "25", "25gb", "-1gbit", "0gbit", "25gbit/s", "nangbit", "infgbit"})
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { (void)parse_link(bad); }), "25gbit") << bad;
}

/// Layers of 64 to 1024, 1024 to 512 and 512 to 10 with "dist" as given.
std::unique_ptr<Session> session_of(const test::TempDir& folder, const std::string& dist) {
  std::ofstream(folder / "run.json") << R"({"device": "cpu", "model": {"type": "mlp", "hidden": [1024, 512]},
    "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 32, "steps": 3},
    "dist": )" << dist << "}";
  return std::make_unique<Session>(load_config((folder / "run.json").string(), {}));
}

/// Backward ops of the layers, from the last: ready after 100, 300 and 400 us.
StepOps step_of(const Session& session) {
  const std::vector<FlatParameters::Entry>& entries = session.parameters->entries();
  StepOps step{.rows = 8, .ops = {{.op = "linear", .layer = "", .us = 1000}}};
  const double times[] = {100, 200, 100};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string& name = entries[entries.size() - 1 - 2 * i].name;
    step.ops.push_back({.op = "linear",
                        .layer = name.substr(0, name.rfind('.')),
                        .backward = true,
                        .us = times[i],
                        .parts = {{"p", 1e6}}});
  }
  return step;
}

TEST(Scaling, HidesBucketsBehindTheBackwardPass) {
  const test::TempDir folder;
  // Each layer's gradients fill a bucket.
  const auto session = session_of(folder, R"({"bucket_mb": 0.001, "first_bucket_mb": 0.001})");
  const StepOps step = step_of(*session);
  const Link link{.gbs = 1000, .latency_us = 10};
  const Communication quick = communication_of(*session, step, 4, link);
  const double elements = static_cast<double>(session->parameters->grads().size());
  EXPECT_NEAR(quick.bytes, 1.5 * 4 * elements, 1e-6 * quick.bytes);
  EXPECT_EQ(quick.buckets, 6) << "weights and biases of three layers";
  // Those of the second layer begin at 300 us. With those of the first one, of six messages each, they end after the
  // backward pass, which takes 400.
  const double late = static_cast<double>(64 * 1024 + 1024 + 1024 * 512 + 512);
  EXPECT_NEAR(1e3 * quick.exposed_ms, 300 + 4 * 60 + 1e-6 * 1.5 * 4 * late - 400, 0.01);

  const Communication slow = communication_of(*session, step, 4, {.gbs = 0.01, .latency_us = 0});
  EXPECT_NEAR(slow.milliseconds, 1e-6 * slow.bytes / 0.01, 1e-6);
  // All of it but the 300 us that the first bucket had beside the rest.
  EXPECT_NEAR(slow.exposed_ms, slow.milliseconds - 0.3, 1e-3);
}

TEST(Scaling, WithoutOverlapAllIsExposed) {
  const test::TempDir folder;
  const auto session = session_of(folder, R"({"overlap": false, "wire": "bf16"})");
  const Communication sent = communication_of(*session, step_of(*session), 2, {.gbs = 1, .latency_us = 0});
  EXPECT_DOUBLE_EQ(sent.bytes, 1.0 * 2 * static_cast<double>(session->parameters->grads().size()));
  EXPECT_DOUBLE_EQ(sent.exposed_ms, sent.milliseconds);
}

TEST(Scaling, GivesEachLayerItsTraffic) {
  const test::TempDir folder;
  const auto session = session_of(folder, "{}");
  const Communication sent = communication_of(*session, step_of(*session), 2, {.gbs = 1, .latency_us = 0});
  ASSERT_EQ(sent.layers.size(), 3U);
  EXPECT_EQ(sent.layers[0].parameters, 64 * 1024 + 1024);
  EXPECT_EQ(sent.layers[1].parameters, 1024 * 512 + 512);
  EXPECT_EQ(sent.layers[2].parameters, 512 * 10 + 10);
  for (const LayerTraffic& layer : sent.layers) {
    EXPECT_DOUBLE_EQ(layer.bytes, 4.0 * static_cast<double>(layer.parameters));
    EXPECT_DOUBLE_EQ(layer.flops, 1e6) << layer.layer;
  }
}

}  // namespace
}  // namespace hearth::train::scaling_test
