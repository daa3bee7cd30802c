// SPDX-License-Identifier: Apache-2.0
// Parsing IDX and finding the files.
#include "data/formats/idx.h"

#include <algorithm>
#include <iomanip>

#include "core/error.h"
#include "data/images/memory_images.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

/// Most bytes of a file's values, which are held in memory.
constexpr std::uint64_t max_values = std::uint64_t{64} << 30;

struct IdxArray {
  std::vector<std::uint32_t> extents;
  std::vector<std::uint8_t> values;
};

std::uint32_t big_endian(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) << 24 | static_cast<std::uint32_t>(bytes[at + 1]) << 16 |
         static_cast<std::uint32_t>(bytes[at + 2]) << 8 | static_cast<std::uint32_t>(bytes[at + 3]);
}

/// The extents in a file's header.
std::vector<std::uint32_t> read_extents(const std::string& path, std::size_t min_idx_rank, std::size_t max_idx_rank) {
  const std::vector<std::uint8_t> front = read_front(path, 4 + 4 * max_idx_rank);
  HEARTH_CHECK(DataError, front.size() >= 4, path, ": ", front.size(), " bytes are too few for an IDX file");
  const std::uint32_t magic = big_endian(front, 0);
  const std::size_t rank = magic & 0xff;
  HEARTH_CHECK(DataError, magic >> 8 == 0x08 && rank >= min_idx_rank && rank <= max_idx_rank, path, ": magic 0x",
               std::hex, std::setw(8), std::setfill('0'), magic, std::dec, " is not that of IDX unsigned bytes with ",
               min_idx_rank, min_idx_rank == max_idx_rank ? "" : " or more", " dimension(s)");
  HEARTH_CHECK(DataError, front.size() >= 4 + 4 * rank, path, ": the file ends inside its header");
  std::vector<std::uint32_t> extents;
  for (std::size_t axis = 0; axis < rank; ++axis) extents.push_back(big_endian(front, 4 + 4 * axis));
  return extents;
}

IdxArray read_idx(const std::string& path, std::size_t min_idx_rank, std::size_t max_idx_rank) {
  IdxArray array{read_extents(path, min_idx_rank, max_idx_rank), {}};
  const std::size_t header = 4 + 4 * array.extents.size();
  std::uint64_t expected = 1;
  for (const std::uint32_t extent : array.extents) {
    HEARTH_CHECK(DataError, expected == 0 || extent <= max_values / expected, path, ": the header promises more than ",
                 max_values, " bytes of values");
    expected *= extent;
  }
  // Of what is more than the header promises, a byte is enough to tell.
  array.values = read_maybe_gzip(path, {header + expected + 1, "what its header tells of"});
  HEARTH_CHECK(DataError, header + expected == array.values.size(), path, ": the header promises ", expected,
               " bytes of values, found ", array.values.size() - std::min(header, array.values.size()));
  array.values.erase(array.values.begin(), array.values.begin() + static_cast<std::ptrdiff_t>(header));
  return array;
}

std::string existing_file(const std::string& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = name_in(folder, name + suffix);
    if (find_source(path)) return path;
  }
  return {};
}

constexpr const char* idx_names[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                      "t10k-labels-idx1-ubyte"};
constexpr const char* names_listed =
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte "
    "(each may end in .gz)";

/// The path of one of the four files; DataError if it is missing.
std::string wanted_file(const std::string& folder, std::size_t which) {
  const std::string file = existing_file(folder, idx_names[which]);
  HEARTH_CHECK(DataError, !file.empty(), folder, ": ", idx_names[which], " is missing; wanted are ", names_listed);
  return file;
}

bool has_all_files(const std::string& folder) {
  return std::all_of(std::begin(idx_names), std::end(idx_names),
                     [&](const char* name) { return !existing_file(folder, name).empty(); });
}

}  // namespace

ImageDatasetPointer idx(const std::string& images_path, const std::string& labels_path,
                        std::vector<std::string> class_names) {
  IdxArray images = read_idx(images_path, 3, 4);
  const IdxArray labels = read_idx(labels_path, 1, 1);
  HEARTH_CHECK(DataError, images.extents[0] == labels.extents[0], images_path, ": ", images.extents[0], " images, but ",
               labels_path, " has ", labels.extents[0], " labels");
  HEARTH_CHECK(DataError, images.extents[0] > 0, images_path, ": no images");
  for (std::size_t axis = 1; axis < images.extents.size(); ++axis) {
    HEARTH_CHECK(DataError, images.extents[axis] > 0 && images.extents[axis] <= 1u << 16, images_path,
                 ": an image extent of ", images.extents[axis], " is outside 1..65536");
  }
  if (class_names.empty())
    class_names = numbered_classes(1 + *std::max_element(labels.values.begin(), labels.values.end()));
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    HEARTH_CHECK(DataError, labels.values[i] < class_names.size(), labels_path, ": the label of sample ", i, " is ",
                 int{labels.values[i]}, ", outside the ", class_names.size(), " classes");
  }
  const ImageShape shape{static_cast<int>(images.extents[1]), static_cast<int>(images.extents[2]),
                         images.extents.size() == 4 ? static_cast<int>(images.extents[3]) : 1};
  return std::make_shared<MemoryImages>(images_path, shape, std::move(images.values),
                                        std::vector<std::int32_t>(labels.values.begin(), labels.values.end()),
                                        std::move(class_names));
}

ImageDatasetPointer idx_test(const std::string& path, std::vector<std::string> class_names) {
  return idx(wanted_file(path, 2), wanted_file(path, 3), std::move(class_names));
}

ImageSplits idx_folder(const std::string& path, std::vector<std::string> class_names) {
  for (std::size_t i = 0; i < 4; ++i) (void)wanted_file(path, i);
  ImageDatasetPointer train = idx(wanted_file(path, 0), wanted_file(path, 1), class_names);
  // Labels the test split happens not to use must still count as classes.
  if (class_names.empty()) class_names = train->class_names();
  ImageDatasetPointer test = idx_test(path, std::move(class_names));
  HEARTH_CHECK(DataError, test->image_shape() == train->image_shape(), test->source(), ": images of ",
               test->image_shape(), ", but those of ", train->source(), " are ", train->image_shape(),
               "; both parts need images of one size");
  return {std::move(train), nullptr, std::move(test)};
}

ImageSplits fashion_mnist(const std::string& path) {
  const std::string folder = path.empty() ? fashion_mnist_folder : path;
  HEARTH_CHECK(DataError, has_all_files(folder), folder,
               ": Fashion-MNIST is not there: on Debian and Ubuntu install it with `apt install "
               "dataset-fashion-mnist`, or put ",
               names_listed,
               " from https://github.com/zalandoresearch/fashion-mnist into a folder and set data.path to it");
  ImageSplits splits = idx_folder(folder, {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
                                           "Sneaker", "Bag", "Ankle boot"});
  splits.statistics = {{0.2860}, {0.3530}};
  return splits;
}

}  // namespace hearth::data
