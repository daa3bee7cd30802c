// SPDX-License-Identifier: Apache-2.0
#include "train/predict/answer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <numeric>
#include <set>

#include "autograd/grad_mode.h"
#include "core/io/file.h"
#include "core/io/printable.h"
#include "data/formats/image_folder.h"
#include "data/text/tokens.h"
#include "ops/shape/concat.h"

namespace hearth::train {
namespace {

std::vector<double> values_of_row(const Tensor& rows, std::int64_t row) {
  const std::int64_t width = rows.size() / rows.dim(0);
  const float* const first = rows.data<const float>() + row * width;
  return {first, first + width};
}

/// Inputs that cannot be read are named and passed over; the command fails at its end.
class Unreadable {
 public:
  explicit Unreadable(std::ostream& stream) : stream_(stream) {}
  void add(const Error& error) {
    stream_ << "hearth: warning: " << error.what() << "\n";
    if (count_++ > 0) return;
    first_ = error.what();
    is_file_error_ = error.kind() == std::string_view("file");
  }
  void add(const data::Warnings& warnings) {
    tell(warnings);
    if (count_ == 0 && warnings.count > 0) first_ = warnings.first.front();
    count_ += static_cast<std::size_t>(warnings.count);
    in_folders_ += static_cast<std::size_t>(warnings.count);
  }
  /// Names the first of what is passed over.
  void tell(const data::Warnings& warnings) const {
    for (const std::string& text : warnings.first) stream_ << "hearth: warning: " << printable(text) << "\n";
    if (const auto more = warnings.count - static_cast<std::int64_t>(warnings.first.size()); more > 0)
      stream_ << "hearth: warning: and " << more << " more\n";
  }
  /// FileError or DataError if there was one.
  void report(std::size_t inputs) const {
    if (count_ == 0) return;
    const std::string text = join_text(first_, "; ", count_, " of ", inputs + in_folders_, " inputs cannot be read");
    if (is_file_error_) throw FileError(text);
    throw DataError(text);
  }

 private:
  std::ostream& stream_;
  std::size_t count_ = 0, in_folders_ = 0;
  std::string first_;
  bool is_file_error_ = false;
};

/// The files named, and of folders all images below them.
std::vector<std::string> image_files_of(const PredictCall& call, const PredictForm& form, Unreadable& unreadable) {
  std::vector<std::string> files;
  for (const std::string& input : call.inputs) {
    std::error_code absent;
    if (!std::filesystem::is_directory(input, absent)) {
      files.push_back(input);
      continue;
    }
    const data::ImageFiles below = data::image_files(input);
    unreadable.add(below.unreadable);
    unreadable.tell(below.left_out);
    HEARTH_CHECK(DataError, !below.paths.empty(), input, ": has no image file; give files, or a folder that has some");
    files.insert(files.end(), below.paths.begin(), below.paths.end());
  }
  HEARTH_CHECK(UsageError, !files.empty(), "predict: no image is named; use ", form.usage);
  return files;
}

/// Adds the most probable class, and all of `top`, to a line.
void set_classes(Json& line, const std::vector<ScoredClass>& top) {
  Json list = Json::array();
  for (const ScoredClass& each : top)
    list.push_back(
        Json::object().set("label", each.label).set("class", each.name).set("probability", each.probability));
  line.set("label", top[0].label)
      .set("class", top[0].name)
      .set("probability", top[0].probability)
      .set("top", std::move(list));
}

/// A JSON line for each of `inputs`, which `prediction` is of.
void write_classes(const PredictCall& call, const std::vector<std::string>& inputs, const Prediction& prediction) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    Json line = Json::object().set("input", inputs[i]);
    set_classes(line, top_classes(prediction, call.classes, row, call.options.top));
    if (call.options.logits) line.set("logits", Json::array_of(values_of_row(prediction.logits, row)));
    if (call.options.embedding) line.set("embedding", Json::array_of(values_of_row(prediction.embedding, row)));
    call.out << to_text(line) << "\n";
  }
  call.out.flush();
}

void answer_images(const PredictCall& call) {
  Unreadable unreadable(call.warnings);
  const std::vector<std::string> files = image_files_of(call, images_form(), unreadable);
  for (std::size_t first = 0; first < files.size(); first += samples_at_once) {
    std::vector<std::string> names;
    std::vector<Tensor> inputs;
    for (std::size_t i = first; i < std::min(files.size(), first + samples_at_once); ++i) {
      try {
        inputs.push_back(call.prepare(files[i]));
        names.push_back(files[i]);
      } catch (const DataError& error) {
        unreadable.add(error);
      } catch (const FileError& error) {
        unreadable.add(error);
      }
    }
    if (inputs.empty()) continue;
    const NoGrad no_grad;
    const Tensor images = concat(inputs, 0);
    write_classes(call, names, call.compute(ImageTensor{images}, call.options.embedding));
  }
  unreadable.report(files.size());
}

/// A line of the standard input and its end; false where there is none. DataError for one beyond all use.
bool next_line(std::string& line, std::int64_t number) {
  constexpr std::size_t longest = std::size_t{16} << 20;
  line.clear();
  for (int c = 0; line.empty() || line.back() != '\n'; line += static_cast<char>(c)) {
    if ((c = std::cin.get()) == std::istream::traits_type::eof()) return !line.empty();
    HEARTH_CHECK(DataError, line.size() < longest, "the input, line ", number, ": has more than ", longest, " bytes");
  }
  return true;
}

void answer_sequences(const PredictCall& call) {
  std::size_t count = 0;
  const auto classify = [&](const std::vector<std::string>& sequences) {
    count += sequences.size();
    for (std::size_t first = 0; first < sequences.size(); first += samples_at_once) {
      const auto begin = sequences.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<std::string> some(
          begin, begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(samples_at_once, sequences.size() - first)));
      write_classes(call, some, call.compute(Sequences{some}, call.options.embedding));
    }
  };
  classify(call.options.text);
  for (const std::string& input : call.inputs) each_lines(input, classify);
  HEARTH_CHECK(UsageError, count > 0, "predict: no text is named; use ", sequences_form().usage);
}

void answer_rows(const PredictCall& call) {
  HEARTH_CHECK(UsageError, !call.inputs.empty(), "predict: no file is named; use ", rows_form().usage);
  for (const std::string& path : call.inputs) {
    const Prediction result = call.compute(RowsOfFile{path}, false);
    for (std::int64_t row = 0; row < result.logits.dim(0); ++row) {
      const std::vector<double> outputs = values_of_row(result.logits, row);
      Json line = Json::object().set("input", path).set("row", row);
      if (!result.probabilities.defined()) {
        line.set("prediction", outputs.size() == 1 ? Json(outputs[0]) : Json::array_of(outputs));
      } else {
        set_classes(line, top_classes(result, call.classes, row, call.options.top));
        if (call.options.logits) line.set("logits", Json::array_of(outputs));
      }
      call.out << to_text(line) << "\n";
    }
    call.out.flush();
  }
}

void answer_files(const PredictCall& call) {
  HEARTH_CHECK(UsageError, !call.inputs.empty(), "predict: no file is named; use ", files_form().usage);
  make_directories(call.options.folder);
  for (const std::string& input : call.inputs) call.out << to_text(call.of_file(input)) << std::endl;
}

/// COCO's number of each image: the file's name where all names are different numbers, else its position in the list.
std::vector<std::int64_t> image_ids_of(const std::vector<std::string>& files) {
  std::vector<std::int64_t> ids(files.size());
  std::set<std::int64_t> different;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string stem = std::filesystem::path(files[i]).stem().string();
    const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), ids[i]);
    if (error == std::errc() && end == stem.data() + stem.size()) different.insert(ids[i]);
  }
  if (different.size() < files.size()) std::iota(ids.begin(), ids.end(), 1);
  return ids;
}

/// Pictures have the names of their images, which folders may repeat.
void require_different_names(const std::vector<std::string>& files) {
  std::map<std::string, std::string> named;
  for (const std::string& file : files) {
    const auto [place, is_new] = named.try_emplace(std::filesystem::path(file).stem().string(), file);
    HEARTH_CHECK(UsageError, is_new, "predict: ", file, " and ", place->second,
                 " have the same name, and so would their pictures; predict them with different --out");
  }
}

void answer_boxes(const PredictCall& call) {
  Unreadable unreadable(call.warnings);
  const std::vector<std::string> files = image_files_of(call, boxes_form(), unreadable);
  require_different_names(files);
  make_directories(call.options.folder);
  const std::vector<std::int64_t> ids = image_ids_of(files);
  Json results = Json::array();
  const auto begin = std::chrono::steady_clock::now();
  std::size_t count = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    try {
      const Json line = call.of_file(files[i]);
      call.out << to_text(line) << std::endl;
      ++count;
      for (const Json& box : line.at("boxes").items())
        results.push_back(Json::object()
                              .set("image_id", ids[i])
                              .set("file_name", files[i])
                              .set("category_id", box.at("category_id"))
                              .set("bbox", box.at("bbox"))
                              .set("score", box.at("score")));
    } catch (const DataError& error) {
      unreadable.add(error);
    } catch (const FileError& error) {
      unreadable.add(error);
    }
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  const std::string path = call.options.folder + "/detections.json";
  write_file_synced(path, to_text(results) + "\n");
  call.warnings << "hearth: " << count << " images, " << std::fixed << std::setprecision(1)
                << static_cast<double>(count) / std::max(spent.count(), 1e-9) << " images/s; boxes in " << path << "\n";
  unreadable.report(files.size());
}

}  // namespace

void each_lines(const std::string& input, const std::function<void(const std::vector<std::string>&)>& use) {
  const auto split = [](const std::string& text) {
    const std::vector<std::string_view> lines = data::lines_of(text);
    return std::vector<std::string>(lines.begin(), lines.end());
  };
  if (input != "-") return use(split(data::read_corpus(input)));
  std::string line, some;
  std::int64_t number = 1;
  for (; next_line(line, number); ++number) {
    some += data::checked_corpus(line, join_text("the input, line ", number));
    if (number % samples_at_once != 0) continue;
    use(split(some));
    some.clear();
  }
  HEARTH_CHECK(DataError, number > 1, "the input is empty");
  if (!some.empty()) use(split(some));
}

const PredictForm& images_form() {
  static const PredictForm form{.trained_on = "images",
                                .usage = "hearth predict RUN IMAGE...",
                                .options = {"--top", "--logits", "--embedding"},
                                .answer = answer_images,
                                .predictor_function = "predict_files()"};
  return form;
}

const PredictForm& sequences_form() {
  static const PredictForm form{.trained_on = "sequences with a label",
                                .usage = "hearth predict RUN FILE (of lines, or - for the input), or --text TEXT",
                                .options = {"--top", "--logits", "--embedding", "--text"},
                                .answer = answer_sequences,
                                .predictor_function = "predict_text()"};
  return form;
}

const PredictForm& rows_form() {
  static const PredictForm form{.trained_on = "a table",
                                .usage = "hearth predict RUN FILE.csv... (or FILE.npy, FILE.npz)",
                                .options = {"--top", "--logits"},
                                .answer = answer_rows,
                                .predictor_function = "predict_rows()"};
  return form;
}

const PredictForm& boxes_form() {
  static const PredictForm form{.trained_on = "images with boxes",
                                .usage = "hearth predict RUN IMAGE... (or folders), --out DIR",
                                .options = {"--out"},
                                .answer = answer_boxes,
                                .predictor_function = "predict_batch()"};
  return form;
}

const PredictForm& files_form() {
  static const PredictForm form{.trained_on = "samples of the program's own",
                                .usage = "hearth predict RUN FILE...",
                                .options = {"--out"},
                                .answer = answer_files,
                                .predictor_function = "predict_batch()"};
  return form;
}

}  // namespace hearth::train
