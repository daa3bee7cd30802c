// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/synced_statistics.h"

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/run_on.h"

namespace hearth::kernels {
namespace {

/// [1 + 2 C], f64 on the host: values a channel, means, biased variances.
Tensor own_statistics(const Tensor& x, const ChannelNorm& o) {
  const std::int64_t channels = x.dim(-1), values = x.size() / channels;
  Tensor row = Tensor::zeros({1 + 2 * channels}, DType::f64);
  double* const to = row.data<double>();
  to[0] = static_cast<double>(values);
  if (values == 0) return row;
  // Of a normalisation without eps the deviations can be read.
  const BatchNormOptions plain{.eps = 0};
  const Tensor none, ones = Tensor::full(o.gamma.shape(), 1, o.gamma.dtype(), x.device()),
                     table = Tensor::empty(o.coefficients.shape(), o.coefficients.dtype(), x.device()),
                     rstd = Tensor::empty(o.rstd.shape(), DType::f64, x.device());
  run_on(x.device(), [&](auto& stream) {
    batch_norm_coefficients(stream, x, {ones, ones, plain, none, none, table, rstd});
  });
  const std::vector<double> means = table.to_doubles(), inverses = rstd.to_doubles();
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<std::size_t>(c);
    // What rounding took from the mean is the last row.
    to[1 + c] = means[at] + means[at + 3 * inverses.size()];
    to[1 + channels + c] = 1 / (inverses[at] * inverses[at]);
  }
  return row;
}

}  // namespace

double synced_coefficients(Collective& group, const Tensor& x, const ChannelNorm& o) {
  const std::int64_t channels = x.dim(-1), length = 1 + 2 * channels;
  if (channels == 0) return 0;
  const Tensor all = Tensor::zeros({group.size() * length}, DType::f64);
  group.all_gather(own_statistics(x, o), all).wait();
  const double* const rows = all.data<const double>();
  double values = 0;
  for (int rank = 0; rank < group.size(); ++rank) values += rows[rank * length];
  HEARTH_CHECK(ShapeError, values >= 2, "batch_norm: ", values,
               " values a channel on all ranks; training needs at least 2, or the variance is undefined");
  std::vector<double> means(static_cast<std::size_t>(channels)), variances(means.size());
  for (std::int64_t c = 0; c < channels; ++c) {
    double &mean = means[static_cast<std::size_t>(c)], &variance = variances[static_cast<std::size_t>(c)];
    for (int rank = 0; rank < group.size(); ++rank) mean += rows[rank * length] * rows[rank * length + 1 + c];
    mean /= values;
    for (int rank = 0; rank < group.size(); ++rank) {
      const double* const row = rows + rank * length;
      const double off = row[1 + c] - mean;
      variance += row[0] * (row[1 + channels + c] + off * off);
    }
    variance /= values;
  }
  // On the host, and back where x is elsewhere.
  const auto on_host = [](const Tensor& tensor) { return tensor.defined() ? tensor.to(Device{}) : tensor; };
  const Tensor gamma = on_host(o.gamma), beta = on_host(o.beta), running_mean = on_host(o.running_mean),
               running_var = on_host(o.running_var), coefficients = on_host(o.coefficients), rstd = on_host(o.rstd);
  write_coefficients(means.data(), variances.data(), values,
                     {gamma, beta, o.options, running_mean, running_var, coefficients, rstd});
  if (x.device().is_cpu()) return values;
  o.coefficients.copy_from(coefficients);
  o.rstd.copy_from(rstd);
  if (!o.running_mean.defined()) return values;
  o.running_mean.copy_from(running_mean);
  o.running_var.copy_from(running_var);
  return values;
}

void synced_corrections(Collective& group, double values, const Tensor& coefficients, const Tensor& rstd,
                        const Tensor& d_gamma, const Tensor& d_beta, const Tensor& corrections) {
  const std::int64_t channels = rstd.size();
  if (channels == 0) return;
  std::vector<double> sums = d_gamma.to_doubles();
  for (const double value : d_beta.to_doubles()) sums.push_back(value);
  const Tensor all = Tensor::of<double>({2 * channels}, sums);
  group.all_reduce(all).wait();
  const std::vector<double> table = coefficients.to_doubles(), inverse = rstd.to_doubles();
  std::vector<double> result(sums.size());
  for (std::size_t c = 0; c < inverse.size(); ++c) {
    const double b = all.data<const double>()[c] * inverse[c] / values, rest = table[3 * inverse.size() + c];
    result[c] = all.data<const double>()[inverse.size() + c] / values - b * rest;
    result[inverse.size() + c] = b;
  }
  corrections.copy_from(Tensor::of<double>({2, channels}, result).to(corrections.dtype()));
}

}  // namespace hearth::kernels
