// SPDX-License-Identifier: Apache-2.0
// Writing a set of record files: each file by itself, then the indices, then the manifest.
#include "data/pack_records.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <mutex>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "data/fingerprint.h"
#include "data/formats/record_file.h"
#include "data/formats/records.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

/// Of a pack that is not finished: what it packs.
constexpr const char* plan_file = "packing.json";

struct Part {
  std::string split;
  const ImageDataset* images;
  std::vector<std::int64_t> labels;  // as they were packed
};

/// One file of records.
struct File {
  std::string name;
  Part* part;
  std::int64_t begin, end;  // samples
};

std::string numbered(const std::string& split, std::int64_t number) {
  TextStream name;
  name << split << '-' << std::setw(5) << std::setfill('0') << number << ".ffr";
  return name.str();
}

std::vector<File> plan_files(std::vector<Part>& parts, std::int64_t per_file) {
  std::vector<File> files;
  for (Part& part : parts) {
    const std::int64_t size = part.images->size();
    for (std::int64_t begin = 0; begin < size; begin += per_file)
      files.push_back({numbered(part.split, begin / per_file), &part, begin, std::min(size, begin + per_file)});
  }
  return files;
}

/// Writes one sample and returns its label.
std::int64_t add_sample(RecordWriter& writer, const ImageDataset& images, std::int64_t index) {
  thread_local std::vector<std::uint8_t> file;
  Image image;
  // Every image is decoded, so that a broken one is found now.
  std::optional<std::int64_t> label = images.try_read(index, image);
  const bool as_file = label && images.encoded(index, file);
  if (!label) label = images.read(index, image);  // another one stands in
  const auto value = [&](int extent) { return static_cast<std::uint32_t>(as_file ? 0 : extent); };
  const std::uint32_t header[] = {static_cast<std::uint32_t>(*label), value(image.height), value(image.width),
                                  value(image.channels)};
  writer.add({little_endian(header), std::as_bytes(std::span(as_file ? file : image.pixels))});
  return *label;
}

/// Takes over what an earlier start has written; false if there is nothing, or it is damaged.
bool keep(const fs::path& path, const File& file) {
  if (!file_exists(path)) return false;
  try {
    const RecordFile written(path);
    if (written.size() != file.end - file.begin) return false;
    std::vector<std::uint8_t> content;
    for (std::int64_t record = 0; record < written.size(); ++record) {
      written.read(record, content);
      if (content.size() < RecordHeader::bytes) return false;
      const auto label = from_little_endian<std::uint32_t>(std::as_bytes(std::span(content)), 0);
      if (label >= file.part->images->classes()) return false;
      file.part->labels[static_cast<std::size_t>(file.begin + record)] = label;
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

void write_records(const fs::path& path, const File& file) {
  RecordWriter writer(path, file.end - file.begin);
  for (std::int64_t index = file.begin; index < file.end; ++index)
    file.part->labels[static_cast<std::size_t>(index)] = add_sample(writer, *file.part->images, index);
  writer.finish();
}

void write_index(const fs::path& path, const Part& part) {
  const std::vector<std::uint32_t> labels(part.labels.begin(), part.labels.end());
  std::string names;
  for (std::int64_t i = 0; i < part.images->size() && !part.images->sample_name(i).empty(); ++i)
    names += part.images->sample_name(i) + '\0';
  RecordWriter writer(path, 2);
  writer.add({little_endian(labels)});
  writer.add({bytes_of(names)});
  writer.finish();
}

/// A file as the manifest has it; its header is added to the digest.
Json described(const fs::path& folder, const std::string& name, Sha256& digest) {
  const RecordFile file(folder / name);
  file.identify(digest);
  return Json::object().set("name", name).set("records", file.size()).set("bytes", file.file_bytes());
}

Json manifest_of(const DataSplits& data, const fs::path& folder, const std::vector<Part>& parts,
                 const std::vector<File>& files) {
  const ImageDataset& train = *data.train->images();
  const ImageShape shape = train.image_shape();
  Sha256 digest;
  for (const std::string& name : train.class_names()) digest.update(name + '\0');
  Json splits = Json::object();
  for (const Part& part : parts) {
    std::vector<std::int64_t> histogram(static_cast<std::size_t>(train.classes()));
    for (const std::int64_t label : part.labels) ++histogram[static_cast<std::size_t>(label)];
    Json listed = Json::array();
    for (const File& file : files)
      if (file.part == &part) listed.push_back(described(folder, file.name, digest));
    splits.set(part.split, Json::object()
                               .set("samples", part.images->size())
                               .set("samples_by_class", Json::array_of(histogram))
                               .set("files", std::move(listed))
                               .set("index", described(folder, part.split + "-index.ffr", digest)));
  }
  return Json::object()
      .set("format", records_format)
      .set("sha256", digest.hex())
      .set("classes", Json::array_of(train.class_names()))
      .set("image", Json::array_of(std::vector<int>{shape.height, shape.width, shape.channels}))
      .set("shrink_to", train.shrinks_to())
      .set("mean", Json::array_of(data.options.normalize.mean))
      .set("std", Json::array_of(data.options.normalize.std))
      .set("splits", std::move(splits));
}

/// Refuses a folder that holds something else than a part of this pack.
void begin_in(const fs::path& folder, const Json& plan) {
  make_directories(folder);
  const std::vector<std::string> present = list_directory(folder);
  const auto has = [&](const char* name) { return std::find(present.begin(), present.end(), name) != present.end(); };
  if (has(plan_file)) {
    HEARTH_CHECK(UsageError, read_json((folder / plan_file).string()) == plan, folder.string(),
                 ": holds an unfinished pack of other data or by other options; remove the folder, or name another");
    return;
  }
  HEARTH_CHECK(UsageError, present.empty(), folder.string(),
               has(records_manifest) ? ": holds a packed set" : ": is not empty",
               "; remove the folder, or name another");
  write_file_synced(folder / plan_file, to_text(plan, 2) + "\n");
}

}  // namespace

Json pack_records(const DataSplits& data, const std::string& folder, const PackOptions& options) {
  HEARTH_CHECK(UsageError, data.train != nullptr && data.train->images() != nullptr,
               "pack: these data are no labelled images, which is what record files hold");
  HEARTH_CHECK(UsageError, options.records_per_file >= 0, "pack: ", options.records_per_file,
               " records a file; give at least 1");
  std::vector<Part> parts;
  std::int64_t largest = 0;
  for (const auto& [name, split] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}}) {
    if (!split) continue;
    largest = std::max(largest, split->size());
    parts.push_back({name, split->images(), std::vector<std::int64_t>(static_cast<std::size_t>(split->size()))});
  }
  // Every file is open while the set is in use, and few processes may open more than a thousand.
  const std::int64_t per_file =
      options.records_per_file > 0 ? options.records_per_file : std::max<std::int64_t>(512, (largest + 127) / 128);
  const fs::path root(folder);
  begin_in(root, Json::object()
                     .set("data", fingerprint(data))
                     .set("shrink_to", data.train->images()->shrinks_to())
                     .set("records_per_file", per_file));
  const std::vector<File> files = plan_files(parts, per_file);
  std::mutex mutex;
  std::int64_t done = 0;
  cpu::parallel_chunks(static_cast<std::int64_t>(files.size()), [&](std::int64_t i) {
    const File& file = files[static_cast<std::size_t>(i)];
    if (!keep(root / file.name, file)) write_records(root / file.name, file);
    const std::lock_guard lock(mutex);
    ++done;
    if (options.progress) options.progress(done, static_cast<std::int64_t>(files.size()));
  });
  for (const Part& part : parts) write_index(root / (part.split + "-index.ffr"), part);
  const Json manifest = manifest_of(data, root, parts, files);
  write_file_synced(root / records_manifest, to_text(manifest, 2) + "\n");
  remove_tree(root / plan_file);
  return manifest;
}

}  // namespace hearth::data
