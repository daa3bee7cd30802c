// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stand_in_data.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/build.h"
#include "core/error.h"
#include "core/io/safetensors.h"
#include "data/images/codecs/image.h"
#include "models/nn/nn.h"
#include "models/transformer/bert.h"
#include "models/weights/weights.h"
#include "tests/support/places.h"

namespace hearth::test {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << content;
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

/// A number below `limit`, another for each `index`.
unsigned draw(unsigned index, unsigned limit) {
  unsigned x = index * 2654435761u + 12345u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return x % limit;
}

const std::vector<std::string> words{"the", "house", "was",  "never", "so",    "quiet", "as",   "in",   "winter",
                                     "a",   "lady",  "said", "to",    "her",   "own",   "open", "file", "menu",
                                     "and", "good",  "cell", "table", "click", "print", "with", "from", "it"};

std::string sentence(unsigned index, unsigned count) {
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    text += (i == 0 ? "" : " ") + words[draw(index * 31 + i, unsigned(words.size()))];
  return text;
}

void write_cifar(const fs::path& folder) {
  for (const std::string name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::string records;
    for (unsigned i = 0; i < 20; ++i) {
      records += static_cast<char>(i % 10);
      for (unsigned p = 0; p < 3072; ++p) records += static_cast<char>(p * (i % 10 + 1) % 251);
    }
    write(folder / (name + ".bin"), records);
  }
}

/// The four files of MNIST's relatives, images of 28x28.
void write_idx(const fs::path& folder) {
  for (const std::string part : {"train", "t10k"}) {
    const int count = part == "train" ? 160 : 40;
    const auto number = [](int value) {
      return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
                         static_cast<char>(value)};
    };
    std::string images = number(0x803) + number(count) + number(28) + number(28),
                labels = number(0x801) + number(count);
    for (int i = 0; i < count; ++i) {
      labels += static_cast<char>(i % 10);
      for (int p = 0; p < 784; ++p) images += static_cast<char>(p * (i % 10 + 1) % 253);
    }
    write(folder / (part + "-images-idx3-ubyte"), images);
    write(folder / (part + "-labels-idx1-ubyte"), labels);
  }
}

/// Classes of pictures of several shapes, `channels` 3 or 4, in folders for training and `held_out`.
void write_image_folders(const fs::path& folder, const std::vector<std::string>& held_out, int channels) {
  std::vector<std::string> parts = held_out;
  parts.insert(parts.begin(), "train");
  for (const std::string& part : parts) {
    for (int c = 0; c < 3; ++c) {
      const fs::path place = folder / part / ("class_" + std::to_string(c));
      fs::create_directories(place);
      for (int i = 0; i < (part == "train" ? 8 : 3); ++i) {
        data::Image image;
        image.reshape(50 + 9 * i, 80 - 4 * i, channels);
        for (std::size_t p = 0; p < image.pixels.size(); ++p)
          image.pixels[p] = static_cast<std::uint8_t>(p * static_cast<std::size_t>(c + 2) % 253);
        data::write_png(place / (part + std::to_string(i) + ".png"), image);
      }
    }
  }
}

void write_novels(const fs::path& folder) {
  unsigned book = 0;
  for (const std::string name :
       {"emma", "mansfield_park", "northanger_abbey", "pride_and_prejudice", "sense_and_sensibility", "persuasion"}) {
    std::string text;
    for (unsigned line = 0; line < 120; ++line) text += sentence(book * 1000 + line, 12) + ".\n";
    write(folder / (name + ".txt"), text);
    ++book;
  }
}

/// `first<tab>second` for each of 160, 30 and 30 lines.
template <class Line>
void write_pairs(const fs::path& folder, const std::vector<std::string>& parts, Line line) {
  unsigned index = 0;
  for (const std::string& part : parts) {
    std::string text;
    for (unsigned i = 0; i < (part == "train" ? 160u : 30u); ++i) text += line(index++) + "\n";
    write(folder / (part + ".tsv"), text);
  }
}

std::string translation(unsigned index) {
  const std::string source = sentence(index, 3 + index % 6);
  return source + "\t" + std::string(source.rbegin(), source.rend());
}

std::string spelling(unsigned index) {
  const std::string word = sentence(index, 2);
  std::string letters, sounds;
  for (const char c : word) {
    if (c == ' ') continue;
    letters += (letters.empty() ? "" : " ") + std::string(1, c);
    sounds += (sounds.empty() ? "" : " ") + std::string(2, static_cast<char>(std::toupper(c)));
  }
  return letters + "\t" + sounds;
}

std::string labelled(unsigned index) {
  static const std::vector<std::string> labels{"calc", "draw", "impress", "math", "writer", "base"};
  return labels[index % labels.size()] + "\t" + sentence(index, 4 + index % 9);
}

/// Rectangles of three classes on grey images, labelled as YOLO's programs do.
void write_shapes(const fs::path& folder) {
  for (const std::string part : {"train", "valid"})
    for (unsigned i = 0; i < 12; ++i) {
      data::Image image;
      image.reshape(48 + static_cast<int>(i % 5) * 8, 64, 3);
      std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{120});
      std::string labels;
      for (unsigned box = 0; box < i % 4; ++box) {
        const unsigned label = (i + box) % 3;
        const int left = static_cast<int>(4 + 18 * box), top = static_cast<int>(4 + i), side = 14;
        for (int y = top; y < top + side; ++y)
          for (int x = left; x < left + side; ++x)
            for (unsigned c = 0; c < 3; ++c) image.row(y)[3 * x + static_cast<int>(c)] = c == label ? 255 : 0;
        labels += join_text(label, ' ', (left + side / 2) / 64.0, ' ', (top + side / 2.0) / image.height, ' ',
                            side / 64.0, ' ', static_cast<double>(side) / image.height, '\n');
      }
      const std::string name = part + std::to_string(i);
      fs::create_directories(folder / "images" / part);
      data::write_png(folder / "images" / part / (name + ".png"), image);
      if (!labels.empty()) write(folder / "labels" / part / (name + ".txt"), labels);
    }
  write(folder / "data.yaml", "train: images/train\nval: images/valid\nnames: [red, green, blue]\n");
}

/// Red and green squares on grey images in `folder`, labelled as COCO does.
void write_squares(const fs::path& folder, const fs::path& labels) {
  std::string images, boxes;
  fs::create_directories(folder);
  fs::create_directories(labels.parent_path());
  for (unsigned i = 0; i < 16; ++i) {
    data::Image image;
    image.reshape(64, 64, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{120});
    const int side = 16 + static_cast<int>(i), left = static_cast<int>(i) * 2, top = 30 - static_cast<int>(i);
    for (int y = top; y < top + side; ++y)
      for (int x = left; x < left + side; ++x)
        for (unsigned c = 0; c < 3; ++c) image.row(y)[3 * x + static_cast<int>(c)] = c == i % 2 ? 255 : 0;
    const std::string name = std::to_string(i) + ".png", comma = i == 0 ? "" : ", ";
    data::write_png(folder / name, image);
    images += join_text(comma, R"({"id": )", i, R"(, "file_name": ")", name, R"(", "width": 64, "height": 64})");
    boxes += join_text(comma, R"({"id": )", i, R"(, "image_id": )", i, R"(, "category_id": )", 1 + i % 2,
                       R"(, "iscrowd": 0, "area": )", side * side, R"(, "bbox": [)", left, ", ", top, ", ", side, ", ",
                       side, "]}");
  }
  write(labels, join_text(R"({"images": [)", images, R"(], "annotations": [)", boxes,
                          R"(], "categories": [{"id": 1, "name": "red"}, {"id": 2, "name": "green"}]})", '\n'));
}

/// Squares of ten classes on grey images, and their masks.
void write_digit_canvases(const fs::path& folder) {
  for (const std::string part : {"train", "test"}) {
    fs::create_directories(folder / part / "images");
    fs::create_directories(folder / part / "masks");
    for (int i = 0; i < 16; ++i) {
      data::Image image, mask;
      image.reshape(64, 64, 3);
      mask.reshape(64, 64, 1);
      std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{120});
      std::fill(mask.pixels.begin(), mask.pixels.end(), std::uint8_t{0});
      const int label = 1 + i % 10, side = 16 + i;
      for (int y = 20 - i; y < 20 - i + side; ++y)
        for (int x = 2 * i; x < 2 * i + side; ++x) {
          mask.row(y)[x] = static_cast<std::uint8_t>(label);
          for (int c = 0; c < 3; ++c) image.row(y)[3 * x + c] = static_cast<std::uint8_t>(25 * label);
        }
      const std::string name = (i < 10 ? "0000" : "000") + std::to_string(i) + ".png";
      data::write_png(folder / part / "images" / name, image);
      data::write_png(folder / part / "masks" / name, mask);
    }
  }
}

void write_minilm(const fs::path& folder) {
  fs::create_directories(folder);
  fs::copy_file(source_dir() + "/tests/golden/text/wordpiece.json", folder / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  models::Bert model({.vocabulary = 700, .layers = 6, .heads = 12, .width = 48, .head = models::BertHead::embedding});
  nn::initialize(model, 1);
  models::WeightSet ours;
  for (const NamedTensor& parameter : model.parameters()) ours.weights.push_back({parameter.name, *parameter.tensor});
  models::NameReport report;
  const models::WeightSet theirs = models::from_hearth(ours, models::WeightFormat::hf_bert, report);
  if (!report.fits()) throw std::runtime_error(report.faults("minilm: "));
  std::vector<SafetensorsEntry> entries;
  const auto add = [&](const std::string& name, const Tensor& value) {
    entries.push_back({name,
                       value.dtype(),
                       value.shape(),
                       {static_cast<const std::byte*>(value.bytes()), static_cast<std::size_t>(value.byte_size())}});
  };
  for (const models::Weight& weight : theirs.weights) add(weight.name, weight.value);
  // What the published file has besides.
  const Tensor pooler_w = Tensor::zeros({48, 48}), pooler_b = Tensor::zeros({48});
  add("pooler.dense.weight", pooler_w);
  add("pooler.dense.bias", pooler_b);
  write_plain_safetensors(folder / "model.safetensors", entries);
}

}  // namespace

void write_stand_in_data(const fs::path& folder) {
  write_cifar(folder / "cifar-10-batches-bin");
  write_idx(folder / "fashion-mnist");
  if (HEARTH_HAS_PNG) {
    write_image_folders(folder / "imagenet", {"val"}, 3);
    write_image_folders(folder / "clipart", {"valid", "test"}, 4);
    write_shapes(folder / "shapes");
    for (const std::string set : {"clipart_boxes", "tree_crowns"})
      for (const std::string part : {"train", "test"})
        write_squares(folder / set / part, folder / set / (part + ".json"));
    for (const std::string part : {"train2017", "val2017"})
      write_squares(folder / "coco" / part, folder / "coco/annotations" / ("instances_" + part + ".json"));
    write_digit_canvases(folder / "digit_canvases");
  }
  write_novels(folder / "jane_austen");
  std::string web;
  for (unsigned line = 0; line < 1200; ++line) web += sentence(line, 12) + ".\n";
  write(folder / "web_text.txt", web);
  write_pairs(folder / "libreoffice_help", {"train", "valid", "test"}, translation);
  write_pairs(folder / "wmt_en_de", {"train", "valid", "test"}, translation);
  write_pairs(folder / "cmudict", {"train", "valid", "test_all"}, spelling);
  write_pairs(folder / "help_sections", {"train", "valid", "test"}, labelled);
  write_minilm(folder / "minilm");
}

}  // namespace hearth::test
