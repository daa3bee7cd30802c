// SPDX-License-Identifier: Apache-2.0
#include "train/predict/outside_inputs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/cpu/parallel.h"
#include "data/images/image_dataset.h"
#include "data/prepare.h"
#include "data/table/table_data.h"
#include "data/text/labelled.h"
#include "data/text/unicode.h"
#include "ops/ops.h"

namespace hearth::train {
namespace {

/// Of images; prepare(i, target) writes what the model gets of one of them.
template <class Prepare>
InputPieces prepared_images(const data::ImageShape& shape, std::int64_t total, const Prepare& prepare) {
  return {.total = total, .make = [shape, prepare](std::int64_t first, std::int64_t count) {
            const Tensor input = Tensor::empty({count, shape.height, shape.width, shape.channels});
            const std::int64_t stride = count > 0 ? input.size() / count : 0;
            cpu::parallel_chunks(count, [&](std::int64_t i) { prepare(first + i, input.data<float>() + i * stride); });
            return nn::Inputs{input};
          }};
}

InputPieces decoded_images(const data::DataSplits& data, std::span<const data::Image> images) {
  return prepared_images(
      data.input_shape(), static_cast<std::int64_t>(images.size()), [&data, images](std::int64_t i, float* target) {
        const data::Image& image = images[static_cast<std::size_t>(i)];
        const std::string name = join_text("image ", i);
        HEARTH_CHECK(ShapeError,
                     image.height > 0 && image.width > 0 && image.channels > 0 &&
                         image.pixels.size() == image.row_bytes() * static_cast<std::size_t>(image.height),
                     name, ": ", image.pixels.size(), " bytes are not the pixels of ", image.height, " x ", image.width,
                     " x ", image.channels);
        data::prepare_input(image, *data.train->images(), data.eval_transforms, name, target);
      });
}

InputPieces pixel_rows(const data::DataSplits& data, const Tensor& pixels) {
  constexpr std::int64_t longest = 1 << 24;
  HEARTH_CHECK(ShapeError,
               pixels.dim(1) <= longest && pixels.dim(2) <= longest && pixels.dim(3) <= data::max_image_channels,
               "predict_tensor: ", describe(pixels), " has too large images");
  const std::int64_t total = pixels.dim(0), bytes = total > 0 ? pixels.size() / total : 0;
  return prepared_images(data.input_shape(), total, [&data, pixels, bytes](std::int64_t i, float* target) {
    data::Image image;
    image.reshape(static_cast<int>(pixels.dim(1)), static_cast<int>(pixels.dim(2)), static_cast<int>(pixels.dim(3)));
    std::copy_n(pixels.data<const std::uint8_t>() + i * bytes, bytes, image.pixels.data());
    data::prepare_input(std::move(image), *data.train->images(), data.eval_transforms, join_text("image ", i), target);
  });
}

InputPieces image_rows(const data::DataSplits& data, const Tensor& images) {
  HEARTH_CHECK(ShapeError, images.defined() && images.rank() == 4, "predict_tensor: ", describe(images),
               " is not a batch of images [n, h, w, c]");
  HEARTH_CHECK(DTypeError, images.dtype() == DType::u8 || images.dtype() == DType::f32,
               "predict_tensor: ", describe(images), "; pixels are u8, what is prepared already is f32");
  const Tensor here = images.to(Device{}).contiguous();
  if (here.dtype() == DType::u8) return pixel_rows(data, here);
  const data::ImageShape shape = data.input_shape();
  HEARTH_CHECK(ShapeError, here.dim(1) == shape.height && here.dim(2) == shape.width && here.dim(3) == shape.channels,
               "predict_tensor: ", describe(images), "; the model takes images of ", shape,
               "; give pixels as u8 to have them brought to that size");
  return {.total = here.dim(0), .make = [here](std::int64_t first, std::int64_t count) {
            return nn::Inputs{slice(here, 0, first, first + count).contiguous()};
          }};
}

/// The ids of sequence number `index`.
std::vector<std::int32_t> ids_of(const data::LabelledText& trained, const std::string& text, std::int64_t index) {
  const std::string name = join_text("text ", index + 1);
  data::unicode::require_utf8(text, name);
  try {
    return trained.input_of(text);
  } catch (const DataError& error) {
    throw DataError(join_text(name, ": ", error.what()));
  }
}

/// Rows [first, first + count) of a batch.
data::Batch rows_of(const data::Batch& batch, std::int64_t first, std::int64_t count) {
  const auto is_ragged = [](const data::Batch::Named& named) { return named.axis == data::Batch::Axis::ragged; };
  if (std::any_of(batch.tensors().begin(), batch.tensors().end(), is_ragged)) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
    std::iota(rows.begin(), rows.end(), first);
    return batch.to(Device{}).gather(rows);
  }
  data::Batch part = batch.map([&](const data::Batch::Named& named) {
    return named.axis == data::Batch::Axis::rows ? slice(named.tensor, 0, first, first + count) : named.tensor;
  });
  part.samples.resize(static_cast<std::size_t>(count));
  return part;
}

}  // namespace

std::optional<InputPieces> image_inputs(const data::DataSplits& data, const data::ImageFolderOptions& files,
                                        const OutsideSamples& samples) {
  if (const auto* const decoded = std::get_if<DecodedImages>(&samples)) return decoded_images(data, decoded->images);
  if (const auto* const tensor = std::get_if<ImageTensor>(&samples)) return image_rows(data, tensor->images);
  const auto* const named = std::get_if<ImageFiles>(&samples);
  if (named == nullptr) return std::nullopt;
  return prepared_images(data.input_shape(), static_cast<std::int64_t>(named->paths.size()),
                         [&data, &files, paths = named->paths](std::int64_t i, float* target) {
                           data::prepare_file(paths[static_cast<std::size_t>(i)], files, *data.train->images(),
                                              data.eval_transforms, target);
                         });
}

std::optional<InputPieces> text_inputs(const data::LabelledText& trained, const OutsideSamples& samples) {
  const auto* const rows = std::get_if<Sequences>(&samples);
  if (rows == nullptr) return std::nullopt;
  return InputPieces{.total = static_cast<std::int64_t>(rows->text.size()),
                     .make = [&trained, text = rows->text](std::int64_t first, std::int64_t count) {
                       std::vector<std::vector<std::int32_t>> ids;
                       for (std::int64_t i = first; i < first + count; ++i)
                         ids.push_back(ids_of(trained, text[static_cast<std::size_t>(i)], i));
                       return nn::Inputs{data::padded_rows(ids, trained.tokenizer().special().pad)};
                     }};
}

std::optional<InputPieces> row_inputs(const InputsOfBatch& inputs, const data::TableDataset& trained,
                                      const data::Datasets::Component& chosen, const OutsideSamples& samples) {
  // Rows are small.
  constexpr std::int64_t rows_at_once = 256;
  data::TablePointer table;
  if (const auto* const file = std::get_if<RowsOfFile>(&samples))
    table = data::open_rows(chosen, trained.shared_facts(), file->path, false);
  if (const auto* const tensor = std::get_if<RowsOfTensor>(&samples)) {
    HEARTH_CHECK(UsageError, tensor->rows.defined(), "predict_rows: an undefined tensor");
    table = data::rows_of_tensor(trained.shared_facts(), tensor->rows);
  }
  if (table == nullptr) return std::nullopt;
  return InputPieces{.total = table->size(),
                     .make =
                         [inputs, table](std::int64_t first, std::int64_t count) {
                           std::vector<data::TensorSample> rows;
                           Random unused(0, 0);
                           for (std::int64_t i = first; i < first + count; ++i) rows.push_back(table->read(i, unused));
                           return inputs(table->collate(rows));
                         },
                     .at_once = rows_at_once};
}

std::optional<InputPieces> batch_inputs(const InputsOfBatch& inputs, const OutsideSamples& samples) {
  const auto* const given = std::get_if<BatchSamples>(&samples);
  if (given == nullptr) return std::nullopt;
  const data::Batch& batch = given->batch;
  HEARTH_CHECK(UsageError, !batch.tensors().empty(), "predict_batch: a batch without tensors");
  return InputPieces{
      .total = batch.rows(),
      .make = [inputs, &batch](std::int64_t first, std::int64_t count) { return inputs(rows_of(batch, first, count)); },
      .classifies = false};
}

}  // namespace hearth::train
