// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files. Record: length (u64), masked CRC-32C of it, payload, masked CRC-32C of that; payload: an
// Event protocol buffer. Source: tensorflow/core/lib/io/record_writer.cc (format), tensorflow/core/util/event.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/file.h"

namespace hearth::train {

class TensorBoardWriter {
 public:
  /// Starts a new file "events.out.tfevents.<seconds>.<host>.<process>" in `directory`. Of earlier files there,
  /// TensorBoard forgets what they hold from `first_step` on: a resumed run writes that again.
  explicit TensorBoardWriter(const std::string& directory, std::int64_t first_step = 0);

  /// One point of the curve `tag`, stored as f32.
  void scalar(std::string_view tag, std::int64_t step, double value);
  /// A text, shown as Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view value);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write_event(std::int64_t step, std::string_view field_bytes);

  FileWriter file_;
};

}  // namespace hearth::train
