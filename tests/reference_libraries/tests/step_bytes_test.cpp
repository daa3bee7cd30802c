// SPDX-License-Identifier: Apache-2.0
// What a training step of the three models asks of a device at its true size: launches, and the bytes that they read
// and write, and the time that this would take on devices that are assumed to reach what is said below; against files
// in the tree (tests/golden/step_bytes), which scripts/gpu_report quotes. The device is idle
// (HEARTH_EMULATE_IDLE) and the libraries compute nothing, so that only the host works.
//
//   HEARTH_REWRITE_BYTES=1 build/emulated/tests/hearth_test_reference_step --gtest_filter='*StepBytes*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/cuda/counters.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/tests/model_run.h"
#include "tests/support/places.h"
#include "train/profile/work_log.h"
#include "train/report/page.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

/// A run, and how many samples a step of it has.
struct Case {
  test::ModelRun run;
  std::int64_t rows;
};

class CudaStepBytes : public testing::TestWithParam<Case> {
 protected:
  CudaStepBytes() {
    cuda::emulate::Settings idle = before_;
    idle.idle = true;
    idle.memory_bytes = std::size_t{80} << 30;
    cuda::emulate::apply(idle);
  }
  ~CudaStepBytes() override { cuda::emulate::apply(before_); }

  const cuda::emulate::Settings before_ = cuda::emulate::settings();
  test::TempDir folder_;
};

/// A batch of the run's form, of so many rows, with images of 224 pixels.
data::Batch full_batch(Session& session, std::int64_t rows) {
  data::Batch batch = session.make_train_loader().next();
  batch = batch.map([&](const data::Batch::Named& one) {
    Shape shape = one.tensor.shape().with(0, rows);
    if (one.name == "images") shape = {rows, 224, 224, 3};
    return Tensor::zeros(shape, one.tensor.dtype());
  });
  batch.samples.assign(static_cast<std::size_t>(rows), 0);
  return batch;
}

/// What a device is assumed to reach before one was measured: kernels and library calls move bytes at 80 % of a copy's
/// rate, convolutions (a library's and native ones) and other products run at these rates of 16-bit tensor cores, and
/// no launch takes less than 2 us.
struct Assumed {
  const char* device;
  double copy_gbs, convolution_tflops, native_tflops, product_tflops;
};
constexpr Assumed assumed[] = {{"H100", 3000, 480, 240, 600}, {"H200", 4300, 480, 240, 600}};

double tflops_of(const AskedWork& work, const Assumed& device) {
  if (std::string_view(work.name).starts_with("conv2d mma")) return device.native_tflops;
  const std::string_view op = work.origin.op == nullptr ? "" : work.origin.op;
  return op == "conv2d" ? device.convolution_tflops : device.product_tflops;
}

double predicted_ms(std::span<const AskedWork> asked, const Assumed& device) {
  double us = 0;
  for (const AskedWork& work : asked) {
    us += std::max({2.0, 1e-3 * static_cast<double>(work.bytes) / (0.8 * device.copy_gbs),
                    1e-6 * work.flops / tflops_of(work, device)});
  }
  return 1e-3 * us;
}

/// One step's numbers, as the file of the run has them.
Json numbers_of(const cuda::Counters& spent, std::span<const AskedWork> asked, double items) {
  const auto digits = [](double value) { return std::stod(rounded(value, 4)); };
  double flops = 0;
  for (const AskedWork& work : asked) flops += work.flops;
  Json numbers = Json::object();
  numbers.set("gigabytes", digits(1e-9 * static_cast<double>(spent.bytes_moved)))
      .set("teraflop", digits(1e-12 * flops))
      .set("launches", spent.launches)
      .set("library_calls", spent.library_calls)
      .set("copies_and_fills", spent.copies_within);
  for (const Assumed& device : assumed) {
    const double ms = predicted_ms(asked, device);
    numbers.set(join_text(device.device, "_ms"), digits(ms))
        .set(join_text(device.device, "_per_s"), digits(1e3 * items / ms));
  }
  return numbers;
}

TEST_P(CudaStepBytes, AreThoseOfTheFile) {
  const test::ModelRun& run = GetParam().run;
  write_file_synced(folder_ / "run.json", test::config_of(run, folder_));
  Session session(load_config((folder_ / "run.json").string(), {}));
  const data::Batch batch = full_batch(session, GetParam().rows);
  (void)training_step(session, std::span(&batch, 1));
  WorkLog log;
  const cuda::Counters before = cuda::counters();
  (void)training_step(session, std::span(&batch, 1));
  const cuda::Counters spent = cuda::counters() - before;
  const std::vector<AskedWork> asked = log.take();

  for (const AskedWork& work : asked) EXPECT_GE(work.bytes, 0) << work.name << " of " << work.origin;
  EXPECT_EQ(spent.launches_without_bytes, 0);
  const double items = static_cast<double>(batch["labels"].size());
  const std::string found = to_text(numbers_of(spent, asked, items), 1) + "\n";
  const std::string path =
      join_text(test::source_dir(), "/tests/golden/step_bytes/", run.model, '-', run.level, '-', run.dtype, ".json");
  if (std::getenv("HEARTH_REWRITE_BYTES") != nullptr) std::ofstream(path) << found;
  EXPECT_EQ(read_text(path), found);
}

const Case cases[] = {{{"resnet50", "O2", "f16"}, 256},       {{"resnet50", "O2", "bf16"}, 256},
                      {{"gpt2", "O2", "bf16", 12, 1024}, 64}, {{"gpt2", "O1", "bf16", 12, 1024}, 64},
                      {{"swin_t", "O2", "bf16"}, 256},        {{"swin_t", "O1", "bf16"}, 256}};
INSTANTIATE_TEST_SUITE_P(Models, CudaStepBytes, testing::ValuesIn(cases), [](const auto& tested) {
  const test::ModelRun& run = tested.param.run;
  return join_text(run.model, run.level, run.dtype);
});

}  // namespace
}  // namespace hearth::train
