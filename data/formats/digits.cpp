// SPDX-License-Identifier: Apache-2.0
// Reading the embedded CSV.
#include "data/formats/digits.h"

#include <charconv>
#include <numeric>

#include "core/error.h"
#include "data/images/hold_out.h"
#include "data/images/memory_images.h"
#include "data/source/source_bytes.h"

// Written by the build from data/digits/digits.csv.gz.
extern const unsigned char hearth_embedded_digits_csv_gz[];
extern const unsigned long hearth_embedded_digits_csv_gz_size;

namespace hearth::data {
namespace {

ImageDatasetPointer parse_digits() {
  constexpr const char* name = "digits (embedded)";
  constexpr std::int64_t fields = 65;
  const auto text = inflate_gzip({hearth_embedded_digits_csv_gz, hearth_embedded_digits_csv_gz_size}, name, small_file);
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  const char* at = reinterpret_cast<const char*>(text.data());
  const char* const end = at + text.size();
  std::int64_t field = 0;
  while (at < end) {
    int value = -1;
    const auto [next, error] = std::from_chars(at, end, value);
    const int most = field == fields - 1 ? 9 : 16;
    HEARTH_CHECK(InternalError, error == std::errc() && value >= 0 && value <= most, name, ": bad value in row ",
                 labels.size());
    if (field < fields - 1)
      pixels.push_back(static_cast<std::uint8_t>((value * 255 + 8) / 16));
    else
      labels.push_back(value);
    field = (field + 1) % fields;
    at = next < end ? next + 1 : end;
  }
  HEARTH_CHECK(InternalError, field == 0, name, ": incomplete last row");
  return std::make_shared<MemoryImages>(name, ImageShape{8, 8, 1}, std::move(pixels), std::move(labels),
                                        numbered_classes(10));
}

}  // namespace

ImageDatasetPointer digits() {
  static const ImageDatasetPointer whole = parse_digits();
  return whole;
}

ImageSplits digits(const DigitsOptions& options) {
  const ImageDatasetPointer whole = digits();
  const ChannelStatistics statistics{{0.3053}, {0.3759}};  // of all samples
  if (options.split == DigitsSplit::shuffled) {
    HeldOut parts = hold_out_count(whole, options.test_size, options.seed);
    return {parts.rest, nullptr, parts.held_out, statistics};
  }
  HEARTH_CHECK(DataError, options.test_size > 0 && options.test_size < whole->size(), "digits: a test split of ",
               options.test_size, " samples out of ", whole->size());
  std::vector<std::int64_t> train(static_cast<std::size_t>(whole->size() - options.test_size));
  std::vector<std::int64_t> test(static_cast<std::size_t>(options.test_size));
  std::iota(train.begin(), train.end(), std::int64_t{0});
  std::iota(test.begin(), test.end(), static_cast<std::int64_t>(train.size()));
  return {std::make_shared<ImageSubset>(whole, std::move(train)), nullptr,
          std::make_shared<ImageSubset>(whole, std::move(test)), statistics};
}

}  // namespace hearth::data
