// SPDX-License-Identifier: Apache-2.0
#include "train/plan/scaling.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "dist/data_parallel.h"

namespace hearth::train {
namespace {

/// "layer1.0.conv1" of "layer1.0.conv1.weight"; what a model has itself is its own.
std::string layer_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "(model)" : parameter.substr(0, dot);
}

/// Microseconds of the backward pass after which a layer's gradients are there, and the whole pass as "".
std::map<std::string, double> arrivals(const StepOps& step) {
  std::map<std::string, double> at;
  double now = 0;
  for (const StepOp& op : step.ops) {
    if (!op.backward) continue;
    now += op.us;
    at[op.layer] = now;
  }
  at[""] = now;
  return at;
}

double arrival_of(const std::map<std::string, double>& arrivals, const std::string& layer) {
  const auto found = arrivals.find(layer);
  return found == arrivals.end() ? arrivals.at("") : found->second;
}

}  // namespace

Link parse_link(const std::string& text) {
  // Of an Ethernet's bits TCP carries payload in 1448 of the 1538 bytes that a full Ethernet frame takes.
  constexpr double payload = 1448.0 / 1538.0;
  constexpr std::pair<std::string_view, double> units[] = {
      {"gbit", 0.125 * payload}, {"mbit", 0.125e-3 * payload}, {"gbyte", 1}, {"mbyte", 1e-3}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  for (const auto& [unit, gbs] : units)
    if (end != text.c_str() && number > 0 && number < 1e9 && unit == end) return {.gbs = number * gbs, .text = text};
  throw UsageError(join_text(
      "link \"", text, "\" is not understood; write a rate a second in each direction: 25gbit, 900mbit, 50gbyte"));
}

Communication communication_of(const Session& session, const StepOps& step, int ranks, const Link& link) {
  const DistOptions& dist = session.config().dist;
  const dist::DataParallelOptions options{.bucket_mb = initial_bucket_mb(dist),
                                          .first_bucket_mb = dist.first_bucket_mb};
  const double part = 2.0 * (ranks - 1) / ranks, element = static_cast<double>(size_of(dist.wire));
  const std::vector<FlatParameters::Entry>& entries = session.parameters->entries();
  const std::map<std::string, double> ready = arrivals(step);
  Communication found;
  std::size_t entry = entries.size();
  double link_free = 0;
  for (const dist::DataParallel::Bucket& bucket : dist::DataParallel::buckets_of(*session.parameters, options)) {
    double filled = dist.overlap ? 0 : ready.at("");
    for (int i = 0; i < bucket.parameters; ++i)
      filled = std::max(filled, arrival_of(ready, layer_of(entries[--entry].name)));
    const double bytes = part * element * static_cast<double>(bucket.size);
    const double us = 1e-3 * bytes / link.gbs + 2 * (ranks - 1) * link.latency_us;
    link_free = std::max(link_free, filled) + us;
    found.milliseconds += 1e-3 * us;
    found.bytes += bytes;
    ++found.buckets;
  }
  found.exposed_ms = 1e-3 * std::max(0.0, link_free - ready.at(""));

  std::map<std::string, double> flops;
  for (const StepOp& op : step.ops) flops[op.layer] += op.flops();
  for (const FlatParameters::Entry& parameter : entries) {
    const std::string layer = layer_of(parameter.name);
    if (found.layers.empty() || found.layers.back().layer != layer) found.layers.push_back({layer, 0, 0, flops[layer]});
    found.layers.back().parameters += parameter.size;
    found.layers.back().bytes += part * element * static_cast<double>(parameter.size);
  }
  return found;
}

}  // namespace hearth::train
