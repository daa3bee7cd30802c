// SPDX-License-Identifier: Apache-2.0
// Listing the files once, decoding them when asked.
#include "data/formats/image_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/file.h"
#include "data/formats/folder_layout.h"
#include "data/images/hold_out.h"
#include "data/images/imagenet_statistics.h"
#include "data/images/transforms/transforms.h"
#include "data/source/file_opener.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

namespace fs = std::filesystem;

/// Collects warnings from several threads.
class WarningList {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    warnings_.add(text);
  }
  Warnings get() const {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }

 private:
  mutable std::mutex mutex_;
  Warnings warnings_;
};

struct File {
  std::string path;
  std::uint64_t bytes = 0;
  std::int32_t label = 0;
};

std::string extension_of(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return extension;
}

bool is_image_name(const fs::path& path) {
  constexpr const char* read[] = {".jpg", ".jpeg", ".png", ".webp", ".bmp"};
  return std::count(std::begin(read), std::end(read), extension_of(path)) > 0;
}

/// Of images that are not read.
bool is_foreign_image_name(const fs::path& path) {
  constexpr const char* foreign[] = {".gif",  ".tif",  ".tiff", ".heic", ".heif", ".avif", ".jfif", ".jpe", ".jp2",
                                     ".jxl",  ".svg",  ".ico",  ".tga",  ".psd",  ".ppm",  ".pgm",  ".pbm", ".pnm",
                                     ".apng", ".exif", ".dib",  ".raw",  ".dng",  ".nef",  ".cr2",  ".arw"};
  return std::count(std::begin(foreign), std::end(foreign), extension_of(path)) > 0;
}

std::string left_out_as_foreign(const fs::path& path) {
  return path.string() + ": " + extension_of(path).substr(1) + " files are not read; convert it to PNG or JPEG";
}

/// Warns of each image beside the class folders.
void warn_of_loose_images(const std::string& root, WarningList& warnings) {
  for (const SourceEntry& entry : list_source(root))
    if ((is_image_name(entry.name) || is_foreign_image_name(entry.name)) && entry.kind != SourceEntry::Kind::folder)
      warnings.add(name_in(root, entry.name) + ": lies outside of the class folders, and is left out");
}

/// Walks one class folder.
class Walk {
 public:
  Walk(bool fails, WarningList& unreadable, WarningList& left_out)
      : fails_(fails), unreadable_(unreadable), left_out_(left_out) {}

  struct Found {
    std::string path;
    std::uint64_t bytes;
  };
  std::vector<Found> files_below(const std::string& folder) {
    // A link to a folder above would bring the images of other classes in.
    std::error_code absent;
    if (is_path(folder))
      for (fs::path above = fs::canonical(folder, absent).parent_path(); above.has_relative_path();
           above = above.parent_path())
        mark_as_visited(above);
    enter(folder);
    // A loop of links stops at a folder already seen; the recursion is as deep as the tree.
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.path < b.path; });
    return std::move(found_);
  }

 private:
  /// Whether it was not before.
  bool mark_as_visited(const fs::path& folder) {
    struct stat status {};
    HEARTH_CHECK(FileError, ::stat(folder.c_str(), &status) == 0, folder.string(), ": cannot be read");
    return visited_.insert({status.st_dev, status.st_ino}).second;
  }
  void enter(const std::string& folder) {
    if (is_path(folder) && !mark_as_visited(folder)) return;
    for (const SourceEntry& entry : list_source(folder)) {
      if (is_helper_name(entry.name)) continue;
      const std::string path = name_in(folder, entry.name);
      if (entry.kind == SourceEntry::Kind::folder) {
        enter(path);
      } else if (is_image_name(path)) {
        if (entry.kind == SourceEntry::Kind::file)
          found_.push_back({path, entry.bytes});
        else
          complain(path + ": a link to nothing, or not a file");
      } else if (is_foreign_image_name(path)) {
        left_out_.add(left_out_as_foreign(path));
      }
    }
  }
  void complain(const std::string& text) {
    if (fails_) throw DataError(text);
    unreadable_.add(text);
  }

  bool fails_;
  WarningList& unreadable_;
  WarningList& left_out_;
  std::set<std::pair<dev_t, ino_t>> visited_;
  std::vector<Found> found_;
};

bool is_folder(const std::string& name) {
  const std::optional<SourceEntry> found = find_source(name);
  return found && found->kind == SourceEntry::Kind::folder;
}

std::vector<std::string> class_folders(const std::string& root) {
  std::vector<std::string> names;
  for (const SourceEntry& entry : list_source(root))
    if (!is_helper_name(entry.name) && entry.kind == SourceEntry::Kind::folder) names.push_back(entry.name);
  HEARTH_CHECK(DataError, !names.empty(), root, ": has no class folders; wanted is ", root, "/CLASS/IMAGE.jpg or .png");
  return names;
}

class ImageFolder : public ImageDataset {
 public:
  ImageFolder(const std::string& root, const ImageFolderOptions& options, const std::vector<std::string>& classes,
              const std::string& beside, const std::vector<std::string>& left_out)
      : root_(root),
        prefix_(name_in(root, "").size()),
        fails_(options.on_error == OnFault::fail),
        names_(classes),
        shrink_to_(options.shrink_to),
        decode_bytes_(options.decode_bytes),
        room_(options.cache_bytes) {
    const std::vector<std::string> folders = class_folders(root);
    if (names_.empty()) names_ = folders;
    for (const std::string& folder : folders) {
      const auto place = std::find(names_.begin(), names_.end(), folder);
      HEARTH_CHECK(DataError, place != names_.end(), root, "/", folder, ": not a class of the training images");
      const auto label = static_cast<std::int32_t>(place - names_.begin());
      const auto files = Walk(fails_, unreadable_, warnings_).files_below(name_in(root, folder));
      if (files.empty()) {
        const std::string text = root + "/" + folder + ": has no JPEG, PNG, WebP or BMP file";
        HEARTH_CHECK(DataError, options.empty_classes == OnFault::skip, text,
                     "; remove the folder, or set empty_classes to \"skip\"");
        warnings_.add(text);
      }
      for (const auto& [path, bytes] : files) files_.push_back({path, bytes, label});
    }
    HEARTH_CHECK(DataError, !files_.empty(), root, ": has no JPEG, PNG, WebP or BMP file");
    warn_of_loose_images(root, warnings_);
    if (beside != root) warn_of_loose_images(beside, warnings_);
    for (const std::string& name : left_out)
      warnings_.add(name_in(beside, name) + ": is no folder of a split (train, valid, test), and is left out");
    turned_.resize(files_.size());
    if (room_ > 0) cache_.resize(files_.size());
  }

  /// One file, without a class.
  ImageFolder(const std::string& file, const ImageFolderOptions& options)
      : root_(file),
        prefix_(file.size()),
        fails_(true),
        shrink_to_(options.shrink_to),
        decode_bytes_(options.decode_bytes),
        files_{{file}},
        turned_(1),
        cache_(options.cache_bytes > 0 ? 1 : 0),
        room_(options.cache_bytes) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  ImageShape image_shape() const override { return {0, 0, 3}; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t label(std::int64_t index) const override {
    check_index(index);
    return files_[static_cast<std::size_t>(index)].label;
  }
  std::int64_t read(std::int64_t index, Image& image) const override { return read_from(index, image); }
  std::optional<std::int64_t> try_read(std::int64_t index, Image& image) const override {
    check_index(index);
    const auto at = static_cast<std::size_t>(index);
    return load(at, image, nullptr, nullptr) ? std::optional<std::int64_t>(files_[at].label) : std::nullopt;
  }
  std::optional<std::int64_t> try_read_region(std::int64_t index, const ChooseSizing& choose, Image& image,
                                              Region& region) const override {
    // What is shrunk or kept is decoded whole, so that each reading gives the same pixels.
    if (shrink_to_ > 0 || !cache_.empty()) return ImageDataset::try_read_region(index, choose, image, region);
    check_index(index);
    const auto at = static_cast<std::size_t>(index);
    return load(at, image, &choose, &region) ? std::optional<std::int64_t>(files_[at].label) : std::nullopt;
  }
  std::string fault_of(std::int64_t index) const override {
    check_index(index);
    const std::lock_guard lock(mutex_);
    const auto found = broken_.find(static_cast<std::size_t>(index));
    return found != broken_.end() ? found->second : std::string();
  }
  bool encoded(std::int64_t index, std::vector<std::uint8_t>& bytes) const override {
    check_index(index);
    if (shrink_to_ > 0) return false;
    read_bytes(*opener_.open(files_[static_cast<std::size_t>(index)].path), bytes, image_limit);
    return true;
  }
  std::string sample_name(std::int64_t index) const override {
    check_index(index);
    return files_[static_cast<std::size_t>(index)].path.substr(prefix_);
  }
  void identify(std::int64_t index, Sha256& digest) const override {
    check_index(index);
    digest.update(join_text(sample_name(index), '\n', files_[static_cast<std::size_t>(index)].bytes, '\n'));
  }
  Warnings warnings() const override {
    Warnings all = warnings_.get();
    const std::lock_guard lock(mutex_);
    const auto turned = std::count(turned_.begin(), turned_.end(), true);
    if (turned > 0)
      all.add(join_text(
          turned, " of the images decoded so far were turned upright by their EXIF orientation, ",
          files_[static_cast<std::size_t>(std::find(turned_.begin(), turned_.end(), true) - turned_.begin())].path,
          " for one"));
    return all;
  }
  Warnings unreadable() const override { return unreadable_.get(); }
  const std::string& source() const override { return root_; }
  int shrinks_to() const override { return shrink_to_; }

 private:
  /// All of the image, or the region that `choose` wants. False if the file is broken and that is to be passed over.
  bool load(std::size_t at, Image& image, const ChooseSizing* choose, Region* region) const {
    if (take_cached(at, image)) return true;
    const std::string& path = files_[at].path;
    // Each thread keeps the memory of the compressed bytes.
    thread_local std::vector<std::uint8_t> bytes;
    try {
      read_bytes(*opener_.open(path), bytes, image_limit);
      if (choose != nullptr) *region = decode_region(bytes, path, *choose, image, decode_bytes_);
      const int orientation = choose != nullptr ? region->orientation : decode_image(bytes, path, image, decode_bytes_);
      if (orientation != 1) {
        const std::lock_guard lock(mutex_);
        turned_[at] = true;
      }
      if (choose == nullptr) shrink(image);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      if (fails_) throw;
      const std::lock_guard lock(mutex_);
      // A file is counted once, however often it is met.
      if (broken_.emplace(at, error.what()).second) unreadable_.add(error.what());
      return false;
    }
    keep(at, image);
    return true;
  }
  bool take_cached(std::size_t at, Image& image) const {
    if (cache_.empty()) return false;
    std::shared_ptr<const Image> kept;
    {
      const std::lock_guard lock(mutex_);
      kept = cache_[at];
    }
    if (kept) image = *kept;
    return kept != nullptr;
  }
  void keep(std::size_t at, const Image& image) const {
    if (cache_.empty()) return;
    const auto bytes = static_cast<std::int64_t>(image.pixels.size());
    {
      const std::lock_guard lock(mutex_);
      if (cache_[at] || bytes > room_) return;
      room_ -= bytes;
    }
    auto copy = std::make_shared<const Image>(image);
    const std::lock_guard lock(mutex_);
    if (cache_[at])
      room_ += bytes;  // another thread was first
    else
      cache_[at] = std::move(copy);
  }

  FileOpener opener_;
  std::string root_;
  std::size_t prefix_;  // of a file's path, up to the class
  bool fails_;
  std::vector<std::string> names_;
  int shrink_to_;
  std::int64_t decode_bytes_;
  std::vector<File> files_;
  WarningList warnings_;
  mutable WarningList unreadable_;
  mutable std::mutex mutex_;                           // of what follows
  mutable std::map<std::size_t, std::string> broken_;  // and why
  mutable std::vector<bool> turned_;                   // by EXIF orientation
  mutable std::vector<std::shared_ptr<const Image>> cache_;
  mutable std::int64_t room_;
};

/// `beside` is where images that belong to no class are looked for, and folders lie that are `left_out`.
ImageDatasetPointer open_folder(const std::string& root, const ImageFolderOptions& options,
                                const std::vector<std::string>& classes, const std::string& beside,
                                const std::vector<std::string>& left_out = {}) {
  HEARTH_CHECK(ConfigError, options.shrink_to >= 0, "image_folder: shrink_to is ", options.shrink_to,
               "; give the shorter side in pixels, or 0 to leave images as they are");
  HEARTH_CHECK(ConfigError, options.decode_bytes > 0, "image_folder: decode_bytes is ", options.decode_bytes,
               "; give the memory that decoding one image may take");
  return std::make_shared<ImageFolder>(root, options, classes, beside, left_out);
}

}  // namespace

ImageDatasetPointer image_folder(const std::string& root, const ImageFolderOptions& options,
                                 const std::vector<std::string>& classes) {
  return open_folder(root, options, classes, root);
}

ImageDatasetPointer image_file(const std::string& path, const ImageFolderOptions& options) {
  return std::make_shared<ImageFolder>(path, options);
}

ImageFiles image_files(const std::string& folder) {
  WarningList unreadable, left_out;
  ImageFiles files;
  for (auto& found : Walk(false, unreadable, left_out).files_below(folder))
    files.paths.push_back(std::move(found.path));
  files.unreadable = unreadable.get();
  files.left_out = left_out.get();
  return files;
}

ImageSplits image_folder_splits(const std::string& root, const ImageFolderOptions& options) {
  HEARTH_CHECK(DataError, is_folder(root), root, ": no such folder");
  ImageSplits splits;
  splits.statistics = imagenet_statistics();
  const SplitFolders folders = find_split_folders(root);
  const std::string train = folders.train.empty() ? root : name_in(root, folders.train);
  const std::vector<std::string> classes = class_folders(train);
  require_class_folders(train, classes);
  splits.train = open_folder(train, options, classes, root, folders.others);
  if (!folders.valid.empty()) splits.valid = image_folder(name_in(root, folders.valid), options, classes);
  if (!folders.test.empty()) splits.test = image_folder(name_in(root, folders.test), options, classes);
  return splits;
}

void describe(Fields<ImageFolderData>& fields) {
  describe_images(fields);
  fields.text("path", &ImageFolderData::path, "Folder of class folders, or of train, val and test with class folders.")
      .required();
  fields.number(
      "test_fraction", &ImageFolderData::test_fraction, {.min = 0, .below = 1},
      "Share of each class held out for testing where there is no folder for that, nor for validation: each file "
      "by its name.");
  fields.choice(
      "on_error", &ImageFolderData::on_error, {{"fail", OnFault::fail}, {"skip", OnFault::skip}},
      "`skip` is bad_samples with the policy `skip` and no budget. Of links to nothing too: stop, or leave them "
      "out with a warning.");
  fields.choice("empty_classes", &ImageFolderData::empty_classes, {{"fail", OnFault::fail}, {"skip", OnFault::skip}},
                "Class folders without images: stop, or count a warning.");
  fields.integer("cache_mb", &ImageFolderData::cache_mb, {.min = 0, .max = 1 << 24},
                 "Decoded images kept in memory, in MiB.");
  fields.integer("decode_mb", &ImageFolderData::decode_mb, {.min = 1, .max = 4096},
                 "Memory that decoding one image may take, in MiB, in each thread that decodes; one that needs more is "
                 "broken.");
  fields.integer("shrink_to", &ImageFolderData::shrink_to, {.min = 0, .max = 8192},
                 "Images whose shorter side has more pixels are shrunk to it as soon as they are decoded, so that more "
                 "of them fit in cache_mb and later epochs have less to do; at least the shorter side from which "
                 "evaluation starts. 0 leaves them as they are.");
  fields.rule([](const ImageFolderData& o) -> std::string {
    const int least = evaluated_side(transform_options({.augment = o.augment}));
    if (o.shrink_to == 0 || o.shrink_to >= least) return "";
    const std::string crop = least == o.augment.image_size ? "" : join_text(" / eval_crop ", o.augment.eval_crop);
    return join_text("shrink_to is ", o.shrink_to, ", and evaluation needs a shorter side of ", least,
                     " pixels (augment.image_size ", o.augment.image_size, crop, "); give at least ", least,
                     ", or 0 to shrink nothing, or a smaller augment.image_size");
  });
}

namespace {

/// `on_error` is the earlier way to say what `bad_samples` says.
ImageFolderData with_one_policy(ImageFolderData options) {
  if (options.bad_samples.policy == BadSamplePolicy::skip) options.on_error = OnFault::skip;
  if (options.on_error == OnFault::skip && options.bad_samples.policy == BadSamplePolicy::fail)
    options.bad_samples = {.policy = BadSamplePolicy::skip, .budget = std::nullopt};
  return options;
}

ImageFolderOptions reading_of(const ImageFolderData& options) {
  ImageFolderOptions folder = options;
  folder.cache_bytes = options.cache_mb << 20;
  folder.decode_bytes = options.decode_mb << 20;
  return folder;
}

ImageSplits open_folder(const ImageFolderData& options) {
  ImageSplits splits = image_folder_splits(options.path, reading_of(options));
  if (!splits.test && !splits.valid && options.test_fraction > 0) {
    HeldOut parts = hold_out(splits.train, options.test_fraction, options.split_seed, "test");
    splits.train = parts.rest;
    splits.test = parts.held_out;
  }
  return splits;
}

}  // namespace

OpenedData open_image_folder(const ImageFolderData& asked, Opening opening) {
  const ImageFolderData options = with_one_policy(asked);
  return opened_data(opening == Opening::all ? open_folder(options) : Splits{}, options);
}

ImageFolderOptions folder_options(const Datasets::Component& data) {
  const auto* const folder = data.options<ImageFolderData>();
  return folder != nullptr ? reading_of(with_one_policy(*folder)) : ImageFolderOptions{};
}

}  // namespace hearth::data
