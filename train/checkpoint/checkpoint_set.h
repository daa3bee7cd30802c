// SPDX-License-Identifier: Apache-2.0
// Checkpoints that survive a crash at any moment. A set is a directory step-NNNNNNNN of files and a manifest with
// their sizes and checksums. It is written under a temporary name, every file synced, the manifest last, and then
// renamed into place; so a set under its final name is complete, or was damaged later, which the manifest shows.
// One process at a time may write to a folder; any number may read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json_text.h"

namespace hearth {

/// Writes one set. Without commit() the destructor removes what was written.
class CheckpointWriter {
 public:
  /// Begins the set of a step (>= 0, UsageError) in `folder`, which is made if need be; removes what killed processes
  /// left unfinished.
  CheckpointWriter(const std::filesystem::path& folder, std::int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Where to write the file `name` of the set.
  std::filesystem::path file(const std::string& name) const { return temporary_ / name; }
  /// Keeps a value in the manifest: what belongs to the set and to no file of it.
  void note(const std::string& key, Json value);
  /// Makes the set durable and visible; replaces a set of the same step in one move. Returns its name. FileError if it
  /// cannot; the sets that were there are as before then. UsageError if it was committed already.
  std::string commit();

 private:
  void put_in_place();

  std::filesystem::path folder_;
  std::string name_;
  std::filesystem::path temporary_;
  std::int64_t step_;
  Json notes_ = Json::object();
  bool committed_ = false;
};

/// "step-00001234".
std::string checkpoint_name(std::int64_t step);

/// Files that a whole set has; a manifest that does not list them vouches for nothing of theirs.
using RequiredFiles = std::vector<std::string>;

/// Checks a set against its manifest, reading every byte, and returns its step. FileError names the file, and the
/// tensor and offset where it has them.
std::int64_t verify_checkpoint(const std::filesystem::path& set, const RequiredFiles& required = {});

/// What was noted with a set; an empty object if nothing was. FileError if the manifest is damaged.
Json notes_of_checkpoint(const std::filesystem::path& set);

struct DamagedSet {
  std::string name;
  std::string reason;
};
struct CheckpointSearch {
  std::string newest;               ///< name of the newest set that is whole; "" if there is none
  std::int64_t step = -1;           ///< its step
  std::vector<DamagedSet> damaged;  ///< newer ones that are not, newest first
};
/// Looks at the sets from the newest back to the first that is whole. Changes nothing. FileError for a set that may be
/// whole but cannot be read here: without permission, with too many files open, or in another version's format.
CheckpointSearch find_newest_complete(const std::filesystem::path& folder, const RequiredFiles& required = {});

/// Removes what writers and removals that failed have left. The names of what stays, as it still cannot be removed.
std::vector<std::string> remove_temporaries(const std::filesystem::path& folder);

/// Makes the link `link` in the folder lead to a set, replacing what it led to in one step. Where the file system has
/// no links, it is a file that names the set. FileError if that set is not there.
void point_to(const std::filesystem::path& folder, const std::string& link, const std::string& set);

/// The set that a path leads to, by a link or by a file that names a set beside it, as of now; else the path itself.
std::filesystem::path set_behind(const std::filesystem::path& path);

/// Makes links of `latest` and `best` where they are folders, as in a copy that has followed them. One that is no copy
/// of the set beside it stays, and is refused where it would become a link (point_to()).
void relink_copies(const std::filesystem::path& folder);

/// Deletes all sets older than the `keep` newest complete ones, but for those that links in the folder, or files that
/// stand for links, lead to.
/// Complete means here: all files are there in the sizes of the manifest.
void prune_checkpoints(const std::filesystem::path& folder, std::int64_t keep);

}  // namespace hearth
