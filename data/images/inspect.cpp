// SPDX-License-Identifier: Apache-2.0
// One pass over labels, one over pixels.
#include "data/images/inspect.h"

#include <algorithm>
#include <array>
#include <iomanip>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "data/images/channel_statistics.h"

namespace hearth::data {
namespace {

void widen(Range& range, int value, bool is_first) {
  range.least = is_first ? value : std::min(range.least, value);
  range.greatest = is_first ? value : std::max(range.greatest, value);
}

void digest_sample(Sha256& digest, std::int64_t label, const Image& image) {
  std::array<std::byte, 32> header{};
  const std::array<std::int64_t, 4> values{label, image.height, image.width, image.channels};
  for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<std::byte>(values[i / 8] >> (8 * (i % 8)));
  digest.update(header);
  digest.update(std::as_bytes(std::span(image.pixels)));
}

void count_labels(const ImageDataset& dataset, Inspection& inspection) {
  inspection.histogram.assign(inspection.class_names.size(), 0);
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const std::int64_t label = dataset.label(i);
    if (label >= 0 && label < dataset.classes())
      ++inspection.histogram[static_cast<std::size_t>(label)];
    else
      inspection.problems.add(
          join_text("sample ", i, ": label ", label, " is outside the ", dataset.classes(), " classes"));
  }
  for (std::size_t label = 0; label < inspection.histogram.size(); ++label) {
    if (inspection.histogram[label] == 0)
      inspection.warnings.add("class '" + inspection.class_names[label] + "' has no sample");
  }
}

Json example_of(const ImageDataset& dataset, std::int64_t index, std::int64_t label, const Image& image) {
  Json example = Json::object().set("index", index);
  if (const std::string name = dataset.sample_name(index); !name.empty()) example.set("name", printable(name));
  example.set("label", label);
  if (label >= 0 && label < dataset.classes())
    example.set("class", dataset.class_names()[static_cast<std::size_t>(label)]);
  return example.set("height", image.height).set("width", image.width).set("channels", image.channels);
}

void read_pixels(const ImageDataset& dataset, std::int64_t count, Inspection& inspection) {
  PixelHistogram pixels;
  Sha256 digest;
  Image image;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = i * dataset.size() / count;
    std::int64_t label = 0;
    try {
      label = dataset.read(index, image);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      inspection.problems.add(join_text("sample ", index, ": ", error.what()));
      continue;
    }
    const bool is_first = inspection.decoded++ == 0;
    constexpr std::size_t most_examples = 8;
    if (inspection.examples.size() < most_examples)
      inspection.examples.push_back(example_of(dataset, index, label, image));
    widen(inspection.height, image.height, is_first);
    widen(inspection.width, image.width, is_first);
    widen(inspection.channels, image.channels, is_first);
    pixels.add(image);
    digest_sample(digest, label, image);
  }
  inspection.statistics = pixels.statistics();
  if (inspection.decoded == dataset.size()) inspection.sha256 = digest.hex();
}

std::string text_of(Range range) {
  return range.least == range.greatest ? join_text(range.least) : join_text(range.least, " to ", range.greatest);
}

}  // namespace

Inspection inspect(const ImageDataset& dataset, std::int64_t most) {
  Inspection inspection;
  inspection.source = dataset.source();
  inspection.samples = dataset.size();
  inspection.class_names = dataset.class_names();
  count_labels(dataset, inspection);
  const std::int64_t count = most < 0 ? dataset.size() : std::min(most, dataset.size());
  read_pixels(dataset, count, inspection);
  inspection.problems.add(dataset.unreadable());
  inspection.warnings.add(dataset.warnings());
  return inspection;
}

Inspection verify(const ImageDataset& dataset) { return inspect(dataset, -1); }

Json to_json(const Inspection& inspection) {
  Json classes = Json::object();
  for (std::size_t i = 0; i < inspection.histogram.size(); ++i) {
    classes.set(inspection.class_names[i], inspection.histogram[i]);
  }
  const auto range = [](Range values) { return Json::array().push_back(values.least).push_back(values.greatest); };
  Json result = Json::object();
  result.set("source", inspection.source).set("samples", inspection.samples).set("classes", std::move(classes));
  result.set("decoded", inspection.decoded);
  result.set("height", range(inspection.height)).set("width", range(inspection.width));
  result.set("channels", range(inspection.channels));
  result.set("mean", Json::array_of(inspection.statistics.mean)).set("std", Json::array_of(inspection.statistics.std));
  if (!inspection.sha256.empty()) result.set("sha256", inspection.sha256);
  result.set("examples", inspection.examples);
  result.set("problems", inspection.problems.count);
  result.set("first_problems", Json::array_of(inspection.problems.first));
  result.set("warnings", inspection.warnings.count);
  result.set("first_warnings", Json::array_of(inspection.warnings.first));
  return result;
}

std::string to_text(const Inspection& inspection) {
  TextStream out;
  out << printable(inspection.source) << ": " << inspection.samples << " samples, " << inspection.class_names.size()
      << " classes\n";
  out << "  decoded " << inspection.decoded << ": height " << text_of(inspection.height) << ", width "
      << text_of(inspection.width) << ", channels " << text_of(inspection.channels) << '\n';
  out << std::fixed << std::setprecision(4);
  for (std::size_t c = 0; c < inspection.statistics.mean.size(); ++c) {
    out << "  channel " << c << ": mean " << inspection.statistics.mean[c] << ", deviation "
        << inspection.statistics.std[c] << '\n';
  }
  for (std::size_t i = 0; i < inspection.histogram.size(); ++i) {
    out << "  " << printable(inspection.class_names[i]) << ": " << inspection.histogram[i] << '\n';
  }
  if (!inspection.sha256.empty()) out << "  sha256 of the decoded content: " << inspection.sha256 << '\n';
  out << "  problems: " << inspection.problems.count << '\n';
  for (const std::string& problem : inspection.problems.first) out << "    " << printable(problem) << '\n';
  out << "  warnings: " << inspection.warnings.count << '\n';
  for (const std::string& warning : inspection.warnings.first) out << "    " << printable(warning) << '\n';
  return out.str();
}

}  // namespace hearth::data
