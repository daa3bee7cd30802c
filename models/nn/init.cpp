// SPDX-License-Identifier: Apache-2.0
// Drawing initial values in blocks of fixed size, so that the thread pool's size does not matter.
#include "models/nn/init.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/parallel.h"

namespace hearth::nn {

namespace {

constexpr std::int64_t block_elements = 4096;

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// Element i becomes draw(its block's stream), in order within the block.
template <class Draw>
void fill(const Tensor& tensor, const InitStream& stream, const Draw& draw) {
  HEARTH_CHECK(UsageError, tensor.is_contiguous(), "initialisation: ", describe(tensor), " is not contiguous");
  visit_dtype("initialisation", tensor.dtype(), FullFloats{}, [&]<class T>() {
    T* values = tensor.data<T>();
    cpu::parallel_for(tensor.size(), block_elements, [&](std::int64_t begin, std::int64_t end) {
      Random random = stream.block(static_cast<std::uint32_t>(begin / block_elements));
      for (std::int64_t i = begin; i < end; ++i) values[i] = static_cast<T>(draw(random));
    });
  });
  tensor.storage()->bump_version();
}

double truncated(Random& random) {
  while (true) {
    const double value = random.normal();
    if (std::abs(value) <= 2.0) return value;
  }
}

}  // namespace

InitStream::InitStream(std::uint64_t seed, std::string_view name) : seed_(seed), name_hash_(fnv1a(name)) {}

namespace init {

Fans fans_of(const Shape& shape) {
  HEARTH_CHECK(ShapeError, shape.rank() == 2 || shape.rank() == 4, "initialisation: shape ", shape,
               " has no fan in and fan out; they are defined for [out, in] and [K, R, S, C]");
  if (shape.rank() == 2) return {shape[1], shape[0]};
  const std::int64_t window = shape[1] * shape[2];
  return {window * shape[3], window * shape[0]};
}

Init constant(double value) {
  return [value](const Tensor& tensor, const InitStream&) { tensor.fill_(value); };
}

Init uniform(double bound) {
  return [bound](const Tensor& tensor, const InitStream& stream) {
    fill(tensor, stream, [bound](Random& random) { return random.uniform(-bound, bound); });
  };
}

Init normal(double deviation) {
  return [deviation](const Tensor& tensor, const InitStream& stream) {
    fill(tensor, stream, [deviation](Random& random) { return deviation * random.normal(); });
  };
}

Init trunc_normal(double deviation) {
  return [deviation](const Tensor& tensor, const InitStream& stream) {
    fill(tensor, stream, [deviation](Random& random) { return deviation * truncated(random); });
  };
}

Init kaiming_normal_fan_out() {
  return [](const Tensor& tensor, const InitStream& stream) {
    const double fan = static_cast<double>(std::max<std::int64_t>(fans_of(tensor.shape()).out, 1));
    normal(std::sqrt(2.0 / fan))(tensor, stream);
  };
}

Init kaiming_uniform() {
  return [](const Tensor& tensor, const InitStream& stream) {
    const double fan = static_cast<double>(std::max<std::int64_t>(fans_of(tensor.shape()).in, 1));
    uniform(1.0 / std::sqrt(fan))(tensor, stream);
  };
}

namespace {
double fan_sum(const Tensor& tensor) {
  const Fans fans = fans_of(tensor.shape());
  return static_cast<double>(std::max<std::int64_t>(fans.in + fans.out, 1));
}
}  // namespace

Init xavier_uniform(double gain) {
  return [gain](const Tensor& tensor, const InitStream& stream) {
    uniform(gain * std::sqrt(6.0 / fan_sum(tensor)))(tensor, stream);
  };
}

Init xavier_normal(double gain) {
  return [gain](const Tensor& tensor, const InitStream& stream) {
    normal(gain * std::sqrt(2.0 / fan_sum(tensor)))(tensor, stream);
  };
}

Init orthogonal(double gain) {
  return [gain](const Tensor& tensor, const InitStream& stream) {
    HEARTH_CHECK(ShapeError, tensor.rank() >= 2 && tensor.size() > 0, "orthogonal initialisation: ", describe(tensor),
                 " is not a matrix; give a tensor of rank 2 or more");
    const Eigen::Index rows = tensor.dim(0);
    const Eigen::Index columns = tensor.size() / rows;
    const Tensor drawn = Tensor::empty(tensor.shape(), DType::f64);
    normal(1.0)(drawn, stream);
    using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const Eigen::Map<Matrix> source(drawn.data<double>(), rows, columns);
    // Columns can only be orthonormal in a tall matrix, so a wide one is made as the transpose of a tall one.
    const Eigen::MatrixXd tall = rows >= columns ? Eigen::MatrixXd(source) : Eigen::MatrixXd(source.transpose());
    const Eigen::HouseholderQR<Eigen::MatrixXd> qr(tall);
    Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(tall.rows(), tall.cols());
    // Signs of R's diagonal make the distribution uniform over the orthogonal matrices.
    for (Eigen::Index j = 0; j < q.cols(); ++j) {
      if (qr.matrixQR()(j, j) < 0) q.col(j) = -q.col(j);
    }
    Eigen::Map<Matrix> target(drawn.data<double>(), rows, columns);
    target = gain * (rows >= columns ? q : Eigen::MatrixXd(q.transpose()));
    tensor.copy_from(drawn);
  };
}

}  // namespace init
}  // namespace hearth::nn
