// SPDX-License-Identifier: Apache-2.0
#include "train/step/agreement.h"

#include "core/build.h"
#include "core/cpu/isa.h"
#include "core/cuda/emulation.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "dist/agreement.h"

namespace hearth::train {
namespace {

void add_values(dist::NamedValues& values, const std::string& name, const Json& json) {
  const std::string prefix = name.empty() ? "" : name + ".";
  if (json.is_object() && json.size() > 0)
    for (const JsonMember& member : json.members()) add_values(values, prefix + member.key, member.value);
  else if (json.is_array() && json.size() > 0)
    for (std::size_t i = 0; i < json.size(); ++i) add_values(values, join_text(prefix, i), json.at(i));
  else  // 60 and 60.0 are the same
    values.emplace_back(name, to_text(json.is_integer() ? Json(json.as_integer()) : json));
}

/// "checksum 81bac7d1"
std::string checksum_of(std::span<const std::byte> bytes) { return "checksum " + hex_of(crc32c(bytes)); }

/// The values below a JSON value, each under its path: "train.batch_size".
dist::NamedValues named_values(const Json& json) {
  dist::NamedValues values;
  add_values(values, "", json);
  return values;
}

/// What tells tensors and numbers from others. Every rank calls it where ranks have a part of them each.
dist::NamedValues checksums(const State& state) {
  dist::NamedValues values;
  for (const State::Entry& entry : state.entries()) {
    std::uint32_t sum = 0;
    entry.visit([&](std::span<const std::byte> part) { sum = crc32c(part, sum); });
    values.emplace_back(entry.name, join_text(entry.dtype, ' ', entry.shape, ", checksum ", hex_of(sum)));
  }
  return values;
}

}  // namespace

void require_same_run(Collective& group, const RunConfig& config, const Json& resolved, Device device) {
  dist::set_status(group, "the start");
  dist::require_same(group, "configuration", named_values(resolved));
  dist::NamedValues program{
      {"build", join_text(build::version, ", ", build::type, " by ", build::compiler,
                          HEARTH_HAS_DNNL ? ", oneDNN" : ", no oneDNN", cuda::is_emulated() ? ", emulated GPU" : "")},
      {"device", device.is_cuda() ? "cuda" : "cpu"}};
  if (config.train.deterministic) program.emplace_back("instruction set", name_of(cpu::isa()));
  dist::require_same(group, "program", program,
                     "all ranks run the same build on devices of one kind; in deterministic mode HEARTH_ISA can lower "
                     "the instruction set of all to one");
}

void require_same_start(Collective& group, const data::DataSplits& data, const Json& fingerprint, const State& model,
                        const State& training) {
  dist::NamedValues values = named_values(fingerprint);
  for (const std::string& name : data.train->class_names())
    values.emplace_back(join_text("class ", values.size()), name);
  // The fingerprint has the numbers of rows and ids only.
  if (data.train->tokens() != nullptr) {
    const data::Batch first = data.eval_loader(data.train, 8).next();
    for (const data::Batch::Named& one : first.tensors())
      values.emplace_back("train.first " + one.name, checksum_of({one.tensor.bytes(), one.tensor.byte_size()}));
  }
  dist::require_same(group, "data", values);
  dist::require_same(group, "weights to begin with", checksums(model));
  dist::require_same(group, "state to begin with", checksums(training));
}

void require_same_weights(Collective& group, const FlatParameters& parameters, const std::vector<NamedTensor>& buffers,
                          const std::string& when) {
  dist::NamedValues mine;
  const auto add = [&](const std::string& name, const Tensor& x) {
    x.storage()->bring();
    const Tensor host = x.to(Device{});
    mine.emplace_back(name, checksum_of({host.bytes(), host.byte_size()}));
  };
  for (const FlatParameters::Entry& entry : parameters.entries()) add(entry.name, entry.value);
  for (const NamedTensor& buffer : buffers) add(buffer.name, *buffer.tensor);
  dist::require_same(
      group, "weights at " + when, mine,
      "no checkpoint is written of weights that differ; hooks change those of all ranks alike, else look "
      "at the memory of that machine");
}

}  // namespace hearth::train
