// SPDX-License-Identifier: Apache-2.0
// What precision.tf32 comes to for models and devices.
#include <gtest/gtest.h>

#include "tests/ops/emulate_tiles.h"
#include "tests/support/error_message.h"
#include "tests/train/precision_session.h"
#include "train/report/precision_report.h"

namespace hearth::train::tf32_test {
namespace {

using test::contains;
using test::PrecisionRun;

struct SettledTf32 {
  std::string device, model, more;
  Tf32 allowed;
  std::string said;
};

TEST(AutoPrecision, Tf32IsTakenByCudaDevicesForModelsThatBearFewerBits) {
  const test::TempDir folder;
  const std::string automatic = R"(, "tf32": "auto")", conv = R"(, "tf32": {"conv": "auto"})";
  std::vector<SettledTf32> cases{
      {"cpu", test::tiny_resnet, automatic, false, "O0 f32 (auto: TF32 off: it is of CUDA devices)"},
      {"cpu", test::tiny_resnet, R"(, "tf32": {"matmul": "on"})", {true, false}, "O0 f32, TF32 in matrix products"}};
  if (device_count(DeviceType::cuda) > 0) {
    cases.push_back({"cuda", test::tiny_resnet, automatic, true, "O0 f32, TF32 (auto: TF32 on"});
    cases.push_back({"cuda", test::tiny_resnet, conv, {false, true}, "O0 f32, TF32 in convolutions (auto: TF32 on"});
    cases.push_back({"cuda", test::small_mlp, automatic, false, "the accuracy of model \"mlp\""});
  }
  for (const SettledTf32& c : cases) {
    const PrecisionRun run{.level = "O0", .dtype = "f32", .device = c.device, .model = c.model, .precision = c.more};
    const auto session = run.session(folder);
    EXPECT_EQ(session->switches().tf32, c.allowed) << c.device << c.model << c.more;
    EXPECT_PRED2(contains, precision_text(*session), c.said);
    // What it came to is what an explicit run has.
    const auto word = [](bool on) { return on ? "on" : "off"; };
    const std::string words = c.more == automatic ? join_text(R"(, "tf32": ")", word(c.allowed.conv), "\"")
                                                  : join_text(R"(, "tf32": {"conv": ")", word(c.allowed.conv), "\"}");
    if (c.more != automatic && c.more != conv) continue;
    PrecisionRun named = run;
    named.precision = words;
    EXPECT_EQ(session->resolved().at("precision"), named.session(folder)->resolved().at("precision"));
  }
  const auto strict = PrecisionRun{.level = "O0",
                                   .dtype = "f32",
                                   .device = device_count(DeviceType::cuda) > 0 ? "cuda" : "cpu",
                                   .model = test::tiny_resnet,
                                   .precision = automatic,
                                   .train = R"(, "deterministic": true)"}
                          .session(folder);
  EXPECT_EQ(strict->switches().tf32, Tf32());
  // Beside level auto: off where bf16 is taken.
  const test::EmulateTiles emulate;
  const auto both =
      PrecisionRun{.model = test::small_resnet}.session(folder, {R"(precision={"level": "auto", "tf32": "auto"})"});
  EXPECT_EQ(both->switches().tf32, Tf32());
  EXPECT_PRED2(contains, precision_text(*both), "O2 bf16 (auto: bf16 is multiplied in hardware; TF32 off");
}

}  // namespace
}  // namespace hearth::train::tf32_test
