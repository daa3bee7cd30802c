// SPDX-License-Identifier: Apache-2.0
// What timm's configurations say of its weights: known architectures, and where they compute something else.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "models/nn/init.h"
#include "models/swin.h"
#include "models/weights/weights_import.h"
#include "tests/models/weights_files.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::timm_import_test {
namespace {

using models::ImportedWeights;
using models::WeightFormat;
using test::contains;
using test::message_of;

class TimmImport : public test::WeightsFiles {};

TEST_F(TimmImport, ArchitecturesOfTimmAreKnownOrRefused) {
  const std::string path =
      put("swin.safetensors", read_text(test::source_dir() + "/tests/golden/timm_swin.safetensors"));
  const auto with_config = [&](const std::string& text) {
    put("config.json", text);
    return models::import_weights(path, {.from = WeightFormat::timm_swin});
  };
  const ImportedWeights found = with_config(R"({"architecture": "swin_tiny_patch4_window7_224", "num_classes": 3,
      "num_features": 8, "global_pool": "avg", "model_args": {"window_size": 2},
      "pretrained_cfg": {"mean": [0.5], "std": [0.25]}})");
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_PRED2(contains, found.notes[0], "normalised by the mean [0.5] and std [0.25]");
  for (const auto& [text, message] :
       {std::pair(R"({"architecture": "swinv2_tiny_window8_256"})", "\"swinv2_tiny_window8_256\", which is not known"),
        {R"({"architecture": "swin_s3_tiny_224"})", "which is not known"},
        {R"({"architecture": "swin_tiny_patch4_window7_224", "global_pool": "max"})", "global_pool is \"max\""},
        {R"({"architecture": "swin_tiny_patch4_window7_224", "model_args": {"act_layer": "relu"}})",
         "model_args: act_layer is a key that is not known"},
        {R"({"model_type": "swin"})", "model_type is \"swin\", a model that is not supported"}})
    EXPECT_PRED2(contains, message_of<FileError>([&, text = text] { (void)with_config(text); }), message);
}

TEST_F(TimmImport, TimmShiftsWindowsBeforeItFillsThemUp) {
  // What timm 1.0.31 gave other scores for when its blocks filled windows up first.
  const auto notes = [&](std::int64_t window, std::int64_t second_depth, const std::string& more,
                         const char* name = "swin_tiny_patch4_window7_224") {
    models::Swin network({.depths = {2, second_depth}, .heads = {1, 1}, .width = 4, .patch = 4, .window = window});
    nn::initialize(network, 1);
    models::WeightSet ours;
    for (const NamedTensor& named : network.parameters()) ours.weights.push_back({named.name, *named.tensor});
    models::NameReport report;
    const models::WeightSet theirs = models::from_hearth(ours, WeightFormat::timm_swin, report);
    std::vector<SafetensorsEntry> entries;
    for (const models::Weight& weight : theirs.weights)
      entries.push_back({weight.name, weight.value.dtype(), weight.value.shape(),
                         std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
    write_plain_safetensors(folder_.path() / "swin.safetensors", entries, {});
    put("config.json", join_text(R"({"architecture": ")", name, "\"", more, "}"));
    const std::vector<std::string> found =
        models::import_weights((folder_.path() / "swin.safetensors").string(), {.from = WeightFormat::timm_swin}).notes;
    return found.empty() ? std::string() : found.back();
  };
  const auto of_size = [](int height, int width) {
    return join_text(R"(, "model_args": {"img_size": [)", height, ", ", width, "]}");
  };
  EXPECT_EQ(notes(7, 2, ""), "");
  EXPECT_PRED2(contains, notes(7, 2, R"(, "model_args": {"img_size": 128})"),
               "from images of 128 x 128 pixels timm computes something else: of the 32 x 32 tokens of stage 1");
  EXPECT_PRED2(contains, notes(7, 2, R"(, "pretrained_cfg": {"input_size": [3, 84, 112]})"),
               "of the 11 x 14 tokens of stage 2");
  EXPECT_PRED2(contains, notes(7, 2, "", "swin_tiny_patch4_window7_250"),
               "sides that are multiples of 56 make no difference");
  EXPECT_EQ(notes(7, 2, R"(, "pretrained_cfg": {"input_size": [3, 56, 56]})", "swin_tiny_patch4_window7_250"), "");
  EXPECT_EQ(notes(7, 1, of_size(84, 112)), "") << "the second stage is not shifted";
  EXPECT_EQ(notes(4, 2, of_size(16, 64)), "") << "one window sees all of a side";
  // Half of a window is filled up.
  EXPECT_EQ(notes(4, 2, of_size(64, 48)), "");
  EXPECT_EQ(notes(6, 1, of_size(36, 36)), "");
  EXPECT_NE(notes(4, 1, of_size(28, 28)), "");
  EXPECT_NE(notes(6, 1, of_size(36, 40)), "");
  EXPECT_NE(notes(3, 1, of_size(20, 20)), "");
}

TEST_F(TimmImport, SameShapedResNetsOfTimmAreRefused) {
  const std::vector<float> values(4);
  write_plain_safetensors(folder_.path() / "r.safetensors",
                          {{"fc.bias", DType::f32, {4}, std::as_bytes(std::span(values))}});
  const std::string path = (folder_.path() / "r.safetensors").string();
  for (const char* same : {"resnet50", "tv_resnet152", "gluon_resnet18_v1b"}) {
    put("config.json", join_text(R"({"architecture": ")", same, "\"}"));
    EXPECT_TRUE(models::import_weights(path, {.from = WeightFormat::torch}).report.fits()) << same;
  }
  for (const char* other : {"resnetblur50", "resnetaa50", "resnet50d", "gluon_resnet50_v1s"}) {
    put("config.json", join_text(R"({"architecture": ")", other, "\"}"));
    EXPECT_THROW((void)models::import_weights(path, {.from = WeightFormat::torch}), FileError) << other;
  }
}

}  // namespace
}  // namespace hearth::timm_import_test
