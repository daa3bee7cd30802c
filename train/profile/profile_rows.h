// SPDX-License-Identifier: Apache-2.0
// The tables of where a step's time went, of the device's clock and of the host's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// What a device reaches at most.
struct ProfileLimits {
  double copy_gbs = 0;
  double tflops = 0;   ///< of products in the run's type
  std::string source;  ///< "measured", or whose numbers they are
};
Json to_json(const ProfileLimits& limits);

struct ProfileRow {
  std::int64_t count = 0;
  double us = 0, bytes = 0, flops = 0;
  double floor_us = 0;  ///< the time that bytes and arithmetic take at the limits

  void add(double more_us) {
    ++count;
    us += more_us;
  }
  void add_work(double more_bytes, double more_flops, const ProfileLimits& limits);
};

/// By name.
using ProfileRows = std::map<std::string, ProfileRow>;
/// A list from the slowest, at most 40, each with "name", "count", "us", "bytes", "flops", "floor_us" and
/// "percent_of_limit".
Json to_json(const ProfileRows& rows);
/// The tables of a profile, for people.
HEARTH_API std::string profile_tables(const Json& profile);

}  // namespace hearth::train
