// SPDX-License-Identifier: Apache-2.0
#include "models/weights/module_file.h"

#include <utility>
#include <vector>

#include "autograd/grad_state.h"
#include "core/io/safetensors.h"
#include "models/nn/module.h"
#include "models/weights/torch_file.h"
#include "models/weights/weights.h"
#include "models/weights/weights_import.h"

namespace hearth::nn {
namespace {

std::vector<NamedTensor> tensors_of(Module& module) {
  std::vector<NamedTensor> tensors = module.parameters();
  for (NamedTensor& buffer : module.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

/// What a file has of it: of weights in O2 the f32 values.
Tensor kept(const NamedTensor& named, const std::string& path) {
  if (!is_flat(*named.tensor)) return *named.tensor;
  const Tensor& master = named.tensor->grad_state()->master;
  HEARTH_CHECK(UsageError, master.defined() || size_of(named.tensor->dtype()) > 2, path, ": nothing is saved: of \"",
               named.name,
               "\" ranks have a part of the f32 values each; save those of a State that "
               "FlatParameters::register_masters() was given");
  return master.defined() ? master : *named.tensor;
}

}  // namespace

void save(Module& module, const std::string& path) {
  std::vector<Tensor> on_host;
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& named : tensors_of(module)) {
    HEARTH_CHECK(UsageError, !named.uninitialized, path, ": nothing is saved: \"", named.name, "\" ",
                 named.tensor->shape(),
                 " was never initialized; call nn::initialize(model, seed), or load its weights first");
    const Tensor host = kept(named, path).to(Device{}).contiguous();
    on_host.push_back(host);
    entries.push_back({named.name, host.dtype(), host.shape(), {host.bytes(), host.byte_size()}});
  }
  write_safetensors(path, std::move(entries));
}

void load(Module& module, const std::string& path) {
  models::WeightSet set = models::read_weights(path);
  std::erase_if(set.weights, models::counts_batches);
  // save() writes no such files: their filters are PyTorch's, which may have shapes that fit as they are.
  models::NameReport report;
  if (!models::torch_file_at(path).empty()) set = models::to_hearth(set, models::WeightFormat::torch, report);
  if (report.fits()) report = models::load_weights(tensors_of(module), set);
  HEARTH_CHECK(FileError, report.fits(), models::faults_with_reason(report, path + ": "));
}

}  // namespace hearth::nn
