// SPDX-License-Identifier: Apache-2.0
#include "train/predictor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/cpu/parallel.h"
#include "models/embedding_model.h"
#include "ops/ops.h"
#include "train/checkpoint/checkpoint.h"
#include "train/predict/answer.h"
#include "train/session.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"

namespace hearth {
namespace {

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

}  // namespace

struct Predictor::Body {
  explicit Body(std::unique_ptr<train::Session> opened) : session(std::move(opened)) {
    HEARTH_CHECK(UsageError, session->task->form().predictor_function != nullptr,
                 "predictor: the run's task writes text; use train::generate_text() or train::translate()");
    session->use_averaged_weights();
    session->model->eval();
  }

  train::InputPieces inputs(const train::OutsideSamples& samples) const {
    return session->task->outside_inputs(*session, samples);
  }

  Prediction predict(const train::OutsideSamples& samples, bool embedding) const {
    const train::InputPieces pieces = inputs(samples);
    Prediction result;
    for (std::int64_t first = 0; first < pieces.total; first += pieces.at_once) {
      const RandomScope random(train::evaluation_key(*session, first / pieces.at_once));
      compute(result, first, pieces, embedding);
    }
    if (pieces.total == 0) result.logits = Tensor::empty({0, classes()});
    // A task of the program's own may have other outputs than scores of the classes.
    if (!names_exclude_each_other() || result.logits.rank() < 2 || result.logits.dim(-1) != classes()) return result;
    const CoresScope cores;
    const NoGrad no_grad;
    result.probabilities = softmax(result.logits);
    return result;
  }

  /// Of the piece that begins at sample `first`.
  void compute(Prediction& result, std::int64_t first, const train::InputPieces& pieces, bool embedding) const {
    const nn::Inputs inputs = pieces.make(first, std::min(pieces.at_once, pieces.total - first));
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
    data::Batch batch;
    for (std::size_t i = 0; i < inputs.size(); ++i) batch.set(join_text(i), inputs[i]);
    nn::Inputs moved;
    const data::Batch arrived = train::on_device(*session, batch);
    for (const data::Batch::Named& input : arrived.tensors()) moved.push_back(input.tensor);
    const Tensor seen = embedding ? embeds->embedding(moved[0]) : Tensor();
    const Tensor outputs = embedding ? embeds->outputs_of(seen) : (*session->model)(moved);
    const std::int64_t count = moved[0].dim(0);
    HEARTH_CHECK(
        ShapeError,
        outputs.rank() >= 1 && outputs.dim(0) == count &&
            (!pieces.classifies || !names_exclude_each_other() || (outputs.rank() == 2 && outputs.dim(1) == classes())),
        "predict: the model gives ", describe(outputs), " of ",
        count == 1 ? std::string("one input") : join_text(count, " inputs"), ", but the data has ", classes(),
        " classes");
    append(result.logits, first, pieces.total, outputs);
    if (embedding) append(result.embedding, first, pieces.total, seen);
  }

  /// Whether each output is the score of a class, of which an input has one.
  bool names_exclude_each_other() const { return classes() > 0 && session->task->has_accuracy(); }
  std::int64_t classes() const { return session->data.train->classes(); }

  std::unique_ptr<train::Session> session;
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

bool Predictor::takes_text() const { return &body().session->task->form() == &train::sequences_form(); }

data::ImageShape Predictor::input_shape() const {
  (void)body().inputs(train::ImageFiles{});
  return body().session->data.input_shape();
}

Prediction Predictor::predict(const train::OutsideSamples& samples, bool embedding) const {
  return body().predict(samples, embedding);
}

Prediction Predictor::predict_files(const std::vector<std::string>& paths, bool embedding) const {
  return predict(train::ImageFiles{paths}, embedding);
}

Prediction Predictor::predict_images(std::span<const data::Image> images, bool embedding) const {
  return predict(train::DecodedImages{images}, embedding);
}

Prediction Predictor::predict_tensor(const Tensor& images, bool embedding) const {
  return predict(train::ImageTensor{images}, embedding);
}

Prediction Predictor::predict_text(const std::vector<std::string>& sequences, bool embedding) const {
  return predict(train::Sequences{sequences}, embedding);
}

Prediction Predictor::predict_rows(const std::string& path, bool embedding) const {
  return predict(train::RowsOfFile{path}, embedding);
}

Prediction Predictor::predict_rows(const Tensor& rows, bool embedding) const {
  return predict(train::RowsOfTensor{rows}, embedding);
}

Prediction Predictor::predict_batch(const data::Batch& batch) const { return predict(train::BatchSamples{batch}); }

Tensor Predictor::prepared(const std::string& path) const {
  return body().inputs(train::ImageFiles{{&path, 1}}).make(0, 1).at(0);
}

std::vector<Predictor::Class> Predictor::top(const Prediction& prediction, std::int64_t row, std::int64_t count) const {
  return top_classes(prediction, classes(), row, count);
}

}  // namespace hearth
