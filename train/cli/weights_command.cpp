// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "core/io/printable.h"
#include "core/io/safetensors.h"
#include "models/weights/non_finite.h"
#include "models/weights/swin_weights.h"
#include "models/weights/weights_import.h"
#include "train/checkpoint/trained_weights.h"
#include "train/cli/commands.h"

namespace hearth::train {
namespace {

/// A tensor's line, or its entry in `list`.
void show(const std::string& name, DType dtype, const Shape& shape, const NonFinite& bad, Json* list) {
  if (list == nullptr) {
    std::cout << std::left << std::setw(48) << printable(name) << " " << std::setw(5) << name_of(dtype) << " " << shape
              << (bad.any() ? "  " + bad.text() : "") << "\n";
    return;
  }
  list->push_back(Json::object()
                      .set("name", name)
                      .set("dtype", name_of(dtype))
                      .set("shape", Json::array_of(std::vector<std::int64_t>(shape.begin(), shape.end())))
                      .set("nan", bad.nan)
                      .set("infinite", bad.infinite));
}

int inspect(const Arguments& arguments) {
  arguments.refuse_others("weights inspect", {"--json"});
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2, "weights inspect: takes one file, and writes none; \"",
               arguments.positional().back(), "\" is too much");
  const models::WeightSet set = models::read_weights(arguments.positional()[1]);
  Json list = Json::array();
  std::int64_t elements = 0, damaged = 0;
  for (const models::Weight& weight : set.weights) {
    const Tensor& value = weight.value;
    const NonFinite bad = count_non_finite(value.dtype(), {value.bytes(), value.byte_size()});
    elements += value.size();
    damaged += bad.any() ? 1 : 0;
    show(weight.name, value.dtype(), value.shape(), bad, arguments.has("--json") ? &list : nullptr);
  }
  const Json model = models::noted_model(set, arguments.positional()[1]);
  if (arguments.has("--json")) {
    Json result = Json::object().set("tensors", list).set("elements", elements);
    if (!model.is_null()) result.set("model", model);
    std::cout << to_text(result, 2) << "\n";
  } else {
    std::cout << set.weights.size() << " tensors, " << elements << " elements\n";
    if (!model.is_null()) std::cout << "the model: " << to_text(model) << "\n";
  }
  for (const std::string& note : set.notes) std::cerr << "warning: " << printable(note) << "\n";
  if (damaged > 0) std::cerr << "warning: " << damaged << " tensors have NaN or infinite values\n";
  return 0;
}

// Writing a file that is read from would destroy it, whatever name it is given by.
void refuse_input_as_output(const std::string& input, const std::string& config, const std::string& output) {
  std::vector<std::filesystem::path> read = models::weight_files(input);
  read.emplace_back(config.empty() ? models::default_config_of(input) : config);
  for (const std::filesystem::path& path : read) {
    std::error_code absent;
    HEARTH_CHECK(UsageError, !std::filesystem::equivalent(path, output, absent), "weights convert: ", output, " is ",
                 path.string(), ", which is read; give the result another name");
  }
}

/// What the result is written into is no part of a checkpoint, which would no longer be whole.
void refuse_checkpoint_as_output(const std::string& checkpoint, const std::string& output) {
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  std::error_code absent;
  HEARTH_CHECK(UsageError, !std::filesystem::equivalent(checkpoint, folder.empty() ? "." : folder, absent),
               "weights convert: ", output, " is in ", checkpoint,
               ", a checkpoint, which has files of its own; write the result elsewhere");
}

/// The run or the checkpoint that FILE names, if it names one; `--raw` leaves its average.
std::optional<TrainedWeights> trained_weights(const Arguments& arguments, models::WeightFormat from) {
  const std::string& input = arguments.positional()[1];
  auto trained = from == models::WeightFormat::hearth ? find_trained_weights(input) : std::nullopt;
  const bool raw = arguments.has("--raw");
  HEARTH_CHECK(UsageError, trained || !raw, "weights convert: --raw is for the folder of a run or of a checkpoint; ",
               input, " is neither, leave it out");
  if (trained && raw) trained->averaged = false;
  return trained;
}

/// Which weights of a run are written; "" where there is but one choice.
std::string weights_note(const std::string& input, const std::optional<TrainedWeights>& trained) {
  namespace fs = std::filesystem;
  if (trained && trained->averaged)
    return "the weights are the moving average (train.ema) of " + trained->checkpoint +
           ", as for eval and predict; --raw gives those of the last update";
  const fs::path path(input);
  const fs::path folder = trained ? fs::path(trained->checkpoint) : path.parent_path();
  if (!trained && path.filename() != "model.safetensors") return "";
  const auto kept = find_trained_weights(folder.empty() ? "." : folder.string());
  if (!kept || !kept->averaged) return "";
  return join_text(
      "the weights are those of the last update, not their moving average (train.ema), which eval and "
      "predict use; ",
      trained ? "leave --raw out for that" : "give the folder for that");
}

/// What timm computes otherwise of these weights, in Hearth's names, for images as a checkpoint had them, or of any
/// size.
std::string timm_note(const models::WeightSet& ours, const std::optional<TrainedWeights>& trained) {
  const std::int64_t multiple = models::timm_multiple(ours);
  if (multiple == 0) return "";
  const std::string path = trained ? trained->checkpoint + "/data.json" : "";
  const Json facts = file_exists(path) ? read_json(path, small_file) : Json();
  if (const Json* const image = facts.is_object() ? facts.find("image") : nullptr; image && image->size() == 3)
    return models::timm_difference(ours, image->at(0).as_integer(), image->at(1).as_integer());
  return join_text("timm computes the same from images whose sides are multiples of ", multiple,
                   "; where windows do not divide the tokens it shifts them before it fills them up, Hearth and "
                   "torchvision afterwards");
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
                 " are too large for ", dtype, "; leave --dtype out to keep ", before.dtype(),
                 dtype == DType::f16 ? ", or use --dtype bf16" : "");
  }
}

int convert_file(const Arguments& arguments) {
  arguments.refuse_others("weights convert", {"--from", "--to", "--dtype", "--leave-out", "--config", "--raw"});
  HEARTH_CHECK(UsageError, arguments.positional().size() == 3, "weights convert: give an input and an output file");
  const std::string& input = arguments.positional()[1];
  const std::string& output = arguments.positional()[2];
  const models::WeightFormat from = models::weight_format_named(arguments.value("--from").value_or("hearth"));
  const models::WeightFormat to = models::weight_format_named(arguments.value("--to").value_or("hearth"));
  const auto dtype = arguments.value("--dtype");
  HEARTH_CHECK(UsageError, !dtype || dtype == "f32" || dtype == "f16" || dtype == "bf16", "weights convert: --dtype ",
               dtype.value_or(""), "; use f32, f16 or bf16");
  const std::string config = arguments.value("--config").value_or("");
  const auto trained = trained_weights(arguments, from);
  if (trained) refuse_checkpoint_as_output(trained->checkpoint, output);
  refuse_input_as_output(trained ? trained->checkpoint : input, config, output);
  const models::ImportOptions options{.from = from, .config = config, .leave_out = arguments.values("--leave-out")};
  models::ImportedWeights imported =
      trained ? import_trained_weights(*trained, options) : models::import_weights(input, options);
  models::NameReport& report = imported.report;
  models::WeightSet set = std::move(imported.weights);
  const std::string of_timm = to == models::WeightFormat::timm_swin ? timm_note(set, trained) : "";
  if (report.fits()) set = models::from_hearth(set, to, report);
  const std::string of_config = report.fits() ? models::configuration_note(imported, input, to) : "";
  HEARTH_CHECK(FileError, report.fits(), models::faults_with_reason(report, input + ": "));
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
  for (const std::string& text : imported.notes) std::cerr << "warning: " << text << "\n";
  for (const std::string& text : non_finite) std::cerr << "warning: not finite: " << text << "\n";
  if (const std::string note = weights_note(input, trained); !note.empty()) std::cerr << "note: " << note << "\n";
  if (!of_timm.empty()) std::cerr << "note: " << of_timm << "\n";
  if (!of_config.empty()) std::cerr << "note: " << of_config << "\n";
  if (!imported.model.is_null() && to == models::WeightFormat::hearth)
    std::cerr << "the model: " << to_text(imported.model) << "\n";
  std::cerr << "wrote " << entries.size() << " tensors to " << output << "\n";
  return 0;
}

int weights_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  if (what == "inspect") return inspect(arguments);
  if (what == "convert") return convert_file(arguments);
  throw UsageError(join_text("weights: \"", what, "\" is not known; use inspect or convert"));
}

}  // namespace

CommandSpec weights_spec() {
  return {
      "weights",
      "inspect|convert FILE [OUT]",
      2,
      3,
      "Lists a safetensors file, or converts one: also an index of several, the folder they are in, or a run.",
      {{"--from", "FORMAT",
        "convert: what FILE is: hearth (default), torch, hf-gpt2, hf-bert, hf-roberta, hf-distilbert, timm-swin or "
        "microsoft-swin"},
       {"--to", "FORMAT", "convert: what OUT is to be (default: hearth)"},
       {"--dtype", "TYPE", "convert: element type of the result (f32, f16, bf16)"},
       {"--config", "JSON", "convert: the configuration of the model (default: config.json beside FILE)"},
       {"--leave-out", "BEGINNING", "convert: not the tensors whose names begin so; may be repeated"},
       {"--raw", "", "convert: of a run or checkpoint the weights of the last update, not their average (train.ema)"},
       {"--json", "", "print as JSON on stdout"}},
      weights_command};
}

}  // namespace hearth::train
