// SPDX-License-Identifier: Apache-2.0
// Matching parameters to groups and cutting the buffers.
#include "optim/groups.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/nearest.h"

namespace hearth::optim {

namespace {

constexpr std::int64_t task_elements = 65536;

// The parameters whose names begin most like the pattern; of those alike in that, the nearest.
std::string names_like(const std::string& pattern, const std::vector<std::string>& names) {
  constexpr std::size_t most = 3, longest_pattern = 200;
  std::string wanted = pattern.substr(0, longest_pattern);
  std::erase_if(wanted, [](char c) { return c == '*' || c == '?'; });
  std::vector<std::tuple<std::ptrdiff_t, std::size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const auto alike = std::mismatch(wanted.begin(), wanted.end(), name.begin(), name.end()).first;
    ranked.emplace_back(wanted.begin() - alike, edit_distance(wanted, name), name);
  }
  const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(std::min(most, ranked.size()));
  std::partial_sort(ranked.begin(), end, ranked.end());
  std::string text;
  for (auto it = ranked.begin(); it != end; ++it)
    text += (text.empty() ? "\"" : ", \"") + std::get<std::string>(*it) + "\"";
  return text;
}

bool covers(const ParameterGroup& group, const std::string& name) {
  return std::any_of(group.match.begin(), group.match.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

// `where` is the group's place in a configuration.
void check_group(const ParameterGroup& group, const std::string& where, const std::vector<std::string>& names,
                 Ranges ranges) {
  HEARTH_CHECK(ConfigError, !group.match.empty(), where,
               ": a group without patterns matches no parameter; give it some, such as \"*.bias\"");
  HEARTH_CHECK(ConfigError, std::isfinite(group.lr_scale) && group.lr_scale >= 0, where, "/lr_scale: ", group.lr_scale,
               "; it is finite and at least 0");
  HEARTH_CHECK(ConfigError, !group.weight_decay || (std::isfinite(*group.weight_decay) && *group.weight_decay >= 0),
               where, "/weight_decay: ", group.weight_decay.value_or(0), "; it is finite and at least 0");
  HEARTH_CHECK(ConfigError, !group.adapt || ranges == Ranges::by_parameter, where,
               "/adapt: this optimizer sets no step by the norms of weights, as lars and lamb do; leave it out");
  for (const std::string& pattern : group.match) {
    const bool found =
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(pattern, name); });
    if (found) continue;
    throw ConfigError(join_text(where, "/match: no parameter matches the pattern \"", pattern, "\"; the nearest are ",
                                names_like(pattern, names), ", and * stands for any characters"));
  }
}

void check_groups(const std::vector<ParameterGroup>& groups, const std::vector<std::string>& names, Ranges ranges) {
  std::vector<bool> applies(groups.size());
  for (const std::string& name : names) {
    const auto first =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return covers(group, name); });
    if (first != groups.end()) applies[static_cast<std::size_t>(first - groups.begin())] = true;
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = join_text("/optimizer/groups/", i);
    check_group(groups[i], where, names, ranges);
    HEARTH_CHECK(ConfigError, applies[i], where,
                 ": every parameter that it matches is in a group before it, and the first that matches applies; put "
                 "it before that one, or leave it out");
  }
}

// The beginning of `name` that the pattern covers, part by part; empty where it does not.
std::string_view beginning(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  while (true) {
    const std::size_t pattern_end = std::min(pattern.find('.', p), pattern.size());
    const std::size_t name_end = std::min(name.find('.', n), name.size());
    if (!matches(pattern.substr(p, pattern_end - p), name.substr(n, name_end - n))) return {};
    if (pattern_end == pattern.size()) return name.substr(0, name_end);
    if (name_end == name.size()) return {};
    p = pattern_end + 1;
    n = name_end + 1;
  }
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<double> layer_scales(const LayerDecay& options, const std::vector<std::string>& names) {
  HEARTH_CHECK(ConfigError, options.decay > 0 && options.decay <= 1, "optimizer: layer_decay of ", options.decay,
               "; it is above 0 and at most 1");
  HEARTH_CHECK(ConfigError, options.decay == 1 || !options.layers.empty(), "optimizer: layer_decay of ", options.decay,
               " without layers; decay needs layers, such as \"blocks.*\" and \"head\"");
  std::vector<std::string_view> layers;  // what is found, from the bottom; "" before the first
  std::vector<std::size_t> layer_of;
  std::vector<bool> fits(options.layers.size());
  for (const std::string& name : names) {
    std::string_view layer;
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
      const std::string_view begins = beginning(options.layers[i], name);
      fits[i] = fits[i] || !begins.empty();
      if (layer.empty()) layer = begins;
    }
    if (layers.empty() || (!layer.empty() && std::find(layers.begin(), layers.end(), layer) == layers.end()))
      layers.push_back(layer);
    const auto found = std::find(layers.begin(), layers.end(), layer);
    layer_of.push_back(layer.empty() ? layer_of.empty() ? 0 : layer_of.back()
                                     : static_cast<std::size_t>(found - layers.begin()));
  }
  for (std::size_t i = 0; i < fits.size(); ++i) {
    if (fits[i]) continue;
    throw ConfigError(join_text("optimizer: no parameter lies in \"", options.layers[i],
                                "\" of layer_decay; the nearest are ", names_like(options.layers[i], names),
                                ", and * stands for any characters between two dots"));
  }
  std::vector<double> scales;
  for (const std::size_t layer : layer_of)
    scales.push_back(std::pow(options.decay, static_cast<double>(layers.size() - 1 - layer)));
  return scales;
}

namespace {

bool adapts(Adapt which, int rank, double weight_decay) {
  switch (which) {
    case Adapt::matrices:
      return rank > 1;
    case Adapt::decayed:
      return weight_decay != 0;
    case Adapt::all:
      return true;
  }
  return false;
}

}  // namespace

UpdatePlan::UpdatePlan(const FlatParameters& parameters, const GroupOptions& options, Ranges ranges) {
  const auto& entries = parameters.entries();
  std::vector<std::string> names;
  for (const FlatParameters::Entry& entry : entries) names.push_back(entry.name);
  const std::vector<double> scales = layer_scales(options.layer_decay, names);
  HEARTH_CHECK(ConfigError, std::isfinite(options.weight_decay) && options.weight_decay >= 0,
               "optimizer: weight_decay ", options.weight_decay, "; it is finite and at least 0");
  check_groups(options.groups, names, ranges);
  for (const ParameterGroup& group : options.groups) {
    std::string patterns;
    for (const std::string& pattern : group.match) patterns += (patterns.empty() ? "" : ", ") + pattern;
    groups_.push_back(patterns);
  }
  groups_.emplace_back("*");

  for (std::size_t i = 0; i < entries.size(); ++i) {
    const FlatParameters::Entry& entry = entries[i];
    // A range takes in the gap behind its last parameter: zeros, which every update leaves as they are.
    const std::int64_t end = i + 1 < entries.size() ? entries[i + 1].begin : parameters.total();
    const bool by_parameter = ranges == Ranges::by_parameter;
    ParameterRange range{entry.begin, end, 1.0, 0.0, false, options.groups.size()};
    if (options.decay_norm_bias || entry.value.rank() > 1) range.weight_decay = options.weight_decay;
    const auto group = std::find_if(options.groups.begin(), options.groups.end(),
                                    [&](const auto& g) { return covers(g, entry.name); });
    std::optional<bool> chosen;
    if (group != options.groups.end()) {
      range.lr_scale = group->lr_scale;
      range.weight_decay = group->weight_decay.value_or(range.weight_decay);
      chosen = group->adapt;
      range.group = static_cast<std::size_t>(group - options.groups.begin());
    }
    range.adapts = by_parameter && chosen.value_or(adapts(options.adapt, entry.value.rank(), range.weight_decay));
    range.lr_scale *= scales[i];
    if (ranges == Ranges::merged && !ranges_.empty() && ranges_.back().lr_scale == range.lr_scale &&
        ranges_.back().weight_decay == range.weight_decay) {
      ranges_.back().end = end;
    } else {
      ranges_.push_back(range);
    }
  }
  const Shards* const shards = parameters.shards();
  cut_pieces(shards ? shards->ranges() : std::vector<Shards::Range>{{0, parameters.total(), 0}});
  if (!parameters.values().device().is_cpu()) make_tables(parameters.values().device());
}

// The elements in `own` are this rank's, in rising order.
void UpdatePlan::cut_pieces(const std::vector<Shards::Range>& own) {
  std::int64_t in_task = task_elements;
  std::size_t own_end = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end, std::size_t range) {
    if (in_task >= task_elements) {
      tasks_.push_back(pieces_.size());
      in_task = 0;
    }
    pieces_.push_back({begin, end, range, pieces_.size()});
    own_end = pieces_.size();
    in_task += end - begin;
  };
  auto at = own.begin();
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    for (std::int64_t begin = ranges_[r].begin; begin < ranges_[r].end; begin += piece_elements) {
      const std::int64_t end = std::min(begin + piece_elements, ranges_[r].end);
      while (at != own.end() && at->end <= begin) ++at;
      // By parameter a piece is of one rank, and has one number; merged ranges may lie in parts of several.
      if (at == own.end() || at->begin >= end) pieces_.push_back({0, 0, r, pieces_.size()});
      for (auto part = at; part != own.end() && part->begin < end; ++part) {
        const std::int64_t shift = part->place - part->begin;
        add(std::max(begin, part->begin) + shift, std::min(end, part->end) + shift, r);
      }
    }
  }
  tasks_.push_back(own_end);
}

void UpdatePlan::make_tables(Device device) {
  std::vector<std::int64_t> pieces, firsts;
  for (const Piece& piece : pieces_) {
    // A range without elements has no pieces.
    while (firsts.size() <= piece.range) firsts.push_back(static_cast<std::int64_t>(piece.index));
    pieces.insert(pieces.end(), {piece.begin, piece.end, static_cast<std::int64_t>(piece.range)});
  }
  const auto piece_rows = static_cast<std::int64_t>(pieces_.size());
  firsts.resize(ranges_.size() + 1, piece_rows);
  std::vector<double> ranges;
  for (const ParameterRange& range : ranges_)
    ranges.insert(ranges.end(), {range.lr_scale, range.weight_decay, range.adapts ? 1.0 : 0.0});
  const auto range_rows = static_cast<std::int64_t>(ranges_.size());
  piece_table_ = Tensor::of<std::int64_t>({piece_rows, 3}, pieces).to(device);
  first_pieces_ = Tensor::of<std::int64_t>({range_rows + 1}, firsts).to(device);
  range_table_ = Tensor::of<double>({range_rows, 3}, ranges).to(device);
}

}  // namespace hearth::optim
