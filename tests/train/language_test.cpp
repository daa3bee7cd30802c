// SPDX-License-Identifier: Apache-2.0
// The reference runs on real sequences, in a short form: the sequences come from Debian packages, installed or fetched.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::language_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

class SlowLanguage : public testing::Test {
 protected:
  void SetUp() override {
    if (is_sanitized) GTEST_SKIP() << "too slow under a sanitizer; text_training_test.cpp covers the same code there";
  }

  /// Whether the script of this name beside the datasets made its files in the folder data-sets/`name`.
  bool has(const std::string& name) const {
    return shell("\"" + test::source_dir() + "/scripts/data/" + name + "\" --out data-sets/" + name);
  }
  /// The last line of the metrics of a run.
  Json train(const std::string& config, const std::string& options) const {
    EXPECT_TRUE(shell("\"" + test::hearth_program() + "\" train \"" + test::source_dir() + "/examples/configs/" +
                      config + "\" --out run " + options));
    const std::string text = read_text((folder_ / "run/metrics.jsonl").string());
    return parse_json(std::string_view(text).substr(text.rfind('\n', text.size() - 2) + 1), "metrics");
  }
  /// Of the first thousand words for testing, by the run's best checkpoint.
  double error_rate(const std::string& options) const {
    EXPECT_TRUE(shell("\"" + test::hearth_program() + "\" eval run --json --limit 1000 " + options + " >answer.json"));
    return read_json((folder_ / "answer.json").string()).at("error_rate").as_number();
  }
  bool shell(const std::string& command) const {
    return std::system(("cd \"" + folder_.path().string() + "\" && { " + command + "; } >/dev/null 2>&1").c_str()) == 0;
  }

  const test::TempDir folder_;
};

// Half a minute on one core, as the other; the whole run reaches less than 1.9.
TEST_F(SlowLanguage, AShortRunOnAustenNeedsLessThan2Point6BitsACharacter) {
  if (!has("jane_austen")) GTEST_SKIP() << "r-cran-janeaustenr can neither be found nor fetched";
  const Json last = train("austen_gpt_char.json",
                          "--set model.layers=2 --set model.width=128 --set data.length=64 --set train.epochs=1");
  EXPECT_EQ(last.at("split").as_string(), "test");
  EXPECT_LT(last.at("bits_per_character").as_number(), 2.6);
}

// The whole run reaches 7.75 %.
TEST_F(SlowLanguage, AShortRunOnPronunciationsErrsInLessThan30PercentOfThePhonemes) {
  if (!has("cmudict")) GTEST_SKIP() << "pocketsphinx-en-us can neither be found nor fetched";
  (void)train("g2p_transformer.json",
              "--set model.layers=2 --set model.decoder_layers=2 --set model.width=64 --set model.hidden=256 "
              "--set train.epochs=1");
  const double greedy = error_rate("--beam 1"), beam = error_rate("--beam 4");
  EXPECT_LT(greedy, 0.3);
  EXPECT_LE(beam, greedy);
  EXPECT_GT(beam, 0.05) << "so small a model is not that good";
}

}  // namespace
}  // namespace hearth::language_test
