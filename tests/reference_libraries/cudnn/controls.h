// SPDX-License-Identifier: Apache-2.0
// What the tests see of the reference cuDNN beyond its C functions.
#pragma once

#include <array>
#include <cstdint>

namespace hearth::reference_dnn {

/// The engines that the heuristic suggests, in its order.
enum Engine : int {
  adding_anywhere,  ///< results differ each time, says its note
  spacious,         ///< needs a workspace of 1 GiB
  rounding,         ///< uses tensor cores, says its note: not for f32
  plain,            ///< needs a workspace of 4 KiB
  knobbed,          ///< as plain, without a workspace, with one knob set
  engine_count
};

/// With HEARTH_REFERENCE_IDLE in the environment plans run and compute nothing.
struct Controls {
  /// Microseconds that each engine waits before it computes.
  std::array<std::int64_t, engine_count> cost{};
  /// An engine that the heuristic does not suggest; -1 for none.
  int unsuggested = -1;
  std::array<std::int64_t, engine_count> runs{};  ///< plans run, since somebody set them to zero
  std::int64_t questions = 0;                     ///< of a heuristic
  std::int64_t counts_below_one = 0;              ///< of queries or keys of a sample, of which nothing is documented
  std::int64_t added = 0;                         ///< plans run that add to their result
  bool adds = true;                               ///< whether an engine takes such graphs
  /// A kind of operation that no engine takes, a cudnnBackendDescriptorType_t; -1 for none.
  int withheld = -1;
  /// One whose plans do not run; -1 for none.
  int failing = -1;
};

}  // namespace hearth::reference_dnn

/// The controls of the library that was opened. By this symbol Hearth knows that the library runs on the emulated GPU.
extern "C" hearth::reference_dnn::Controls* hearth_runs_on_the_emulated_gpu();
