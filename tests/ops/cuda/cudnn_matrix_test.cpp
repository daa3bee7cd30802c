// SPDX-License-Identifier: Apache-2.0
// What cuDNN can do of what ResNet-50 and transformers ask for, on devices that need not be here, against a table in
// the tree, so that a change of the library is seen. Each line of the table is a device and a pattern, and for each
// type how many of the problems have an engine.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/cuda/emulation.h"
#include "core/cuda/stream.h"
#include "core/error.h"
#include "core/io/file.h"
#include "ops/attention/cuda/attention_graph.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "tests/ops/cuda/cudnn_patterns.h"
#include "tests/support/places.h"

#if __has_include(<cudnn.h>)

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace hearth::cudnn_matrix_test {
namespace {

using cuda::dnn::Probe;

const std::string folder = test::source_dir() + "/tests/ops/cuda";
const std::string table_path = folder + "/cudnn_matrix.tsv";
const char* const rewrite_variable = "HEARTH_REWRITE_CUDNN_MATRIX";
/// Names a file to which each answer is added: device, pattern, type, problem, engine and workspace or why there is
/// none.
const char* const answers_variable = "HEARTH_CUDNN_ANSWERS";
constexpr std::int64_t batch = 256;

/// Cells by device and pattern, then by type.
using Cells = std::map<std::pair<std::string, std::string>, std::map<std::string, std::string>>;

struct Table {
  std::string version;  ///< of cuDNN
  Cells cells;
};

const std::array<std::string, 3> types{"f16", "bf16", "f32"};

Table read_table() {
  Table table;
  std::istringstream lines(read_text(table_path));
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view version = "# cuDNN ";
    if (line.starts_with(version)) table.version = line.substr(version.size());
    if (line.empty() || line[0] == '#') continue;
    std::istringstream columns(line);
    std::string device, pattern, cell;
    std::getline(columns, device, '\t');
    std::getline(columns, pattern, '\t');
    for (const std::string& type : types)
      if (std::getline(columns, cell, '\t') && cell != "-") table.cells[{device, pattern}][type] = cell;
  }
  return table;
}

void write_table(Table& table) {
  std::string text = "# cuDNN " + table.version +
                     "\n# Problems that have an engine, of those asked, and the largest workspace known before it is "
                     "compiled.\n# Written, as all answers are, by scripts/cudnn_matrix.\n# device\tpattern";
  for (const std::string& type : types) text += '\t' + type;
  text += '\n';
  for (auto& [row, cells] : table.cells) {
    if (cells.empty()) continue;
    text += row.first + '\t' + row.second;
    for (const std::string& type : types) text += '\t' + (cells.count(type) != 0 ? cells[type] : "-");
    text += '\n';
  }
  write_file_synced(table_path, text);
}

/// Every convolution of ResNet-50 (stride in the 3x3 ones) at 224 pixels, on images of this many channels.
std::vector<ConvShape> resnet50_convolutions(std::int64_t channels) {
  std::vector<ConvShape> all;
  const auto add = [&](std::int64_t size, std::int64_t c, std::int64_t k, std::int64_t taps, std::int64_t stride) {
    ConvShape s{.n = batch, .h = size, .w = size, .c = c, .k = k, .r = taps, .s = taps};
    s.stride_h = s.stride_w = stride;
    s.pad_h = s.pad_w = taps / 2;
    s.p = s.q = (size + 2 * s.pad_h - taps) / stride + 1;
    all.push_back(s);
  };
  add(224, channels, 64, 7, 2);
  struct Stage {
    std::int64_t blocks, size, width, stride;
  };
  std::int64_t c = 64;
  for (const Stage& stage : {Stage{3, 56, 64, 1}, Stage{4, 56, 128, 2}, Stage{6, 28, 256, 2}, Stage{3, 14, 512, 2}}) {
    for (std::int64_t block = 0; block < stage.blocks; ++block) {
      const std::int64_t stride = block == 0 ? stage.stride : 1;
      const std::int64_t size = block == 0 ? stage.size : stage.size / stage.stride, out = size / stride;
      if (block == 0) add(size, c, 4 * stage.width, 1, stride);
      add(size, c, stage.width, 1, 1);
      add(size, stage.width, stage.width, 3, stride);
      add(out, stage.width, 4 * stage.width, 1, 1);
      c = 4 * stage.width;
    }
  }
  return all;
}

/// Each once; the first also for images padded to the channels that tensor cores take.
std::set<ConvShape> resnet50_shapes() {
  std::set<ConvShape> shapes;
  for (const std::int64_t channels : {3, 4, 8})
    for (const ConvShape& shape : resnet50_convolutions(channels)) shapes.insert(shape);
  return shapes;
}

std::string text_of(const ConvShape& s) {
  return join_text('n', s.n, ' ', s.h, 'x', s.w, 'x', s.c, " k", s.k, ' ', s.r, 'x', s.s, " s", s.stride_h);
}

/// The answer of f, also where the library refuses the graph itself.
template <class F>
Probe answer(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    return {error.what(), -1, 0};
  }
}

struct Case {
  const char* device;
  DType dtype;
};

void PrintTo(const Case& of, std::ostream* out) { *out << of.device << ' ' << of.dtype; }

/// Keeps the sanitizer from reporting what cuDNN itself never frees.
struct LeaksOfOthers {
#ifdef __SANITIZE_ADDRESS__
  __lsan::ScopedDisabler disabled;
#endif
};

class CudaDnnMatrix : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const cuda::LibraryInfo library = cuda::dnn::about();
    if (!library.why_absent.empty()) GTEST_SKIP() << library.why_absent;
    version_ = library.version;
  }

  static ConvProblem problem_of(const ConvShape& shape, Pass pass) {
    return {.shape = shape, .pass = pass, .activations = GetParam().dtype, .weights = GetParam().dtype};
  }
  std::string device_json() const { return read_text(folder + "/" + GetParam().device + ".json"); }
  void add(const std::string& pattern, const std::string& problem, const Probe& found) {
    answers_[pattern].push_back(found);
    const std::string result =
        found.unsupported.empty() ? join_text(found.engine, '\t', found.workspace) : "-\t" + found.unsupported;
    listed_ += join_text(GetParam().device, '\t', pattern, '\t', GetParam().dtype, '\t', problem, '\t', result, '\n');
  }

  /// Of one pattern: "22 of 25, 6 MB".
  static std::string summary_of(const std::vector<Probe>& answers) {
    std::size_t taken = 0;
    std::int64_t workspace = 0;
    for (const Probe& found : answers) {
      taken += found.unsupported.empty() ? 1 : 0;
      workspace = std::max<std::int64_t>(workspace, found.workspace);
    }
    const std::string room = workspace > 0 ? join_text(", ", (workspace + 999'999) / 1'000'000, " MB") : "";
    return join_text(taken, " of ", answers.size(), room);
  }

  /// The table's cells of this device, type and of patterns that begin so must be those of the answers.
  void compare(const std::string& patterns) {
    if (cuda::device_count() > 0 && !cuda::is_emulated())
      GTEST_SKIP() << "the table was made without a driver; with one the library suggests other engines";
    if (const char* file = std::getenv(answers_variable)) std::ofstream(file, std::ios::app) << listed_;
    const std::string device = GetParam().device, type = join_text(GetParam().dtype);
    Table table = read_table();
    std::string difference;
    for (auto& [row, cells] : table.cells)
      if (row.first == device && row.second.starts_with(patterns) && answers_.count(row.second) == 0 &&
          cells.erase(type) != 0)
        difference += row.second + ": in the table, but not asked any more\n";
    for (const auto& [pattern, answers] : answers_) {
      std::string& cell = table.cells[{device, pattern}][type];
      const std::string found = summary_of(answers);
      if (cell != found) difference += pattern + ": in the table '" + cell + "', found '" + found + "'\n";
      cell = found;
    }
    if (std::getenv(rewrite_variable) != nullptr) {
      table.version = version_;
      write_table(table);
    } else if (table.version != version_) {
      GTEST_SKIP() << "the table is of cuDNN " << table.version << ", here is " << version_ << "; "
                   << (difference.empty() ? "all cells agree" : "what differs:\n" + difference);
    } else {
      EXPECT_EQ(difference, "") << "If this change is meant, run scripts/cudnn_matrix and look at the table with git "
                                   "diff. All answers:\n"
                                << listed_;
    }
  }

 private:
  LeaksOfOthers not_ours_;
  std::string version_;
  std::map<std::string, std::vector<Probe>> answers_;
  std::string listed_;
};

TEST(CudaDnnShapes, AreThoseOfResNet50) {
  std::int64_t weights = 0;
  const std::vector<ConvShape> all = resnet50_convolutions(3);
  for (const ConvShape& s : all) weights += s.k * s.r * s.s * s.c;
  EXPECT_EQ(all.size(), 53u);
  // The published 25,557,032 parameters without the classifier's and the normalisations'.
  EXPECT_EQ(weights, 25557032 - 2049000 - 53120);
  EXPECT_EQ(resnet50_shapes().size(), 25u) << "23 distinct ones, and the first with padded channels";
}

TEST_P(CudaDnnMatrix, ConvolutionsOfResNet50) {
  const std::string device = device_json();
  for (const ConvShape& shape : resnet50_shapes()) {
    for (const auto& [pass, name] : {std::pair(Pass::forward, "conv forward"),
                                     {Pass::backward_data, "conv data"},
                                     {Pass::backward_weights, "conv weights"}})
      add(name, text_of(shape), answer([&] { return cuda::dnn::probe(problem_of(shape, pass), device); }));
  }
  compare("conv ");
}

TEST_P(CudaDnnMatrix, FusedConvolutionsOfResNet50) {
  const std::string device = device_json();
  for (const ConvShape& shape : resnet50_shapes()) {
    const ConvProblem problem = problem_of(shape, Pass::forward);
    ConvProblem fused = problem;
    fused.bias = fused.activations;
    add("conv+bias", text_of(shape), answer([&] { return cuda::dnn::probe(fused, device); }));
    fused.relu = true;
    add("conv+bias+relu", text_of(shape), answer([&] { return cuda::dnn::probe(fused, device); }));
    const cuda::dnn::Descriptor described = cuda::dnn::described_device(device);
    add("conv+statistics", text_of(shape), answer([&] {
          return cuda::dnn::conv_statistics({nullptr, &described}, problem);
        }));
    add("conv+norm before, statistics after", text_of(shape), answer([&] {
          return cuda::dnn::normalized_conv_statistics({nullptr, &described}, problem);
        }));
    if (shape.r != 3) continue;
    add("conv+norm before, weights", text_of(shape), answer([&] {
          return cuda::dnn::normalized_conv_weights({nullptr, &described}, problem);
        }));
  }
  compare("conv+");
}

/// Why engines that are compiled when they are used cannot be asked for here; or empty.
std::string why_none_compiled() {
  if (cuda::device_count() > 0 && !cuda::is_emulated())
    return "the table was made without a driver, which decides what can be compiled";
  // Under the name that the library asks for; engines are listed if it is there.
  const char* const stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (dlopen(stub, RTLD_NOW | RTLD_GLOBAL) == nullptr) return std::string("no stub of the driver: ") + dlerror();
  return "";
}

/// q, k and v in one tensor [samples, tokens, 3, heads, channels], as a projection writes them.
cuda::dnn::Attention attention_of(std::int64_t samples, std::int64_t tokens, std::int64_t heads, std::int64_t width,
                                  DType dtype) {
  const std::int64_t row = heads * width;
  const cuda::dnn::HeadSteps packed{tokens * 3 * row, 3 * row, width};
  return {.batch = samples,
          .heads = heads,
          .queries = tokens,
          .keys = tokens,
          .width = width,
          .dtype = dtype,
          .q = packed,
          .k = packed,
          .v = packed,
          .y = {tokens * row, row, width}};
}

TEST_P(CudaDnnMatrix, AttentionOfTransformers) {
  if (GetParam().dtype == DType::f32) GTEST_SKIP() << "cuDNN's attention takes f16 and bf16";
  if (const std::string reason = why_none_compiled(); !reason.empty()) GTEST_SKIP() << reason;
  const cuda::dnn::Descriptor device = cuda::dnn::described_device(device_json());
  const cuda::dnn::Target target{nullptr, &device};
  struct Model {
    const char* name;
    std::int64_t heads, width;
    std::vector<std::int64_t> tokens;
  };
  for (const Model& model : {Model{"bert-base/gpt2", 12, 64, {128, 512, 1024}},
                             {"bert-large", 16, 64, {128, 512, 1024}},
                             {"narrow heads, odd lengths", 8, 32, {77}},
                             {"wide heads", 8, 128, {512}},
                             {"very wide heads", 4, 256, {256}}})
    for (const std::int64_t tokens : model.tokens) {
      const cuda::dnn::Attention plain = attention_of(16, tokens, model.heads, model.width, GetParam().dtype);
      const std::string text =
          join_text(model.name, " b16 ", tokens, " tokens, ", model.heads, " heads of ", model.width);
      add("attention forward", text, answer([&] { return attention_forward(target, plain); }));
      add("attention backward", text, answer([&] { return attention_backward(target, plain); }));
      for (const char* const name : {"no mask", "padding", "causal", "bias"}) {
        cuda::dnn::Attention problem = plain;
        problem.lengths = name == std::string_view("padding");
        problem.causal = name == std::string_view("causal");
        problem.bias_heads = name == std::string_view("bias") ? model.heads : 0;
        const std::string graph = join_text("attention graph, ", name);
        add(graph + ", forward", text, answer([&] { return first_suggestion(target, graph_of(problem)); }));
        const cuda::dnn::AttentionGrad grad{problem, problem.q, problem.k, problem.v};
        add(graph + ", backward", text, answer([&] { return first_suggestion(target, graph_of(grad)); }));
      }
    }
  compare("attention");
}

// An engine that the library compiles when it is used is made without a device up to the loading of its program.
TEST_P(CudaDnnMatrix, AttentionIsCompiledToTheEnd) {
  if (GetParam().dtype != DType::bf16) GTEST_SKIP() << "f16 differs in the type of loads only";
  if (const std::string reason = why_none_compiled(); !reason.empty()) GTEST_SKIP() << reason;
  const cuda::dnn::Descriptor device = cuda::dnn::described_device(device_json());
  const cuda::dnn::Target target{nullptr, &device};
  cuda::dnn::Attention masked = attention_of(2, 77, 2, 64, GetParam().dtype);
  masked.lengths = masked.causal = true;
  cuda::dnn::Attention biased = attention_of(2, 77, 2, 32, GetParam().dtype);
  biased.bias_heads = 2;
  for (const cuda::dnn::Attention& problem : {attention_of(2, 128, 2, 128, GetParam().dtype), masked, biased}) {
    EXPECT_EQ(compile_first(target, graph_of(problem)), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
    const cuda::dnn::AttentionGrad grad{problem, problem.q, problem.k, problem.v};
    EXPECT_EQ(compile_first(target, graph_of(grad)), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaDnnMatrix,
                         ::testing::Values(Case{"nvidia_h200", DType::f16}, Case{"nvidia_h200", DType::bf16},
                                           Case{"nvidia_h200", DType::f32}, Case{"nvidia_a100", DType::f16},
                                           Case{"nvidia_a100", DType::bf16}, Case{"nvidia_a100", DType::f32}),
                         [](const auto& of) { return join_text(of.param.device, '_', of.param.dtype); });

}  // namespace
}  // namespace hearth::cudnn_matrix_test

#endif
