// SPDX-License-Identifier: Apache-2.0
// Files of torch.save() give their tensors; whatever else a file holds is refused, and nothing of it is run.
#include "models/weights/torch_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/io/file.h"
#include "core/random.h"
#include "models/nn/nn.h"
#include "models/weights/module_file.h"
#include "models/weights/weights_import.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::torch_file_test {
namespace {

using models::read_torch_file;
using test::contains;

std::string golden(const char* name) { return join_text(test::source_dir(), "/tests/golden/", name); }

std::map<std::string, Tensor> tensors_of(const std::string& path) {
  std::map<std::string, Tensor> result;
  for (const models::Weight& weight : read_torch_file(path).weights) result[weight.name] = weight.value;
  return result;
}

TEST(TorchFile, GivesTheTensorsOfAStateDict) {
  EXPECT_TRUE(models::is_torch_file(golden("state_dict.pth")));
  EXPECT_FALSE(models::is_torch_file(golden("mlp.safetensors")));
  const auto found = tensors_of(golden("state_dict.pth"));
  const auto expect = [&](const char* name, DType dtype, const Shape& shape, const std::vector<double>& values) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name).dtype(), dtype) << name;
    EXPECT_EQ(found.at(name).shape(), shape) << name;
    EXPECT_EQ(found.at(name).to_doubles(), values) << name;
  };
  EXPECT_EQ(found.size(), 14U);
  const std::vector<double> table{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  expect("table", DType::f32, {4, 3}, table);
  expect("tied", DType::f32, {4, 3}, table);
  expect("turned", DType::f32, {3, 4}, {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11});
  expect("part", DType::f32, {2, 2}, {4, 5, 7, 8});
  expect("parameter", DType::f32, {2}, {1.5, -2.0});
  expect("double", DType::f64, {2}, {1.0, 1e300});
  expect("half", DType::f16, {2}, {0.5, 65504.0});
  expect("brain", DType::bf16, {2}, {0.25, -3.0});
  expect("counter", DType::i64, {}, {7});
  expect("index", DType::i32, {1, 2}, {-1, 2});
  expect("mask", DType::boolean, {2}, {1, 0});
  expect("bytes", DType::u8, {2}, {1, 255});
  expect("empty", DType::f32, {0, 3}, {});
  expect("scalar", DType::f32, {}, {2.5});
}

TEST(TorchFile, FindsAStateDictInACheckpoint) {
  const auto found = tensors_of(golden("checkpoint.pth"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.at("w").to_doubles(), (std::vector<double>{1, 2}));
}

TEST(TorchFile, IsFoundInAFolderBehindSafetensors) {
  const test::TempDir folder;
  const std::string path = folder.path().string();
  const auto put = [&](const char* name, const std::string& from) {
    const std::string bytes = read_text(golden(from.c_str()));
    (void)folder.write(name, {bytes.begin(), bytes.end()});
  };
  put("pytorch_model.bin", "checkpoint.pth");
  EXPECT_EQ(models::read_weights(path).weights.at(0).name, "w");
  EXPECT_EQ(models::weight_files(path).at(0), folder / "pytorch_model.bin");
  put("model.safetensors", "mlp.safetensors");
  EXPECT_NE(models::read_weights(path).weights.at(0).name, "w");
  // Parts behind an index are not joined.
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::remove(folder / "pytorch_model.bin");
  (void)folder.write("pytorch_model.bin.index.json", {'{', '}'});
  for (const std::string& way : {path, path + "/pytorch_model.bin.index.json"})
    EXPECT_PRED2(contains, test::error_message<FileError>([&] { (void)models::read_weights(way); }),
                 "several files of torch.save() are not joined");
}

/// A new file each time: one that is cut to nothing and written again is flushed to the disk by some file systems.
std::string write_anew(const test::TempDir& folder, const std::string& bytes) {
  std::filesystem::remove(folder / "file.pth");
  return folder.write("file.pth", {bytes.begin(), bytes.end()});
}

/// Archives made here, whose directory and checksums are right.
class TorchArchive : public testing::Test {
 protected:
  static void add(std::string& to, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) to += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  }
  static std::uint32_t crc32(const std::string& bytes) {
    std::uint32_t crc = 0xffffffff;
    for (const char c : bytes) {
      crc ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
    }
    return ~crc;
  }
  /// The archive of these entries; `method` of all, which stay as they are.
  static std::string zip(const std::map<std::string, std::string>& entries, int method = 0, int flags = 0) {
    std::string file, directory;
    for (const auto& [name, bytes] : entries) {
      std::string fields;
      for (const std::uint64_t value : {20, flags, method, 0, 0}) add(fields, value, 2);
      for (const std::uint64_t value : {std::uint64_t{crc32(bytes)}, bytes.size(), bytes.size()}) add(fields, value, 4);
      add(fields, name.size(), 2);
      add(fields, 0, 2);
      const std::uint64_t at = file.size();
      file += std::string("PK\3\4", 4) + fields + name + bytes;
      directory += std::string("PK\1\2", 4) + std::string("\24\0", 2) + fields;
      add(directory, 0, 2 + 2 + 2 + 4);
      add(directory, at, 4);
      directory += name;
    }
    const std::uint64_t at = file.size();
    file += directory + std::string("PK\5\6\0\0\0\0", 8);
    add(file, entries.size(), 2);
    add(file, entries.size(), 2);
    add(file, directory.size(), 4);
    add(file, at, 4);
    add(file, 0, 2);
    return file;
  }
  static std::string bytes_of(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  std::string put(const std::string& bytes) const { return folder_.write("file.pth", {bytes.begin(), bytes.end()}); }
  std::string archive(const std::string& pickle, const std::string& storage = std::string(16, '\0')) const {
    return put(zip({{"a/data.pkl", pickle}, {"a/data/0", storage}, {"a/byteorder", "little"}}));
  }
  std::string refusal(const std::string& path) const {
    return test::error_message<FileError>([&] { (void)read_torch_file(path); });
  }

  static std::string text(const std::string& value) {
    std::string result = "X";
    add(result, value.size(), 4);
    return result + value;
  }
  static std::string number(std::int32_t value) {
    std::string result = "J";
    add(result, static_cast<std::uint32_t>(value), 4);
    return result;
  }
  static std::string tuple(const std::vector<std::int32_t>& values) {
    std::string result = "(";
    for (const std::int32_t value : values) result += number(value);
    return result + "t";
  }
  static std::string tensor(const std::string& offset, const std::string& sizes, const std::string& strides,
                            std::int32_t elements = 4, const std::string& type = "FloatStorage",
                            const std::string& marks = "") {
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + type + "\n" + text("0") +
           text("cpu") + number(elements) + "tQ" + offset + sizes + strides + "\x89" + "}" + marks + "tR";
  }
  static std::string scalar(std::int32_t offset) { return tensor(number(offset), tuple({}), tuple({})); }
  static std::string inner(const std::string& items) { return "}(" + items + "u"; }
  static std::string dict(const std::string& items) { return "\x80\x02}(" + items + "u."; }

  test::TempDir folder_;
};

TEST_F(TorchArchive, IsReadAsMadeHere) {
  const std::string path = archive(dict(text("w") + tensor(number(0), tuple({2, 2}), tuple({2, 1}))));
  EXPECT_EQ(read_torch_file(path).weights.at(0).value.shape(), (Shape{2, 2}));
}

TEST_F(TorchArchive, AViewThatIsNegatedHasItsSigns) {
  const auto marked = [&](const std::string& marks, const std::string& type = "FloatStorage") {
    return archive(dict(text("w") + tensor(number(0), tuple({2}), tuple({1}), 4, type, marks)),
                   bytes_of({1.5F, -2.0F, 0.0F, 3.0F}));
  };
  const auto values = [&](const std::string& path) { return tensors_of(path).at("w").to_doubles(); };
  EXPECT_EQ(values(marked(inner(text("neg") + "\x88"))), (std::vector<double>{-1.5, 2}));
  EXPECT_EQ(values(marked(inner(text("neg") + "\x89"))), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(values(marked("}")), (std::vector<double>{1.5, -2}));
  EXPECT_PRED2(contains, refusal(marked(inner(text("conj") + "\x88"))), "save it after resolve_conj()");
  EXPECT_PRED2(contains, refusal(marked("N")), "marks \"w\" in an unknown way");
  EXPECT_PRED2(contains, refusal(marked(inner(text("neg") + "\x88"), "IntStorage")), "negates \"w\", which is of i32");
}

TEST_F(TorchArchive, WeightsBesideTheModelAreTold) {
  const auto read = [&](const std::string& items) {
    return read_torch_file(archive(dict(items), bytes_of({1, 2, 3, 4})));
  };
  const auto value = [](const models::WeightSet& set) { return set.weights.at(0).value.item(); };
  const std::string raw = inner(text("w") + scalar(0)), average = inner(text("w") + scalar(1));
  // In any order.
  for (const std::string& items : {text("model") + raw + text("model_ema") + average,
                                   text("model_ema") + average + text("epoch") + number(3) + text("model") + raw}) {
    const models::WeightSet set = read(items);
    EXPECT_EQ(value(set), 1);
    ASSERT_EQ(set.notes.size(), 1U);
    EXPECT_PRED2(contains, set.notes[0], "the weights are those of \"model\"; beside it are \"model_ema\"");
  }
  const std::string path = archive(dict(text("model") + raw + text("model_ema") + average));
  const auto imported = models::import_weights(path, {.from = models::WeightFormat::torch});
  ASSERT_FALSE(imported.notes.empty());
  EXPECT_PRED2(contains, imported.notes[0], "\"model_ema\"");
  // A number that was kept as a tensor is no weight of the model.
  const models::WeightSet counted = read(text("steps") + scalar(2) + text("state_dict") + raw);
  EXPECT_EQ(value(counted), 1);
  EXPECT_PRED2(contains, counted.notes.at(0), "beside it are \"steps\"");
  EXPECT_TRUE(read(text("state_dict") + raw + text("lr") + number(1)).notes.empty());
  // No state dict, but a part of one.
  EXPECT_PRED2(contains, refusal(archive(dict(text("w") + scalar(0) + text("model") + inner(text("a") + number(1))))),
               "has \"model\", which is no tensor");
  EXPECT_PRED2(contains, refusal(archive(dict(text("ema") + average))), "\"ema\" has: save it by itself");
}

TEST_F(TorchArchive, AModuleTakesPyTorchsFilters) {
  // [1, 3, 3, 3] in both layouts.
  std::string storage;
  for (std::int32_t i = 0; i < 27; ++i) {
    const auto value = static_cast<float>(i);
    storage.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  const std::string path =
      archive(dict(text("weight") + tensor(number(0), tuple({1, 3, 3, 3}), tuple({27, 9, 3, 1}), 27)), storage);
  nn::Conv2d conv(3, 1, {.kernel = 3, .bias = false});
  nn::load(conv, path);
  const std::vector<double> values = conv.weight.to_doubles();
  for (std::size_t pixel = 0; pixel < 9; ++pixel)
    for (std::size_t channel = 0; channel < 3; ++channel)
      EXPECT_EQ(values[3 * pixel + channel], static_cast<double>(9 * channel + pixel));
  EXPECT_PRED2(contains, test::error_message<FileError>([&] { (void)models::import_weights(path, {}); }),
               "weights.from=torch");
  const models::ImportedWeights imported = models::import_weights(path, {.from = models::WeightFormat::torch});
  EXPECT_EQ(imported.weights.weights.at(0).value.to_doubles(), values);
}

TEST_F(TorchArchive, NothingButTensorsIsRun) {
  const std::string command = text("touch " + (folder_.path() / "ran").string());
  for (const std::string& pickle :
       {"\x80\x02"
        "cposix\nsystem\n(" +
            command + "tR.",
        "\x80\x02"
        "cbuiltins\neval\n(" +
            command + "tR.",
        "\x80\x02(" + command + "iposix\nsystem\n.",
        "\x80\x02"
        "ctorch\nload\n(" +
            command + "tR.",
        "\x80\x04" + text("posix") + text("system") + "\x93(" + command + "tR.",
        dict(text("w") + "ctorch._utils\n_rebuild_tensor\n)R"), dict(text("w") + "ctorch\nCharStorage\n)R"),
        dict(text("w") + "ccollections\nOrderedDict\n(" + command + "tR"), dict(text("w") + "ctorch\nFloatStorage\n)R"),
        std::string("\x80\x02"
                    "ccollections\nOrderedDict\n)\x81.")}) {
    EXPECT_PRED2(contains, refusal(archive(pickle)), "safetensors.torch.save_file(");
    EXPECT_FALSE(file_exists(folder_.path() / "ran"));
  }
  EXPECT_PRED2(contains,
               refusal(archive("\x80\x02"
                               "cposix\nsy\033[2Jstem\n.")),
               "names \"posix.sy?[2Jstem\", which");
}

TEST_F(TorchArchive, TensorsBeyondTheirStorageAreRefused) {
  const auto of = [&](const std::string& offset, const std::string& sizes, const std::string& strides,
                      std::int32_t elements = 4, const char* type = "FloatStorage") {
    return refusal(archive(dict(text("w") + tensor(offset, sizes, strides, elements, type))));
  };
  const std::string wide = std::string("\x8a\x08") + std::string(7, '\xff') + "\x7f";
  for (const std::string& message :
       {of(number(1), tuple({4}), tuple({1})), of(number(-1), tuple({2}), tuple({1})),
        of(number(0), tuple({2, 2}), tuple({3, 1})), of(number(0), tuple({-1}), tuple({1})),
        of(number(0), tuple({2}), tuple({-1})), of(number(0), tuple({2}), tuple({1, 1})),
        of(number(0), tuple({4}), tuple({1}), 8), of(number(0), tuple({2}), tuple({1}), 4, "DoubleStorage"),
        of(wide, tuple({1}), tuple({1})), of(number(0), "(" + wide + "t", tuple({1})),
        of(number(0), tuple({2}), "(" + wide + "t"), of(number(0), "(" + wide + wide + "t", "(" + wide + wide + "t"),
        of(number(0), tuple({1, 1, 1, 1, 1, 1, 1, 1, 1}), tuple({1, 1, 1, 1, 1, 1, 1, 1, 1}))})
    EXPECT_PRED2(contains, message, "what its storage of");
  // One storage under many names, as a bomb of 4096 tensors of 64 KB.
  std::string items;
  for (int i = 0; i < 4096; ++i)
    items += text(std::to_string(i)) + tensor(number(0), tuple({16384}), tuple({1}), 16384);
  EXPECT_PRED2(contains, refusal(archive(dict(items), std::string(65536, '\1'))), "beyond the file's size");
  // As many elements as anyone likes.
  EXPECT_PRED2(contains, of(number(0), tuple({1000000}), tuple({0})), "expanded so far");
  EXPECT_PRED2(contains, of(number(0), tuple({1 << 30, 1 << 30}), tuple({0, 0})), "what its storage of");
  EXPECT_PRED2(contains, of(number(0), tuple({1 << 20, 1 << 20}), tuple({0, 0})), "expanded so far");
}

TEST_F(TorchArchive, ExpandedTensorsAreRead) {
  const std::string storage(reinterpret_cast<const char*>(std::vector<float>{1, 2, 3, 4}.data()), 16);
  const std::string path = archive(dict(text("w") + tensor(number(1), tuple({3, 2}), tuple({0, 1})) + text("all") +
                                        tensor(number(3), tuple({4, 4, 4}), tuple({0, 0, 0}))),
                                   storage);
  const auto tensors = tensors_of(path);
  EXPECT_EQ(tensors.at("w").to_doubles(), (std::vector<double>{2, 3, 2, 3, 2, 3}));
  EXPECT_EQ(tensors.at("all").to_doubles(), std::vector<double>(64, 4));
}

TEST_F(TorchArchive, TheRemedyTellsWhatToTrust) {
  EXPECT_PRED2(contains,
               refusal(archive("\x80\x02"
                               "carray\narray\n.")),
               "weights_only=False, which runs what is in the file");
}

TEST_F(TorchArchive, ProgramsThatAreNoneAreRefused) {
  const std::string good = tensor(number(0), tuple({4}), tuple({1}));
  for (const std::string& pickle : {std::string(),
                                    std::string("."),
                                    std::string("\x80"),
                                    std::string("\x80\x09."),
                                    std::string("\x80\x02K\1."),
                                    std::string("\x80\x02u."),
                                    std::string("\x80\x02}u."),
                                    std::string("\x80\x02}(u"),
                                    std::string("\x80\x02h\5."),
                                    std::string("\x80\x02]}a."),
                                    std::string("\x80\x02}(K\1u."),
                                    std::string("\x80\x02R."),
                                    std::string("\x80\x02Q."),
                                    std::string("\x80\x02)Q."),
                                    std::string("\x80\x02}b."),
                                    std::string("\x80\x02K\1}b."),
                                    std::string("\x80\x02(0."),
                                    std::string("\x80\x02X\xff\xff\xff\xff."),
                                    std::string("\x80\x02\x8a\xff."),
                                    std::string("\x80\x02}."),
                                    dict(text("w") + number(3)),
                                    dict(good + good),
                                    dict(text("w") + good + text("w") + good),
                                    dict(text("w") + good + text("v") + number(1)),
                                    dict(text("model") + "}")})
    EXPECT_NE(refusal(archive(pickle)), "") << pickle;
  // Lists within lists, and one within itself.
  EXPECT_NE(refusal(archive("\x80\x02" + std::string(500000, ']') + ".")), "");
  EXPECT_NE(refusal(archive(std::string("\x80\x02]q\0h\0a.", 9))), "");
  EXPECT_PRED2(contains, refusal(archive("\x80\x02" + std::string(3000000, 'N') + ".")), "makes too many values");
  EXPECT_PRED2(contains, refusal(archive("\x80\x02" + std::string(3000000, '(') + ".")), "makes too many values");
}

TEST_F(TorchArchive, OtherArchivesAreRefused) {
  const std::string pickle = dict(text("w") + tensor(number(0), tuple({4}), tuple({1})));
  const std::map<std::string, std::string> entries{{"a/data.pkl", pickle}, {"a/data/0", std::string(16, '\0')}};
  EXPECT_EQ(read_torch_file(put(zip(entries))).weights.size(), 1U);
  EXPECT_PRED2(contains, refusal(put(zip(entries, 8))), "is compressed");
  EXPECT_PRED2(contains, refusal(put(zip(entries, 0, 1))), "is encrypted");
  EXPECT_PRED2(contains, refusal(put(zip({{"a/data/0", ""}}))), "has no data.pkl");
  EXPECT_PRED2(contains, refusal(put(zip({{"a/data.pkl", pickle}}))), "has no entry \"a/data/0\"");
  std::map<std::string, std::string> big = entries;
  big["a/byteorder"] = "big";
  EXPECT_PRED2(contains, refusal(put(zip(big))), "big-endian");
  EXPECT_PRED2(contains, refusal(put(std::string("\x80\x02\x8a\x0al\xfc\x9c", 7))), "before PyTorch 1.6");
  EXPECT_NE(refusal(put("PK\3\4")), "");
  EXPECT_NE(refusal(put("")), "");
  std::string claims = zip(entries);
  claims[claims.size() - 12] = '\xff', claims[claims.size() - 11] = '\xff';
  EXPECT_NE(refusal(put(claims)), "");
}

/// Whether a file is refused by a FileError; `tensors` are those of one that is not.
bool is_refused(const std::string& path, std::map<std::string, Tensor>& tensors) {
  try {
    tensors = tensors_of(path);
    return false;
  } catch (const FileError&) {
    return true;
  }
}

TEST(TorchFile, DamageIsRefusedOrHarmless) {
  const test::TempDir folder;
  const std::string whole = read_text(golden("checkpoint.pth"));
  std::map<std::string, Tensor> found;
  int refused = 0, tried = 0;
  for (std::size_t at = 0; at < whole.size(); at += 5, ++tried) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    if (is_refused(write_anew(folder, bytes), found)) {
      ++refused;
      continue;
    }
    ASSERT_TRUE(found.contains("w")) << "byte " << at;
    EXPECT_EQ(found.at("w").to_doubles(), (std::vector<double>{1, 2})) << "byte " << at;
  }
  EXPECT_GT(refused, tried / 4);
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_TRUE(is_refused(write_anew(folder, whole.substr(0, size)), found)) << "the directory stands at the end";
  }
}

TEST_F(TorchArchive, AnyProgramEnds) {
  Random random(9, 1);
  const std::string good = dict(text("w") + tensor(number(0), tuple({2, 2}), tuple({2, 1})));
  const std::string codes = "\x80\x02q()]}tRbQuseahjKMJGXcN.\x85\x86\x87\x88\x89\x8a";
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string pickle = good;
    for (std::uint64_t change = 0; change <= random.below(4); ++change) {
      const std::size_t at = 2 + random.below(pickle.size() - 2);
      const char code = codes[random.below(codes.size())];
      const std::uint64_t kind = random.below(3);
      if (kind == 0) pickle[at] = code;
      if (kind == 1) pickle.insert(at, 1, code);
      if (kind == 2) pickle.erase(at, 1);
    }
    std::map<std::string, Tensor> found;
    refused += is_refused(archive(pickle), found) ? 1 : 0;
  }
  EXPECT_GT(refused, 250);
}

}  // namespace
}  // namespace hearth::torch_file_test
