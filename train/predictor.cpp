// SPDX-License-Identifier: Apache-2.0
#include "train/predictor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/cpu/parallel.h"
#include "data/formats/image_folder.h"
#include "data/prepare.h"
#include "data/table/table_data.h"
#include "data/text/labelled.h"
#include "data/text/unicode.h"
#include "models/embedding_model.h"
#include "ops/ops.h"
#include "train/checkpoint/checkpoint.h"
#include "train/session.h"
#include "train/step/visit_batches.h"

namespace hearth {
namespace {

// Computed at once: enough to keep all cores busy, few enough for the memory of large images.
constexpr std::int64_t piece_size = 32;
// Of rows of a table, which are small.
constexpr std::int64_t rows_in_piece = 256;

/// While it lives, a caller's part of the cores: those that compute at the same time share them.
class CoresScope {
 public:
  CoresScope() : part_(std::max(1, cpu::threads() / (callers.fetch_add(1, std::memory_order_relaxed) + 1))) {}
  ~CoresScope() { callers.fetch_sub(1, std::memory_order_relaxed); }
  CoresScope(const CoresScope&) = delete;
  CoresScope& operator=(const CoresScope&) = delete;

 private:
  static inline std::atomic<int> callers{0};
  const cpu::ThreadsScope part_;
};

/// Appends rows [n, ...] of a piece to those of the pieces before.
void append(Tensor& all, std::int64_t first, std::int64_t total, const Tensor& piece) {
  const Tensor rows = piece.to(DType::f32).to(Device{}).contiguous();
  if (!all.defined()) all = Tensor::empty(rows.shape().with(0, total));
  std::memcpy(all.data<float>() + first * (rows.size() / rows.dim(0)), rows.data<float>(), rows.byte_size());
}

/// Rows [first, first + count) of a batch.
data::Batch rows_of(const data::Batch& batch, std::int64_t first, std::int64_t count) {
  data::Batch part = batch.map([&](const data::Batch::Named& named) {
    return named.axis == data::Batch::Axis::rows ? slice(named.tensor, 0, first, first + count) : named.tensor;
  });
  part.samples.resize(static_cast<std::size_t>(count));
  return part;
}

}  // namespace

struct Predictor::Body {
  explicit Body(std::unique_ptr<train::Session> opened)
      : session(std::move(opened)), predicts(session->task->predicts()) {
    HEARTH_CHECK(UsageError, predicts != train::Predicts::continuations && predicts != train::Predicts::translations,
                 "predictor: the run's task writes text; use train::generate_text() or train::translate()");
    session->use_averaged_weights();
    session->model->eval();
  }

  /// Of `total` inputs, `at_once` at a time, of which piece(first, count) gives what the model gets of some.
  template <class Piece>
  Prediction predict(std::int64_t total, std::int64_t at_once, bool embedding, const Piece& piece) const {
    Prediction result;
    for (std::int64_t first = 0; first < total; first += at_once) {
      const RandomScope random(train::evaluation_key(*session, first / at_once));
      compute(result, first, total, piece(first, std::min(at_once, total - first)), embedding);
    }
    if (total == 0) result.logits = Tensor::empty({0, classes()});
    // A task of the program's own may have other outputs than scores of the classes.
    if (!names_exclude_each_other() || result.logits.rank() < 2 || result.logits.dim(-1) != classes()) return result;
    const CoresScope cores;
    const NoGrad no_grad;
    result.probabilities = softmax(result.logits);
    return result;
  }

  void compute(Prediction& result, std::int64_t first, std::int64_t total, const nn::Inputs& inputs,
               bool embedding) const {
    auto* const embeds = dynamic_cast<models::EmbeddingModel*>(session->model.get());
    HEARTH_CHECK(UsageError, !embedding || (embeds != nullptr && inputs.size() == 1),
                 "predictor: the model tells no embedding; models of one input that derive models::EmbeddingModel do");
    // A device computes one thing after the other anyway, in the order of its stream.
    const std::unique_lock lock =
        session->device().is_cuda() ? std::unique_lock(of_device) : std::unique_lock<std::mutex>();
    const CoresScope cores;
    const NoGrad no_grad;
    const SwitchScope switches(session->switches());
    const AutocastScope autocast(session->autocast());
    nn::Inputs moved;
    for (const Tensor& input : inputs) moved.push_back(input.to(session->device()));
    const Tensor seen = embedding ? embeds->embedding(moved[0]) : Tensor();
    const Tensor outputs = embedding ? embeds->outputs_of(seen) : (*session->model)(moved);
    const std::int64_t count = moved[0].dim(0);
    HEARTH_CHECK(ShapeError,
                 outputs.rank() >= 1 && outputs.dim(0) == count &&
                     (predicts == train::Predicts::files || !names_exclude_each_other() ||
                      (outputs.rank() == 2 && outputs.dim(1) == classes())),
                 "predict: the model gives ", describe(outputs), " of ",
                 count == 1 ? std::string("one input") : join_text(count, " inputs"), ", but the data has ", classes(),
                 " classes");
    append(result.logits, first, total, outputs);
    if (embedding) append(result.embedding, first, total, seen);
  }

  /// Of rows of the run's table.
  Prediction predict_table(const data::TableDataset& rows, bool embedding) const {
    return predict(rows.size(), rows_in_piece, embedding, [&](std::int64_t first, std::int64_t count) {
      std::vector<data::TensorSample> samples;
      Random unused(0, 0);
      for (std::int64_t i = first; i < first + count; ++i) samples.push_back(rows.read(i, unused));
      return session->task->inputs(*session, rows.collate(samples));
    });
  }

  /// Of images; prepare(i, target) writes what the model gets of one of them.
  template <class Prepare>
  Prediction predict_prepared(std::int64_t total, bool embedding, const Prepare& prepare) const {
    require_images();
    const data::ImageShape shape = session->data.input_shape();
    return predict(total, piece_size, embedding, [&](std::int64_t first, std::int64_t count) {
      const Tensor input = Tensor::empty({count, shape.height, shape.width, shape.channels});
      const std::int64_t stride = count > 0 ? input.size() / count : 0;
      cpu::parallel_chunks(count, [&](std::int64_t i) { prepare(first + i, input.data<float>() + i * stride); });
      return nn::Inputs{input};
    });
  }

  /// Of images in memory; source(i) gives one of them, its name and pixels.
  template <class Source>
  Prediction predict_sources(std::int64_t total, bool embedding, const Source& source) const {
    return predict_prepared(total, embedding, [&](std::int64_t i, float* target) {
      auto [name, image] = source(i);
      data::prepare_input(std::move(image), *session->data.train->images(), session->data.eval_transforms, name,
                          target);
    });
  }

  /// How image files are read: as the run read its own.
  data::ImageFolderOptions files() const { return data::folder_options(session->config().data); }

  void require_images() const { require(train::Predicts::image_classes); }
  const data::LabelledText& require_text() const {
    require(train::Predicts::text_classes);
    return *session->data.train->tokens()->labelled();
  }
  const data::TableDataset& require_table() const {
    require(train::Predicts::rows);
    return dynamic_cast<const data::TableDataset&>(*session->data.train);
  }
  /// UsageError for a run of other inputs.
  void require(train::Predicts wanted) const {
    // In the order of Predicts; a Predictor is made of no other run.
    constexpr std::array remedies{"on images; use predict_files()",
                                  "on text; use predict_text()",
                                  "",
                                  "",
                                  "on samples of the program's own; use predict_batch()",
                                  "on a table; use predict_rows()"};
    HEARTH_CHECK(UsageError, predicts == wanted, "predictor: the run was trained ",
                 remedies.at(static_cast<std::size_t>(predicts)));
  }
  /// Whether each output is the score of a class, of which an input has one.
  bool names_exclude_each_other() const { return classes() > 0 && session->task->has_accuracy(); }
  std::int64_t classes() const { return session->data.train->classes(); }

  std::unique_ptr<train::Session> session;
  train::Predicts predicts;
  mutable std::mutex of_device;
};

Predictor::Predictor(const std::string& run_or_checkpoint, const std::vector<std::string>& overrides)
    : Predictor(train::open_trained(run_or_checkpoint, overrides)) {}

Predictor::Predictor(std::unique_ptr<train::Session> session) {
  HEARTH_CHECK(UsageError, session != nullptr, "predictor: no session");
  body_ = std::make_unique<Body>(std::move(session));
}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

const Predictor::Body& Predictor::body() const {
  HEARTH_CHECK(UsageError, body_ != nullptr,
               "predictor: it was moved from, and has no model; use the one it was moved to");
  return *body_;
}

const std::vector<std::string>& Predictor::classes() const { return body().session->data.train->class_names(); }

bool Predictor::takes_text() const { return body().predicts == train::Predicts::text_classes; }

data::ImageShape Predictor::input_shape() const {
  body().require_images();
  return body().session->data.input_shape();
}

Prediction Predictor::predict_files(const std::vector<std::string>& paths, bool embedding) const {
  const train::Session& session = *body().session;
  const data::ImageFolderOptions files = body().files();
  return body().predict_prepared(
      static_cast<std::int64_t>(paths.size()), embedding, [&](std::int64_t i, float* target) {
        data::prepare_file(paths[static_cast<std::size_t>(i)], files, *session.data.train->images(),
                           session.data.eval_transforms, target);
      });
}

Prediction Predictor::predict_images(std::span<const data::Image> images, bool embedding) const {
  return body().predict_sources(static_cast<std::int64_t>(images.size()), embedding, [&](std::int64_t i) {
    const data::Image& image = images[static_cast<std::size_t>(i)];
    const std::string name = join_text("image ", i);
    HEARTH_CHECK(ShapeError,
                 image.height > 0 && image.width > 0 && image.channels > 0 &&
                     image.pixels.size() == image.row_bytes() * static_cast<std::size_t>(image.height),
                 name, ": ", image.pixels.size(), " bytes are not the pixels of ", image.height, " x ", image.width,
                 " x ", image.channels);
    return std::pair(name, image);
  });
}

Prediction Predictor::predict_tensor(const Tensor& images, bool embedding) const {
  body().require_images();
  HEARTH_CHECK(ShapeError, images.defined() && images.rank() == 4, "predict_tensor: ", describe(images),
               " is not a batch of images [n, h, w, c]");
  HEARTH_CHECK(DTypeError, images.dtype() == DType::u8 || images.dtype() == DType::f32,
               "predict_tensor: ", describe(images), "; pixels are u8, what is prepared already is f32");
  const Tensor here = images.to(Device{}).contiguous();
  const std::int64_t total = here.dim(0);
  if (here.dtype() == DType::u8) {
    constexpr std::int64_t longest = 1 << 24;
    HEARTH_CHECK(ShapeError,
                 here.dim(1) <= longest && here.dim(2) <= longest && here.dim(3) <= data::max_image_channels,
                 "predict_tensor: ", describe(images), " has too large images");
    const std::int64_t bytes = total > 0 ? here.size() / total : 0;
    return body().predict_sources(total, embedding, [&](std::int64_t i) {
      data::Image image;
      image.reshape(static_cast<int>(here.dim(1)), static_cast<int>(here.dim(2)), static_cast<int>(here.dim(3)));
      std::copy_n(here.data<std::uint8_t>() + i * bytes, bytes, image.pixels.data());
      return std::pair(join_text("image ", i), std::move(image));
    });
  }
  const data::ImageShape shape = input_shape();
  HEARTH_CHECK(ShapeError, here.dim(1) == shape.height && here.dim(2) == shape.width && here.dim(3) == shape.channels,
               "predict_tensor: ", describe(images), "; the model takes images of ", shape,
               "; give pixels as u8 to have them brought to that size");
  return body().predict(total, piece_size, embedding, [&](std::int64_t first, std::int64_t count) {
    return nn::Inputs{slice(here, 0, first, first + count).contiguous()};
  });
}

Prediction Predictor::predict_text(const std::vector<std::string>& sequences, bool embedding) const {
  const data::LabelledText& set = body().require_text();
  const auto total = static_cast<std::int64_t>(sequences.size());
  return body().predict(total, piece_size, embedding, [&](std::int64_t first, std::int64_t count) {
    std::vector<std::vector<std::int32_t>> rows;
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::string& text = sequences[static_cast<std::size_t>(i)];
      const std::string name = join_text("text ", i + 1);
      data::unicode::require_utf8(text, name);
      try {
        rows.push_back(set.input_of(text));
      } catch (const DataError& error) {
        throw DataError(join_text(name, ": ", error.what()));
      }
    }
    return nn::Inputs{data::padded_rows(rows, set.tokenizer().special().pad)};
  });
}

Prediction Predictor::predict_rows(const std::string& path, bool embedding) const {
  const data::TableDataset& trained = body().require_table();
  return body().predict_table(*data::open_rows(body().session->config().data, trained.shared_facts(), path, false),
                              embedding);
}

Prediction Predictor::predict_rows(const Tensor& rows, bool embedding) const {
  const data::TableDataset& trained = body().require_table();
  HEARTH_CHECK(UsageError, rows.defined(), "predict_rows: an undefined tensor");
  return body().predict_table(*data::rows_of_tensor(trained.shared_facts(), rows), embedding);
}

Prediction Predictor::predict_batch(const data::Batch& batch) const {
  const train::Session& session = *body().session;
  body().require(train::Predicts::files);
  HEARTH_CHECK(UsageError, !batch.tensors().empty(), "predict_batch: a batch without tensors");
  return body().predict(batch.rows(), piece_size, false, [&](std::int64_t first, std::int64_t count) {
    return session.task->inputs(session, rows_of(batch, first, count));
  });
}

Tensor Predictor::prepared(const std::string& path) const {
  body().require_images();
  return data::load_input(path, body().files(), *body().session->data.train->images(),
                          body().session->data.eval_transforms);
}

std::vector<Predictor::Class> Predictor::top(const Prediction& prediction, std::int64_t row, std::int64_t count) const {
  const Tensor& rows = prediction.probabilities;
  const std::int64_t known = body().classes();
  HEARTH_CHECK(IndexError, rows.defined() && rows.rank() == 2 && row >= 0 && row < rows.dim(0) && rows.dim(1) == known,
               "top: row ", row, " of ", describe(rows), ", which is to be [n, ", known, "]");
  HEARTH_CHECK(UsageError, count >= 1, "top: ", count, " classes; give 1 or more");
  const float* const probabilities = rows.data<float>() + row * known;
  std::vector<std::int64_t> labels(static_cast<std::size_t>(known));
  std::iota(labels.begin(), labels.end(), std::int64_t{0});
  std::stable_sort(labels.begin(), labels.end(),
                   [&](std::int64_t a, std::int64_t b) { return probabilities[a] > probabilities[b]; });
  std::vector<Class> result;
  for (std::int64_t i = 0; i < std::min(count, known); ++i) {
    const std::int64_t label = labels[static_cast<std::size_t>(i)];
    result.push_back({label, classes()[static_cast<std::size_t>(label)], probabilities[label]});
  }
  return result;
}

}  // namespace hearth
