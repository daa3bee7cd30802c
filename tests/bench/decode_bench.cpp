// SPDX-License-Identifier: Apache-2.0
// hearth_bench_decode FOLDER [WORKERS] [ROUNDS] [SIZE] [DTYPE]: images a second of the loader (random boxes, mirrored,
// normalised) and of libjpeg-turbo alone, which decodes the same boxes at the same scale from memory. In turn, 12
// epochs each; a line of JSON a round. scripts/bench_data runs it.
#include <cstdio>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <jpeglib.h>

#include "core/error.h"
#include "data/formats/image_folder.h"
#include "data/images/codecs/decode.h"
#include "data/loading/loader.h"
#include "data/loading/order.h"

namespace {

using namespace hearth;
using namespace hearth::data;

struct Piece {
  std::int64_t image;
  Box box;        // in pixels of the scaled image
  int reduction;  // 1, 2, 4 or 8
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::vector<std::uint8_t>> files_of(const ImageDataset& images) {
  std::vector<std::vector<std::uint8_t>> files(static_cast<std::size_t>(images.size()));
  for (std::int64_t i = 0; i < images.size(); ++i) images.encoded(i, files[static_cast<std::size_t>(i)]);
  return files;
}

/// What the loader decodes of each sample in each epoch.
std::vector<Piece> pieces_of(const ImageDataset& images, const std::vector<std::vector<std::uint8_t>>& files,
                             const Transforms& transforms, std::uint64_t epochs) {
  std::vector<Piece> pieces;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
    for (std::int64_t i = 0; i < images.size(); ++i) {
      Image part;
      Random random = random_of(0, Purpose::augment, epoch, static_cast<std::uint32_t>(i));
      const Region region = decode_region(
          files[static_cast<std::size_t>(i)], images.source(),
          [&](int height, int width) { return transforms.sizing(height, width, random); }, part);
      const int reduction = reduction_of(region.sizing);
      const int top = region.sizing.box.top / reduction - static_cast<int>(region.area.top);
      const int left = region.sizing.box.left / reduction - static_cast<int>(region.area.left);
      pieces.push_back({i, {std::max(top, 0), std::max(left, 0), part.height, part.width}, reduction});
    }
  return pieces;
}

void decode_alone(const std::vector<std::uint8_t>& file, const Piece& piece, std::vector<std::uint8_t>& pixels) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.scale_num = static_cast<unsigned>(8 / piece.reduction);
  info.scale_denom = 8;
  jpeg_start_decompress(&info);
  auto left = static_cast<JDIMENSION>(piece.box.left), width = static_cast<JDIMENSION>(piece.box.width);
  width = std::min(width, info.output_width - left);
  jpeg_crop_scanline(&info, &left, &width);
  if (piece.box.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(piece.box.top));
  const std::size_t row = std::size_t{3} * width;
  pixels.resize(row * static_cast<std::size_t>(piece.box.height));
  for (int y = 0; y < piece.box.height && info.output_scanline < info.output_height; ++y) {
    std::uint8_t* line = pixels.data() + row * static_cast<std::size_t>(y);
    jpeg_read_scanlines(&info, &line, 1);
  }
  jpeg_abort_decompress(&info);
  jpeg_destroy_decompress(&info);
}

int run(int count, char** words) {
  HEARTH_CHECK(UsageError, count >= 2, "usage: hearth_bench_decode FOLDER [WORKERS] [ROUNDS] [SIZE] [DTYPE]");
  const auto number = [&](int at, int otherwise) { return count > at ? std::stoi(words[at]) : otherwise; };
  const int workers = number(2, 2), rounds = number(3, 3);
  const auto images = image_folder(words[1], {});
  const TransformOptions options{.image_size = number(4, 224),
                                 .random_resized_crop = true,
                                 .horizontal_flip = true,
                                 .mean = {0.485, 0.456, 0.406},
                                 .std = {0.229, 0.224, 0.225}};
  const Transforms transforms(images->image_shape(), options, true);
  const LoaderOptions how{.batch_size = 32,
                          .workers = workers,
                          .shuffle = true,
                          .dtype = count > 5 && std::string(words[5]) == "u8" ? DType::u8 : DType::f32};
  constexpr int epochs = 12;
  const auto files = files_of(*images);
  const std::vector<Piece> pieces = pieces_of(*images, files, transforms, epochs);
  const auto size = static_cast<double>(images->size());
  // From the start of the workers on, so that no batch lies ready.
  const auto load = [&] {
    Loader loader(images, transforms, how);
    return seconds_of([&] {
      for (std::int64_t i = 0; i < epochs * loader.batches_per_epoch(); ++i) (void)loader.next();
    });
  };
  const auto alone = [&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < workers; ++t)
      threads.emplace_back([&, t] {
        std::vector<std::uint8_t> pixels;
        for (std::size_t i = static_cast<std::size_t>(t); i < pieces.size(); i += static_cast<std::size_t>(workers))
          decode_alone(files[static_cast<std::size_t>(pieces[i].image)], pieces[i], pixels);
      });
    for (std::thread& thread : threads) thread.join();
  };
  load();
  for (int round = 0; round < rounds; ++round) {
    const double loading = load() / epochs;
    const double decoding = seconds_of(alone) / epochs;
    std::printf("{\"loader\": %.1f, \"libjpeg\": %.1f}\n", size / loading, size / decoding);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hearth_bench_decode: %s\n", error.what());
    return 1;
  }
}
