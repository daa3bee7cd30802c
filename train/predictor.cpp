// SPDX-License-Identifier: Apache-2.0
#include "train/predictor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/cpu/parallel.h"
#include "data/formats/image_folder.h"
#include "data/prepare.h"
#include "data/text/labelled.h"
#include "data/text/unicode.h"
#include "models/embedding_model.h"
#include "ops/ops.h"
#include "train/run/checkpoint.h"
#include "train/session.h"
#include "train/visit_batches.h"

namespace hearth {
namespace {

// Computed at once: enough to keep all cores busy, few enough for the memory of large images.
constexpr std::int64_t piece_size = 32;

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

/// Appends rows [n, C] of a piece to those of the pieces before.
void append(Tensor& all, std::int64_t first, std::int64_t total, const Tensor& piece) {
  const Tensor rows = piece.to(DType::f32).to(Device{}).contiguous();
  if (!all.defined()) all = Tensor::empty({total, rows.dim(1)});
  std::memcpy(all.data<float>() + first * rows.dim(1), rows.data<float>(), rows.byte_size());
}

}  // namespace

struct Predictor::Body {
  explicit Body(std::unique_ptr<train::Session> opened) : session(std::move(opened)) {
    const train::Predicts predicts = session->task->predicts();
    if (predicts == train::Predicts::text_classes) sequences = session->data.train->tokens()->labelled();
    HEARTH_CHECK(UsageError, sequences != nullptr || predicts == train::Predicts::image_classes,
                 "predictor: the run's task predicts no classes; of one on text without labels use "
                 "train::generate_text() or train::translate()");
    session->use_averaged_weights();
    session->model->eval();
  }

  /// Of `total` inputs, of which piece(first, count) gives what the model gets of some.
  template <class Piece>
  Prediction predict(std::int64_t total, bool embedding, const Piece& piece) const {
    Prediction result;
    for (std::int64_t first = 0; first < total; first += piece_size)
      compute(result, first, total, piece(first, std::min(piece_size, total - first)), embedding);
    if (total == 0) result.logits = Tensor::empty({0, classes()});
    const CoresScope cores;
    const NoGrad no_grad;
    result.probabilities = softmax(result.logits);
    return result;
  }

  void compute(Prediction& result, std::int64_t first, std::int64_t total, const Tensor& input, bool embedding) const {
    auto* const embeds = dynamic_cast<models::EmbeddingModel*>(session->model.get());
    HEARTH_CHECK(UsageError, !embedding || embeds != nullptr,
                 "predictor: the model tells no embedding; models that derive models::EmbeddingModel do");
    // A device computes one thing after the other anyway, in the order of its stream.
    const std::unique_lock lock =
        session->device().is_cuda() ? std::unique_lock(of_device) : std::unique_lock<std::mutex>();
    const CoresScope cores;
    const NoGrad no_grad;
    const SwitchScope switches(session->switches());
    const AutocastScope autocast(session->autocast());
    const RandomScope random(train::evaluation_key(*session, first / piece_size));
    const Tensor moved = input.to(session->device());
    const Tensor seen = embedding ? embeds->embedding(moved) : Tensor();
    const Tensor outputs = embedding ? embeds->outputs_of(seen) : (*session->model)(moved);
    HEARTH_CHECK(ShapeError, outputs.rank() == 2 && outputs.dim(0) == moved.dim(0) && outputs.dim(1) == classes(),
                 "predict: the model gives ", describe(outputs), " of ",
                 moved.dim(0) == 1 ? std::string("one input") : join_text(moved.dim(0), " inputs"),
                 ", but the data has ", classes(), " classes");
    append(result.logits, first, total, outputs);
    if (embedding) append(result.embedding, first, total, seen);
  }

  /// Of images; prepare(i, target) writes what the model gets of one of them.
  template <class Prepare>
  Prediction predict_prepared(std::int64_t total, bool embedding, const Prepare& prepare) const {
    require_images();
    const data::ImageShape shape = session->data.input_shape();
    return predict(total, embedding, [&](std::int64_t first, std::int64_t count) {
      const Tensor input = Tensor::empty({count, shape.height, shape.width, shape.channels});
      const std::int64_t stride = count > 0 ? input.size() / count : 0;
      cpu::parallel_chunks(count, [&](std::int64_t i) { prepare(first + i, input.data<float>() + i * stride); });
      return input;
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

  void require_images() const {
    HEARTH_CHECK(UsageError, sequences == nullptr, "predictor: the run was trained on text; use predict_text()");
  }
  std::int64_t classes() const { return session->data.train->classes(); }

  std::unique_ptr<train::Session> session;
  const data::LabelledText* sequences = nullptr;  ///< null where inputs are images
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

bool Predictor::takes_text() const { return body().sequences != nullptr; }

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
  return body().predict(total, embedding, [&](std::int64_t first, std::int64_t count) {
    const Tensor piece = Tensor::empty({count, here.dim(1), here.dim(2), here.dim(3)});
    std::memcpy(piece.data<float>(), here.data<float>() + first * (piece.size() / count), piece.byte_size());
    return piece;
  });
}

Prediction Predictor::predict_text(const std::vector<std::string>& sequences, bool embedding) const {
  const data::LabelledText* const set = body().sequences;
  HEARTH_CHECK(UsageError, set != nullptr, "predictor: the run was trained on images; use predict_files()");
  return body().predict(static_cast<std::int64_t>(sequences.size()), embedding,
                        [&](std::int64_t first, std::int64_t count) {
                          std::vector<std::vector<std::int32_t>> rows;
                          for (std::int64_t i = first; i < first + count; ++i) {
                            const std::string& text = sequences[static_cast<std::size_t>(i)];
                            const std::string name = join_text("text ", i + 1);
                            data::unicode::require_utf8(text, name);
                            try {
                              rows.push_back(set->input_of(text));
                            } catch (const DataError& error) {
                              throw DataError(join_text(name, ": ", error.what()));
                            }
                          }
                          return data::padded_rows(rows, set->tokenizer().special().pad);
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
  HEARTH_CHECK(IndexError, rows.defined() && row >= 0 && row < rows.dim(0) && rows.dim(1) == known, "top: row ", row,
               " of ", describe(rows));
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
