// SPDX-License-Identifier: Apache-2.0
// The safetensors reader against every kind of malformed file, against a file that Python wrote, and against damage at
// every byte and every bit of a file of its own.
#include "core/io/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::safetensors_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

std::string little_endian(std::uint64_t value) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string file_text(const std::string& header, std::size_t data_bytes) {
  return little_endian(header.size()) + header + std::string(data_bytes, '\1');
}

template <class T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class Safetensors : public testing::Test {
 protected:
  std::filesystem::path put(const std::string& text) {
    // A plain write: a synced one for each of thousands of variants would take minutes.
    FileWriter(path_, FileWriter::Mode::truncate).append(text);
    return path_;
  }
  std::string refusal(const std::string& text) {
    put(text);
    const std::string message = error_message<FileError>([&] { SafetensorsFile{path_}; });
    EXPECT_PRED2(contains, message, path_.string() + ": ");
    return message;
  }
  std::string refusal(const std::string& header, std::size_t data_bytes) {
    return refusal(file_text(header, data_bytes));
  }
  void write_small() {
    write_safetensors(path_, {{"w", DType::f32, {2, 3}, raw(weights_)}, {"step", DType::i64, {}, raw(step_)}},
                      {{"format", "pt"}});
  }

  TempDir directory_;
  std::filesystem::path path_ = directory_ / "f.safetensors";
  std::vector<float> weights_ = {1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> step_ = {7};
};

TEST_F(Safetensors, RoundTripsAllTypes) {
  const std::vector<std::uint64_t> words = {0x0102030405060708u, ~std::uint64_t{0}};
  const auto bytes = raw(words);
  std::vector<SafetensorsEntry> entries;
  for (const DType dtype :
       {DType::boolean, DType::u8, DType::f16, DType::bf16, DType::i32, DType::f32, DType::f64, DType::i64}) {
    const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
    entries.push_back({std::string("t.") + name_of(dtype), dtype, {count, 1}, bytes});
  }
  entries.push_back({"none", DType::f32, {3, 0, 2}, {}});
  write_safetensors(path_, entries, {{"a\"\n\xc3\xa9", "\\ \x01"}});
  const SafetensorsFile file(path_);
  file.verify();
  EXPECT_TRUE(file.has_checksums());
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"a\"\n\xc3\xa9", "\\ \x01"}}));
  ASSERT_EQ(file.records().size(), entries.size());
  for (const SafetensorsEntry& entry : entries) {
    const TensorRecord& record = file.at(entry.name);
    EXPECT_EQ(record.dtype, entry.dtype);
    EXPECT_EQ(record.shape, entry.shape);
    EXPECT_TRUE(std::ranges::equal(file.read(record), entry.bytes));
  }
}

TEST_F(Safetensors, TheOrderOfEntriesDoesNotChangeTheFile) {
  const std::vector<double> wide = {1};
  const std::vector<std::byte> narrow(1);
  std::vector<SafetensorsEntry> entries = {{"b", DType::u8, {1}, narrow},
                                           {"a", DType::u8, {1}, narrow},
                                           {"z", DType::f64, {1}, raw(wide)},
                                           {"c", DType::i64, {1}, raw(step_)}};
  write_safetensors(path_, entries);
  const std::string first = read_text(path_);
  EXPECT_EQ(static_cast<unsigned char>(first[0]) % 8, 0);
  std::reverse(entries.begin(), entries.end());
  write_safetensors(path_, entries);
  EXPECT_EQ(read_text(path_), first);
  std::string order;
  const SafetensorsFile file(path_);
  for (const TensorRecord& record : file.records()) order += record.name;
  EXPECT_EQ(order, "czab");
}

TEST_F(Safetensors, AnEmptySetIsAFile) {
  write_safetensors(path_, {});
  const SafetensorsFile file(path_);
  file.verify();
  EXPECT_TRUE(file.records().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST_F(Safetensors, ReadsWhatPythonWrote) {
  const SafetensorsFile file(test::source_dir() + "/tests/golden/python.safetensors");
  EXPECT_FALSE(file.has_checksums());
  file.verify();
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  const TensorRecord& w = file.at("layer.weight");
  EXPECT_EQ(w.dtype, DType::f32);
  EXPECT_EQ(w.shape, (Shape{2, 3}));
  std::array<float, 6> values;
  std::memcpy(values.data(), file.read(w).data(), sizeof values);
  EXPECT_EQ(values, (std::array<float, 6>{0, 0.5f, 1, 1.5f, 2, 2.5f}));
  EXPECT_EQ(file.at("step").shape, Shape{});
  EXPECT_EQ(file.at("step").dtype, DType::i64);
  EXPECT_EQ(file.at("mask").dtype, DType::boolean);
  EXPECT_EQ(file.at("half").dtype, DType::f16);
  EXPECT_EQ(file.at("empty").shape, (Shape{0, 4}));
}

TEST_F(Safetensors, HeaderOutsideItsBounds) {
  EXPECT_PRED2(contains, error_message<FileError>([&] { SafetensorsFile{path_}; }), "IoError: ");
  EXPECT_PRED2(contains, refusal(""), "HeaderTooSmall: 0 bytes");
  EXPECT_PRED2(contains, refusal("1234567"), "HeaderTooSmall: 7 bytes");
  EXPECT_PRED2(contains, refusal(little_endian(100'000'001)), "HeaderTooLarge: a header of 100000001 bytes");
  EXPECT_PRED2(contains, refusal(little_endian(~std::uint64_t{0})), "HeaderTooLarge");
  EXPECT_PRED2(contains, refusal(little_endian(100'000'000) + "{}"), "InvalidHeaderLength: a header of 100000000");
  EXPECT_PRED2(contains, refusal(little_endian(3) + "{}"), "InvalidHeaderLength");
}

TEST_F(Safetensors, HeaderThatIsNoText) {
  for (const std::string bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xe0\x80\x80",
                                "\xf0\x80\x80\x80", "\x80"}) {
    EXPECT_PRED2(contains, refusal("{\"" + bad + "\":0}", 0), "InvalidHeader: byte 2");
  }
  for (const char* header : {"", "   ", "[]", "\"{}\"", "\xef\xbb\xbf{}"}) {
    EXPECT_PRED2(contains, refusal(header, 0), "InvalidHeaderStart: ");
  }
}

TEST_F(Safetensors, HeaderThatIsNoDescription) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  for (const std::string& header : {
           std::string("{"),
           std::string("{}}"),
           std::string("{},"),
           std::string("{'a':1}"),
           std::string("{}\0x", 4),
           std::string(R"({"a":1})"),
           std::string(R"({"a":null})"),
           std::string(R"({"a":[]})"),
           std::string(R"({"a":"text"})"),
           std::string(R"({"a":{}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[1]}})"),
           std::string(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})"),
           std::string(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})"),
           std::string(R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})"),
           R"({"__metadata__":{"k":1},"a":)" + tensor + "}",
           R"({"__metadata__":{"k":{}},"a":)" + tensor + "}",
           R"({"__metadata__":{"k":null},"a":)" + tensor + "}",
           R"({"__metadata__":["k"],"a":)" + tensor + "}",
           std::string(200000, '{'),
           "{\"a\":" + std::string(200000, '['),
       }) {
    EXPECT_PRED2(contains, refusal(header, 1), "InvalidHeaderDeserialization: ") << header.substr(0, 100);
  }
}

TEST_F(Safetensors, NamesThatComeTwice) {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_PRED2(contains, refusal(R"({"a":)" + tensor + R"(,"b":)" + tensor + R"(,"a":)" + tensor + "}", 0),
               "DuplicateName: tensor 'a'");
  EXPECT_PRED2(contains, refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0),
               "DuplicateName: field 'dtype' of tensor 'a'");
  EXPECT_PRED2(contains, refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "DuplicateName: metadata entry 'k'");
  EXPECT_PRED2(contains, refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "DuplicateName: key '__metadata__'");
}

TEST_F(Safetensors, OffsetsThatLeaveHolesOrOverlap) {
  const auto pair = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_PRED2(contains, refusal(pair("[0,2]", "[3,5]"), 5), "InvalidOffset: tensor 'b'");
  EXPECT_PRED2(contains, refusal(pair("[0,2]", "[1,3]"), 3), "InvalidOffset: tensor 'b'");
  EXPECT_PRED2(contains, refusal(pair("[0,2]", "[0,2]"), 2), "InvalidOffset: tensor 'b'");
  EXPECT_PRED2(contains, refusal(pair("[1,3]", "[3,5]"), 5), "InvalidOffset: tensor 'a'");
  EXPECT_PRED2(contains, refusal(pair("[0,2]", "[2,0]"), 2), "InvalidOffset: tensor 'b'");
  // The reference sorts by offset, so the order in the header is free.
  put(file_text(pair("[2,4]", "[0,2]"), 4));
  EXPECT_EQ(SafetensorsFile(path_).records().front().name, "b");
}

TEST_F(Safetensors, SizesThatDoNotFit) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_PRED2(contains, refusal(one("F32", "[2]", "[0,7]"), 7), "TensorInvalidInfo: tensor 'a': [2] F32 takes 8");
  EXPECT_PRED2(contains, refusal(one("F32", "[]", "[0,0]"), 0), "TensorInvalidInfo: tensor 'a'");
  EXPECT_PRED2(contains, refusal(one("U8", "[2]", "[0,2]"), 3), "MetadataIncompleteBuffer: ");
  EXPECT_PRED2(contains, refusal(one("U8", "[2]", "[0,2]"), 1), "MetadataIncompleteBuffer: ");
  for (const char* shape :
       {"[4294967296,4294967296]", "[18446744073709551615,2]", "[2305843009213693952]", "[288230376151711744]",
        "[3,6148914691236517206]", "[0,9223372036854775808]", "[0,1099511627776,1099511627776]"}) {
    EXPECT_PRED2(contains, refusal(one("F64", shape, "[0,0]"), 0), "ValidationOverflow: tensor 'a'") << shape;
  }
  EXPECT_PRED2(contains, refusal(one("F4", "[3]", "[0,1]"), 1), "MisalignedSlice: tensor 'a'");
  EXPECT_PRED2(contains, refusal(one("F4", "[2]", "[0,1]"), 1), "UnsupportedDtype: tensor 'a' has the type F4");
  EXPECT_PRED2(contains, refusal(one("F8_E4M3", "[1]", "[0,1]"), 1), "tensor 'a' has the type F8_E4M3");
  EXPECT_PRED2(contains, refusal(one("I8", "[1]", "[0,1]"), 1), "UnsupportedDtype: tensor 'a' has the type I8");
  EXPECT_PRED2(contains, refusal(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1), "UnsupportedRank: tensor 'a'");
}

TEST_F(Safetensors, ToleratesWhiteSpaceUnknownFieldsAndNoMetadata) {
  put(
      file_text(" \n\t{\"a\": {\"dtype\":\"U8\", \"note\":{\"x\":[1,{\"y\":null}],\"z\":-1.5}, \"shape\":[2],"
                "\"data_offsets\":[0,2], \"more\":[[],true]}, \"__metadata__\":null}   ",
                2));
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.at("a").shape, Shape{2});
  EXPECT_FALSE(file.has_checksums());
}

TEST_F(Safetensors, LookUpNamesTheNearest) {
  write_small();
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.find("stp"), nullptr);
  EXPECT_EQ(file.find("step")->shape, Shape{});
  const std::string message = error_message<FileError>([&] { file.at("stp"); });
  EXPECT_PRED2(contains, message, path_.string() + ": TensorNotFound: there is no tensor 'stp'");
  EXPECT_PRED2(contains, message, "did you mean 'step'?");
  EXPECT_THROW((void)file.read({"x", DType::u8, {10}, 0, 10}), UsageError);
  std::array<std::byte, 3> few;
  EXPECT_THROW(file.read(file.at("step"), few), UsageError);
}

TEST_F(Safetensors, WriterRefusesWhatAReaderWould) {
  const auto refused = [&](std::vector<SafetensorsEntry> entries, SafetensorsMetadata metadata = {}) {
    return error_message<FileError>([&] { write_safetensors(path_, std::move(entries), std::move(metadata)); });
  };
  const auto bytes = raw(weights_);
  EXPECT_PRED2(contains, refused({{"w", DType::f32, {5}, bytes}}), "InvalidTensorView: tensor 'w'");
  EXPECT_PRED2(contains, refused({{"__metadata__", DType::f32, {6}, bytes}}), "InvalidTensorView");
  EXPECT_PRED2(contains, refused({{"w", DType::f32, {6}, bytes}, {"w", DType::i32, {6}, bytes}}),
               "DuplicateName: tensor 'w'");
  EXPECT_PRED2(contains, refused({{"\xff", DType::f32, {6}, bytes}}), "JsonError: ");
  EXPECT_PRED2(contains, refused({}, {{"k", "\xff"}}), "JsonError: ");
  EXPECT_PRED2(contains, refused({}, {{"k", std::string(100'000'000, 'x')}}), "HeaderTooLarge: ");
  EXPECT_FALSE(file_exists(path_));
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  write_small();
  const std::string whole = read_text(path_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(whole.substr(0, length));
    EXPECT_THROW(SafetensorsFile{path_}, FileError) << length;
  }
  put(whole + '\0');
  EXPECT_THROW(SafetensorsFile{path_}, FileError);
}

TEST_F(Safetensors, EveryFlippedBitIsFound) {
  write_small();
  const std::string whole = read_text(path_);
  // One byte is changed in place: writing the file anew each time takes most of the test's time.
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const auto put_byte = [&](std::size_t position, char byte) {
    file.seekp(static_cast<std::streamoff>(position)).put(byte).flush();
    ASSERT_TRUE(file.good());
  };
  for (std::size_t position = 0; position < whole.size(); ++position) {
    for (int bit = 0; bit < 8; ++bit) {
      put_byte(position, static_cast<char>(whole[position] ^ (1 << bit)));
      EXPECT_THROW(SafetensorsFile(path_).verify(), FileError) << "byte " << position << " bit " << bit;
    }
    put_byte(position, whole[position]);
  }
  SafetensorsFile(path_).verify();
}

TEST_F(Safetensors, DamageIsLocated) {
  const std::vector<float> large(600'000, 1.0f);  // 2.3 blocks
  write_safetensors(path_, {{"a", DType::f32, {600'000}, raw(large)}, {"b", DType::f32, {6}, raw(weights_)}});
  const std::string whole = read_text(path_);
  const std::size_t data = whole.size() - 2'400'024;
  const auto found = [&](std::size_t position) {
    std::string damaged = whole;
    damaged[position] = static_cast<char>(damaged[position] ^ 1);
    put(damaged);
    return error_message<FileError>([&] { SafetensorsFile(path_).verify(); });
  };
  const auto at = [&](std::size_t offset) { return "offset " + std::to_string(data + offset) + " of the file"; };
  EXPECT_PRED2(contains, found(data), "TensorDamaged: tensor 'a'");
  EXPECT_PRED2(contains, found(data), at(0));
  EXPECT_PRED2(contains, found(data + 1048576), at(1048576));
  EXPECT_PRED2(contains, found(data + 2'399'999), "tensor 'a' does not fit its checksum in the 302848 bytes at");
  EXPECT_PRED2(contains, found(data + 2'399'999), at(2097152));
  EXPECT_PRED2(contains, found(data + 2'400'000), "tensor 'b'");
  EXPECT_PRED2(contains, found(data + 2'400'000), at(2'400'000));
}

TEST_F(Safetensors, WhatIsReadIsCompared) {
  write_small();
  const SafetensorsFile file(path_);
  const TensorRecord& w = file.at("w");
  const auto before = file.read(w);
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('?');
  const auto last = file.records().back();
  EXPECT_PRED2(contains, error_message<FileError>([&] { (void)file.read(file.at(last.name)); }),
               "TensorDamaged: tensor '" + last.name + "'");
  // A mapping ends the process by SIGBUS.
  std::filesystem::resize_file(path_, 10);
  for (const auto& action :
       {std::function<void()>([&] { (void)file.read(w); }), std::function<void()>([&] { file.verify(); })})
    EXPECT_PRED2(contains, error_message<FileError>(action),
                 path_.string() + ": IoError: " + path_.string() + ": ends at");
}

TEST_F(Safetensors, AHundredThousandTensorsAreRead) {
  const std::vector<std::byte> byte(1, std::byte{3});
  std::vector<SafetensorsEntry> entries;
  for (int i = 0; i < 100'000; ++i) {
    entries.push_back({"model.layers." + std::to_string(i) + ".weight", DType::u8, {1}, byte});
  }
  write_safetensors(path_, entries);
  const SafetensorsFile file(path_);
  file.verify();
  ASSERT_EQ(file.records().size(), entries.size());
  for (const SafetensorsEntry& entry : entries) ASSERT_NE(file.find(entry.name), nullptr);
}

}  // namespace
}  // namespace hearth::safetensors_test
