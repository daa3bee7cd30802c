// SPDX-License-Identifier: Apache-2.0
#include "train/report/metrics_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <utility>

namespace hearth::train {
namespace {

constexpr std::size_t longest_line = std::size_t{64} << 20;
// Of a long file between so many and twice as many are read.
constexpr std::size_t training_records = 1000, evaluation_records = 500;

/// f(line, offset) for each line that ends before `end`, until it returns false; in as much memory as a line takes.
/// Returns what is behind the last whole line.
template <class F>
std::string each_line(const FileReader& file, std::uint64_t end, const F& f) {
  std::string text;
  std::vector<std::byte> piece(std::size_t{1} << 18);
  std::uint64_t begin_of_text = 0;
  for (std::uint64_t at = 0; at < end;) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), end - at));
    file.read(at, part);
    at += part.size();
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    std::size_t begin = 0;
    for (std::size_t line_end = 0; (line_end = text.find('\n', begin)) != std::string::npos; begin = line_end + 1)
      if (!f(std::string_view(text).substr(begin, line_end - begin), begin_of_text + begin)) return "";
    text.erase(0, begin);
    begin_of_text += begin;
    HEARTH_CHECK(DataError, text.size() <= longest_line, file.path().string(), ": has a line of more than ",
                 longest_line, " bytes");
  }
  return text;
}

/// Why a line is no record; "" if it is one.
std::string fault_of(std::string_view line) {
  try {
    return parse_json(line, "").is_object() ? "" : "is no object";
  } catch (const ConfigError&) {
    return "is no JSON";
  }
}

/// Bytes of the whole records at the beginning of a file, of which `keep_bytes` count; `fault` becomes what ends them
/// before these do.
std::int64_t sound_bytes(const std::string& path, std::int64_t keep_bytes, std::string& fault) {
  const FileReader file(path);
  const std::uint64_t end = std::min<std::uint64_t>(file.size(), static_cast<std::uint64_t>(keep_bytes));
  std::int64_t sound = 0, number = 0;
  std::string found;
  const std::string rest = each_line(file, end, [&](std::string_view line, std::uint64_t offset) {
    ++number;
    found = fault_of(line);
    if (!found.empty()) return false;
    sound = static_cast<std::int64_t>(offset + line.size() + 1);
    return true;
  });
  if (found.empty() && !rest.empty()) ++number, found = "is cut short";
  if (!found.empty()) fault = join_text("line ", number, " ", found);
  return sound;
}

FileWriter open_cut(const std::string& path, std::int64_t keep_bytes, std::string& lost) {
  if (keep_bytes == 0) return FileWriter(path, FileWriter::Mode::truncate);
  const bool is_there = file_exists(path);
  std::string fault = is_there ? "it is shorter" : "it is gone";
  const std::int64_t sound = is_there ? sound_bytes(path, keep_bytes, fault) : 0;
  if (sound < keep_bytes)
    lost = join_text(path, " lost ", keep_bytes - sound, " bytes that the checkpoint counts on: ", fault);
  if (!is_there) return FileWriter(path, FileWriter::Mode::truncate);
  HEARTH_CHECK(FileError, truncate(path.c_str(), sound) == 0, path, ": cannot be cut: ", std::strerror(errno));
  return FileWriter(path, FileWriter::Mode::append);
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, std::int64_t keep_bytes) : writer_(open_cut(path, keep_bytes, lost_)) {}

void MetricsLog::add(const Json& record) { writer_.append(to_text(record) + "\n"); }

namespace {

/// Lines of one kind, every so many of them, and the last.
class Thinned {
 public:
  explicit Thinned(std::size_t fewest) : fewest_(fewest) {}
  void add(std::int64_t number, std::string_view line, bool always) {
    const bool taken = always || seen_ % every_ == 0;
    ++seen_;
    last_ = {taken ? -1 : number, taken ? std::string() : std::string(line)};
    if (!taken) return;
    lines_.push_back({number, always, std::string(line)});
    if (lines_.size() < 2 * fewest_) return;
    every_ *= 2;
    std::size_t index = 0;
    std::erase_if(lines_, [&](const Line& each) { return !each.always && index++ % 2 == 1; });
  }
  void give(std::map<std::int64_t, std::string>& lines) {
    for (Line& each : lines_) lines[each.number] = std::move(each.text);
    if (last_.first >= 0) lines[last_.first] = std::move(last_.second);
  }

 private:
  struct Line {
    std::int64_t number;
    bool always;
    std::string text;
  };
  std::size_t fewest_;
  std::size_t seen_ = 0, every_ = 1;
  std::vector<Line> lines_;
  std::pair<std::int64_t, std::string> last_{-1, ""};
};

}  // namespace

std::vector<Json> read_metrics(const std::string& path, std::int64_t best_step) {
  Thinned training(training_records), evaluations(evaluation_records);
  const std::string best = join_text("{\"step\":", best_step, ",");
  std::int64_t number = 0;
  const FileReader file(path);
  (void)each_line(file, file.size(), [&](std::string_view line, std::uint64_t) {
    const bool trains = line.find("\"split\":\"train\"") != std::string_view::npos;
    (trains ? training : evaluations).add(++number, line, !trains && line.starts_with(best));
    return true;
  });
  std::map<std::int64_t, std::string> lines;
  training.give(lines);
  evaluations.give(lines);
  std::vector<Json> records;
  for (const auto& [at, line] : lines) try {
      records.push_back(parse_json(line, path));
    } catch (const ConfigError& error) {
      throw DataError(join_text(path, ": line ", at, " is not a metrics record: ", error.what()));
    }
  return records;
}

}  // namespace hearth::train
