// SPDX-License-Identifier: Apache-2.0
#include <iomanip>
#include <iostream>

#include "hearth/core/json_text.h"
#include "hearth/core/non_finite.h"
#include "hearth/core/safetensors_set.h"
#include "hearth/models/weights.h"
#include "hearth/train/cli/cli.h"

namespace hearth::train {
namespace {

int inspect(const Arguments& arguments) {
  arguments.refuse_others("weights inspect", {"--json"});
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2, "weights inspect: takes one file, and writes none; \"",
               arguments.positional().back(), "\" is too much");
  const SafetensorsSet set{arguments.positional()[1]};
  set.verify();
  Json list = Json::array();
  std::int64_t elements = 0, damaged = 0;
  for (const SafetensorsSet::Item& item : set.items()) {
    const TensorRecord& record = *item.record;
    elements += record.shape.size();
    const NonFinite bad = count_non_finite(record.dtype, item.bytes());
    damaged += bad.any() ? 1 : 0;
    if (!arguments.has("--json")) {
      std::cout << std::left << std::setw(48) << record.name << " " << std::setw(5) << name_of(record.dtype) << " "
                << record.shape << (bad.any() ? "  " + bad.text() : "") << "\n";
      continue;
    }
    list.push_back(
        Json::object()
            .set("name", record.name)
            .set("dtype", name_of(record.dtype))
            .set("shape", Json::array_of(std::vector<std::int64_t>(record.shape.begin(), record.shape.end())))
            .set("nan", bad.nan)
            .set("infinite", bad.infinite));
  }
  if (arguments.has("--json"))
    std::cout << to_text(Json::object().set("tensors", list).set("elements", elements), 2) << "\n";
  else
    std::cout << set.items().size() << " tensors, " << elements << " elements\n";
  if (damaged > 0) std::cerr << "warning: " << damaged << " tensors have NaN or infinite values\n";
  return 0;
}

// Without the weights that --leave-out names by their beginnings.
void leave_out(models::WeightSet& set, const std::vector<std::string>& beginnings) {
  for (const std::string& beginning : beginnings) {
    const auto count =
        std::erase_if(set.weights, [&](const models::Weight& weight) { return weight.name.starts_with(beginning); });
    HEARTH_CHECK(UsageError, count > 0, "weights convert: --leave-out ", beginning, ": there is no such weight");
  }
}

// Finite values stay finite, or nothing is written.
void convert_values(models::WeightSet& set, DType dtype) {
  for (models::Weight& weight : set.weights) {
    if (!is_floating(weight.value.dtype())) continue;
    const Tensor before = weight.value;
    weight.value = before.to(dtype);
    const auto infinite = [](const Tensor& x) {
      return count_non_finite(x.dtype(), {x.bytes(), x.byte_size()}).infinite;
    };
    const std::int64_t lost = infinite(weight.value) - infinite(before);
    HEARTH_CHECK(DataError, lost == 0, "weights convert: ", lost, " finite values of ", weight.name,
                 " are too large for ", dtype, "; use --dtype ", dtype == DType::f16 ? "bf16 or f32" : "f32");
  }
}

int convert_file(const Arguments& arguments) {
  arguments.refuse_others("weights convert", {"--from", "--to", "--dtype", "--leave-out"});
  HEARTH_CHECK(UsageError, arguments.positional().size() == 3, "weights convert: give an input and an output file");
  const std::string& input = arguments.positional()[1];
  const std::string& output = arguments.positional()[2];
  const models::WeightFormat from = models::weight_format_named(arguments.value("--from").value_or("hearth"));
  const models::WeightFormat to = models::weight_format_named(arguments.value("--to").value_or("hearth"));
  const auto dtype = arguments.value("--dtype");
  HEARTH_CHECK(UsageError, !dtype || dtype == "f32" || dtype == "f16" || dtype == "bf16", "weights convert: --dtype ",
               dtype.value_or(""), "; use f32, f16 or bf16");
  models::WeightSet set = models::read_weights(input);
  leave_out(set, arguments.values("--leave-out"));
  models::NameReport report;
  set = models::to_hearth(set, from, report);
  if (report.fits()) set = models::from_hearth(set, to, report);
  HEARTH_CHECK(FileError, report.fits(), report.faults(input + ": "));
  const std::vector<std::string> non_finite = models::non_finite_tensors(set);
  if (dtype) convert_values(set, dtype_named(*dtype));
  std::vector<SafetensorsEntry> entries;
  for (const models::Weight& weight : set.weights) {
    entries.push_back({weight.name, weight.value.dtype(), weight.value.shape(),
                       std::span(weight.value.bytes(), weight.value.byte_size())});
  }
  set.metadata["format"] = "pt";
  if (to == models::WeightFormat::hearth)
    write_safetensors(output, entries, set.metadata);
  else
    write_plain_safetensors(output, entries, set.metadata);
  for (const std::string& name : report.left_out) std::cerr << "left out " << name << "\n";
  for (const std::string& text : non_finite) std::cerr << "warning: not finite: " << text << "\n";
  std::cerr << "wrote " << entries.size() << " tensors to " << output << "\n";
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
