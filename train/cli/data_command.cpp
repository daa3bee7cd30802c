// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/io/printable.h"
#include "data/formats/records.h"
#include "data/formats/shards.h"
#include "data/inspection.h"
#include "data/packing/pack_records.h"
#include "data/packing/pack_text.h"
#include "data/source/record_file.h"
#include "data/splits.h"
#include "data/text/text_data.h"
#include "dist/process_group.h"
#include "train/checkpoint/bad_samples.h"
#include "train/cli/commands.h"
#include "train/config/run_config.h"

namespace hearth::train {

namespace {

/// Says what a file of data is where a configuration is wanted, and which configuration reads it.
void refuse_bare_file(const std::string& path) {
  const std::filesystem::path name = path;
  const std::string extension = (name.extension() == ".gz" ? name.stem() : name).extension().string();
  const auto refuse = [&](const std::string& what, const std::string& data) {
    throw UsageError(
        join_text("data: ", path, " is ", what, "; give a configuration that reads it, with \"data\": ", data));
  };
  if (extension == ".csv" || extension == ".tsv")
    refuse("a table", join_text(R"({"type": "csv", "path": ")", path, R"(", "target": COLUMN})"));
  if (extension == ".npy" || extension == ".npz") refuse("an array of NumPy's", R"({"type": "arrays", ...})");
  if (extension == ".txt" || extension == ".text")
    refuse("text", join_text(R"({"type": "text", "train": [")", path, R"("]})"));
  if (extension == ".parquet" || extension == ".arrow" || extension == ".feather" || extension == ".h5" ||
      extension == ".lmdb" || extension == ".jsonl")
    throw UsageError(join_text("data: ", path, ": ", extension.substr(1),
                               " files are not read; write a CSV, .npy or text file of it"));
  std::error_code absent;
  if (extension != ".json" || !std::filesystem::is_regular_file(path, absent)) return;
  const std::string reads_coco =
      join_text("give a configuration that reads it, with \"data\": ",
                R"({"type": "coco", "train": {"images": FOLDER, "labels": ")", path, R"("}, ...})");
  constexpr std::uint64_t longest = std::uint64_t{64} << 20;
  HEARTH_CHECK(UsageError, std::filesystem::file_size(path, absent) <= longest, "data: ", path,
               " is too long for a configuration; if it is COCO's list of images and annotations, ", reads_coco);
  Json document;
  try {
    document = read_json(path, {longest, "a document"});
  } catch (const ConfigError&) {
    return;  // where a configuration is read, its faults are told
  }
  HEARTH_CHECK(UsageError,
               !document.is_object() || document.find("images") == nullptr || document.find("annotations") == nullptr,
               "data: ", path, " is COCO's list of images and annotations; ", reads_coco);
}

/// What a command looks at: the data of a configuration, or data in a folder by themselves.
struct Source {
  data::Datasets::Component data;
  std::int64_t batch_size = 1;
};

/// The dataset that lies in a folder, told by the names of its files.
std::string type_of_folder(const std::string& folder) {
  const auto has = [&](const std::string& name) { return data::find_source(data::name_in(folder, name)).has_value(); };
  if (data::holds_records(folder)) return "records";
  if (const std::string container = data::type_of_shards(folder); !container.empty()) return container;
  for (const std::string& name : list_directory(folder)) {
    if (name.ends_with(".tar")) return "webdataset";
    if (name.find(".tfrec") != name.npos) return "tfrecord";
  }
  if (has("train-images-idx3-ubyte") || has("train-images-idx3-ubyte.gz")) return "idx";
  if (has("Annotations") && has("JPEGImages")) return "voc";
  if (has("data_batch_1.bin")) return "cifar10";
  return has("train.bin") ? "cifar100" : "image_folder";
}

/// The dataset of one file, a shard or a description of YOLO's, told by its name; null for another file.
const char* type_of_file(const std::string& path) {
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return "yolo";
  if (path.ends_with(".tar")) return "webdataset";
  return path.find(".tfrec") != path.npos ? "tfrecord" : nullptr;
}

/// Whether images of a type may be of any size, so that a run has to say which it takes.
bool has_any_size(const std::string& type) { return type == "records" || type == "webdataset" || type == "tfrecord"; }

/// `resize`: the shorter side to which images are shrunk; 0 leaves them as they are.
Source open_source(const Arguments& arguments, std::int64_t resize) {
  const std::string& path = arguments.positional()[1];
  std::vector<std::string> changes = arguments.values("--set");
  if (const auto found = data::find_source(path); found && found->kind == data::SourceEntry::Kind::folder) {
    HEARTH_CHECK(UsageError, changes.empty(), "data: ", path, " is a folder, and --set changes a configuration");
    HEARTH_CHECK(UsageError, !data::find_source(data::name_in(path, "data.yaml")), "data: ", path,
                 " has a data.yaml, which says what lies there; give ", data::name_in(path, "data.yaml"));
    Json node = Json::object().set("type", type_of_folder(path)).set("path", path);
    // The size at which a run would use them is not known here, and must not be larger.
    if (resize > 0) node.set("shrink_to", resize);
    if (resize > 0 || has_any_size(node.at("type").as_string()))
      node.set("augment", Json::object().set("image_size", resize > 0 ? resize : 224));
    return {data::datasets().parse(node)};
  }
  if (const char* const type = type_of_file(path)) {
    HEARTH_CHECK(UsageError, changes.empty() && resize == 0, "data: ", path,
                 " is a file of data; --set and --resize are for configurations and folders");
    if (std::string_view(type) == "yolo")
      return {data::datasets().parse(Json::object().set("type", type).set("path", path))};
    return {data::datasets().parse(
        Json::object().set("type", type).set("train", path).set("augment", Json::object().set("image_size", 224)))};
  }
  refuse_bare_file(path);
  if (resize > 0) changes.push_back(join_text("data.shrink_to=", resize));
  LoadedConfig loaded = load_config(path, changes);
  return {std::move(loaded.config.data), loaded.config.train.batch_size};
}

int pack_sequences(const data::Datasets::Component& data, const std::string& folder, bool as_json) {
  Json all = Json::array();
  for (const data::PackedFile& file : data::pack_text(data, folder)) {
    all.push_back(Json::object()
                      .set("path", file.path)
                      .set("tokens", file.tokens)
                      .set("sequences", file.sequences)
                      .set("characters", file.characters)
                      .set("bytes_an_id", file.bytes_an_id)
                      .set("left_out", file.left_out.count));
    std::cerr << printable(file.path) << ": " << file.tokens << " ids of " << file.bytes_an_id << " bytes, "
              << file.sequences << " sequences, " << file.characters << " characters\n";
    constexpr std::size_t most = 5;
    if (!file.left_out.first.empty()) std::cerr << file.left_out.count << " pairs left out; the first:\n";
    for (std::size_t i = 0; i < std::min(most, file.left_out.first.size()); ++i)
      std::cerr << "  " << printable(file.left_out.first[i]) << "\n";
  }
  if (as_json)
    std::cout << to_text(all) << "\n";
  else
    std::cerr << "read them with \"data\": {\"type\": \"" << data.type() << "\", \"packed\": \"" << printable(folder)
              << "\", ...}\n";
  return 0;
}

data::PackFormat pack_format(const std::string& name) {
  using enum data::PackFormat;
  for (const data::PackFormat format : {records, webdataset, tfrecord})
    if (name == data::name_of(format)) return format;
  throw UsageError("data pack: the format \"" + name + "\" is not known; use records, webdataset or tfrecord");
}

/// Images to records or shards, sequences to token files.
int pack(const Arguments& arguments) {
  const bool has_folder = arguments.positional().size() == 3;
  HEARTH_CHECK(UsageError, has_folder != arguments.has("--out"),
               "data pack: name the folder to write to: hearth data pack CONFIG_OR_FOLDER --out FOLDER");
  const std::string folder = has_folder ? arguments.positional()[2] : *arguments.value("--out");
  const Source source = open_source(arguments, arguments.positive("--resize", 0));
  const std::string type = source.data.type();
  if (type == "text" || type == "labelled_text" || type == "parallel_text") {
    for (const char* option : {"--resize", "--records", "--format", "--quality"})
      HEARTH_CHECK(UsageError, !arguments.has(option), "data pack: ", type, " becomes token files, and ", option,
                   " is for images");
    return pack_sequences(source.data, folder, arguments.has("--json"));
  }
  const data::PackOptions options{.records_per_file = arguments.positive("--records", 0),
                                  .format = pack_format(arguments.value("--format").value_or("records")),
                                  .quality = static_cast<int>(arguments.positive("--quality", 0)),
                                  .progress = [](std::int64_t done, std::int64_t files) {
                                    std::cerr << join_text("packed ", done, " of ", files, " files\n");
                                  }};
  const data::DataSplits splits = data::make_data(source.data);
  const Json manifest = data::pack_records(splits, folder, options);
  for (const std::string& line : take_new_bad_samples(splits, dist::one_process()))
    std::cerr << "warning: " << line << "\n";
  if (arguments.has("--json"))
    std::cout << to_text(manifest) << "\n";
  else
    std::cerr << "read them with \"data\": {\"type\": \"" << data::name_of(options.format) << "\", \"path\": \""
              << printable(folder) << "\", ...}\n";
  return 0;
}

/// One file of records, whoever wrote it.
int report_file(const std::string& path, bool whole, bool as_json) {
  const data::RecordFile file(path);
  data::Warnings problems;
  std::uint64_t least = file.size() > 0 ? file.bytes(0) : 0, greatest = 0;
  std::vector<std::uint8_t> content;
  for (std::int64_t record = 0; record < file.size(); ++record) {
    least = std::min(least, file.bytes(record));
    greatest = std::max(greatest, file.bytes(record));
    try {
      if (whole) file.read(record, content);
    } catch (const DataError& error) {
      problems.add(error.what());
    }
  }
  if (as_json)
    std::cout << to_text(Json::object()
                             .set("file", path)
                             .set("records", file.size())
                             .set("bytes", file.file_bytes())
                             .set("record_bytes", Json::array_of(std::vector<std::uint64_t>{least, greatest}))
                             .set("problems", problems.count)
                             .set("first_problems", Json::array_of(problems.first)))
              << "\n";
  else
    std::cout << printable(path) << ": " << file.size() << " records of " << least << " to " << greatest
              << " bytes, problems: " << problems.count << "\n";
  HEARTH_CHECK(DataError, problems.count == 0, problems.first.front(), "; damaged records: ", problems.count);
  return 0;
}

int data_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  HEARTH_CHECK(UsageError, what == "inspect" || what == "verify" || what == "pack", "data: \"", what,
               "\" is not known; use inspect, verify or pack");
  if (what == "pack") return pack(arguments);
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2, "data ", what, ": takes one config or folder; \"",
               arguments.positional().back(), "\" is too much");
  if (what == "inspect")
    arguments.refuse_others("data inspect", {"--set", "--json", "--sheet", "--samples"});
  else
    arguments.refuse_others("data verify", {"--set", "--json"});
  const std::string& path = arguments.positional()[1];
  if (path.ends_with(".ffr")) return report_file(path, what == "verify", arguments.has("--json"));
  const Source source = open_source(arguments, 0);
  const data::DataSplits data = data::make_data(source.data);
  std::int64_t problems = 0;
  Json all = Json::object();
  for (const auto& [name, part] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}}) {
    if (!part) continue;
    data::PartReport report = data::inspect_part(*part, what == "verify", source.batch_size);
    problems += report.problems;
    all.set(name, std::move(report.json));
    if (!arguments.has("--json")) std::cout << name << "\n" << report.text << "\n";
  }
  if (const auto sheet = arguments.value("--sheet")) {
    const std::int64_t shown = data::write_sheet(*sheet, *data.train, arguments.positive("--samples", 64)),
                       size = data.train->size();
    std::cerr << printable(*sheet) << ": " << shown << " samples, row by row from the top left: every "
              << static_cast<double>(size) / static_cast<double>(shown) << "th of " << size << "\n";
  }
  if (what == "verify" && !data::type_of_shards(path).empty()) {
    for (const std::string& fault : data::verify_shards(path)) {
      std::cerr << "hearth: warning: " << fault << "\n";
      ++problems;
    }
  }
  if (source.data.type() == "records" && data::holds_records(path)) {
    const std::string content = data::read_manifest(path).at("sha256").as_string();
    all.set("sha256", content);
    if (!arguments.has("--json")) std::cout << "sha256 of the set: " << content << "\n";
  }
  if (arguments.has("--json")) std::cout << to_text(all) << "\n";
  HEARTH_CHECK(DataError, what == "inspect" || problems == 0, "data verify: ", problems,
               " samples cannot be read or have a bad label, or shards are not what they were; the first ones of each "
               "part are listed above");
  return 0;
}

}  // namespace

CommandSpec data_spec() {
  return {
      "data",
      "inspect|verify|pack CONFIG_OR_FOLDER [FOLDER]",
      2,
      3,
      "Looks at the data of a run or of a folder, or at one file FILE.ffr, FILE.tar, FILE.tfrecord or data.yaml "
      "(YOLO): "
      "counts, sizes and classes; `verify` reads every sample; `pack` turns images into record files or shards, and "
      "sequences into "
      "token files.",
      {set_option(),
       {"--out", "FOLDER", "pack: where to write, a folder that is empty, missing, or of a pack that was interrupted"},
       {"--resize", "PIXELS", "pack: shrink images whose shorter side has more pixels to this (image_folder)"},
       {"--records", "N", "pack: images a file (default: 512, and more where that makes more than 128 files)"},
       {"--format", "NAME", "pack: records (default), webdataset (tar shards) or tfrecord"},
       {"--quality", "Q", "pack: store every image as a JPEG of this quality, 1 to 100"},
       {"--sheet", "FILE.png", "inspect: write a picture of samples of the first split, side by side"},
       {"--samples", "N", "inspect: samples on that picture (default: 64)"},
       {"--json", "", "print as JSON on stdout"}},
      data_command};
}

}  // namespace hearth::train
