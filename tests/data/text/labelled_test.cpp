// SPDX-License-Identifier: Apache-2.0
// Sequences with labels: rows, batches, and what is refused.
#include "data/text/labelled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "data/splits.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::labelled_test {
namespace {

using test::contains;
using test::error_message;

template <class T>
std::vector<T> values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.size()};
}

class Labelled : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    return folder_.write(name, {text.begin(), text.end()});
  }
  DataSplits open(const std::string& rest, const std::string& text) const {
    const std::string path = put("train.tsv", text);
    return make_data(parse_json(
        R"({"type": "labelled_text", "workers": 0, "train": [)" + to_text(Json(path)) + "]" + rest + "}", "run.json"));
  }
  std::string refusal(const std::string& rest, const std::string& text) const {
    return error_message<DataError>([&] { (void)open(rest, text); });
  }

  test::TempDir folder_;
};

TEST_F(Labelled, ARowIsBeginTextAndEnd) {
  const DataSplits data = open(R"(, "length": 6)", "b\tabc\na\tc\nb\tabcabcabc\n");
  ASSERT_EQ(data.train->size(), 3);
  EXPECT_EQ(data.train->class_names(), (std::vector<std::string>{"a", "b"}));
  const LabelledText& set = *data.train->tokens()->labelled();
  EXPECT_EQ(set.longest(), 8);
  Loader loader = data.eval_loader(data.train, 2);
  const Batch first = loader.next(), second = loader.next();
  // <pad> 0, <s> 2, </s> 3, and c, a and b from 5 on, the most frequent first; lengths are multiples of 8, long
  // sequences are cut to 6 ids.
  EXPECT_EQ(values<std::int32_t>(first["input"]),
            (std::vector<std::int32_t>{2, 6, 7, 5, 3, 0, 0, 0, 2, 5, 3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values<std::int64_t>(first["labels"]), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(first.tokens, 8);
  EXPECT_EQ(first.positions, 16);
  EXPECT_EQ(first.counted, -1);
  EXPECT_EQ(values<std::int32_t>(second["input"]), (std::vector<std::int32_t>{2, 6, 7, 5, 6, 3, 0, 0}));
  EXPECT_EQ(set.input_of("abcabcabc"), (std::vector<std::int32_t>{2, 6, 7, 5, 6, 3}));
  EXPECT_EQ(set.input_of(""), (std::vector<std::int32_t>{2, 3}));
}

std::string many() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += (i % 3 == 0 ? "x\t" : "y\t") + std::string(1 + i * 7 % 50, 'a') + "\n";
  return text;
}

TEST_F(Labelled, AnEpochHasEachTextOnceAndLittlePadding) {
  const DataSplits data = open(R"(, "length": 64)", many());
  Loader loader = data.train_loader(10, 5);
  ASSERT_EQ(loader.batches_per_epoch(), 30);
  std::vector<std::vector<std::int64_t>> epochs[2];
  double tokens = 0, places = 0;
  for (auto& batches : epochs) {
    std::multiset<std::int64_t> seen;
    for (std::int64_t i = 0; i < 30; ++i) {
      const Batch batch = loader.next();
      batches.push_back(batch.samples);
      seen.insert(batch.samples.begin(), batch.samples.end());
      tokens += static_cast<double>(batch.tokens);
      places += static_cast<double>(batch.positions);
      for (std::size_t row = 0; row < 10; ++row)
        EXPECT_EQ(batch["labels"].data<std::int64_t>()[row], batch.samples[row] % 3 == 0 ? 0 : 1);
    }
    EXPECT_EQ(seen.size(), 300U);
    EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 300U);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_LT(1 - tokens / places, 0.25);
  EXPECT_GT(data.train->tokens()->padding({.batch_size = 10}).fraction(), 0.4)
      << "in order they do not meet their like";
  Loader resumed = data.train_loader(10, 5);
  resumed.seek(1, 7);
  EXPECT_EQ(resumed.next().samples, epochs[1][7]);
  Loader other = data.train_loader(10, 6);
  EXPECT_NE(other.next().samples, epochs[0][0]);
}

TEST_F(Labelled, AShareIsSetAside) {
  const DataSplits data = open(R"(, "valid_fraction": 0.1)", many());
  EXPECT_EQ(data.train->size(), 270);
  ASSERT_EQ(data.valid->size(), 30);
  const LabelledText& train = *data.train->tokens()->labelled();
  std::int64_t xs = 0;
  for (std::int64_t i = 0; i < 270; ++i) xs += train.label_of(i) == 0;
  Loader valid = data.eval_loader(data.valid, 30);
  const Tensor labels = valid.next()["labels"];
  for (const std::int64_t label : values<std::int64_t>(labels)) xs += label == 0;
  EXPECT_EQ(xs, 100);
}

TEST_F(Labelled, ClassesMayBeGivenAndUnknownOnesAreRefused) {
  const DataSplits data = open(R"(, "classes": ["b", "c", "a"])", "a\tx\nb\ty\n");
  EXPECT_EQ(data.classes(), 3);
  EXPECT_EQ(data.train->tokens()->labelled()->label_of(0), 2);
  EXPECT_PRED2(contains, refusal(R"(, "classes": ["b"])", "b\tx\na\ty\n"),
               "train.tsv:2: the label \"a\" is none of the 1 classes");
  const std::string test = put("test.tsv", "a\tx\nnew\ty\n");
  EXPECT_PRED2(contains, refusal(R"(, "test": [)" + to_text(Json(test)) + "]", "a\tx\nb\ty\n"),
               "test.tsv:2: the label \"new\"");
}

TEST_F(Labelled, AClassIsGivenOnce) {
  for (const char* classes : {R"(["a", "b", "a"])", R"(["b", "a", "a"])"}) {
    const std::string message =
        error_message<ConfigError>([&] { (void)open(std::string(R"(, "classes": )") + classes, "a\tx\nb\ty\n"); });
    EXPECT_PRED2(contains, message, "/data/classes: \"a\" is there twice");
  }
}

TEST_F(Labelled, AnEmptyRowIsNamedByItsOwnFileAndLine) {
  const std::string vocabulary = put("vocab.txt", "[PAD]\n[UNK]\na\n"), more = put("more.tsv", "b\ta\na\t\n");
  const std::string first = put("first.tsv", "a\ta\n");
  const Json node =
      parse_json(R"({"type": "labelled_text", "train": [)" + to_text(Json(first)) + ", " + to_text(Json(more)) +
                     R"(], "tokenizer": {"type": "wordpiece", "path": )" + to_text(Json(vocabulary)) + "}}",
                 "run.json");
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)make_data(node); }), "more.tsv:2: a text without ids");
}

TEST_F(Labelled, LinesThatAreNoneAreNamed) {
  EXPECT_PRED2(contains, refusal("", "a\tx\nno tab\n"), "train.tsv:2: 0 tabs; a line is a label, a tab and a text");
  EXPECT_PRED2(contains, refusal("", "a\tx\ty\n"), "train.tsv:1: 2 tabs");
  EXPECT_PRED2(contains, refusal("", "\tx\n"), "train.tsv:1: 1 tabs and no label");
  EXPECT_PRED2(contains, refusal("", ""), "train.tsv");
  EXPECT_PRED2(contains, refusal("", "a\t\xff\n"), "train.tsv");
  EXPECT_THROW(open(R"(, "length": 2)", "a\tx\n"), ConfigError);
  EXPECT_THROW(open(R"(, "packed": "x")", "a\tx\n"), ConfigError);
  const std::string vocabulary = put("vocab.txt", "[UNK]\na\n");
  const std::string wordpiece = R"(, "tokenizer": {"type": "wordpiece", "path": )" + to_text(Json(vocabulary)) + "}";
  EXPECT_PRED2(contains, refusal(wordpiece, "a\ta\n"), "no id for padding");
}

TEST_F(Labelled, RanksGetAboutEquallyManyTokens) {
  // Lengths as those of words in a text: few long ones (Zipf).
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text +=
        (i % 2 == 0 ? "x\t" : "y\t") + std::string(static_cast<std::size_t>(1 + 400 / (1 + i * 37 % 401)), 'a') + "\n";
  const DataSplits data = open(R"(, "length": 512)", text);
  constexpr int ranks = 4;
  std::vector<std::int64_t> tokens(ranks), rows(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(data.train, {.batch_size = 128,
                               .workers = 0,
                               .shuffle = true,
                               .drop_last = true,
                               .part = {.cuts = ranks, .of = ranks, .first = rank, .count = 1}});
    for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      const Batch batch = loader.next();
      tokens[rank] += batch.tokens;
      rows[rank] += batch.size();
    }
  }
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  EXPECT_LE(static_cast<double>(*most - *least), 0.02 * static_cast<double>(*most))
      << tokens[0] << ' ' << tokens[1] << ' ' << tokens[2] << ' ' << tokens[3];
  for (const std::int64_t count : rows) EXPECT_EQ(count, 15 * 32);
}

}  // namespace
}  // namespace hearth::data::labelled_test
