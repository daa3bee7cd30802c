// SPDX-License-Identifier: Apache-2.0
#include "train/report/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "core/io/checksum.h"

namespace hearth::train {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::filesystem::path event_path(const std::string& directory) {
  char host[256] = "host";
  gethostname(host, sizeof(host) - 1);
  return std::filesystem::path(directory) /
         join_text("events.out.tfevents.", static_cast<std::int64_t>(wall_seconds()), ".", host, ".", getpid());
}

template <class T>
void put_fixed(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Wire types of protocol buffers: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
void put_key(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes_of(bytes)), 15) + 0xa282ead8u; }

std::string record_of(std::string_view payload) {
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(payload.size()));
  put_fixed(out, masked_crc(out));
  out += payload;
  put_fixed(out, masked_crc(payload));
  return out;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& directory, std::int64_t first_step)
    : file_(event_path(directory)) {
  std::string version, status, session;
  put_bytes(version, 3, "brain.Event:2");
  write_event(0, version);
  put_key(status, 1, 0);
  put_varint(status, 1);  // SessionLog::START
  put_bytes(session, 7, status);
  write_event(first_step, session);
}

void TensorBoardWriter::write_event(std::int64_t step, std::string_view field_bytes) {
  std::string event;
  put_key(event, 1, 1);
  put_fixed(event, wall_seconds());
  put_key(event, 2, 0);
  put_varint(event, static_cast<std::uint64_t>(step));
  event += field_bytes;
  file_.append(record_of(event));
}

void TensorBoardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  std::string entry, summary, field;
  put_bytes(entry, 1, tag);
  put_key(entry, 2, 5);
  put_fixed(entry, static_cast<float>(value));
  put_bytes(summary, 1, entry);
  put_bytes(field, 5, summary);
  write_event(step, field);
}

void TensorBoardWriter::text(std::string_view tag, std::int64_t step, std::string_view value) {
  // A string tensor of shape [1], marked for the text plugin.
  std::string dimension, shape, tensor, plugin, metadata, entry, summary, field;
  put_key(dimension, 1, 0);
  put_varint(dimension, 1);
  put_bytes(shape, 2, dimension);
  put_key(tensor, 1, 0);
  put_varint(tensor, 7);  // DT_STRING
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, value);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(entry, 1, tag);
  put_bytes(entry, 8, tensor);
  put_bytes(entry, 9, metadata);
  put_bytes(summary, 1, entry);
  put_bytes(field, 5, summary);
  write_event(step, field);
}

}  // namespace hearth::train
