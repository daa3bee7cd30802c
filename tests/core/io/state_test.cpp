// SPDX-License-Identifier: Apache-2.0
// The state registry: round trips in place, hashes that see every bit and name, and refusals that change nothing.
#include "core/io/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::state_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

/// One of each kind of entry.
struct Example {
  Tensor w = Tensor::of<float>({2, 3}, {1, -0.0f, std::numeric_limits<float>::quiet_NaN(), 4, 5, 6});
  Tensor mask = Tensor::of<bool>({3}, {true, false, true});
  Tensor none = Tensor::empty({0, 4}, DType::f64);
  std::int64_t step = -3;
  std::uint64_t key = ~std::uint64_t{0} - 1;
  double best = 0.1;
  State state;

  Example() {
    state.add("w", &w);
    state.add("mask", &mask);
    state.add("none", &none);
    state.add("step", &step);
    state.add("key", &key);
    state.add("best", &best);
  }
  Example(const Example&) = delete;
};

class StateTest : public testing::Test {
 protected:
  TempDir directory_;
  std::string path_ = (directory_ / "state.safetensors").string();
};

TEST_F(StateTest, RoundTripsIntoTheStorageThatIsThere) {
  const Example saved;
  saved.state.save(path_, {{"note", "x"}});
  Example loaded;
  loaded.w.fill_(0);
  loaded.mask.fill_(0);
  loaded.step = 0;
  loaded.key = 0;
  loaded.best = 0;
  EXPECT_NE(loaded.state.hash(), saved.state.hash());
  const std::byte* const where = loaded.w.bytes();
  const std::uint64_t version = loaded.w.storage()->version();
  loaded.state.load(path_);
  EXPECT_EQ(loaded.state.hash(), saved.state.hash());
  EXPECT_EQ(loaded.w.bytes(), where);
  EXPECT_GT(loaded.w.storage()->version(), version);
  EXPECT_TRUE(std::signbit(loaded.w.data<float>()[1]));
  EXPECT_TRUE(std::isnan(loaded.w.data<float>()[2]));
  EXPECT_EQ(loaded.step, -3);
  EXPECT_EQ(loaded.key, ~std::uint64_t{0} - 1);
  EXPECT_EQ(loaded.best, 0.1);
  EXPECT_EQ(SafetensorsFile(path_).metadata().at("note"), "x");
}

TEST_F(StateTest, NamesBeginWithThePrefixAroundThem) {
  std::int64_t value = 0;
  State state;
  state.within("a.", [&](State& s) {
    s.add("step", &value);
    s.within("b.", [&](State& inner) { inner.add("step", &value); });
    s.add("last", &value);
  });
  // What throws leaves no prefix behind.
  EXPECT_THROW(state.within("c.", [](State& s) { s.add("step", static_cast<std::int64_t*>(nullptr)); }), UsageError);
  EXPECT_THROW(state.within("d.", nullptr), UsageError);
  state.add("step", &value);
  std::vector<std::string> names;
  for (const State::Entry& entry : state.entries()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.step", "a.b.step", "a.last", "step"}));
  EXPECT_THROW(state.within("a.", [&](State& s) { s.add("step", &value); }), UsageError);
}

TEST_F(StateTest, TheHashSeesEveryBitNameAndShape) {
  Example example;
  const std::string before = example.state.hash();
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(before, Example().state.hash());
  for (const State::Entry& entry : example.state.entries()) {
    if (entry.bytes().empty()) continue;
    entry.bytes().back() ^= std::byte{1};
    EXPECT_NE(example.state.hash(), before) << entry.name;
    entry.bytes().back() ^= std::byte{1};
  }
  EXPECT_EQ(example.state.hash(), before);
  const auto hash_of = [](const std::string& name, const Shape& shape, DType dtype) {
    Tensor tensor = Tensor::zeros(shape, dtype);
    State state;
    state.add(name, &tensor);
    return state.hash();
  };
  const std::string base = hash_of("a", {2, 3}, DType::f32);
  EXPECT_NE(base, hash_of("b", {2, 3}, DType::f32));
  EXPECT_NE(base, hash_of("a", {3, 2}, DType::f32));
  EXPECT_NE(base, hash_of("a", {2, 3}, DType::i32));
}

TEST_F(StateTest, AFileThatDoesNotFitIsRefusedAsAWhole) {
  Tensor w = Tensor::full({3, 2}, 1);
  Tensor mask = Tensor::zeros({3}, DType::u8);
  std::int64_t step = 9;
  State other;
  other.add("w", &w);
  other.add("mask", &mask);
  other.add("step", &step);
  other.add("extra", &step);
  other.save(path_);
  Example example;
  const std::string before = example.state.hash();
  const std::string message = error_message<FileError>([&] { example.state.load(path_); });
  EXPECT_PRED2(contains, message, path_);
  EXPECT_PRED2(contains, message, "w is f32 [3, 2], expected f32 [2, 3]");
  EXPECT_PRED2(contains, message, "mask is u8 [3], expected bool [3]");
  for (const char* name : {"missing none", "missing key", "missing best", "unexpected extra"}) {
    EXPECT_PRED2(contains, message, name);
  }
  EXPECT_EQ(example.state.hash(), before);
}

TEST_F(StateTest, ADamagedFileChangesNothing) {
  Example example;
  example.state.save(path_);
  std::string bytes = read_text(path_);
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  write_file_synced(path_, bytes);
  example.step = 11;
  const std::string before = example.state.hash();
  EXPECT_PRED2(contains, error_message<FileError>([&] { example.state.load(path_); }), "TensorDamaged: tensor 'mask'");
  EXPECT_EQ(example.state.hash(), before);
  EXPECT_THROW(example.state.load((directory_ / "absent").string()), FileError);
}

TEST_F(StateTest, RefusesWhatCannotBeKept) {
  Example example;
  State& state = example.state;
  EXPECT_PRED2(contains, error_message<UsageError>([&] { state.add("w", &example.step); }),
               "'w' is registered already");
  Tensor undefined;
  EXPECT_THROW(state.add("undefined", &undefined), UsageError);
  EXPECT_THROW(state.add("null", static_cast<Tensor*>(nullptr)), UsageError);
  EXPECT_THROW(state.add("null", static_cast<double*>(nullptr)), UsageError);
  Strides transposed{1, 3};
  Tensor view = Tensor::view(example.w.storage(), {3, 2}, transposed, 0, DType::f32, {});
  EXPECT_THROW(state.add("view", &view), UsageError);
  EXPECT_EQ(state.entries().size(), 6u);
}

TEST_F(StateTest, AHandleGivenAnotherTensorIsFollowedOrRefused) {
  Example example;
  example.state.save(path_);
  example.w = Tensor::full({2, 3}, 8);
  example.state.load(path_);
  EXPECT_EQ(example.w.data<float>()[5], 6.0f);
  example.w = Tensor::full({2, 2}, 8);
  example.step = 1;
  EXPECT_PRED2(contains, error_message<UsageError>([&] { example.state.load(path_); }),
               "'w' was registered as f32 [2, 3] and is now f32 [2, 2]");
  EXPECT_EQ(example.step, 1);
  EXPECT_THROW(example.state.hash(), UsageError);
  EXPECT_THROW(example.state.save(path_), UsageError);
  example.w = Tensor();
  EXPECT_THROW(example.state.hash(), UsageError);
}

}  // namespace
}  // namespace hearth::state_test
