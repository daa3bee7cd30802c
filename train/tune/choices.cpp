// SPDX-License-Identifier: Apache-2.0
#include "train/tune/choices.h"

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/cpu/amx.h"
#include "core/text_stream.h"
#include "ops/onednn/onednn.h"
#include "train/step/captured_step.h"

namespace hearth::train {
namespace {

std::string quoted(const char* text) { return join_text('"', text, '"'); }

TuneVariant precision_variant(PrecisionLevel level, ComputeType type) {
  return {.text = join_text(name_of(level), " ", name_of(type)),
          .overrides = {{"precision.level", quoted(name_of(level))}, {"precision.dtype", quoted(name_of(type))}},
          .changes_numbers = true};
}

TuneChoice precision_choice(const Session& session) {
  const bool cuda = session.device().is_cuda();
  const PrecisionOptions& now = session.config().precision;
  TuneChoice choice{.name = "precision"};
  if (now.dtype == ComputeType::f16)
    choice.why_not = "f16 and its loss scale stay as they are";
  else if (!cuda && !cpu::dnn::has_hardware_bf16() && !cpu::amx::unsupported().empty())
    choice.why_not = "nothing here multiplies bf16 in hardware";
  if (!choice.why_not.empty()) return choice;
  std::vector<std::pair<PrecisionLevel, ComputeType>> all{{PrecisionLevel::O0, ComputeType::f32}};
  if (cuda) all.emplace_back(PrecisionLevel::O0, ComputeType::tf32);
  all.emplace_back(PrecisionLevel::O1, ComputeType::bf16);
  all.emplace_back(PrecisionLevel::O2, ComputeType::bf16);
  for (const auto& [level, type] : all)
    if (level != now.level || type != now.dtype) choice.variants.push_back(precision_variant(level, type));
  return choice;
}

/// Why the batch stays as it is, or empty.
std::string why_batch_stays(const Session& session) {
  if (session.data.rows_by_tokens() > 0) return "batches are filled by data.tokens_per_batch";
  if (session.config().train.steps) return "the run's length is a number of steps (train.steps); give it in epochs";
  for (const JsonMember& member : session.resolved().at("schedule").members())
    if (member.key.ends_with("steps") && member.value.is_number() && member.value.as_number() > 0)
      return "schedule." + member.key + " counts steps; give it in epochs";
  return "";
}

/// The learning rate that goes with a batch `factor` times as large: linear for plain gradients (Goyal et al. 2017),
/// by the square root where each is divided by its size (Krizhevsky 2014, Malladi et al. 2022).
double scaled_lr(double lr, double factor, std::string_view optimizer) {
  return optimizer == "sgd" || optimizer == "lars" ? lr * factor : lr * std::sqrt(factor);
}

/// Batches of twice, four times, ... as many rows, each with the learning rate that goes with it.
TuneChoice batch_choice(const Session& session, std::int64_t max_batch) {
  const TrainOptions& train = session.config().train;
  TuneChoice choice{.name = "batch", .is_ladder = true, .why_not = why_batch_stays(session)};
  if (!choice.why_not.empty()) return choice;
  // An epoch of few steps learns little.
  constexpr std::int64_t least_steps = 8;
  const std::int64_t most = std::min(max_batch, session.data.train->size() / (least_steps * train.accumulate));
  const double lr = session.optimizer->base_lr();
  for (std::int64_t factor = 2; factor * train.batch_size <= most; factor *= 2) {
    const std::int64_t rows = factor * train.batch_size;
    TuneVariant variant{.text = std::to_string(rows),
                        .overrides = {{"train.batch_size", std::to_string(rows)}},
                        .changes_numbers = true};
    if (train.lr_scaling.rule == optim::LrScaling::none) {
      const double scaled = scaled_lr(lr, static_cast<double>(factor), session.config().optimizer.type());
      variant.text += join_text(", lr ", scaled);
      variant.overrides["optimizer.lr"] = to_text(Json(scaled));
    }
    choice.variants.push_back(std::move(variant));
  }
  if (choice.variants.empty())
    choice.why_not = 2 * train.batch_size > max_batch
                         ? "it has as many rows as --max-batch lets it have"
                         : join_text("a larger batch leaves fewer than ", least_steps, " steps");
  return choice;
}

/// One batch in place of several that are added up.
TuneChoice accumulation_choice(const Session& session) {
  const TrainOptions& train = session.config().train;
  TuneChoice choice{.name = "accumulation"};
  if (train.accumulate == 1) {
    choice.why_not = "a step is one batch already";
  } else if (session.data.rows_by_tokens() > 0) {
    choice.why_not = "batches are filled by data.tokens_per_batch";
  } else {
    const std::int64_t rows = train.batch_size * train.accumulate;
    choice.variants.push_back({.text = join_text("1, batch ", rows),
                               .overrides = {{"train.accumulate", "1"}, {"train.batch_size", std::to_string(rows)}},
                               .changes_numbers = true});
  }
  return choice;
}

TuneChoice workers_choice(const Session& session, int cores) {
  TuneChoice choice{.name = "workers"};
  const std::int64_t now = session.resolved().at("data").at("workers").as_integer();
  std::set<std::int64_t> counts{0, 1};
  for (std::int64_t count = 2; count <= cores; count *= 2) counts.insert(count);
  for (const std::int64_t count : counts)
    if (count != now)
      choice.variants.push_back(
          {.text = std::to_string(count), .overrides = {{"data.workers", std::to_string(count)}}});
  return choice;
}

/// Fewer threads than the pool has: the cores that they leave are the workers'.
TuneChoice threads_choice(const Session& session, const TuneLimits& limits) {
  const int pool = limits.threads;
  TuneChoice choice{.name = "threads"};
  if (session.device().is_cuda())
    choice.why_not = "the device computes";
  else if (session.config().train.threads)
    choice.why_not = "the configuration has train.threads";
  else if (pool == 0)
    choice.why_not = session.ranks->alone() ? "HEARTH_THREADS has set them" : "the launcher has shared out the cores";
  else if (pool == 1)
    choice.why_not = "one core computes";
  else if (limits.has_neighbours)
    choice.why_not = "other programs compute on these cores, and their number would be what suits them";
  if (!choice.why_not.empty()) return choice;
  std::set<int, std::greater<>> counts{pool - 1};
  for (int count = 1; count < pool; count *= 2) counts.insert(count);
  for (const int count : counts)
    choice.variants.push_back({.text = std::to_string(count), .overrides = {{"train.threads", std::to_string(count)}}});
  return choice;
}

TuneChoice switch_choice(const char* name, const char* path, bool now, bool changes_numbers) {
  const char* const other = now ? "false" : "true";
  return {.name = name,
          .variants = {{.text = other, .overrides = {{path, other}}, .changes_numbers = changes_numbers}}};
}

TuneChoice graph_choice(const Session& session) {
  if (session.device().is_cpu()) return {.name = "graph", .why_not = "only CUDA devices replay steps"};
  return switch_choice("graph", "train.graph", session.config().train.graph.value_or(why_not_replayed(session).empty()),
                       false);
}

TuneChoice head_choice(const Session& session) {
  const auto chunks = [&](bool on) { return switch_choice("chunked head", "train.chunked_head", !on, true); };
  if (session.chunked != nullptr) return chunks(false);
  if (session.config().train.chunked_head == false) return chunks(true);
  return {.name = "chunked head", .why_not = "the model and its loss have none"};
}

/// Rows of whole documents in place of windows of a text, or the reverse.
TuneChoice packing_choice(const Session& session) {
  const Json& data = session.resolved().at("data");
  std::map<std::string, const Json*> sources{{"data", &data}};
  if (const Json* const several = data.find("sources"); several != nullptr && several->is_array()) {
    sources.clear();
    for (std::size_t i = 0; i < several->size(); ++i) sources[join_text("data.sources[", i, "]")] = &several->at(i);
  }
  TuneVariant other{.text = "", .overrides = {}, .changes_numbers = true};
  for (const auto& [path, source] : sources) {
    const Json* const now = source->find("packing");
    if (now == nullptr || !now->is_boolean()) return {.name = "packing", .why_not = "the data is no stream of text"};
    other.text = now->as_boolean() ? "false" : "true";
    other.overrides[path + ".packing"] = other.text;
  }
  return {.name = "packing", .variants = {std::move(other)}};
}

TuneChoice zero_choice(const Session& session) {
  if (!session.optimizer->can_shard()) return {.name = "zero", .why_not = "the optimizer cannot be divided"};
  const RunConfig& config = session.config();
  // Gradients that are divided travel as they are, on the CPU; deterministic mode may ask more of the ranks.
  const bool divides_grads = session.device().is_cpu() && config.dist.wire == DType::f32 && !config.train.deterministic;
  TuneChoice choice{.name = "zero"};
  for (const std::int64_t zero : {0, 1, 2, 3})
    if (zero != config.dist.zero && (zero < 2 || divides_grads))
      choice.variants.push_back({.text = std::to_string(zero), .overrides = {{"dist.zero", std::to_string(zero)}}});
  return choice;
}

TuneChoice overlap_choice(const Session& session) {
  if (session.config().train.deterministic && session.config().dist.zero < 2)
    return {.name = "overlap", .why_not = "deterministic mode sums gradients after the backward pass"};
  return switch_choice("overlap", "dist.overlap", session.config().dist.overlap, false);
}

/// Sizes that cut the gradients otherwise.
TuneChoice buckets_choice(const Session& session) {
  TuneChoice choice{.name = "buckets"};
  constexpr double mib = 1 << 20;
  const DistOptions& dist = session.config().dist;
  const double all =
      static_cast<double>(session.parameters->total() * static_cast<std::int64_t>(size_of(DType::f32))) / mib;
  const auto cut = [&](double size) { return std::min(size, all); };
  if (all <= dist.first_bucket_mb) {
    choice.why_not = join_text("all gradients are one of ", std::ceil(10 * all) / 10, " MiB");
    return choice;
  }
  std::set<double> tried{cut(initial_bucket_mb(dist))};
  for (const double size : {1, 4, 10, 25, 100})
    if (tried.insert(cut(size)).second)
      choice.variants.push_back({.text = join_text(size, " MiB"), .overrides = {{"dist.bucket_mb", join_text(size)}}});
  return choice;
}

/// How several ranks share the work.
std::vector<TuneChoice> ranks_choices(const Session& session) {
  if (session.ranks->size() == 1)
    return {{.name = "ranks", .why_not = "one process trains; zero, overlap and buckets are for several"}};
  return {zero_choice(session), overlap_choice(session), buckets_choice(session)};
}

TuneChoice recompute_choice(const Session& session) {
  const Json* const now = session.resolved().at("model").find("recompute");
  if (now != nullptr && now->is_boolean() && now->as_boolean())
    return switch_choice("recompute", "model.recompute", true, false);
  return {.name = "recompute", .why_not = "nothing is computed twice"};
}

}  // namespace

std::vector<TuneChoice> tune_choices(const Session& session, const TuneLimits& limits) {
  std::vector<TuneChoice> all{accumulation_choice(session), batch_choice(session, limits.max_batch),
                              // Small batches gain nothing by it.
                              precision_choice(session), recompute_choice(session), head_choice(session),
                              packing_choice(session), graph_choice(session)};
  for (TuneChoice& choice : ranks_choices(session)) all.push_back(std::move(choice));
  all.push_back(workers_choice(session, limits.cores));
  all.push_back(threads_choice(session, limits));
  return all;
}

}  // namespace hearth::train
