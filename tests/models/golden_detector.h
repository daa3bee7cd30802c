// SPDX-License-Identifier: Apache-2.0
// A detector beside torchvision's with the same weights (golden/make_fcos.py, golden/make_anchor_detectors.py).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "core/io/json_text.h"
#include "models/detection/detector.h"
#include "models/nn/module.h"
#include "ops/ops.h"
#include "tests/models/formula_weights.h"
#include "tests/support/places.h"

namespace hearth::test {

/// A model in f64 with the golden weights, and the images and boxes of the file.
struct GoldenDetector {
  Json golden;
  std::unique_ptr<nn::Module> model;
  models::Detector* detector;
  std::unique_ptr<FlatParameters> parameters;  // so that they have gradients
  Tensor images;
  models::TrueBoxes truth;
  std::int64_t height, width;

  template <class Model>
  GoldenDetector(const std::string& file, std::unique_ptr<Model> made)
      : golden(read_json(source_dir() + "/tests/golden/" + file)),
        detector(made.get()),
        height(golden.at("height").as_integer()),
        width(golden.at("width").as_integer()) {
    model = std::move(made);
    model->to(DType::f64);
    set_formula_weights(*model);
    parameters = std::make_unique<FlatParameters>(model->parameters());
    std::vector<double> pixels, boxes;
    std::vector<std::int64_t> classes, counts;
    const Json& all = golden.at("boxes");
    for (std::size_t i = 0; i < all.size(); ++i) {
      counts.push_back(static_cast<std::int64_t>(all.at(i).size()));
      for (std::size_t k = 0; k < all.at(i).size(); ++k) {
        for (std::size_t n = 0; n < 4; ++n) boxes.push_back(all.at(i).at(k).at(n).as_number());
        classes.push_back(golden.at("labels").at(i).at(k).as_integer());
      }
    }
    const Shape shape{static_cast<std::int64_t>(counts.size()), height, width, 3};
    for (std::int64_t i = 0; i < shape.size(); ++i) pixels.push_back(static_cast<double>((7 * i + 3) % 23 - 11) / 8);
    images = Tensor::of(shape, pixels);
    const auto n = static_cast<std::int64_t>(classes.size());
    truth = {{Tensor::of({n, 4}, boxes), Tensor::of<std::int64_t>({shape[0]}, counts)},
             Tensor::of<std::int64_t>({n}, classes)};
  }

  Tensor outputs() { return (*model)(images); }
  Tensor loss(const Tensor& outputs, const models::TrueBoxes& boxes) {
    return detector->loss(outputs, height, width, boxes);
  }

  /// Every `step`-th point of the file's outputs, its loss, and sum and length of each gradient.
  void expect_outputs_loss_and_gradients(std::int64_t step) {
    model->train();
    const Tensor all = outputs();
    const std::vector<double> values = slice(all.detach(), 1, 0, all.dim(1), step).to_doubles();
    const Json& wanted = golden.at("outputs");
    ASSERT_EQ(values.size(), wanted.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], wanted.at(i).as_number(), 1e-9 * std::max(1.0, std::abs(values[i]))) << i;
    const Tensor total = loss(all, truth);
    EXPECT_NEAR(total.item(), golden.at("loss").as_number(), 1e-9 * total.item());
    backward(total);
    const Json& gradients = golden.at("gradients");
    std::size_t compared = 0;
    for (const NamedTensor& named : model->parameters()) {
      const Json* const both = gradients.find(named.name);
      ASSERT_NE(both, nullptr) << named.name;
      const Tensor gradient = grad_of(*named.tensor);
      const double norm = both->at(1).as_number();
      EXPECT_NEAR(sum(gradient).item(), both->at(0).as_number(), 1e-9 * std::max(1.0, norm)) << named.name;
      EXPECT_NEAR(std::sqrt(sum(square(gradient)).item()), norm, 1e-9 * std::max(1.0, norm)) << named.name;
      ++compared;
    }
    EXPECT_EQ(compared, gradients.size());
  }

  void expect_detections(const models::DetectionOptions& options) {
    // As there, the running statistics have seen a batch.
    model->train();
    (void)outputs();
    model->eval();
    const std::vector<models::Detections> all = detector->detections(outputs(), height, width, options);
    const Json& wanted = golden.at("detections");
    ASSERT_EQ(all.size(), wanted.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Json &boxes = wanted.at(i).at("boxes"), &scores = wanted.at(i).at("scores"),
                 &labels = wanted.at(i).at("labels");
      ASSERT_GE(static_cast<std::size_t>(all[i].scores.size()), scores.size());
      const std::vector<double> my_scores = all[i].scores.to_doubles(), my_classes = all[i].classes.to_doubles(),
                                my_boxes = all[i].boxes.to_doubles();
      // Equal scores of f64 may be in another order in f32.
      const auto is_near = [&](std::size_t mine, std::size_t k) {
        bool is_same =
            std::abs(my_scores[mine] - scores.at(k).as_number()) < 1e-5 && my_classes[mine] == labels.at(k).as_number();
        for (std::size_t n = 0; n < 4; ++n)
          is_same = is_same && std::abs(my_boxes[4 * mine + n] - boxes.at(4 * k + n).as_number()) < 1e-3;
        return is_same;
      };
      for (std::size_t k = 0; k < scores.size(); ++k) {
        EXPECT_NEAR(my_scores[k], scores.at(k).as_number(), 1e-5);
        bool is_there = false;
        for (std::size_t mine = 0; mine < my_scores.size(); ++mine) is_there = is_there || is_near(mine, k);
        EXPECT_TRUE(is_there) << "box " << k << " of image " << i;
      }
    }
  }

  models::TrueBoxes no_boxes() const {
    return {{Tensor::zeros({0, 4}, DType::f64), Tensor::zeros({images.dim(0)}, DType::i64)},
            Tensor::zeros({0}, DType::i64)};
  }

  void expect_finite_loss_without_boxes() {
    model->train();
    const Tensor total = loss(outputs(), no_boxes());
    EXPECT_TRUE(std::isfinite(total.item()));
    EXPECT_GE(total.item(), 0);
    backward(total);
    for (const NamedTensor& named : model->parameters())
      EXPECT_TRUE(std::isfinite(sum(grad_of(*named.tensor)).item())) << named.name;
  }

  /// The loss where the first image has this box, which is ignored or not.
  double loss_of_box(const Tensor& outputs, const std::vector<double>& box, bool is_ignored) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(images.dim(0)), 0);
    counts[0] = 1;
    models::TrueBoxes boxes{{Tensor::of<double>({1, 4}, box), Tensor::of<std::int64_t>({images.dim(0)}, counts)},
                            Tensor::zeros({1}, DType::i64)};
    if (is_ignored) boxes.list.ignored = Tensor::full({1}, 1, DType::boolean);
    return loss(outputs, boxes).item();
  }
};

}  // namespace hearth::test
