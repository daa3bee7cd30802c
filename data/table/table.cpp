// SPDX-License-Identifier: Apache-2.0
#include "data/table/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/printable.h"

namespace hearth::data {
namespace {

/// A number as the model gets it: f64 up to the last step.
float standardized(const Column& column, double number) {
  return static_cast<float>((number - column.mean) / column.deviation);
}

std::size_t width_of(const Column& column) { return column.is_category ? column.values.size() : 1; }

/// Of one column the values that are there, in the order of the rows.
template <class F>
void each_value(const RawRows& rows, std::size_t columns, std::size_t column, F&& f) {
  for (std::size_t at = column; at < rows.inputs.size(); at += columns)
    if (!std::isnan(rows.inputs[at])) f(rows.inputs[at]);
}

/// The smallest of the most frequent values; nothing where there are none.
std::optional<double> most_frequent(const RawRows& rows, std::size_t columns, std::size_t column) {
  std::vector<double> values;
  each_value(rows, columns, column, [&](double value) { values.push_back(value); });
  std::ranges::sort(values);
  std::optional<double> best;
  std::ptrdiff_t most = 0;
  for (auto at = values.begin(); at != values.end();) {
    const auto end = std::upper_bound(at, values.end(), *at);
    if (end - at > most) most = end - at, best = *at;
    at = end;
  }
  return best;
}

template <class T>
std::span<const std::byte> bytes_at(const std::vector<T>& all, std::size_t first, std::size_t count) {
  return std::as_bytes(std::span(all).subspan(first, count));
}

}  // namespace

bool operator==(const Column& a, const Column& b) {
  return a.name == b.name && a.is_category == b.is_category && a.mean == b.mean && a.deviation == b.deviation &&
         a.values == b.values && a.fill == b.fill;
}

Json to_json(const TableFacts& facts) {
  Json columns = Json::array();
  for (const Column& column : facts.columns) {
    Json one = Json::object().set("name", column.name).set("type", column.is_category ? "category" : "number");
    if (column.is_category)
      one.set("values", Json::array_of(column.values));
    else
      one.set("mean", column.mean).set("deviation", column.deviation);
    if (column.fill) one.set("fill", *column.fill);
    columns.push_back(std::move(one));
  }
  return Json::object()
      .set("columns", std::move(columns))
      .set("shape", Json::array_of(facts.shape))
      .set("target", facts.target)
      .set("classes", Json::array_of(facts.classes))
      .set("targets", facts.targets);
}

TableFacts table_facts_of(const Json& json) {
  TableFacts facts;
  for (const Json& one : json.at("columns").items()) {
    Column column{.name = one.at("name").as_string(), .is_category = one.at("type").as_string() == "category"};
    if (column.is_category) {
      for (const Json& value : one.at("values").items()) column.values.push_back(value.as_string());
    } else {
      column.mean = one.at("mean").as_number();
      column.deviation = one.at("deviation").as_number();
    }
    if (const Json* const fill = one.find("fill")) column.fill = fill->as_number();
    facts.columns.push_back(std::move(column));
  }
  for (const Json& extent : json.at("shape").items()) facts.shape.push_back(extent.as_integer());
  facts.target = json.at("target").as_string();
  for (const Json& name : json.at("classes").items()) facts.classes.push_back(name.as_string());
  facts.targets = json.at("targets").as_integer();
  return facts;
}

TableDataset::TableDataset(std::string source, std::shared_ptr<const TableFacts> facts, RawRows rows)
    : source_(std::move(source)), facts_(std::move(facts)), rows_(std::move(rows)) {}

TensorSample TableDataset::example() const {
  TensorSample sample{{"x", Tensor::zeros(Shape(facts_->shape))}};
  if (facts_->classes.empty())
    sample.emplace_back("labels", Tensor::zeros({facts_->targets}));
  else
    sample.emplace_back("labels", Tensor::zeros({}, DType::i64));
  return sample;
}

TensorSample TableDataset::read(std::int64_t index, Random&) const {
  check_index(index);
  const auto row = static_cast<std::size_t>(index);
  const std::size_t stride = rows_.inputs.size() / static_cast<std::size_t>(rows_.count);
  TensorSample sample{{"x", Tensor::zeros(Shape(facts_->shape))}};
  float* to = sample[0].second.data<float>();
  const std::size_t columns = facts_->columns.size();
  for (std::size_t i = 0; i < stride; ++i) {
    const Column& column = facts_->columns[i % columns];
    const double value = rows_.inputs[row * stride + i];
    if (!column.is_category)
      *to = standardized(column, value);
    else if (value >= 0)
      to[static_cast<std::size_t>(value)] = 1;
    to += width_of(column);
  }
  if (!rows_.labels.empty()) {
    sample.emplace_back("labels", Tensor::of<std::int64_t>({}, {rows_.labels[row]}));
  } else if (!rows_.targets.empty()) {
    const auto count = static_cast<std::size_t>(facts_->targets);
    Tensor target = Tensor::empty({facts_->targets});
    std::copy_n(rows_.targets.data() + row * count, count, target.data<float>());
    sample.emplace_back("labels", std::move(target));
  }
  return sample;
}

void TableDataset::identify(std::int64_t index, Sha256& digest) const {
  check_index(index);
  const auto row = static_cast<std::size_t>(index), count = static_cast<std::size_t>(rows_.count);
  const auto add = [&](const auto& all) {
    if (!all.empty()) digest.update(bytes_at(all, row * (all.size() / count), all.size() / count));
  };
  add(rows_.inputs), add(rows_.targets), add(rows_.labels);
}

void learn_columns(const RawRows& rows, Missing missing, bool standardize, TableFacts& facts) {
  const std::size_t columns = facts.columns.size();
  for (std::size_t i = 0; i < columns; ++i) {
    Column& column = facts.columns[i];
    double count = 0, first = 0, sum = 0, squares = 0;
    // Differences to the first value keep equal values equal to their mean, and lose nothing where all are far from 0.
    each_value(rows, columns, i, [&](double value) {
      if (count++ == 0) first = value;
      sum += value - first;
    });
    const double mean = count > 0 ? first + sum / count : 0;
    each_value(rows, columns, i, [&](double value) { squares += (value - mean) * (value - mean); });
    if (standardize && !column.is_category) {
      column.mean = mean;
      const double deviation = count > 0 ? std::sqrt(squares / count) : 0;
      column.deviation = deviation > 0 ? deviation : 1;
    }
    if (missing == Missing::error) continue;
    const bool by_mean = missing == Missing::mean && !column.is_category;
    if (!by_mean)
      column.fill = most_frequent(rows, columns, i);
    else if (count > 0)
      column.fill = mean;
  }
}

void fill_missing(RawRows& rows, const TableFacts& facts, const std::string& source) {
  const std::size_t columns = facts.columns.size();
  for (std::size_t at = 0; at < rows.inputs.size(); ++at) {
    double& value = rows.inputs[at];
    const Column& column = facts.columns[at % columns];
    const auto place = [&] {
      return column.name.empty() ? join_text("place ", at % columns, " of the last axis, counted from 0,")
                                 : "column \"" + column.name + "\"";
    };
    if (!std::isnan(value)) {
      HEARTH_CHECK(DataError, column.is_category || std::isfinite(standardized(column, value)), source, ": ", place(),
                   " has the value ", value, ", which is beyond f32 as (number - ", column.mean, ") / ",
                   column.deviation, ", by the training split's mean and deviation; correct it, or leave the ",
                   "column out, or set data.standardize to false");
      continue;
    }
    HEARTH_CHECK(DataError, column.fill.has_value(), source, ": ", place(),
                 " has no value in the training split that could stand for a missing one; leave it out",
                 column.name.empty() ? "" : " by data.ignore", ", or fill it");
    value = *column.fill;
  }
}

RawRows chosen(const RawRows& rows, const std::vector<std::int64_t>& which) {
  RawRows result;
  result.count = static_cast<std::int64_t>(which.size());
  const auto copy = [&](const auto& from, auto& to) {
    const auto width = static_cast<std::ptrdiff_t>(from.size()) / std::max<std::ptrdiff_t>(1, rows.count);
    for (const std::int64_t row : which)
      to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
  };
  copy(rows.inputs, result.inputs), copy(rows.targets, result.targets), copy(rows.labels, result.labels);
  return result;
}

std::string named_columns(const TableFacts& facts) {
  constexpr std::size_t most = 8;
  std::string text;
  for (const bool is_category : {false, true}) {
    std::size_t count = 0;
    for (const Column& column : facts.columns) {
      if (column.name.empty() || column.is_category != is_category || ++count > most) continue;
      const char* const kind = is_category ? "categories " : "numbers ";
      text += count > 1 ? ", " : join_text(text.empty() ? "" : "; ", kind);
      text += printable(column.name);
      if (is_category) text += join_text(" (", column.values.size(), " values)");
    }
    if (count > most) text += join_text(" and ", count - most, " more");
  }
  return text;
}

Json describe_table(const TableDataset& table) {
  const TableFacts& facts = table.facts();
  const RawRows& rows = table.rows();
  Json columns = Json::array();
  for (std::size_t i = 0; i < facts.columns.size() && !facts.columns[i].name.empty(); ++i) {
    const Column& column = facts.columns[i];
    Json one = Json::object().set("name", column.name).set("type", column.is_category ? "category" : "number");
    if (column.is_category) {
      std::vector<std::int64_t> counts(column.values.size());
      each_value(rows, facts.columns.size(), i, [&](double value) {
        if (value >= 0) ++counts[static_cast<std::size_t>(value)];
      });
      Json values = Json::object();
      for (std::size_t k = 0; k < counts.size(); ++k) values.set(column.values[k], counts[k]);
      one.set("values", std::move(values));
    } else {
      double least = std::numeric_limits<double>::infinity(), greatest = -least;
      each_value(rows, facts.columns.size(), i,
                 [&](double value) { least = std::min(least, value), greatest = std::max(greatest, value); });
      one.set("mean", column.mean).set("deviation", column.deviation);
      one.set("least", least).set("greatest", greatest);
    }
    columns.push_back(std::move(one));
  }
  std::vector<std::int64_t> histogram(facts.classes.size());
  for (const std::int64_t label : rows.labels) ++histogram[static_cast<std::size_t>(label)];
  Json classes = Json::object();
  for (std::size_t i = 0; i < histogram.size(); ++i) classes.set(facts.classes[i], histogram[i]);
  return Json::object()
      .set("source", table.source())
      .set("samples", table.size())
      .set("inputs", Json::array_of(facts.shape))
      .set("columns", std::move(columns))
      .set("classes", std::move(classes))
      .set("targets", facts.classes.empty() ? facts.targets : 0);
}

}  // namespace hearth::data
