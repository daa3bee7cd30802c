// SPDX-License-Identifier: Apache-2.0
// Checkpoint sets after every accident: processes killed at any point, files cut short, every flipped bit, full disks.
#include "train/checkpoint/checkpoint_set.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "core/io/checksum.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "core/io/safetensors.h"
#include "tests/support/error_message.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_dir.h"

namespace hearth::checkpoint_set_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::FullDisk;
using test::TempDir;

void write_files(const CheckpointWriter& writer, float value) {
  const std::vector<float> w(3, value);
  write_safetensors(writer.file("model.safetensors"), {{"w", DType::f32, {3}, std::as_bytes(std::span(w))}});
  write_file_synced(writer.file("config.json"), "{\"value\": " + std::to_string(value) + "}\n");
}

std::string write_set(const fs::path& folder, std::int64_t step) {
  CheckpointWriter writer(folder, step);
  write_files(writer, static_cast<float>(step));
  return writer.commit();
}

/// Changes one byte of a file in place.
void put_byte(const fs::path& path, std::size_t position, char byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(position)).put(byte).flush();
  ASSERT_TRUE(file.good());
}

class CheckpointSets : public testing::Test {
 protected:
  TempDir directory_;
  fs::path folder_ = directory_ / "checkpoints";
};

TEST_F(CheckpointSets, NamesHaveEightDigitsOrMore) {
  EXPECT_EQ(checkpoint_name(0), "step-00000000");
  EXPECT_EQ(checkpoint_name(1234), "step-00001234");
  EXPECT_EQ(checkpoint_name(1234567890), "step-1234567890");
}

TEST_F(CheckpointSets, ACommittedSetIsFoundWhole) {
  EXPECT_EQ(write_set(folder_, 7), "step-00000007");
  EXPECT_EQ(list_directory(folder_), std::vector<std::string>{"step-00000007"});
  EXPECT_EQ(list_directory(folder_ / "step-00000007"),
            (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors"}));
  verify_checkpoint(folder_ / "step-00000007");
  write_set(folder_, 100'000'000);  // nine digits sort before eight as text
  write_set(folder_, 12);
  const CheckpointSearch found = find_newest_complete(folder_);
  EXPECT_EQ(found.newest, "step-100000000");
  EXPECT_TRUE(found.damaged.empty());
}

TEST_F(CheckpointSets, NotesAreInTheManifestAlone) {
  EXPECT_EQ(notes_of_checkpoint(folder_ / write_set(folder_, 1)), Json::object());
  {
    CheckpointWriter writer(folder_, 2);
    write_files(writer, 1);
    writer.note("bytes", 77);
    (void)writer.commit();
  }
  const fs::path noted = folder_ / "step-00000002";
  verify_checkpoint(noted);
  EXPECT_EQ(notes_of_checkpoint(noted).at("bytes").as_integer(), 77);
  EXPECT_EQ(read_text(noted / "model.safetensors"), read_text(folder_ / "step-00000001/model.safetensors"));
  const std::string text = read_text(noted / "manifest.json");
  put_byte(noted / "manifest.json", text.find("77"), '8');
  EXPECT_THROW((void)notes_of_checkpoint(noted), FileError);
}

TEST_F(CheckpointSets, NothingIsSeenBeforeTheCommit) {
  write_set(folder_, 1);
  {
    const CheckpointWriter writer(folder_, 2);
    write_files(writer, 2);
    EXPECT_EQ(find_newest_complete(folder_).newest, "step-00000001");
  }
  EXPECT_EQ(list_directory(folder_), std::vector<std::string>{"step-00000001"});
}

TEST_F(CheckpointSets, WhatAKilledProcessLeftIsRemoved) {
  write_set(folder_, 1);
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    const CheckpointWriter writer(folder_, 2);
    write_files(writer, 2);
    ::_exit(0);  // without destructors, as a kill would
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(list_directory(folder_), (std::vector<std::string>{".tmp-step-00000002", "step-00000001"}));
  EXPECT_EQ(find_newest_complete(folder_).newest, "step-00000001");
  write_set(folder_, 3);
  EXPECT_EQ(list_directory(folder_), (std::vector<std::string>{"step-00000001", "step-00000003"}));
}

/// While it lives, the process cannot do what only the superuser may.
struct AsNobody {
  AsNobody() {
    if (geteuid() == 0) {
      EXPECT_EQ(seteuid(nobody), 0);
    }
  }
  ~AsNobody() {
    if (getuid() == 0) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  static constexpr uid_t nobody = 65534;
};

// As on a share, where another process still reads it.
TEST_F(CheckpointSets, WhatCannotBeRemovedYetGoesWithALaterSet) {
  write_set(folder_, 1);
  const fs::path left = folder_ / ".tmp-step-00000009";
  make_directories(left);
  write_file_synced(left / "file", "of a set that was removed");
  for (const fs::path& path : {folder_.parent_path(), folder_}) fs::permissions(path, fs::perms::all);
  fs::permissions(left,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  {
    const AsNobody nobody;
    EXPECT_EQ(write_set(folder_, 2), "step-00000002");
    EXPECT_EQ(remove_temporaries(folder_), std::vector<std::string>{left.filename()});
  }
  fs::permissions(left, fs::perms::all);
  EXPECT_EQ(remove_temporaries(folder_), std::vector<std::string>{});
  EXPECT_EQ(list_directory(folder_), (std::vector<std::string>{"step-00000001", "step-00000002"}));
}

TEST_F(CheckpointSets, ASetOfTheSameStepIsReplaced) {
  write_set(folder_, 5);
  {
    CheckpointWriter writer(folder_, 5);
    write_file_synced(writer.file("only"), "new");
    writer.commit();
    EXPECT_THROW(writer.commit(), UsageError);
  }
  EXPECT_EQ(list_directory(folder_ / "step-00000005"), (std::vector<std::string>{"manifest.json", "only"}));
  EXPECT_EQ(list_directory(folder_), std::vector<std::string>{"step-00000005"});
  verify_checkpoint(folder_ / "step-00000005");
  EXPECT_THROW(CheckpointWriter(folder_, -1), UsageError);
}

TEST_F(CheckpointSets, EveryFlippedBitIsFoundAndTheSetBeforeIsUsed) {
  write_set(folder_, 1);
  const fs::path set = folder_ / write_set(folder_, 2);
  for (const std::string& name : list_directory(set)) {
    const std::string whole = read_text(set / name);
    for (std::size_t position = 0; position < whole.size(); ++position) {
      for (int bit = 0; bit < 8; ++bit) {
        put_byte(set / name, position, static_cast<char>(whole[position] ^ (1 << bit)));
        const CheckpointSearch found = find_newest_complete(folder_);
        ASSERT_EQ(found.newest, "step-00000001") << name << " byte " << position << " bit " << bit;
        ASSERT_EQ(found.damaged.size(), 1u);
        ASSERT_EQ(found.damaged[0].name, "step-00000002");
        ASSERT_PRED2(contains, found.damaged[0].reason, name);
      }
      put_byte(set / name, position, whole[position]);
    }
  }
  EXPECT_EQ(find_newest_complete(folder_).newest, "step-00000002");
}

TEST_F(CheckpointSets, EveryTruncationIsFound) {
  write_set(folder_, 1);
  const fs::path set = folder_ / write_set(folder_, 2);
  for (const std::string& name : list_directory(set)) {
    const std::string whole = read_text(set / name);
    // A manifest without its last line feed is the same manifest.
    for (std::size_t length = 0; length + (name == "manifest.json" ? 1 : 0) < whole.size(); ++length) {
      FileWriter(set / name, FileWriter::Mode::truncate).append(std::string_view(whole).substr(0, length));
      ASSERT_EQ(find_newest_complete(folder_).newest, "step-00000001") << name << " cut to " << length;
    }
    FileWriter(set / name, FileWriter::Mode::truncate).append(whole);
  }
  EXPECT_EQ(find_newest_complete(folder_).newest, "step-00000002");
}

TEST_F(CheckpointSets, AMissingFileIsNamed) {
  write_set(folder_, 1);
  for (const std::string& name :
       {std::string("config.json"), std::string("manifest.json"), std::string("model.safetensors")}) {
    const fs::path set = folder_ / write_set(folder_, 2);
    fs::remove(set / name);
    const CheckpointSearch found = find_newest_complete(folder_);
    EXPECT_EQ(found.newest, "step-00000001");
    ASSERT_EQ(found.damaged.size(), 1u);
    EXPECT_PRED2(contains, found.damaged[0].reason, (set / name).string());
    EXPECT_PRED2(contains, found.damaged[0].reason, "No such file");
  }
}

TEST_F(CheckpointSets, ASetOfAnotherFormatIsNotPassedOver) {
  write_set(folder_, 1);
  const fs::path manifest = folder_ / write_set(folder_, 2) / "manifest.json";
  Json body = Json::object(), old = read_json(manifest);
  for (const JsonMember& member : old.members())
    if (member.key != "crc32c") body.set(member.key, member.key == "format" ? Json(2) : member.value);
  body.set("crc32c", hex_of(crc32c(bytes_of(to_text(body)))));
  write_file_synced(manifest, to_text(body));
  const std::string message = error_message<FileError>([&] { (void)find_newest_complete(folder_); });
  EXPECT_PRED2(contains, message, "step-00000002");
  EXPECT_PRED2(contains, message, "has format 2");
}

/// Gives up the privileges that reading anything takes, for as long as it lives.
class Unprivileged {
 public:
  Unprivileged() : is_so_(::geteuid() != 0 || ::seteuid(65534) == 0) {}
  ~Unprivileged() { EXPECT_EQ(::seteuid(::getuid()), 0); }
  bool is_so() const { return is_so_; }

 private:
  bool is_so_;
};

TEST_F(CheckpointSets, ASetWithoutPermissionIsNotPassedOver) {
  write_set(folder_, 1);
  const fs::path set = folder_ / write_set(folder_, 2);
  fs::permissions(directory_.path(), fs::perms::all);
  for (const char* name : {"", "manifest.json", "model.safetensors"}) {
    const fs::perms before = fs::status(set / name).permissions();
    fs::permissions(set / name, fs::perms::none);
    {
      const Unprivileged process;
      if (!process.is_so()) GTEST_SKIP() << "privileges cannot be given up here";
      const std::string message = error_message<FileError>([&] { (void)find_newest_complete(folder_); });
      EXPECT_PRED2(contains, message, (set / name).string());
      EXPECT_PRED2(contains, message, "Permission denied");
    }
    fs::permissions(set / name, before);
  }
  EXPECT_EQ(find_newest_complete(folder_).newest, "step-00000002");
}

TEST_F(CheckpointSets, DamageIsLocatedByTensorAndOffset) {
  const fs::path set = folder_ / write_set(folder_, 2);
  const std::string whole = read_text(set / "model.safetensors");
  put_byte(set / "model.safetensors", whole.size() - 1, '\x7f');
  const std::string message = error_message<FileError>([&] { verify_checkpoint(set); });
  EXPECT_PRED2(contains, message, "model.safetensors: TensorDamaged: tensor 'w'");
  EXPECT_PRED2(contains, message, "offset " + std::to_string(whole.size() - 12) + " of the file");
  EXPECT_EQ(find_newest_complete(folder_).newest, "");
}

TEST_F(CheckpointSets, ARenamedSetIsRefused) {
  write_set(folder_, 2);
  fs::rename(folder_ / "step-00000002", folder_ / "step-00000009");
  EXPECT_PRED2(contains, error_message<FileError>([&] { verify_checkpoint(folder_ / "step-00000009"); }),
               "belongs to step 2");
  // Under a name that is no step's, or through a link, a set is itself.
  fs::rename(folder_ / "step-00000009", folder_ / "mine");
  verify_checkpoint(folder_ / "mine");
  point_to(folder_, "best", "mine");
  verify_checkpoint(folder_ / "best");
}

TEST_F(CheckpointSets, LinksMoveInOneStep) {
  write_set(folder_, 1);
  write_set(folder_, 2);
  point_to(folder_, "latest", "step-00000001");
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000001");
  fs::create_symlink("anything", folder_ / ".tmp-link-latest");  // left by a killed process
  point_to(folder_, "latest", "step-00000002");
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000002");
  EXPECT_THROW(point_to(folder_, "latest", "step-00000003"), FileError);
  EXPECT_EQ(list_directory(folder_), (std::vector<std::string>{"latest", "step-00000001", "step-00000002"}));
}

TEST_F(CheckpointSets, PruningKeepsTheNewestWholeSetsAndWhatIsLinked) {
  for (const int step : {1, 2, 3, 4, 5, 6}) write_set(folder_, step);
  write_file_synced(folder_ / "step-notes.txt", "not a set");
  point_to(folder_, "best", "step-00000002");
  fs::remove(folder_ / "step-00000006/config.json");
  fs::resize_file(folder_ / "step-00000005/config.json", 3);
  prune_checkpoints(folder_, 2);
  EXPECT_EQ(list_directory(folder_),
            (std::vector<std::string>{"best", "step-00000002", "step-00000003", "step-00000004", "step-00000005",
                                      "step-00000006", "step-notes.txt"}));
  prune_checkpoints(folder_, 10);
  EXPECT_EQ(list_directory(folder_).size(), 7u);
  EXPECT_THROW(prune_checkpoints(folder_, 0), UsageError);
}

TEST_F(CheckpointSets, AFullDiskLeavesTheSetBefore) {
  const FullDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  const fs::path folder = disk.path() / "checkpoints";
  write_set(folder, 1);
  {
    CheckpointWriter writer(folder, 2);
    write_file_synced(writer.file("a"), std::string(500'000, 'a'));
    const std::string message =
        error_message<FileError>([&] { write_file_synced(writer.file("b"), std::string(600'000, 'b')); });
    EXPECT_PRED2(contains, message, writer.file("b").string());
    EXPECT_PRED2(contains, message, "600000 bytes needed");
    EXPECT_PRED2(contains, message, " bytes free on that file system");
  }
  EXPECT_EQ(list_directory(folder), std::vector<std::string>{"step-00000001"});
  EXPECT_EQ(find_newest_complete(folder).newest, "step-00000001");
  {
    // The last bytes are missing for the manifest.
    CheckpointWriter writer(folder, 3);
    FileWriter filler(writer.file("filler"));
    EXPECT_THROW(while (true) filler.append(std::string(4096, 'x')), FileError);
    EXPECT_THROW(writer.commit(), FileError);
  }
  EXPECT_EQ(find_newest_complete(folder).newest, "step-00000001");
  write_set(folder, 4);
  EXPECT_EQ(find_newest_complete(folder).newest, "step-00000004");
}

}  // namespace
}  // namespace hearth::checkpoint_set_test
