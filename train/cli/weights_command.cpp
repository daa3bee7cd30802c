// SPDX-License-Identifier: Apache-2.0
#include <iomanip>
#include <iostream>

#include "hearth/core/json_text.h"
#include "hearth/core/safetensors.h"
#include "hearth/models/import.h"
#include "hearth/train/cli/cli.h"

namespace hearth::train {
namespace {

int inspect(const Arguments& arguments) {
  const SafetensorsFile file(arguments.positional()[1]);
  file.verify();
  Json list = Json::array();
  std::int64_t elements = 0;
  for (const TensorRecord& record : file.records()) {
    elements += record.shape.size();
    if (!arguments.has("--json")) {
      std::cout << std::left << std::setw(48) << record.name << " " << std::setw(5) << name_of(record.dtype) << " "
                << record.shape << "\n";
      continue;
    }
    list.push_back(
        Json::object()
            .set("name", record.name)
            .set("dtype", name_of(record.dtype))
            .set("shape", Json::array_of(std::vector<std::int64_t>(record.shape.begin(), record.shape.end()))));
  }
  if (arguments.has("--json"))
    std::cout << to_text(Json::object().set("tensors", list).set("elements", elements), 2) << "\n";
  else
    std::cout << file.records().size() << " tensors, " << elements << " elements\n";
  return 0;
}

Tensor converted(const TensorRecord& record, std::span<const std::byte> bytes, const Arguments& arguments) {
  Tensor tensor = Tensor::empty(record.shape, record.dtype);
  std::copy(bytes.begin(), bytes.end(), tensor.bytes());
  if (arguments.has("--to-torch")) tensor = models::to_torch_layout(record.name, tensor);
  if (arguments.has("--from-torch")) tensor = models::from_torch_layout(record.name, tensor);
  if (const auto dtype = arguments.value("--dtype"); dtype && is_floating(record.dtype))
    tensor = tensor.to(dtype_named(*dtype));
  return tensor;
}

int convert_file(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 3, "weights convert: give an input and an output file");
  HEARTH_CHECK(UsageError, !arguments.has("--to-torch") || !arguments.has("--from-torch"),
               "weights convert: --to-torch and --from-torch exclude each other");
  const SafetensorsFile file(arguments.positional()[1]);
  std::vector<Tensor> tensors;
  for (const TensorRecord& record : file.records()) tensors.push_back(converted(record, file.bytes(record), arguments));
  std::vector<SafetensorsEntry> entries;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    entries.push_back({file.records()[i].name, tensors[i].dtype(), tensors[i].shape(),
                       std::span(tensors[i].bytes(), tensors[i].byte_size())});
  write_safetensors(arguments.positional()[2], entries, {{"format", "pt"}});
  std::cerr << "wrote " << entries.size() << " tensors to " << arguments.positional()[2] << "\n";
  return 0;
}

}  // namespace

int weights_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  if (what == "inspect") return inspect(arguments);
  if (what == "convert") return convert_file(arguments);
  throw UsageError(join_text("weights: \"", what, "\" is not known; use inspect or convert"));
}

}  // namespace hearth::train
