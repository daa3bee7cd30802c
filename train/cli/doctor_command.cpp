// SPDX-License-Identifier: Apache-2.0
// `hearth doctor`: what this program found on this machine, and what takes the position of what is missing. It reports
// and decides nothing: the exit code is 0.
#include <cstdlib>
#include <iostream>

#include "core/build.h"
#include "core/error.h"
#include "data/libraries.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "ops/cublaslt/library.h"
#include "ops/dispatch/plan_choice.h"
#include "ops/onednn/onednn.h"
#include "train/cli/commands.h"
#include "train/cli/devices.h"
#include "train/cli/doctor.h"
#include "train/config/run_config.h"

namespace hearth::train {
namespace {

/// A library, or a device's driver, as the report lists it.
struct Part {
  std::string name;
  std::string version;     ///< empty if it was not found
  std::string path;        ///< empty where it is part of the program
  std::string why_unused;  ///< empty if it is used
  std::string without;     ///< what happens without it
};

Json json_of(const Part& part) {
  return Json::object()
      .set("name", part.name)
      .set("found", !part.version.empty())
      .set("used", part.why_unused.empty())
      .set("version", part.version)
      .set("path", part.path)
      .set("why_unused", part.why_unused)
      .set("without", part.without);
}

const char* const no_header = "this build was made without it; install its development files and build again";

Part cpu_library() {
  const bool there = cpu::dnn::available();
  return {"oneDNN", there ? cpu::dnn::library() : "", "", there ? "" : no_header,
          "convolutions and matrix products by Hearth's native kernels, slower on the CPU"};
}

struct Parts {
  std::vector<Part> list;
  Json plans{};  ///< the file of plans that were timed; null in builds without a backend that has one
};

Parts cuda_parts() {
  const std::string why_no_cuda = cuda::why_no_device();
  Part dnn{"cuDNN", "", "", why_no_cuda, "convolutions on CUDA devices by Hearth's native kernels"};
  Part blas{"cuBLASLt", "", "", why_no_cuda, "matrix products on CUDA devices by Hearth's native kernels"};
  Json plans;
#if HEARTH_HAS_CUDA
  const auto fill = [](Part& part, const cuda::LibraryInfo& found, const std::string& why_not) {
    part.version = found.version;
    part.path = found.path;
    if (!found.why_absent.empty())
      part.why_unused = found.why_absent;
    else if (!why_not.empty())
      part.why_unused = why_not;
    else if (!part.why_unused.empty())
      part.why_unused = "there is no CUDA device";
  };
  fill(dnn, cuda::dnn::about(), cuda::dnn::why_absent());
  fill(blas, cuda::blas::about(), cuda::blas::why_absent());
  const PlanFileInfo file = plan_file();
  plans = Json::object().set("file", file.path).set("plans", file.plans).set("remarks", Json::array_of(file.remarks));
#endif
  return {{dnn, blas}, plans};
}

Parts all_parts() {
  Parts parts = cuda_parts();
  std::vector<Part> others{cpu_library()};
  for (const data::FileLibrary& library : data::file_libraries())
    others.push_back({library.name, library.version, "", library.version.empty() ? no_header : "", library.without});
  parts.list.insert(parts.list.begin(), others.begin(), others.end());
  return parts;
}

void print_plans(const Json& plans) {
  if (plans.is_null()) return;
  const std::string& file = plans.at("file").as_string();
  std::string text = join_text(plans.at("plans").as_integer(), " in ", file.empty() ? "no file" : file);
  for (const Json& remark : plans.at("remarks").items()) text += "; " + remark.as_string();
  print_line("timed plans", text);
}

/// The CUDA devices, and why there is none or one of them does not start.
struct CudaDevices {
  Json list = Json::array();
  std::string why_none;
};

CudaDevices find_cuda_devices() {
  CudaDevices found;
  try {
    found.why_none = cuda::why_no_device();
    for (const Json& device : described_cuda_devices()) found.list.push_back(device);
  } catch (const Error& error) {
    found.why_none = error.what();
  }
  return found;
}

std::string chosen_device() {
  try {
    return name_of(device_of_run("auto"));
  } catch (const Error& error) {
    return error.what();
  }
}

void print_part(const Part& part) {
  std::string text = part.version;
  if (!part.path.empty()) text += ", " + part.path;
  if (!part.why_unused.empty())
    text += (text.empty() ? "absent: " : "; not used: ") + part.why_unused + "; so: " + part.without;
  print_line(part.name, text);
}

std::string text_of(const Json& value) { return value.is_string() ? value.as_string() : to_text(value); }

}  // namespace

void print_line(const std::string& name, const std::string& text) {
  constexpr std::size_t width = 14;
  std::cout << name << std::string(name.size() < width ? width - name.size() : 1, ' ') << text << "\n";
}

namespace {

int doctor_command(const Arguments& arguments) {
  if (arguments.has("--network")) {
    print_network(dist::look_at_network(), arguments.values("--nccl-log"), arguments.has("--json"));
    return 0;
  }
  HEARTH_CHECK(UsageError, !arguments.has("--nccl-log"), "doctor: --nccl-log is that of --network; say both");
  if (arguments.has("--speed")) return doctor_speed(arguments);
  HEARTH_CHECK(UsageError, !arguments.has("--device"), "doctor: --device is that of --speed; say both");
  const Json cpu = described_cpu();
  const CudaDevices cuda = find_cuda_devices();
  const auto [list, plans] = all_parts();
  const char* const folders = std::getenv("HEARTH_CUDA_LIBRARIES");
  if (arguments.has("--json")) {
    Json listed = Json::array();
    for (const Part& part : list) listed.push_back(json_of(part));
    std::cout << to_text(Json::object()
                             .set("hearth", build::version)
                             .set("compiler", build::compiler)
                             .set("build", build::type)
                             .set("cpu", cpu)
                             .set("cuda_devices", cuda.list)
                             .set("why_no_cuda", cuda.why_none)
                             .set("libraries", listed)
                             .set("plans", plans)
                             .set("cuda_library_folders", folders == nullptr ? "" : folders)
                             .set("device_auto", chosen_device()))
              << "\n";
    return 0;
  }
  print_line("hearth", join_text(build::version, ", ", build::type, " build by ", build::compiler));
  print_line("cpu", join_text(text_of(cpu.at("processor")), ", ", text_of(cpu.at("threads")), " threads, kernels for ",
                              text_of(cpu.at("instructions"))));
  for (const Json& device : cuda.list.items())
    print_line(
        text_of(device.at("device")),
        join_text(
            text_of(device.at("name")), ", ", text_of(device.at("memory_mb")), " MB, capability ",
            text_of(device.at("compute_capability")), ", driver for CUDA ", text_of(device.at("driver")),
            ", built with CUDA ", text_of(device.at("runtime")),
            device.at("why_unused").as_string().empty() ? "" : "; not used: " + device.at("why_unused").as_string()));
  if (!cuda.why_none.empty()) print_line("cuda", "none: " + cuda.why_none + "; so: all is done on the CPU");
  for (const Part& part : list) print_part(part);
  print_plans(plans);
  if (folders != nullptr) print_line("searched", join_text("first in HEARTH_CUDA_LIBRARIES=", folders));
  print_line("device auto", "is " + chosen_device());
  return 0;
}

}  // namespace

CommandSpec doctor_spec() {
  return {
      "doctor",
      "",
      0,
      0,
      "Tells which devices and libraries were found, in which version, and what replaces those that are missing.",
      {{"--speed", "",
        "measure in about fifteen seconds what this machine does in a second, for `hearth plan`, instead; kept in the "
        "folder for caches"},
       {"--device", "DEVICE", "with --speed: cpu or cuda; auto without"},
       {"--network", "", "tell of interfaces, RDMA devices, what NCCL would choose, and what to change, instead"},
       {"--nccl-log", "FILE",
        "with --network: tell what NCCL chose, by its log of NCCL_DEBUG=INFO; for several ranks, one file or several"},
       {"--json", "", "print as JSON on stdout"}},
      doctor_command};
}

}  // namespace hearth::train
