// SPDX-License-Identifier: Apache-2.0
#include "train/step/sum_choice.h"

#include <algorithm>
#include <iomanip>

#include "core/error.h"

namespace hearth::train {
namespace {

// The first steps of a run are slower than later ones.
constexpr std::int64_t steps_before_choice = 3;

std::int64_t hosts_in(const std::vector<int>& hosts) { return 1 + *std::max_element(hosts.begin(), hosts.end()); }

std::string number_text(double x, int digits) { return join_text(std::fixed, std::setprecision(digits), x); }

dist::Route route_named(const std::string& name) {
  for (const dist::Route route : {dist::Route::direct, dist::Route::ring, dist::Route::tree, dist::Route::hierarchical})
    if (name == dist::name_of(route)) return route;
  throw FileError(join_text("the checkpoint sums by a route \"", name, "\", which this version does not know"));
}

Json json_of(const dist::LinearCost& cost) {
  return Json::object()
      .set("latency_us", 1e6 * cost.latency)
      .set("gbs", cost.seconds_per_byte > 0 ? Json(1e-9 / cost.seconds_per_byte) : Json());
}

}  // namespace

Json to_json(const dist::SumCosts& costs) {
  Json json = Json::object();
  for (const auto& [route, cost] : costs.routes) json.set(dist::name_of(route), json_of(cost));
  if (costs.to_each.latency > 0) json.set("to_each", json_of(costs.to_each));
  return json;
}

SumChoiceOptions sum_choice_options(const RunConfig& config) {
  return {.any_route = config.dist.route == dist::Route::automatic,
          .any_size = config.dist.bucket_mb == 0,
          .repeatable = config.train.repeatable};
}

SumChoice::SumChoice(dist::DataParallel& parallel, const SumChoiceOptions& options)
    : parallel_(parallel), routed_(dist::routed(parallel.group())) {
  if (parallel.group().size() == 1 || routed_ == nullptr) {
    why_none_ = parallel.group().size() == 1 ? std::string("there is one rank")
                                             : join_text(parallel.group().backend(), " chooses for itself");
    return;
  }
  if (parallel.options().zero > 1) {
    why_none_ = "gradients that are divided are summed by blocks";
    return;
  }
  choices_.routes = {routed_->current_route()};
  if (options.any_route)
    choices_.routes = dist::automatic_routes(routed_->current_route(), routed_->hosts(), options.repeatable);
  choices_.bucket_mb = {parallel.options().bucket_mb};
  // Without overlap all gradients are there before the first one is summed.
  if (options.any_size && !parallel.options().compress && parallel.options().overlap)
    choices_.bucket_mb = dist::automatic_bucket_mb();
  if (choices_.routes.size() > 1 || choices_.bucket_mb.size() > 1) return;
  why_none_ = !options.any_route && !options.any_size           ? "dist.route and dist.bucket_mb are given"
              : options.any_size && parallel.options().compress ? "compressed gradients keep state of their buckets"
                                                                : "no other choice could be faster";
}

bool SumChoice::after_step() {
  if (!why_none_.empty() || is_made()) return false;
  if (++steps_ < steps_before_choice) {
    parallel_.time_next_pass();
    return false;
  }
  const dist::SumCosts costs = dist::measure_sums(parallel_.group(), choices_.routes, parallel_.options().wire,
                                                  static_cast<bool>(parallel_.options().compress));
  choose(costs, dist::agreed_times(parallel_.group(), parallel_.last_pass()));
  return true;
}

void SumChoice::choose(const dist::SumCosts& costs, const dist::PassTimes& times) {
  forecasts_ = dist::forecasts(parallel_, times, costs, choices_);
  const dist::SumForecast& best = dist::best_of(forecasts_);
  made_ = Json::object()
              .set("route", dist::name_of(best.route))
              .set("bucket_mb", best.bucket_mb)
              .set("ranks", parallel_.group().size())
              .set("hosts", hosts_in(routed_->hosts()))
              .set("costs", to_json(costs));
  Json all = Json::array();
  for (const dist::SumForecast& one : forecasts_)
    all.push_back(Json::object()
                      .set("route", dist::name_of(one.route))
                      .set("bucket_mb", one.bucket_mb)
                      .set("exposed_ms", 1e3 * one.step.exposed));
  made_.set("forecasts", all);
  apply(best.route, best.bucket_mb, times.arrivals);
}

void SumChoice::apply(dist::Route route, double bucket_mb, const std::vector<double>& arrivals) {
  if (choices_.routes.size() > 1) routed_->use_route(route);
  if (choices_.bucket_mb.size() > 1) parallel_.use_buckets(bucket_mb, arrivals);
}

void SumChoice::restore(const Json* noted) {
  made_ = {};
  if (noted == nullptr || !why_none_.empty()) return;
  try {
    if (noted->at("ranks").as_integer() != parallel_.group().size() ||
        noted->at("hosts").as_integer() != hosts_in(routed_->hosts()))
      return;
    const dist::Route route = route_named(noted->at("route").as_string());
    const double size = noted->at("bucket_mb").as_number();
    if (std::find(choices_.routes.begin(), choices_.routes.end(), route) == choices_.routes.end() ||
        std::find(choices_.bucket_mb.begin(), choices_.bucket_mb.end(), size) == choices_.bucket_mb.end())
      return;
    made_ = *noted;
  } catch (const ConfigError& error) {
    throw FileError(join_text("the checkpoint's note of how gradients are summed: ", error.what()));
  }
}

void SumChoice::resume() {
  if (!is_made()) return;
  // As in the flat buffer: the order of sums changes no bit of them.
  apply(route_named(made_.at("route").as_string()), made_.at("bucket_mb").as_number(),
        std::vector<double>(parallel_.parameters().entries().size()));
}

std::string SumChoice::text() const {
  const std::string route = made_.at("route").as_string();
  const double size = made_.at("bucket_mb").as_number();
  const std::string what = join_text("route ", route, ", buckets of ", size, " MiB");
  if (forecasts_.empty()) return what + ", as before";
  std::string others;
  double exposed = 0;
  for (const dist::SumForecast& one : forecasts_) {
    const bool is_chosen = dist::name_of(one.route) == route && one.bucket_mb == size;
    if (is_chosen) exposed = 1e3 * one.step.exposed;
    if (!is_chosen && one.bucket_mb == size)
      others +=
          join_text(others.empty() ? "" : ", ", dist::name_of(one.route), ' ', number_text(1e3 * one.step.exposed, 1));
  }
  return join_text(what, ": steps wait ", number_text(exposed, 1), " ms for sums, by forecast",
                   others.empty() ? "" : join_text(" (", others, ")"));
}

}  // namespace hearth::train
