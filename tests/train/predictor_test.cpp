// SPDX-License-Identifier: Apache-2.0
#include "train/predictor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/build.h"
#include "core/cpu/parallel.h"
#include "core/io/file.h"
#include "core/random.h"
#include "data/formats/digits.h"
#include "data/images/codecs/decode.h"
#include "data/images/codecs/encode.h"
#include "data/images/codecs/image.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"
#include "tests/train/predict_docs.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/step.h"

namespace hearth::predictor_test {
namespace {

using test::contains;
using test::error_message;

/// A model of one's own without an embedding.
struct Sums : nn::Module {
  nn::Linear out{64, 10};
  Sums() { register_module("out", out); }
  Tensor forward(const Tensor& x) override { return out(flatten(x, 1)); }
};

/// The first output is the number of threads that it may use. It waits until so many calls are at work.
struct CountsThreads : nn::Module {
  static inline std::atomic<int> waits_for{0}, at_work{0};
  nn::Linear out{64, 10};
  CountsThreads() { register_module("out", out); }
  Tensor forward(const Tensor& x) override {
    ++at_work;
    while (waits_for > 0 && at_work < waits_for) std::this_thread::yield();
    const Tensor outputs = out(flatten(x, 1)).detach().clone();
    for (std::int64_t i = 0; i < outputs.size(); ++i) outputs.data<float>()[i] = static_cast<float>(cpu::threads());
    if (waits_for == 0) at_work = 0;
    return outputs;
  }
};

class PredictorTest : public testing::Test {
 protected:
  std::unique_ptr<train::Session> session(const std::string& model, const std::string& data) const {
    const std::string text = R"({"device": "cpu", "model": )" + model + R"(, "data": )" + data +
                             R"(, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 4, "steps": 1}})";
    return std::make_unique<train::Session>(
        train::load_config(folder_.write("config.json", {text.begin(), text.end()}), {}));
  }
  /// The folder of a run whose model has its initial values.
  std::string run(const std::string& model, const std::string& data) const {
    const auto started = session(model, data);
    train::save_session(*started, folder_ / "run/checkpoints");
    return folder_ / "run";
  }
  std::string digits_run(const std::string& model = R"({"type": "mlp", "hidden": [12]})") const {
    return run(model, R"({"type": "digits", "workers": 0})");
  }
  std::string texts_run() const {
    const std::string lines = "a\txy\nb\tyx\na\txx\nb\tyy\n";
    return run(R"({"type": "bert", "head": "classification", "layers": 1, "heads": 1, "width": 8})",
               R"({"type": "labelled_text", "workers": 0, "length": 8, "train": [")" +
                   folder_.write("texts.tsv", {lines.begin(), lines.end()}) + R"("]})");
  }
  static std::vector<data::Image> digit_images(int count) {
    std::vector<data::Image> images;
    for (int i = 0; i < count; ++i) images.push_back(data::digits()->get(i).image);
    return images;
  }

  test::TempDir folder_;
};

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> left = a.to_doubles(), right = b.to_doubles();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_NEAR(left[i], right[i], tolerance) << i;
}

TEST_F(PredictorTest, AgreesWithAnEvaluation) {
  const std::string run = digits_run();
  const auto evaluated = train::open_for_evaluation(run);
  const auto labels = evaluated->data.test->size();
  std::vector<data::Image> images;
  for (std::int64_t i = 0; i < labels; ++i) images.push_back(evaluated->data.test->images()->get(i).image);
  const Predictor predictor(run);
  const Prediction result = predictor.predict_images(images);
  ASSERT_EQ(result.logits.shape(), (Shape{labels, 10}));
  std::int64_t right = 0;
  double loss = 0;
  for (std::int64_t i = 0; i < labels; ++i) {
    const std::int64_t label = evaluated->data.test->images()->label(i);
    right += predictor.top(result, i, 1)[0].label == label ? 1 : 0;
    loss -= std::log(static_cast<double>(result.probabilities.data<float>()[i * 10 + label]));
  }
  const train::Meter meter = train::evaluate(*evaluated, evaluated->data.test);
  EXPECT_EQ(right, meter.correct);
  EXPECT_NEAR(loss, meter.loss_sum, 1e-4 * meter.loss_sum);
}

TEST_F(PredictorTest, TakesImagesPixelsAndPreparedInputs) {
  const Predictor predictor(digits_run());
  EXPECT_EQ(predictor.classes().size(), 10u);
  EXPECT_FALSE(predictor.takes_text());
  EXPECT_EQ(predictor.input_shape(), (data::ImageShape{8, 8, 1}));
  const std::vector<data::Image> images = digit_images(40);
  const Prediction expected = predictor.predict_images(images, true);
  EXPECT_EQ(expected.embedding.shape(), (Shape{40, 12}));
  std::vector<std::uint8_t> pixels;
  for (const data::Image& image : images) pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
  const Tensor bytes = Tensor::of<std::uint8_t>({40, 8, 8, 1}, pixels);
  EXPECT_EQ(predictor.predict_tensor(bytes).logits.to_doubles(), expected.logits.to_doubles());
  Tensor prepared = Tensor::empty({40, 8, 8, 1});
  const data::ChannelStatistics by = data::digits({}).statistics;
  for (std::int64_t i = 0; i < prepared.size(); ++i)
    prepared.data<float>()[i] =
        static_cast<float>((pixels[static_cast<std::size_t>(i)] / 255.0 - by.mean[0]) / by.std[0]);
  expect_near(predictor.predict_tensor(prepared).logits, expected.logits, 1e-4);
  // What is not of the model's size and channels is brought to it.
  data::Image large;
  large.reshape(16, 16, 3);
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 48; ++x) large.row(y)[x] = images[0].row(y / 2)[x / 6];
  const Prediction twice = predictor.predict_images(std::vector<data::Image>{large});
  EXPECT_EQ(predictor.top(twice, 0, 1)[0].label, predictor.top(expected, 0, 1)[0].label);
  EXPECT_EQ(predictor.predict_images({}).probabilities.shape(), (Shape{0, 10}));
}

TEST_F(PredictorTest, ReadsFiles) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  const Predictor predictor(digits_run());
  const std::vector<data::Image> images = digit_images(2);
  data::write_png(folder_ / "0.png", images[0]);
  data::write_png(folder_ / "1.png", images[1]);
  const std::vector<std::string> paths{folder_ / "0.png", folder_ / "1.png"};
  EXPECT_EQ(predictor.predict_files(paths).logits.to_doubles(), predictor.predict_images(images).logits.to_doubles());
  EXPECT_PRED2(contains, error_message<FileError>([&] { (void)predictor.predict_files({"absent.png"}); }),
               "absent.png");
}

/// Folders of classes with JPEGs that are decoded at a smaller scale for images of 32.
class LargeImages : public PredictorTest {
 protected:
  void SetUp() override {
    if (!HEARTH_HAS_JPEG) GTEST_SKIP() << "this build lacks libjpeg";
    int number = 0;
    for (const char* name : {"train/a/0", "train/a/1", "train/b/0", "train/b/1", "test/a/0", "test/a/1", "test/b/0"})
      put(name, ++number, 300, 260);
  }
  void put(const std::string& name, int number, int height, int width) const {
    data::Image image;
    image.reshape(height, width, 3);
    Random random(11, static_cast<std::uint64_t>(number));
    for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.below(256));
    folder_.write("set/" + name + ".jpg", data::encode_jpeg(image, 95));
  }
  std::string large_run(const std::string& more = "") const {
    return run(
        R"({"type": "mlp", "hidden": [4]})", R"({"type": "image_folder", "workers": 0, "augment": {"image_size": 32},
                 "path": ")" + std::string(folder_ / "set") +
                                                 "\"" + more + "}");
  }
  static std::vector<double> tested(const train::Session& session) {
    return session.data.eval_loader(session.data.test, 3).next()["images"].to_doubles();
  }
};

TEST_F(LargeImages, AreDecodedAsInTheEvaluationOfTheRun) {
  for (const std::string more : {"", R"(, "cache_mb": 4)", R"(, "shrink_to": 40)"}) {
    const std::string trained = large_run(more);
    const std::vector<double> wanted = tested(*train::open_for_evaluation(trained));
    for (const char* path : {"set", "set/test"})
      EXPECT_EQ(tested(*train::open_for_evaluation(trained, {}, folder_ / path)), wanted) << path << more;
    const Predictor predictor(trained);
    std::vector<double> prepared;
    std::vector<std::string> paths;
    std::vector<data::Image> whole;
    for (const char* name : {"a/0", "a/1", "b/0"}) {
      paths.push_back(folder_ / (std::string("set/test/") + name + ".jpg"));
      whole.push_back(data::decode_image(paths.back()));
      const std::vector<double> one = predictor.prepared(paths.back()).to_doubles();
      prepared.insert(prepared.end(), one.begin(), one.end());
    }
    EXPECT_EQ(prepared, wanted) << more;
    const std::vector<double> logits = predictor.predict_files(paths).logits.to_doubles();
    const Tensor inputs = Tensor::of<double>({3, 32, 32, 3}, wanted).to(DType::f32);
    EXPECT_EQ(logits, predictor.predict_tensor(inputs).logits.to_doubles()) << more;
    EXPECT_EQ(logits == predictor.predict_images(whole).logits.to_doubles(), !more.empty())
        << "pixels in memory are of the whole image" << more;
  }
}

TEST_F(LargeImages, HaveTheMemoryThatTheRunGivesThem) {
  const std::string trained = large_run(R"(, "decode_mb": 1)");
  put("large/a/0", 7, 1000, 900);
  const std::string path = folder_ / "set/large/a/0.jpg";
  const auto evaluated = train::open_for_evaluation(trained, {}, folder_ / "set/large");
  EXPECT_EQ(evaluated->data.test->images()->sample_name(0), "a/0.jpg");
  for (const std::string& message :
       {error_message<DataError>([&] { (void)evaluated->data.eval_loader(evaluated->data.test, 1).next(); }),
        error_message<DataError>([&] { (void)Predictor(trained).predict_files({path}); })}) {
    EXPECT_PRED2(contains, message, path);
    EXPECT_PRED2(contains, message, "the limit is 1 MiB");
  }
  const std::vector<std::string> enough{"data.decode_mb=64"};
  EXPECT_EQ(Predictor(trained, enough).predict_files({path}).logits.dim(0), 1);
}

TEST_F(PredictorTest, TopIsInOrder) {
  const Predictor predictor(digits_run());
  const Prediction result = predictor.predict_images(digit_images(3));
  const std::vector<Predictor::Class> top = predictor.top(result, 2, 4);
  ASSERT_EQ(top.size(), 4u);
  double sum = 0;
  for (std::size_t i = 1; i < 4; ++i) EXPECT_GE(top[i - 1].probability, top[i].probability);
  for (const Predictor::Class& each : predictor.top(result, 2, 99)) {
    sum += each.probability;
    EXPECT_EQ(each.name, std::to_string(each.label));
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_THROW((void)predictor.top(result, 3, 1), IndexError);
  EXPECT_THROW((void)predictor.top(result, -1, 1), IndexError);
  EXPECT_THROW((void)predictor.top(result, 0, 0), UsageError);
  EXPECT_THROW((void)predictor.top({}, 0, 1), IndexError);
}

TEST_F(PredictorTest, TextsInABatchGiveWhatEachGives) {
  const Predictor predictor(texts_run());
  EXPECT_TRUE(predictor.takes_text());
  const std::vector<std::string> sequences{"x", "yxyx", "xxyxyxyxyxyx", ""};
  const Prediction all = predictor.predict_text(sequences, true);
  EXPECT_EQ(all.embedding.shape(), (Shape{4, 8}));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    expect_near(slice(all.logits, 0, row, row + 1), predictor.predict_text({sequences[i]}).logits, 1e-5);
  }
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)predictor.predict_text({"x", "\xff"}); }), "text 2");
}

/// The bytes of a .npy file of f32.
std::string npy_of(const std::string& shape, const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST_F(PredictorTest, RowsOfATableAreThoseOfItsEvaluation) {
  std::string lines = "size,colour,kind\n";
  for (int i = 0; i < 40; ++i)
    lines += join_text(i % 7, i % 2 == 0 ? ",red," : ",green,", i % 7 < 3 ? "small" : "large", "\n");
  const std::string table = folder_.write("table.csv", {lines.begin(), lines.end()});
  const Predictor predictor(run(R"({"type": "mlp", "hidden": [6]})",
                                R"({"type": "csv", "workers": 0, "target": "kind", "path": ")" + table + R"("})"));
  EXPECT_EQ(predictor.classes(), (std::vector<std::string>{"large", "small"}));
  const Prediction result = predictor.predict_rows(table, true);
  EXPECT_EQ(result.logits.shape(), (Shape{40, 2}));
  EXPECT_EQ(result.embedding.shape(), (Shape{40, 6}));
  EXPECT_EQ(predictor.top(result, 39, 5).size(), 2U);
  const auto evaluated = train::open_for_evaluation(folder_ / "run", {}, table);
  const std::vector<double> labels =
      evaluated->data.eval_loader(evaluated->data.test, 40).next()["labels"].to_doubles();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < 40; ++i)
    right += predictor.top(result, i, 1)[0].label == static_cast<std::int64_t>(labels[static_cast<std::size_t>(i)]);
  EXPECT_EQ(right, train::evaluate(*evaluated, evaluated->data.test).correct);
  const auto refusal = [&](const auto& f) { return error_message<UsageError>(f); };
  EXPECT_PRED2(contains, refusal([&] {
                 (void)predictor.predict_rows(Tensor::zeros({1, 3}));
               }),
               "column \"colour\" has names of categories");
  EXPECT_PRED2(contains, refusal([&] { (void)predictor.predict_files({"a.png"}); }), "use predict_rows()");
  EXPECT_PRED2(contains, refusal([&] { (void)predictor.predict_batch({}); }), "use predict_rows()");
  EXPECT_PRED2(contains, error_message<FileError>([&] { (void)predictor.predict_rows("absent.csv"); }), "absent.csv");
}

/// Of series [n, T, C]: what is last, by a layer.
struct LastOfSeries : nn::Module {
  nn::Linear out;
  LastOfSeries(std::int64_t channels, std::int64_t targets) : out(channels, targets) { register_module("out", out); }
  Tensor forward(const Tensor& x) override { return out(flatten(slice(x, 1, x.dim(1) - 1, x.dim(1)), 1)); }
};

TEST_F(PredictorTest, SeriesInMemoryAreThoseOfFiles) {
  models::add("predictor_series", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
    return std::make_unique<LastOfSeries>(input.channels, input.classes);
  });
  std::vector<float> x(300 * 5 * 2), y(300);
  Random random(5, 0);
  for (float& value : x) value = 100 + 9 * static_cast<float>(random.uniform());
  for (float& value : y) value = static_cast<float>(random.uniform());
  const std::string inputs = npy_of("(300, 5, 2)", x), targets = npy_of("(300,)", y);
  const std::string path = folder_.write("x.npy", {inputs.begin(), inputs.end()});
  folder_.write("y.npy", {targets.begin(), targets.end()});
  const std::string data = R"({"type": "arrays", "workers": 0, "x": "x.npy", "y": "y.npy", "path": ")";
  const Predictor predictor(
      run(R"({"type": "predictor_series"}, "task": {"type": "regression"})", data + folder_.path().string() + R"("})"));
  const Prediction of_file = predictor.predict_rows(path);
  EXPECT_EQ(of_file.logits.shape(), (Shape{300, 1}));
  EXPECT_FALSE(of_file.probabilities.defined()) << "numbers";
  EXPECT_TRUE(predictor.classes().empty());
  const Tensor rows = Tensor::of({300, 5, 2}, x);
  EXPECT_EQ(predictor.predict_rows(rows).logits.to_doubles(), of_file.logits.to_doubles());
  EXPECT_EQ(predictor.predict_rows(rows.to(DType::f64)).logits.to_doubles(), of_file.logits.to_doubles());
  EXPECT_EQ(predictor.predict_rows(Tensor::empty({0, 5, 2})).logits.dim(0), 0);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] {
                 (void)predictor.predict_rows(Tensor::zeros({3, 2, 5}));
               }),
               "the run's rows are [5, 2]");
  EXPECT_THROW((void)predictor.predict_rows(Tensor::zeros({3, 5, 2}, DType::i64)), DTypeError);
  EXPECT_THROW((void)predictor.predict_rows(Tensor()), UsageError);
  x[13] = std::nanf("");
  EXPECT_PRED2(contains, error_message<DataError>([&] {
                 (void)predictor.predict_rows(Tensor::of({300, 5, 2}, x));
               }),
               "rows: row 1, place [1, 1], counted from 0, is NaN");
  EXPECT_THROW((void)predictor.top(of_file, 0, 1), IndexError);
}

TEST_F(PredictorTest, RefusesWhatDoesNotFit) {
  {
    const Predictor sequences(texts_run());
    EXPECT_THROW((void)sequences.predict_files({"a.png"}), UsageError);
    EXPECT_THROW((void)sequences.predict_images(digit_images(1)), UsageError);
    EXPECT_THROW((void)sequences.predict_tensor(Tensor::zeros({1, 8, 8, 1})), UsageError);
    EXPECT_THROW((void)sequences.input_shape(), UsageError);
  }
  std::filesystem::remove_all(folder_ / "run");
  const Predictor images(digits_run());
  EXPECT_THROW((void)images.predict_text({"a"}), UsageError);
  EXPECT_THROW((void)images.predict_rows("a.csv"), UsageError);
  EXPECT_THROW((void)images.predict_batch({}), UsageError);
  EXPECT_PRED2(contains, error_message<ShapeError>([&] {
                 (void)images.predict_tensor(Tensor::zeros({1, 9, 8, 1}));
               }),
               "takes images of 8 x 8 x 1");
  EXPECT_THROW((void)images.predict_tensor(Tensor::zeros({8, 8, 1})), ShapeError);
  EXPECT_THROW((void)images.predict_tensor(Tensor()), ShapeError);
  EXPECT_THROW((void)images.predict_tensor(Tensor::zeros({1, 8, 8, 1}, DType::i64)), DTypeError);
  EXPECT_THROW((void)images.predict_tensor(Tensor::zeros({1, 8, 8, 2}, DType::u8)), DataError);
  data::Image torn = digit_images(1)[0];
  torn.pixels.pop_back();
  EXPECT_THROW((void)images.predict_images(std::vector<data::Image>{torn}), ShapeError);
  EXPECT_THROW(Predictor(std::unique_ptr<train::Session>()), UsageError);
  EXPECT_THROW(Predictor(folder_ / "absent"), FileError);
  models::add("predictor_sums", [](const models::InputInfo&) { return std::make_unique<Sums>(); });
  std::filesystem::remove_all(folder_ / "run");
  const Predictor own(digits_run(R"({"type": "predictor_sums"})"));
  EXPECT_EQ(own.predict_images(digit_images(1)).logits.dim(1), 10);
  EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)own.predict_images(digit_images(1), true); }),
               "EmbeddingModel");
}

TEST_F(PredictorTest, ServesSeveralThreads) {
  const std::string run = digits_run(R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})");
  const Predictor one(run), other(run);
  const std::vector<data::Image> images = digit_images(40);
  const std::vector<double> expected = one.predict_images(images).logits.to_doubles();
  std::vector<std::vector<double>> found(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round)
        found[i] = (i % 3 == 0 ? other : one).predict_images(images).logits.to_doubles();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& each : found) EXPECT_EQ(each, expected);
}

TEST_F(PredictorTest, CallersShareTheThreads) {
  models::add("test_counts_threads", [](const models::InputInfo&) { return std::make_unique<CountsThreads>(); });
  const Predictor alone(session(R"({"type": "test_counts_threads"})", R"({"type": "digits", "workers": 0})"));
  const std::vector<data::Image> images = digit_images(1);
  const auto threads_of = [&](const Prediction& prediction) {
    return static_cast<int>(prediction.logits.to_doubles()[0]);
  };
  const int pool = cpu::threads();
  cpu::set_threads(4);
  EXPECT_EQ(threads_of(alone.predict_images(images)), 4);
  {
    const cpu::ThreadsScope part(3);
    EXPECT_EQ(threads_of(alone.predict_images(images)), 3);
  }
  // Both are in the model at once.
  CountsThreads::waits_for = 2;
  std::vector<int> seen(2);
  std::vector<std::thread> callers;
  for (int& each : seen) callers.emplace_back([&] { each = threads_of(alone.predict_images(images)); });
  for (std::thread& caller : callers) caller.join();
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<int>{2, 4}));
  CountsThreads::waits_for = 0;
  EXPECT_EQ(threads_of(alone.predict_images(images)), 4);
  cpu::set_threads(pool);
}

TEST_F(PredictorTest, OneThatWasMovedFromSaysSo) {
  Predictor first(digits_run());
  const Predictor second = std::move(first);
  const auto refusal = [&](const auto& f) { return error_message<UsageError>(f); };
  EXPECT_PRED2(contains, refusal([&] { (void)first.classes(); }), "was moved from");
  EXPECT_PRED2(contains, refusal([&] { (void)first.predict_images(digit_images(1)); }), "was moved from");
  EXPECT_PRED2(contains, refusal([&] { (void)first.predict_text({"a"}); }), "was moved from");
  EXPECT_EQ(second.classes().size(), 10U);
}

TEST_F(PredictorTest, TheProgramOfTheDocumentsRuns) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  const Predictor predictor(digits_run());
  data::write_png(folder_ / "0.png", digit_images(1)[0]);
  std::string run = folder_ / "run", file = folder_ / "0.png", program = "predict";
  char* words[] = {program.data(), run.data(), file.data()};
  testing::internal::CaptureStdout();
  EXPECT_EQ(predict_docs::main(3, words), 0);
  const auto best = predictor.top(predictor.predict_files({file}), 0, 1)[0];
  EXPECT_PRED2(contains, testing::internal::GetCapturedStdout(), file + " " + best.name + " ");
}

/// A page's lines of C++ that begin with this one, up to the end of their block.
std::string block_of(const std::string& page, const std::string& first_line) {
  const std::size_t begin = page.find(first_line);
  return begin == std::string::npos ? "" : page.substr(begin, page.find("```", begin) - begin);
}

TEST_F(PredictorTest, TheDocumentsHaveTheProgramThatRuns) {
  const std::string shown = block_of(read_text(test::source_dir() + "/docs/predict.md"), "int main(");
  ASSERT_NE(shown, "");
  EXPECT_PRED2(contains, read_text(test::source_dir() + "/tests/train/predict_docs.h"), shown);
}

}  // namespace
}  // namespace hearth::predictor_test
