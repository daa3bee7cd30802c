// SPDX-License-Identifier: Apache-2.0
// The datasets of the library: their fields, and what opens them.
#include "data/boxes/box_data.h"
#include "data/formats/cifar.h"
#include "data/formats/digits.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/records.h"
#include "data/formats/shards.h"
#include "data/formats/synthetic.h"
#include "data/masks/mask_data.h"
#include "data/registry.h"
#include "data/table/table_data.h"
#include "data/text/mixture.h"
#include "data/text/text_data.h"

namespace hearth::data {
namespace {

struct DigitsData : ImageDataOptions, DigitsOptions {};
void describe(Fields<DigitsData>& fields) {
  describe_images(fields);
  fields.choice("split", &DigitsData::split, {{"shuffled", DigitsSplit::shuffled}, {"ordered", DigitsSplit::ordered}},
                "`ordered` tests on the last samples, which other people wrote: harder.");
  fields.integer("test_size", &DigitsData::test_size, {.min = 1, .max = 1796}, "Samples of the test split.");
}

struct FolderData : ImageDataOptions {
  std::string path;
};
template <class T>
Fields<T>& describe_folder(Fields<T>& fields, const char* path_doc) {
  describe_images(fields);
  return fields.text("path", &FolderData::path, path_doc);
}

struct FashionMnistData : FolderData {};
void describe(Fields<FashionMnistData>& fields) {
  describe_folder(fields,
                  "Folder of the four IDX files; empty for where the Debian package dataset-fashion-mnist puts them.");
}

struct IdxData : FolderData {};
void describe(Fields<IdxData>& fields) {
  describe_folder(fields, "Folder of four IDX files named as MNIST's, plain or gzip.").required();
}

struct Cifar10Data : FolderData {};
void describe(Fields<Cifar10Data>& fields) {
  describe_folder(fields, "Folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin.").required();
}

struct RecordsData : FolderData {};
void describe(Fields<RecordsData>& fields) {
  describe_folder(fields, "Folder that `hearth data pack` wrote.").required();
}

template <class T>
void describe_shards(Fields<T>& fields, const std::string& example) {
  describe_images(fields);
  fields.text(
      "path", &ShardOptions::path,
      "Folder that `hearth data pack` wrote, or that has shards named train-*, and perhaps valid-* and test-*.");
  fields.text("train", &ShardOptions::train,
              "Files of the training split, from the folder, where they have other names: " + example +
                  ", with {a,b} and, in the last part, * too.");
  fields.text("valid", &ShardOptions::valid, "Those of the validation split, where `train` is given.");
  fields.text("test", &ShardOptions::test, "Those of the test split, where `train` is given.");
  fields.text(
      "classes", &ShardOptions::classes, {},
      "Names by label. [] for those of a packed set, or what the labels of the training split tell: numbers, or "
      "names in the order of their bytes.");
  fields.integer("channels", &ShardOptions::channels, {.min = 1, .max = 3},
                 "3, or 1 for grey images; a packed set says it itself.");
  fields.boolean("stream", &ShardOptions::stream,
                 "Each epoch visits the shards one after the other in random order, and draws from a buffer of the "
                 "samples that came last, so that reading goes forward. false: any order is as likely.");
  fields.integer("shuffle_buffer", &ShardOptions::shuffle_buffer, {.min = 1, .max = 1 << 30},
                 "Samples in that buffer; larger ones mix better.");
  fields.rule([](const T& o) { return o.channels == 2 ? "channels is 1 or 3" : ""; });
}

struct WebdatasetData : ImageDataOptions, WebdatasetOptions {};
void describe(Fields<WebdatasetData>& fields) {
  describe_shards(fields, "train-{000000..000009}.tar");
  fields.text("label", &WebdatasetOptions::label,
              "Ending of the member that holds a sample's label; empty: cls, or else json.");
  fields.text("json_key", &WebdatasetOptions::json_key, "The label's key in a member of JSON.");
}

struct TfRecordData : ImageDataOptions, TfRecordOptions {};
void describe(Fields<TfRecordData>& fields) {
  describe_shards(fields, "train-{00000..00009}-of-00010");
  fields.text("image", &TfRecordOptions::image, "Feature with the image file.");
  fields.text("label", &TfRecordOptions::label, "Feature with the label: an integer, or the name of a class.");
  fields.text("name", &TfRecordOptions::name, "Feature with the sample's name, where there is one.");
}

struct SyntheticData : ImageDataOptions, SyntheticOptions {};
void describe(Fields<SyntheticData>& fields) {
  describe_images(fields);
  fields.integer("train_size", &SyntheticOptions::train_size, {.min = 1, .max = 1e9}, "Training samples.");
  fields.integer("test_size", &SyntheticOptions::test_size, {.min = 1, .max = 1e9}, "Test samples.");
  fields.integer("height", &SyntheticOptions::height, {.min = 1, .max = 8192}, "Height in pixels.");
  fields.integer("width", &SyntheticOptions::width, {.min = 1, .max = 8192}, "Width in pixels.");
  fields.integer("channels", &SyntheticOptions::channels, {.min = 1, .max = 64}, "Channels.");
  fields.integer("classes", &SyntheticOptions::classes, {.min = 1, .max = 100'000}, "Classes.");
  fields.number("noise", &SyntheticOptions::noise, {.min = 0, .max = 1000}, "Deviation of the noise, in grey levels.");
  fields.integer("seed", &SyntheticOptions::seed, {.min = 0}, "Seed of the pixels.");
}

template <class Options, class Found>
void add_to(Datasets& registry, const std::string& name, const std::string& doc, Found (*open)(const Options&)) {
  registry.add<Options>(name, doc, [open](const Options& options, Opening opening) -> OpenedData {
    return opened_data(opening == Opening::all ? open(options) : Splits{}, options);
  });
}

void add_own(Datasets& registry) {
  add_to<DigitsData, ImageSplits>(registry, "digits", "UCI digits: 1,797 grey images of 8x8, part of the library.",
                                  [](const DigitsData& o) {
                                    return digits({o.split, o.test_size, o.split_seed});
                                  });
  add_to<FashionMnistData, ImageSplits>(registry, "fashion_mnist",
                                        "Fashion-MNIST: 70,000 grey images of 28x28 in 10 classes.",
                                        [](const FashionMnistData& o) { return fashion_mnist(o.path); });
  add_to<IdxData, ImageSplits>(registry, "idx", "Any set in the files of MNIST.",
                               [](const IdxData& o) { return idx_folder(o.path); });
  add_to<Cifar10Data, ImageSplits>(registry, "cifar10", "CIFAR-10, binary version.",
                                   [](const Cifar10Data& o) { return cifar10(o.path); });
  add_to<Cifar100Data, ImageSplits>(registry, "cifar100", "CIFAR-100, binary version.",
                                    [](const Cifar100Data& o) { return cifar100(o.path, o.labels); });
  registry.add<ImageFolderData>("image_folder", "JPEG, PNG, WebP and BMP files in a folder a class.",
                                open_image_folder);
  add_to<RecordsData, ImageSplits>(registry, "records", "Labelled images in record files, by `hearth data pack`.",
                                   [](const RecordsData& o) { return records(o.path); });
  add_to<WebdatasetData, ImageSplits>(registry, "webdataset",
                                      "Labelled images in tar archives, as WebDataset has them.",
                                      [](const WebdatasetData& o) { return webdataset(o); });
  add_to<TfRecordData, ImageSplits>(registry, "tfrecord", "Labelled images in TFRecord files.",
                                    [](const TfRecordData& o) { return tfrecord(o); });
  registry.add<CocoData>("coco", "Images with boxes, labelled in JSON as COCO is.", open_coco);
  registry.add<YoloData>("yolo", "Images with boxes, labelled in text files that a data.yaml describes.", open_yolo);
  registry.add<VocData>("voc", "Images with boxes, labelled in XML as Pascal VOC is.", open_voc);
  registry.add<MaskData>("masks", "Images and masks in PNG files, with a class for each pixel.", open_masks);
  add_to<SyntheticData, ImageSplits>(registry, "synthetic",
                                     "Noisy patterns made from numbers, for benchmarks and tests.",
                                     [](const SyntheticData& o) { return synthetic(o); });
  add_to<CsvOptions, Splits>(registry, "csv", "Rows of a table in comma-separated values, for regression and classes.",
                             [](const CsvOptions& o) { return csv_data(o); });
  add_to<ArraysOptions, Splits>(registry, "arrays", "Inputs and targets in NumPy's files, .npy or .npz.",
                                [](const ArraysOptions& o) { return arrays_data(o); });
  add_to(registry, "text", "A token stream in rows of equal length, for language models.", text_data);
  add_to(registry, "labelled_text", "Lines with a label each, for classifiers.", labelled_text_data);
  add_to(registry, "parallel_text", "Lines and their translations.", parallel_text_data);
  add_to(registry, "mixture", "Several token streams as one, each with a weight.", mixture_data);
}

}  // namespace

Datasets& datasets() {
  static Datasets registry("data", "Datasets.", add_own);
  return registry;
}

}  // namespace hearth::data
