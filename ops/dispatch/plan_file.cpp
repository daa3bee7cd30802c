// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json_text.h"

namespace hearth {
namespace {

constexpr const char* format_name = "hearth_plans";
constexpr std::int64_t format_version = 1;
/// Far more than all problems of all models; a larger file is none of ours.
constexpr ReadLimit plans_limit{std::uint64_t{64} << 20, "kept plans"};
constexpr std::size_t max_remarks = 8;

void remark(std::vector<std::string>& remarks, std::string text) {
  if (remarks.size() < max_remarks) remarks.push_back(std::move(text));
}

bool is_header(const Json& line) {
  const Json* version = line.find(format_name);
  return version != nullptr && version->is_integer() && version->as_integer() == format_version;
}

void read_plan(const Json& line, SavedPlans& plans) {
  const PlanKey key{line.at("library").as_string(), line.at("device").as_string(), line.at("problem").as_string()};
  const SavedPlan plan{line.at("plan").as_string(), line.at("microseconds").as_number()};
  HEARTH_CHECK(ConfigError, !plan.plan.empty() && std::isfinite(plan.microseconds) && plan.microseconds >= 0,
               "a plan without text or time");
  plans.emplace(key, plan);
}

/// Other processes wait while one changes the folder's file. Where the file system has no locks, the last to write
/// wins, and what another wrote at the same moment is timed again one day.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_ >= 0) (void)::flock(folder_, LOCK_EX);
  }
  ~FolderLock() {
    if (folder_ >= 0) ::close(folder_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_;
};

std::filesystem::path folder_of_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string text_of_plans(const SavedPlans& plans) {
  std::string text = to_text(Json::object().set(format_name, format_version)) + "\n";
  for (const auto& [key, plan] : plans)
    text += to_text(Json::object()
                        .set("library", key.library)
                        .set("device", key.device)
                        .set("problem", key.problem)
                        .set("plan", plan.plan)
                        .set("microseconds", plan.microseconds)) +
            "\n";
  return text;
}

void read_plans(std::string_view text, SavedPlans& plans, std::vector<std::string>& remarks) {
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    try {
      const Json value = parse_json(line, "plans");
      if (number > 1) {
        read_plan(value, plans);
      } else if (!is_header(value)) {
        return remark(remarks, join_text("it is not a file of plans of version ", format_version, "; it is left out"));
      }
    } catch (const Error& error) {
      remark(remarks, join_text("line ", number, " is left out: ", error.what()));
      if (number == 1) return;
    }
  }
}

std::filesystem::path cache_folder() {
  if (const auto folder = folder_of_variable("HEARTH_CACHE_DIR"); !folder.empty()) return folder;
  if (const auto folder = folder_of_variable("XDG_CACHE_HOME"); !folder.empty()) return folder / "hearth";
  if (const auto home = folder_of_variable("HOME"); !home.empty()) return home / ".cache" / "hearth";
  return {};
}

PlanFile::PlanFile(std::filesystem::path file) : file_(std::move(file)) { read(); }

void PlanFile::read() {
  remarks_.clear();
  if (file_.empty()) return remark(remarks_, "there is no folder for it: set HEARTH_CACHE_DIR");
  try {
    if (!file_exists(file_)) return;
    read_plans(read_text(file_, plans_limit), plans_, remarks_);
  } catch (const std::exception& error) {
    remark(remarks_, error.what());
  }
}

const SavedPlan* PlanFile::find(const PlanKey& key) const {
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : &found->second;
}

std::optional<SavedPlan> PlanFile::keep(const PlanKey& key, const SavedPlan& plan, std::string_view stale) {
  if (file_.empty()) return std::nullopt;
  try {
    make_directories(file_.parent_path());
    const FolderLock lock(file_.parent_path());
    SavedPlans before;
    before.swap(plans_);
    read();
    // What is in the file now counts; what it lost meanwhile is this process's still.
    plans_.merge(before);
    const auto [found, added] = plans_.emplace(key, plan);
    if (!added && !stale.empty() && found->second.plan == stale) found->second = plan;
    const SavedPlan holds = found->second;
    write_file_synced(file_, text_of_plans(plans_));
    return holds;
  } catch (const std::exception& error) {
    plans_.erase(key);
    remark(remarks_, join_text("it cannot be written: ", error.what()));
    return std::nullopt;
  }
}

}  // namespace hearth
