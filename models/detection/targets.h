// SPDX-License-Identifier: Apache-2.0
// What detectors have in common: the maps of an image, checks of outputs, and what each point or anchor is to say.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "models/detection/detector.h"
#include "models/resnet.h"

namespace hearth::models {

/// A feature map of an image; `stride` pixels of the image lie between its positions.
struct FeatureMap {
  std::int64_t rows, columns, stride;
};

/// The maps of a feature pyramid on a residual trunk whose first stage is left out: each has half the rows and columns
/// of the one before, rounded up.
std::vector<FeatureMap> pyramid_maps(ResNetStem stem, std::int64_t height, std::int64_t width, std::size_t count);

/// Anchors of images of a size, map by map.
struct Anchors {
  std::vector<std::int64_t> counts;  ///< of each map
  Tensor boxes;                      ///< f64 [P, 4]
};

/// What a detector computes once for images of a size on a device. It stays, since recorded steps read it.
template <class T>
class BySize {
 public:
  /// Null where it is not known yet.
  const T* find(std::int64_t height, std::int64_t width, Device device) const {
    const auto place = all_.find({device.type, device.index, height, width});
    return place == all_.end() ? nullptr : &place->second;
  }
  const T& add(std::int64_t height, std::int64_t width, Device device, T value) {
    return all_.insert_or_assign({device.type, device.index, height, width}, std::move(value)).first->second;
  }

 private:
  std::map<std::tuple<DeviceType, int, std::int64_t, std::int64_t>, T> all_;
};

/// ShapeError, naming the model, unless outputs are [N, points, numbers].
void require_outputs(const char* model, const Tensor& outputs, std::int64_t points, std::int64_t numbers,
                     std::int64_t height, std::int64_t width);

/// The type of a loss of outputs: f32, or f64 of f64.
inline DType wide_type(const Tensor& outputs) { return outputs.dtype() == DType::f64 ? DType::f64 : DType::f32; }

/// The boxes of the images that the outputs are of, in that type. ShapeError, naming the model, for another number of
/// images.
BoxList boxes_for(const char* model, const Tensor& outputs, const TrueBoxes& truth);

/// What points are to say, those of all images behind one another.
struct PointTargets {
  Tensor is_object;  ///< bool [N P]
  Tensor counts;     ///< [N P, 1] of the boxes' type: 0 for points that are ignored, else 1
  Tensor labels;     ///< i64 [N P]: the class, `background` without a box
  Tensor boxes;      ///< [N P, 4], the unit square without a box
};

/// Of what assign_points() or assign_anchors() says, [N, P].
PointTargets targets_of(const Tensor& assigned, const Tensor& boxes, const Tensor& classes, std::int64_t background);

}  // namespace hearth::models
