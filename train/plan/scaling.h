// SPDX-License-Identifier: Apache-2.0
// What data parallel training adds to a step: the bytes of the gradients on a link, and how much of their time the
// backward pass hides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/export.h"
#include "train/plan/step_ops.h"

namespace hearth::train {

/// What joins each rank with the others.
struct Link {
  double gbs = 0;          ///< GB/s of payload in each direction
  double latency_us = 20;  ///< of one message
  std::string text = "";   ///< as it was written
};
/// "25gbit", "200gbit", "50gbyte": UsageError otherwise, which says what may be written. Bits are those of an Ethernet,
/// with what frames and TCP take; bytes are payload.
HEARTH_API Link parse_link(const std::string& text);

/// Bytes of a layer's own gradients that each rank sends in a step, beside the layer's arithmetic.
struct LayerTraffic {
  std::string layer;
  std::int64_t parameters = 0;
  double bytes = 0;
  double flops = 0;  ///< forward and backward, of one rank
};

struct Communication {
  std::int64_t buckets = 0;
  double bytes = 0;         ///< sent by each rank in a step
  double milliseconds = 0;  ///< that the link is busy
  double exposed_ms = 0;    ///< of these, after the backward pass
  std::vector<LayerTraffic> layers;
};

/// Of one step of each of `ranks` ranks, whose last backward pass has the times of `step`. A ring sends and receives
/// 2 (n - 1) / n of the bytes in 2 (n - 1) messages (Patarasuk and Yuan 2009); buckets are summed one after the other,
/// each from when the backward pass has filled it.
HEARTH_API Communication communication_of(const Session& session, const StepOps& step, int ranks, const Link& link);

}  // namespace hearth::train
