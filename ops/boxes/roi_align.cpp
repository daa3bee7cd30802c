// SPDX-License-Identifier: Apache-2.0
#include "ops/boxes/roi_align.h"

#include <cmath>

#include "autograd/record.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/index/index.h"

namespace hearth {
namespace {

struct RoiAlign {
  static constexpr OpInfo info{.name = "roi_align"};
  struct Saved {
    SavedTensor boxes, images;
    Shape shape;
  };
  kernels::RoiGrid grid;
  Tensor boxes, images;

  Tensor forward(Saved& saved, const Tensor& x_in) const {
    const Tensor x = x_in.contiguous();
    const Tensor wide = boxes.detach().to(x.dtype() == DType::f64 ? DType::f64 : DType::f32).contiguous();
    const Tensor y = Tensor::empty({boxes.dim(0), grid.rows, grid.columns, x.dim(3)}, x.dtype(), x.device());
    if (y.size() > 0) run_on(x.device(), [&](auto& stream) { kernels::roi_align(stream, grid, x, wide, images, y); });
    if (is_recording()) {
      saved.boxes = wide;
      saved.images = images;
      saved.shape = x.shape();
    }
    return y;
  }

  std::array<Tensor, 1> backward(const Saved& saved, const Tensor& dy, const NeedsGrad& needs) const {
    const Tensor dx = needs.make(0, saved.shape, dy.dtype());
    if (dy.size() == 0)
      dx.fill_(0);
    else
      run_on(dy.device(), [&](auto& stream) {
        kernels::roi_align_grad(stream, grid, saved.boxes.get(), saved.images.get(), dy.contiguous(), dx);
      });
    return {dx};
  }
};

}  // namespace

Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& images, const RoiAlignOptions& options) {
  const char* const op = "roi_align";
  require_floating(op, "x", x);
  require_floating(op, "boxes", boxes);
  require_index_type(op, "images", images);
  HEARTH_CHECK(ShapeError, x.rank() == 4 && x.dim(1) > 0 && x.dim(2) > 0, op, ": x ", x.shape(),
               " must be [N, H, W, C] with pixels");
  HEARTH_CHECK(ShapeError, boxes.rank() == 2 && boxes.dim(1) == 4, op, ": boxes ", boxes.shape(), " must be [K, 4]");
  HEARTH_CHECK(ShapeError, images.shape() == Shape{boxes.dim(0)}, op, ": images ", images.shape(), " beside boxes ",
               boxes.shape(), "; there must be one for each");
  for (const Tensor& other : {boxes, images})
    HEARTH_CHECK(DeviceError, other.device() == x.device(), op, ": x is on ", name_of(x.device()),
                 " but boxes or images on ", name_of(other.device()), "; move one with to(device)");
  HEARTH_CHECK(UsageError, options.size.h >= 1 && options.size.w >= 1, op, ": size ", options.size.h, " x ",
               options.size.w, "; it must be at least 1 x 1");
  HEARTH_CHECK(UsageError, options.scale > 0 && std::isfinite(options.scale), op, ": scale ", options.scale,
               "; it must be finite and above 0");
  HEARTH_CHECK(UsageError, options.samples >= 0, op, ": ", options.samples,
               " samples; it must be at least 0 (0: as many as a bin has pixels)");
  const Tensor wide = images.to(DType::i64).contiguous();
  run_on(x.device(), [&](auto& stream) { kernels::check_indices(stream, op, wide, x.dim(0)); });
  const kernels::RoiGrid grid{options.size.h, options.size.w, options.samples, options.scale, options.aligned};
  return record(RoiAlign{grid, boxes, wide}, x);
}

}  // namespace hearth
