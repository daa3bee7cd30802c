// SPDX-License-Identifier: Apache-2.0
#include "train/report/metrics_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace hearth::train {
namespace {

/// Records of tens of millions of steps.
constexpr ReadLimit metrics_limit{std::uint64_t{4} << 30, "metrics"};

/// Why a line is no record; "" if it is one.
std::string fault_of(std::string_view line) {
  try {
    return parse_json(line, "").is_object() ? "" : "is no object";
  } catch (const ConfigError&) {
    return "is no JSON";
  }
}

/// Bytes of the whole records at the beginning of a text; `fault` becomes what ends them before the text does.
std::size_t sound_bytes(std::string_view text, std::string& fault) {
  std::size_t begin = 0;
  for (std::size_t line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    const std::string found =
        end == std::string_view::npos ? "is cut short" : fault_of(text.substr(begin, end - begin));
    if (!found.empty()) {
      fault = join_text("line ", line, " ", found);
      break;
    }
    begin = end + 1;
  }
  return begin;
}

FileWriter open_cut(const std::string& path, std::int64_t keep_bytes, std::string& lost) {
  if (keep_bytes == 0) return FileWriter(path, FileWriter::Mode::truncate);
  const bool is_there = file_exists(path);
  std::string text, fault = is_there ? "it is shorter" : "it is gone";
  if (is_there) text = read_text(path, metrics_limit).substr(0, static_cast<std::size_t>(keep_bytes));
  const auto sound = static_cast<std::int64_t>(sound_bytes(text, fault));
  if (sound < keep_bytes)
    lost = join_text(path, " lost ", keep_bytes - sound, " bytes that the checkpoint counts on: ", fault);
  if (!is_there) return FileWriter(path, FileWriter::Mode::truncate);
  HEARTH_CHECK(FileError, truncate(path.c_str(), sound) == 0, path, ": cannot be cut: ", std::strerror(errno));
  return FileWriter(path, FileWriter::Mode::append);
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, std::int64_t keep_bytes) : writer_(open_cut(path, keep_bytes, lost_)) {}

void MetricsLog::add(const Json& record) { writer_.append(to_text(record) + "\n"); }

std::vector<Json> read_metrics(const std::string& path) {
  std::vector<Json> records;
  const std::string text = read_text(path, metrics_limit);
  std::size_t begin = 0;
  for (std::size_t line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    try {
      records.push_back(parse_json(std::string_view(text).substr(begin, end - begin), path));
    } catch (const ConfigError& error) {
      throw DataError(join_text(path, ": line ", line, " is not a metrics record: ", error.what()));
    }
    begin = end + 1;
  }
  return records;
}

}  // namespace hearth::train
