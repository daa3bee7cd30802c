// SPDX-License-Identifier: Apache-2.0
// Writing a packed set: each file by itself, then the indices of records, then the manifest.
#include "data/packing/pack_records.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "data/fingerprint.h"
#include "data/formats/records.h"
#include "data/formats/shards.h"
#include "data/images/codecs/encode.h"
#include "data/packing/pack_folder.h"
#include "data/packing/pack_writers.h"
#include "data/source/little_endian.h"
#include "data/source/record_file.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

/// Of a pack that is not finished: what it packs.
constexpr const char* plan_file = "packing.json";

struct Split {
  std::string split;
  const ImageDataset* images;
  Quarantine* quarantine;            // null where no sample may be bad
  std::vector<std::int64_t> labels;  // as they were packed
};

/// One file of records.
struct File {
  std::string name;
  Split* part;
  std::int64_t begin, end;  // samples
  bool has_stand_ins = false;
};

std::vector<File> plan_files(std::vector<Split>& parts, std::int64_t per_file, PackFormat format) {
  std::vector<File> files;
  for (Split& part : parts) {
    const std::int64_t size = part.images->size();
    for (std::int64_t begin = 0; begin < size; begin += per_file)
      files.push_back(
          {pack_file_name(format, part.split, begin / per_file), &part, begin, std::min(size, begin + per_file)});
  }
  return files;
}

/// A sample of a file as it is packed.
PackedSample sample_of(File& file, std::int64_t index, int quality) {
  const ImageDataset& images = *file.part->images;
  PackedSample sample;
  sample.number = index;
  sample.name = images.sample_name(index);
  // Every image is decoded, so that a broken one is found now.
  std::optional<std::int64_t> label = images.try_read(index, sample.image);
  if (label && quality == 0) sample.is_file = images.encoded(index, sample.content);
  if (!label) {
    file.has_stand_ins = true;
    if (Quarantine* const bad = file.part->quarantine) {
      bad->find(index, images.fault_of(index));
      bad->deliver(SampleRuns{index});
    }
    label = images.read(index, sample.image);
  }
  if (quality > 0) {
    sample.content = encode_jpeg(sample.image, quality);
    sample.is_file = true;
  }
  sample.label = *label;
  sample.class_name = &images.class_names()[static_cast<std::size_t>(*label)];
  return sample;
}

/// Takes over what an earlier start has written; false if there is nothing, or it is damaged.
bool keep(const fs::path& path, const File& file, PackFormat format) {
  const std::optional<std::vector<std::int64_t>> labels = labels_in(format, path);
  const std::int64_t classes = file.part->images->classes();
  if (!labels || static_cast<std::int64_t>(labels->size()) != file.end - file.begin ||
      std::ranges::any_of(*labels, [&](std::int64_t label) { return label < 0 || label >= classes; }))
    return false;
  std::ranges::copy(*labels, file.part->labels.begin() + file.begin);
  return true;
}

void write_samples(const fs::path& path, File& file, const PackOptions& options) {
  const auto writer = make_writer(options.format, path, file.end - file.begin);
  for (std::int64_t index = file.begin; index < file.end; ++index) {
    const PackedSample sample = sample_of(file, index, options.quality);
    file.part->labels[static_cast<std::size_t>(index)] = sample.label;
    writer->add(sample);
  }
  writer->finish();
}

void write_index(const fs::path& path, const Split& part) {
  const std::vector<std::uint32_t> labels(part.labels.begin(), part.labels.end());
  // All samples have names, or it is as if none had.
  std::string names;
  for (std::int64_t i = 0; i < part.images->size(); ++i) {
    if (part.images->sample_name(i).empty()) {
      names.clear();
      break;
    }
    names += part.images->sample_name(i) + '\0';
  }
  RecordWriter writer(path, 2);
  writer.add({little_endian(labels)});
  writer.add({bytes_of(names)});
  writer.finish();
}

/// A file of records as the manifest has it; its header is added to the digest.
Json described_records(const fs::path& path, Sha256& digest) {
  const RecordFile file(path);
  file.identify(digest);
  return Json::object()
      .set("name", path.filename().string())
      .set("records", file.size())
      .set("bytes", file.file_bytes());
}

/// A shard as the manifest has it; the hash of its bytes is added to the digest.
Json described_shard(const fs::path& path, const File& file, Sha256& digest) {
  const std::string hash = sha256_of_file(path);
  digest.update(hash);
  return Json::object()
      .set("name", file.name)
      .set("samples", file.end - file.begin)
      .set("bytes", size_of_file(path))
      .set("sha256", hash);
}

Json splits_of(const fs::path& folder, const std::vector<Split>& parts, const std::vector<File>& files,
               PackFormat format, Sha256& digest) {
  const bool is_records = format == PackFormat::records;
  Json splits = Json::object();
  for (const Split& part : parts) {
    std::vector<std::int64_t> histogram(static_cast<std::size_t>(part.images->classes()));
    for (const std::int64_t label : part.labels) ++histogram[static_cast<std::size_t>(label)];
    Json listed = Json::array();
    for (const File& file : files)
      if (file.part == &part)
        listed.push_back(is_records ? described_records(folder / file.name, digest)
                                    : described_shard(folder / file.name, file, digest));
    Json split = Json::object()
                     .set("samples", part.images->size())
                     .set("samples_by_class", Json::array_of(histogram))
                     .set("files", std::move(listed));
    if (is_records) split.set("index", described_records(folder / (part.split + "-index.ffr"), digest));
    splits.set(part.split, std::move(split));
  }
  return splits;
}

Json manifest_of(const DataSplits& data, const fs::path& folder, const std::vector<Split>& parts,
                 const std::vector<File>& files, PackFormat format) {
  const ImageDataset& train = *data.train->images();
  const ImageShape shape = train.image_shape();
  Sha256 digest;
  for (const std::string& name : train.class_names()) digest.update(name + '\0');
  Json splits = splits_of(folder, parts, files, format, digest);
  Json manifest = Json::object().set("format", format == PackFormat::records ? records_format : shards_format);
  if (format != PackFormat::records) manifest.set("container", name_of(format));
  return manifest.set("sha256", digest.hex())
      .set("classes", Json::array_of(train.class_names()))
      .set("image", Json::array_of(std::vector<int>{shape.height, shape.width, shape.channels}))
      .set("shrink_to", train.shrinks_to())
      .set("mean", Json::array_of(data.image_options.normalize.mean))
      .set("std", Json::array_of(data.image_options.normalize.std))
      .set("splits", std::move(splits));
}

void write_files(const fs::path& folder, std::vector<File>& files, const PackOptions& options) {
  std::mutex mutex;
  std::int64_t done = 0;
  try {
    cpu::parallel_chunks(static_cast<std::int64_t>(files.size()), [&](std::int64_t i) {
      File& file = files[static_cast<std::size_t>(i)];
      if (!keep(folder / file.name, file, options.format)) write_samples(folder / file.name, file, options);
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, static_cast<std::int64_t>(files.size()));
    });
  } catch (const DataError&) {
    // What another start would keep, it would not count.
    for (const File& file : files)
      if (file.has_stand_ins) remove_tree(folder / file.name);
    throw;
  }
}

/// Refuses a folder that holds something else than a part of this pack.
void begin_in(const fs::path& folder, const Json& plan) {
  make_directories(folder);
  remove_leftovers(folder, {plan_file, records_manifest, shards_manifest});
  const std::vector<std::string> present = list_directory(folder);
  const auto has = [&](const char* name) { return std::find(present.begin(), present.end(), name) != present.end(); };
  if (has(plan_file)) {
    HEARTH_CHECK(UsageError, read_json((folder / plan_file).string()) == plan, folder.string(),
                 ": holds an unfinished pack of other data or by other options; remove the folder, or name another");
    return;
  }
  HEARTH_CHECK(UsageError, present.empty(), folder.string(),
               has(records_manifest) || has(shards_manifest) ? ": holds a packed set" : ": is not empty",
               "; remove the folder, or name another");
  write_file_synced(folder / plan_file, to_text(plan, 2) + "\n");
}

}  // namespace

Json pack_records(const DataSplits& data, const std::string& folder, const PackOptions& options) {
  HEARTH_CHECK(UsageError, data.train != nullptr && data.train->images() != nullptr,
               "pack: these data are no labelled images, which is what record files hold");
  const bool is_records = options.format == PackFormat::records;
  const int channels = data.train->images()->image_shape().channels;
  HEARTH_CHECK(UsageError, is_records || channels == 1 || channels == 3, "pack: images of ", channels,
               " channels do not fit into the files of shards; pack records");
  HEARTH_CHECK(UsageError, options.quality >= 0 && options.quality <= 100, "pack: a JPEG quality of ", options.quality,
               "; 1 to 100 are possible");
  HEARTH_CHECK(UsageError, options.records_per_file >= 0, "pack: ", options.records_per_file,
               " records a file; give at least 1");
  std::vector<Split> parts;
  std::int64_t largest = 0;
  for (const auto& [name, split] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}}) {
    if (!split) continue;
    largest = std::max(largest, split->size());
    parts.push_back({name, split->images(), data.quarantine_of(split).get(),
                     std::vector<std::int64_t>(static_cast<std::size_t>(split->size()))});
  }
  // Every file is open while the set is in use, and few processes may open more than a thousand.
  const std::int64_t per_file =
      options.records_per_file > 0 ? options.records_per_file : std::max<std::int64_t>(512, (largest + 127) / 128);
  const fs::path root(folder);
  begin_in(root, Json::object()
                     .set("data", fingerprint(data))
                     .set("shrink_to", data.train->images()->shrinks_to())
                     .set("format", name_of(options.format))
                     .set("quality", options.quality)
                     .set("records_per_file", per_file));
  std::vector<File> files = plan_files(parts, per_file, options.format);
  write_files(root, files, options);
  if (is_records)
    for (const Split& part : parts) write_index(root / (part.split + "-index.ffr"), part);
  const Json manifest = manifest_of(data, root, parts, files, options.format);
  write_file_synced(root / (is_records ? records_manifest : shards_manifest), to_text(manifest, 2) + "\n");
  remove_tree(root / plan_file);
  return manifest;
}

}  // namespace hearth::data
