// SPDX-License-Identifier: Apache-2.0
#include "models/weights/module_file.h"

#include <utility>
#include <vector>

#include "core/io/safetensors.h"
#include "models/nn/module.h"
#include "models/weights/weights.h"

namespace hearth::nn {
namespace {

std::vector<NamedTensor> tensors_of(Module& module) {
  std::vector<NamedTensor> tensors = module.parameters();
  for (NamedTensor& buffer : module.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

}  // namespace

void save(Module& module, const std::string& path) {
  std::vector<Tensor> on_host;
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& named : tensors_of(module)) {
    HEARTH_CHECK(UsageError, !named.uninitialized, path, ": nothing is saved: \"", named.name, "\" ",
                 named.tensor->shape(),
                 " was never initialized; call nn::initialize(model, seed), or load its weights first");
    const Tensor host = named.tensor->to(Device{}).contiguous();
    on_host.push_back(host);
    entries.push_back({named.name, host.dtype(), host.shape(), {host.bytes(), host.byte_size()}});
  }
  write_safetensors(path, std::move(entries));
}

void load(Module& module, const std::string& path) {
  models::WeightSet set = models::read_weights(path);
  std::erase_if(set.weights, models::counts_batches);
  const models::NameReport report = models::load_weights(tensors_of(module), set);
  HEARTH_CHECK(FileError, report.fits(), report.faults(path + ": "));
}

}  // namespace hearth::nn
