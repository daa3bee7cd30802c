// SPDX-License-Identifier: Apache-2.0
// Reading records and turning channel planes into pixels.
#include "data/formats/cifar.h"

#include "core/error.h"
#include "data/images/memory_images.h"
#include "data/source/source_bytes.h"

namespace hearth::data {
namespace {

constexpr std::size_t side = 32;
constexpr std::size_t plane = side * side;
constexpr std::size_t image_bytes = 3 * plane;

struct Records {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
};

// Each record has `label_bytes` labels; the one at `label_at` counts.
void append_records(const std::string& path, std::size_t label_bytes, std::size_t label_at, std::int32_t classes,
                    Records& records) {
  HEARTH_CHECK(DataError, find_source(path).has_value(), path,
               ": is missing; wanted is the binary version from https://www.cs.toronto.edu/~kriz/cifar.html");
  const std::vector<std::uint8_t> bytes = read_maybe_gzip(path, {std::uint64_t{1} << 30, "files of records"});
  const std::size_t record = label_bytes + image_bytes;
  HEARTH_CHECK(DataError, !bytes.empty() && bytes.size() % record == 0, path, ": ", bytes.size(),
               " bytes are not a whole number of records of ", record, " bytes");
  const std::size_t count = bytes.size() / record;
  records.pixels.reserve(records.pixels.size() + count * image_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* at = bytes.data() + i * record;
    HEARTH_CHECK(DataError, at[label_at] < classes, path, ": the label of record ", i, " is ", int{at[label_at]},
                 ", outside the ", classes, " classes");
    records.labels.push_back(at[label_at]);
    const std::uint8_t* planes = at + label_bytes;
    for (std::size_t p = 0; p < plane; ++p) {
      for (std::size_t c = 0; c < 3; ++c) records.pixels.push_back(planes[c * plane + p]);
    }
  }
}

std::vector<std::string> names_in(const std::string& path, std::size_t count) {
  if (!find_source(path)) return numbered_classes(static_cast<std::int64_t>(count));
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes, small_file);
  std::vector<std::string> names(1);
  for (const std::uint8_t byte : bytes) {
    if (byte == '\n') {
      if (!names.back().empty()) names.emplace_back();
    } else if (byte != '\r') {
      names.back().push_back(static_cast<char>(byte));
    }
  }
  if (names.back().empty()) names.pop_back();
  HEARTH_CHECK(DataError, names.size() == count, path, ": ", names.size(), " class names, expected ", count);
  return names;
}

ImageDatasetPointer in_memory(const std::string& path, Records records, const std::vector<std::string>& names) {
  return std::make_shared<MemoryImages>(path, ImageShape{static_cast<int>(side), static_cast<int>(side), 3},
                                        std::move(records.pixels), std::move(records.labels), names);
}

ImageDatasetPointer cifar100_part(const std::string& path, const char* file, CifarLabels labels) {
  const bool coarse = labels == CifarLabels::coarse;
  const std::int32_t classes = coarse ? 20 : 100;
  Records records;
  append_records(name_in(path, file), 2, coarse ? 0 : 1, classes, records);
  return in_memory(path, std::move(records),
                   names_in(name_in(path, coarse ? "coarse_label_names.txt" : "fine_label_names.txt"),
                            static_cast<std::size_t>(classes)));
}

}  // namespace

void describe(Fields<Cifar100Data>& fields) {
  describe_images(fields);
  fields.text("path", &Cifar100Data::path, "Folder of train.bin and test.bin.").required();
  fields.choice("labels", &Cifar100Data::labels, {{"fine", CifarLabels::fine}, {"coarse", CifarLabels::coarse}},
                "100 classes, or 20 superclasses.");
}

ImageDatasetPointer cifar10_test(const std::string& path) {
  Records test;
  append_records(name_in(path, "test_batch.bin"), 1, 0, 10, test);
  return in_memory(path, std::move(test), names_in(name_in(path, "batches.meta.txt"), 10));
}

ImageSplits cifar10(const std::string& path) {
  Records train;
  for (int i = 1; i <= 5; ++i) {
    append_records(name_in(path, "data_batch_" + std::to_string(i) + ".bin"), 1, 0, 10, train);
  }
  return {in_memory(path, std::move(train), names_in(name_in(path, "batches.meta.txt"), 10)),
          nullptr,
          cifar10_test(path),
          {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}};
}

ImageDatasetPointer cifar100_test(const std::string& path, CifarLabels labels) {
  return cifar100_part(path, "test.bin", labels);
}

ImageSplits cifar100(const std::string& path, CifarLabels labels) {
  return {cifar100_part(path, "train.bin", labels),
          nullptr,
          cifar100_test(path, labels),
          {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}}};
}

}  // namespace hearth::data
