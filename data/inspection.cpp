// SPDX-License-Identifier: Apache-2.0
#include "data/inspection.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/boxes/inspect_boxes.h"
#include "data/images/contact_sheet.h"
#include "data/images/inspect.h"
#include "data/masks/inspect_masks.h"
#include "data/table/table.h"
#include "data/text/text_inspect.h"
#include "data/text/token_set.h"

namespace hearth::data {

PartReport inspect_part(const Dataset& part, bool whole, std::int64_t batch_size) {
  if (const TokenDataset* const tokens = part.tokens()) {
    const TextInspection found = inspect_text(*tokens, batch_size);
    return {to_json(found), to_text(found)};
  }
  if (const auto* const table = dynamic_cast<const TableDataset*>(&part)) {
    // All of it was read when it was opened.
    const Json described = describe_table(*table);
    return {described, to_text(described, 2)};
  }
  if (const BoxDataset* const boxes = part.boxes()) {
    BoxInspection report = inspect_boxes(*boxes, whole ? -1 : 256);
    return {std::move(report.json), std::move(report.text), report.problems};
  }
  if (const MaskDataset* const masks = part.masks()) {
    MaskInspection report = inspect_masks(*masks, whole ? -1 : 256);
    return {std::move(report.json), std::move(report.text), report.problems};
  }
  const ImageDataset* const images = part.images();
  HEARTH_CHECK(UsageError, images != nullptr, "data: ", part.source(),
               " holds neither images, nor sequences of tokens, nor a table, which is what this command looks at");
  const Inspection found = whole ? verify(*images) : inspect(*images);
  return {to_json(found), to_text(found), found.problems.count};
}

std::int64_t write_sheet(const std::string& path, const Dataset& part, std::int64_t most) {
  HEARTH_CHECK(UsageError, part.images() != nullptr || part.boxes() != nullptr || part.masks() != nullptr,
               "data inspect: --sheet is for images, and ", part.source(), " has none");
  // Boxes and masks want more pixels to be seen.
  constexpr int side = 96, side_with_objects = 192;
  const std::vector<std::int64_t> samples = spread_samples(part.size(), most);
  write_png(path, part.boxes() != nullptr   ? box_sheet(*part.boxes(), samples, side_with_objects)
                  : part.masks() != nullptr ? mask_sheet(*part.masks(), samples, side_with_objects)
                                            : contact_sheet(*part.images(), samples, side));
  return static_cast<std::int64_t>(samples.size());
}

std::vector<std::vector<std::uint8_t>> encoded_samples(const Dataset& part, std::int64_t max_files,
                                                       std::uint64_t max_bytes) {
  const ImageDataset* const images = part.images();
  std::vector<std::vector<std::uint8_t>> files;
  if (images == nullptr) return files;
  std::uint64_t bytes = 0;
  const std::int64_t count = std::min(images->size(), max_files);
  for (std::int64_t i = 0; i < count && bytes < max_bytes; ++i) {
    // From everywhere in the set, as classes may differ.
    if (!images->encoded(i * (images->size() / count), files.emplace_back())) return {};
    bytes += files.back().size();
  }
  return files;
}

}  // namespace hearth::data
