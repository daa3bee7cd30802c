// SPDX-License-Identifier: Apache-2.0
#include "train/report/trust_ratios.h"

namespace hearth::train {

void write_trust_ratios(Json& record, const optim::Optimizer& optimizer) {
  Json groups = Json::object();
  for (const optim::TrustRatios& of : optimizer.read_trust_ratios())
    groups.set(of.group, Json::object().set("min", of.min).set("median", of.median).set("max", of.max));
  if (groups.size() > 0) record.set("trust_ratio", groups);
}

}  // namespace hearth::train
