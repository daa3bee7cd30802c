// SPDX-License-Identifier: Apache-2.0
#include "data/boxes/voc_xml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/io/printable.h"
#include "data/boxes/xml_events.h"
#include "data/formats/folder_layout.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

constexpr const char* voc_extensions[] = {".jpg", ".jpeg", ".png",  ".JPG", ".JPEG",
                                          ".PNG", ".webp", ".WEBP", ".bmp", ".BMP"};

std::string stem_of(const std::string& name) {
  const std::size_t slash = name.find_last_of("/\\");
  const std::string file = slash == std::string::npos ? name : name.substr(slash + 1);
  return file.substr(0, file.rfind('.'));
}

/// What lies in a folder.
struct VocNames {
  explicit VocNames(const std::string& folder) {
    for (const SourceEntry& entry : list_source(folder)) {
      if (is_helper_name(entry.name)) continue;
      if (entry.kind == SourceEntry::Kind::folder) folders.push_back(entry.name);
      if (entry.kind == SourceEntry::Kind::file) files.insert(entry.name);
    }
  }
  bool has_folder(const std::string& name) const { return std::count(folders.begin(), folders.end(), name) > 0; }
  bool is_pascal() const { return has_folder("Annotations") && has_folder("JPEGImages"); }
  std::vector<std::string> xml() const {
    std::vector<std::string> names;
    for (const std::string& file : files)
      if (file.ends_with(".xml")) names.push_back(file.substr(0, file.size() - 4));
    return names;
  }
  std::vector<std::string> folders;
  std::set<std::string> files;
};

/// The names of a list, one a line; a second word, Pascal's -1, 0 or 1 of a class, is refused.
std::vector<std::string> names_of_list(const std::string& list) {
  const std::string text = read_source_text(list, {std::uint64_t{1} << 30, "lists of images"});
  std::vector<std::string> names;
  std::set<std::string> seen;
  std::string_view left = text;
  if (left.starts_with("\xEF\xBB\xBF")) left.remove_prefix(3);
  for (std::int64_t line = 1; !left.empty(); ++line) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    std::string_view row = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    while (!row.empty() && (row.back() == '\r' || row.back() == ' ')) row.remove_suffix(1);
    if (row.empty()) continue;
    HEARTH_CHECK(DataError, row.find_first_of(" \t/") == row.npos, list, ": line ", line, ": \"", printable(row),
                 "\" is not the name of one image, without folder and extension");
    names.emplace_back(row);
    HEARTH_CHECK(DataError, seen.insert(names.back()).second, list, ": line ", line, ": ", printable(row),
                 " is there twice");
  }
  HEARTH_CHECK(DataError, !names.empty(), list, ": lists no images");
  return names;
}

VocFolder find_pascal(const std::string& folder) {
  const std::string annotations = name_in(folder, "Annotations"), images = name_in(folder, "JPEGImages");
  const std::string sets = name_in(folder, "ImageSets/Main");
  VocFolder result;
  const auto list = [&](const std::string& name) -> VocSplit {
    const std::string file = name_in(sets, name + ".txt");
    if (!find_source(file)) return {};
    return {file, annotations, images, names_of_list(file)};
  };
  result.train = list("train");
  result.valid = list("val");
  result.test = list("test");
  if (result.train.names.empty()) {
    HEARTH_CHECK(DataError, result.valid.names.empty() && result.test.names.empty(), sets,
                 ": has val.txt or test.txt, and no train.txt; add it");
    result.train = {folder, annotations, images, VocNames(annotations).xml()};
    HEARTH_CHECK(DataError, !result.train.names.empty(), annotations, ": has no XML file");
  }
  return result;
}

/// A folder that is one split.
VocSplit find_voc_split(const std::string& folder) {
  const VocNames names(folder);
  if (names.is_pascal()) {
    VocFolder pascal = find_pascal(folder);
    HEARTH_CHECK(DataError, pascal.valid.names.empty() && pascal.test.names.empty(), folder,
                 ": is a folder of one split, and has lists of several; give that folder itself");
    return pascal.train;
  }
  VocSplit split{folder, folder, folder, names.xml()};
  HEARTH_CHECK(DataError, !split.names.empty(), folder,
               ": has no XML file, nor the folders Annotations and JPEGImages");
  return split;
}

struct VocObject {
  std::int64_t line = 0;
  std::string name;
  std::array<std::optional<double>, 4> edges{};
  bool difficult = false;
  bool has_difficult = false;
  int boxes = 0;
};

struct VocFile {
  std::string filename;
  std::optional<std::int32_t> width, height;
  std::vector<VocObject> objects;
};

/// Reads one XML file; DataError with the line.
class VocReader {
 public:
  explicit VocReader(const std::string& path) : path_(path) {}
  VocFile read() {
    std::vector<std::uint8_t> bytes;
    read_bytes(path_, bytes, {std::uint64_t{64} << 20, "labels of an image"});
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    walk_xml(
        text, path_,
        {[this](const std::string& path, std::int64_t line) { begin(path, line); },
         [this](const std::string& path, std::string_view inside, std::int64_t line) { end(path, inside, line); }});
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(std::int64_t line, const std::string& text) const {
    throw DataError(join_text(path_, ": line ", line, ": ", text));
  }
  double number(std::string_view text, std::int64_t line, const std::string& path) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      fail(line, "<" + path.substr(path.rfind('/') + 1) + "> is \"" + printable(text) + "\"; wanted is a number");
    return value;
  }
  void begin(const std::string& path, std::int64_t line) {
    if (path.find('/') == path.npos && path != "annotation")
      fail(line, "<" + printable(path) + ">, where <annotation> is wanted, the root of Pascal's labels");
    if (path == "annotation/object") file_.objects.emplace_back().line = line;
    if (path == "annotation/object/bndbox" && ++file_.objects.back().boxes > 1)
      fail(line, "a second <bndbox> of one object");
  }
  void end(const std::string& path, std::string_view text, std::int64_t line) {
    if (path == "annotation/filename") file_.filename = text;
    if (path == "annotation/size/width") file_.width = pixels(text, line, path, file_.width);
    if (path == "annotation/size/height") file_.height = pixels(text, line, path, file_.height);
    constexpr std::string_view object = "annotation/object";
    if (!path.starts_with(object)) return;
    if (path.size() == object.size()) return check_object(file_.objects.back(), line);
    VocObject& current = file_.objects.back();
    const std::string_view below = std::string_view(path).substr(object.size() + 1);
    if (below == "name") {
      if (!current.name.empty()) fail(line, "a second <name> of one object");
      current.name = text;
    }
    if (below == "difficult") {
      const double value = number(text, line, path);
      if (value != 0 && value != 1) fail(line, "<difficult> is \"" + printable(text) + "\"; wanted is 0 or 1");
      current.difficult = value == 1;
    }
    constexpr std::string_view edges[] = {"bndbox/xmin", "bndbox/ymin", "bndbox/xmax", "bndbox/ymax"};
    for (std::size_t i = 0; i < 4; ++i)
      if (below == edges[i]) {
        if (current.edges[i]) fail(line, "a second <" + std::string(edges[i].substr(7)) + "> of one box");
        current.edges[i] = number(text, line, path);
      }
  }
  std::int32_t pixels(std::string_view text, std::int64_t line, const std::string& path,
                      const std::optional<std::int32_t>& before) const {
    const double value = number(text, line, path);
    if (before || value != std::floor(value) || value < 1 || value > 0x7FFFFFFF)
      fail(line, "<" + path.substr(path.rfind('/') + 1) + "> is \"" + printable(text) +
                     "\"; wanted once is a number of pixels");
    return static_cast<std::int32_t>(value);
  }
  void check_object(const VocObject& object, std::int64_t line) const {
    if (object.name.empty()) fail(line, "an object without <name>, its class");
    if (std::any_of(object.edges.begin(), object.edges.end(), [](const auto& edge) { return !edge; }))
      fail(line, "an object without all of <bndbox> <xmin> <ymin> <xmax> <ymax>");
  }

  const std::string& path_;
  VocFile file_;
};

/// The image of an XML file; empty where there is none.
std::string image_of(const std::string& name, const std::set<std::string>& files) {
  for (const char* const extension : voc_extensions)
    if (files.contains(name + extension)) return name + extension;
  return "";
}

std::vector<std::string> classes_of(const std::vector<std::optional<VocFile>>& files) {
  std::set<std::string> names;
  for (const std::optional<VocFile>& file : files)
    if (file)
      for (const VocObject& object : file->objects) names.insert(object.name);
  return {names.begin(), names.end()};
}

/// Puts the files, of which one without content has a fault, into the result.
class VocBuilder {
 public:
  VocBuilder(AnnotatedImages& into, const VocOptions& options)
      : into_(into), options_(options), builder_(into, options.on_fault) {
    for (std::size_t i = 0; i < into.class_names.size(); ++i)
      labels_.emplace(into.class_names[i], static_cast<std::int32_t>(i));
  }
  void add(const std::string& path, const std::string& image, std::int64_t id, const std::optional<VocFile>& file,
           const std::string& fault) {
    AnnotatedImage begun{.file = image, .id = id};
    if (file) begun.width = file->width.value_or(0), begun.height = file->height.value_or(0);
    builder_.begin_image(begun);
    if (!fault.empty())
      builder_.fault(fault);
    else if (file)
      add_objects(path, *file);
    builder_.end_image();
  }
  void finish() {
    builder_.finish();
    if (from_zero_ > 0)
      into_.warnings.add(join_text(from_zero_, from_zero_ == 1 ? " box has" : " boxes have",
                                   " an xmin or ymin of 0, which Pascal's counting from 1 lacks, the first at ",
                                   first_from_zero_, "; set \"first_pixel\" to 0 if the program counts from 0"));
  }

 private:
  void add_objects(const std::string& path, const VocFile& file) {
    for (const VocObject& object : file.objects) {
      const auto place = [&] { return join_text(path, ": line ", object.line); };
      const auto label = labels_.find(object.name);
      if (label == labels_.end())
        return builder_.fault(join_text(place(), ": the class \"", printable(object.name), "\" is none of the ",
                                        labels_.size(), " that are known; add it to \"classes\""));
      const double origin = options_.first_pixel;
      if (std::min(*object.edges[0], *object.edges[1]) < origin && from_zero_++ == 0) first_from_zero_ = place();
      const std::array<double, 4> corners{*object.edges[0] - origin, *object.edges[1] - origin, *object.edges[2],
                                          *object.edges[3]};
      builder_.add({.corners = corners,
                    .area = (corners[2] - corners[0]) * (corners[3] - corners[1]),
                    .label = label->second,
                    .ignored = object.difficult},
                   place);
    }
  }

  AnnotatedImages& into_;
  const VocOptions& options_;
  AnnotationBuilder builder_;
  std::map<std::string, std::int32_t> labels_;
  std::int64_t from_zero_ = 0;
  std::string first_from_zero_;
};

}  // namespace

VocFolder find_voc(const std::string& folder) {
  const std::optional<SourceEntry> there = find_source(folder);
  HEARTH_CHECK(FileError, there && there->kind == SourceEntry::Kind::folder, folder, ": no such folder");
  const VocNames names(folder);
  if (names.is_pascal()) return find_pascal(folder);
  HEARTH_CHECK(DataError, !names.has_folder("Annotations"), folder,
               ": has the folder Annotations, and no JPEGImages with the images");
  if (const SplitFolders splits = find_split_folders(folder); !splits.train.empty()) {
    VocFolder result;
    result.train = find_voc_split(name_in(folder, splits.train));
    if (!splits.valid.empty()) result.valid = find_voc_split(name_in(folder, splits.valid));
    if (!splits.test.empty()) result.test = find_voc_split(name_in(folder, splits.test));
    return result;
  }
  VocFolder result{.train = {folder, folder, folder, names.xml()}, .valid = {}, .test = {}};
  if (!result.train.names.empty()) return result;
  for (const std::string& below : names.folders)
    HEARTH_CHECK(DataError, !VocNames(name_in(folder, below)).is_pascal(), folder,
                 ": has no labels by Pascal VOC, and ", name_in(folder, below), " has; give that folder");
  throw DataError(folder +
                  ": has no labels by Pascal VOC; wanted are XML files beside images, folders train and valid of such, "
                  "or the folders Annotations and JPEGImages");
}

AnnotatedImages read_voc(const VocSplit& split, const VocOptions& options) {
  std::set<std::string> classes(options.classes.begin(), options.classes.end());
  HEARTH_CHECK(ConfigError, classes.size() == options.classes.size() && !classes.contains(""),
               "classes: a name is there twice, or empty; give each class a name of its own");
  AnnotatedImages result{.source = split.source, .folder = split.images};
  const std::set<std::string> files = VocNames(split.images).files;
  std::vector<std::optional<VocFile>> read(split.names.size());
  std::vector<std::string> faults(split.names.size()), images(split.names.size());
  for (std::size_t i = 0; i < split.names.size(); ++i) {
    const std::string path = name_in(split.annotations, split.names[i] + ".xml");
    images[i] = image_of(split.names[i], files);
    try {
      const VocFile& file = read[i].emplace(VocReader(path).read());
      HEARTH_CHECK(DataError, !images[i].empty(), path, ": the image ", name_in(split.images, split.names[i]),
                   ".jpg, or of another extension, is missing");
      HEARTH_CHECK(DataError, file.width && file.height, path,
                   ": has no <size> with <width> and <height>, which say which pixels boxes mean");
      HEARTH_CHECK(DataError,
                   file.filename.empty() || stem_of(file.filename) == split.names[i] || !files.contains(file.filename),
                   path, ": <filename> is ", printable(file.filename), ", another image of the folder than ",
                   images[i]);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      faults[i] = error.what();
      read[i].reset();
    }
    // A missing image has a name for messages all the same.
    if (images[i].empty()) images[i] = split.names[i] + ".jpg";
  }
  HEARTH_CHECK(
      DataError,
      std::any_of(images.begin(), images.end(), [&](const std::string& image) { return files.contains(image); }),
      split.images, ": has none of the ", images.size(), " images of ", split.source, ", the first of which is ",
      images.front());
  result.class_names = options.classes.empty() ? classes_of(read) : options.classes;
  for (std::size_t label = 0; label < result.class_names.size(); ++label)
    result.category_ids.push_back(static_cast<std::int64_t>(label));
  VocBuilder builder(result, options);
  for (std::size_t i = 0; i < split.names.size(); ++i)
    builder.add(name_in(split.annotations, split.names[i] + ".xml"), images[i], static_cast<std::int64_t>(i), read[i],
                faults[i]);
  builder.finish();
  return result;
}

}  // namespace hearth::data
