// SPDX-License-Identifier: Apache-2.0
// Event files, read back by a parser of the test's own.
#include "train/report/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "tests/support/temp_dir.h"

namespace hearth::train::tensorboard_test {
namespace {

// CRC-32C bit by bit, so that the library's tables are not their own witness.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0u);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
T fixed_at(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.substr(at, sizeof(T)).data(), sizeof(T));
  return value;
}

// One field of a message; varints and fixed widths as a number, the rest as bytes.
struct Field {
  int number = 0;
  int wire_type = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};

std::uint64_t varint(std::string_view bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    value |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
    if (byte < 0x80) return value;
  }
}

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  for (std::size_t at = 0; at < message.size();) {
    const std::uint64_t key = varint(message, at);
    Field field{static_cast<int>(key >> 3), static_cast<int>(key & 7u), 0, {}};
    switch (field.wire_type) {
      case 0:
        field.value = varint(message, at);
        break;
      case 1:
        field.value = fixed_at<std::uint64_t>(message, at), at += 8;
        break;
      case 5:
        field.value = fixed_at<std::uint32_t>(message, at), at += 4;
        break;
      case 2: {
        const std::uint64_t size = varint(message, at);
        field.bytes = message.substr(at, size);
        at += size;
        break;
      }
      default:
        ADD_FAILURE() << "wire type " << field.wire_type;
        return fields;
    }
    fields.push_back(field);
  }
  return fields;
}

Field field(std::string_view message, int number) {
  for (const Field& candidate : fields_of(message))
    if (candidate.number == number) return candidate;
  ADD_FAILURE() << "no field " << number;
  return {};
}

// The payloads of all records, each checked against its checksums.
std::vector<std::string> events_in(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  std::vector<std::string> events;
  std::size_t at = 0;
  while (at + 12 <= bytes.size()) {
    const auto size = fixed_at<std::uint64_t>(bytes, at);
    EXPECT_EQ(fixed_at<std::uint32_t>(bytes, at + 8), masked_crc(std::string_view(bytes).substr(at, 8)));
    events.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(fixed_at<std::uint32_t>(bytes, at + 12 + size), masked_crc(events.back()));
    at += 16 + size;
  }
  EXPECT_EQ(at, bytes.size());
  return events;
}

TEST(TensorBoardWriter, begins_with_the_version_and_the_first_step) {
  const test::TempDir folder;
  const TensorBoardWriter writer(folder.path().string(), 301);
  EXPECT_EQ(writer.path().filename().string().find("events.out.tfevents."), 0u);
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(field(events[0], 3).bytes, "brain.Event:2");
  EXPECT_EQ(field(events[1], 2).value, 301u);
  EXPECT_EQ(field(field(events[1], 7).bytes, 1).value, 1u) << "a session that starts";
}

TEST(TensorBoardWriter, scalars_keep_tag_step_and_value) {
  const test::TempDir folder;
  TensorBoardWriter writer(folder.path().string());
  writer.scalar("train/loss", 20, 2.302585);
  writer.scalar("test/accuracy", std::int64_t{1} << 40, -0.5);
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 4u);
  const auto check = [&](const std::string& event, std::string_view tag, std::uint64_t step, float value) {
    EXPECT_EQ(field(event, 2).value, step);
    const std::string_view entry = field(field(event, 5).bytes, 1).bytes;
    EXPECT_EQ(field(entry, 1).bytes, tag);
    EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(field(entry, 2).value)), value);
    const double wall_time = std::bit_cast<double>(field(event, 1).value);
    EXPECT_GT(wall_time, 1.6e9);
    EXPECT_LT(wall_time, 1e11);
  };
  check(events[2], "train/loss", 20, 2.302585f);
  check(events[3], "test/accuracy", std::uint64_t{1} << 40, -0.5f);
}

TEST(TensorBoardWriter, texts_are_string_tensors_of_the_text_plugin) {
  const test::TempDir folder;
  TensorBoardWriter writer(folder.path().string());
  const std::string value(300, 'x');
  writer.text("config", 0, value);
  const auto events = events_in(writer.path());
  ASSERT_EQ(events.size(), 3u);
  const std::string_view entry = field(field(events[2], 5).bytes, 1).bytes;
  EXPECT_EQ(field(entry, 1).bytes, "config");
  const std::string_view tensor = field(entry, 8).bytes;
  EXPECT_EQ(field(tensor, 1).value, 7u) << "DT_STRING";
  EXPECT_EQ(field(tensor, 8).bytes, value);
  EXPECT_EQ(field(field(field(tensor, 2).bytes, 2).bytes, 1).value, 1u) << "one element";
  EXPECT_EQ(field(field(field(entry, 9).bytes, 1).bytes, 1).bytes, "text");
}

TEST(TensorBoardWriter, refuses_a_folder_that_is_not_there) {
  EXPECT_THROW(TensorBoardWriter("/nonexistent/folder"), FileError);
}

}  // namespace
}  // namespace hearth::train::tensorboard_test
