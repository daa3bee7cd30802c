// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/metrics_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hearth::train {
namespace {

/// Records of tens of millions of steps.
constexpr ReadLimit metrics_limit{std::uint64_t{4} << 30, "metrics"};

FileWriter open_cut(const std::string& path, std::int64_t keep_bytes) {
  if (keep_bytes == 0 || !file_exists(path)) return FileWriter(path, FileWriter::Mode::truncate);
  if (size_of_file(path) < static_cast<std::uint64_t>(keep_bytes))
    keep_bytes = static_cast<std::int64_t>(read_text(path, metrics_limit).rfind('\n') + 1);
  HEARTH_CHECK(FileError, truncate(path.c_str(), keep_bytes) == 0, path, ": cannot be cut: ", std::strerror(errno));
  return FileWriter(path, FileWriter::Mode::append);
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, std::int64_t keep_bytes) : writer_(open_cut(path, keep_bytes)) {}

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
