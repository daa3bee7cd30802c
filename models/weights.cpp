// SPDX-License-Identifier: Apache-2.0
// The tables of names, and the walk over them in both directions.
#include "hearth/models/weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "hearth/core/nearest.h"
#include "hearth/core/non_finite.h"
#include "hearth/core/safetensors_set.h"
#include "hearth/models/import.h"
#include "hearth/models/named_tensors.h"
#include "hearth/models/swin.h"
#include "hearth/models/swin_weights.h"
#include "hearth/ops/shape/view.h"

namespace hearth::models {
namespace {

constexpr const char* prefix_note = "hearth.prefix";
constexpr const char* positions_note = "hearth.position_ids";
constexpr const char* positions_name = "embeddings.position_ids";
constexpr const char* positions_table = "embeddings.position_embeddings.weight";

enum class Kind {
  plain,
  transposed,  // theirs is [inputs, outputs]
  joined,      // theirs are "query", "key", "value", ours is "qkv"
};

/// One tensor of ours, "#" standing for a layer's number. The shape names each extent by a letter, which is the same
/// number wherever it stands; Q is three times W. Tensors of a group are expected where one of them is there.
struct Rule {
  std::string_view name;
  std::string_view shape;
  Kind kind = Kind::plain;
  std::string_view group = {};
};

constexpr Rule gpt2_rules[] = {
    {"wte.weight", "VW"},
    {"wpe.weight", "PW"},
    {"h.#.ln_1.weight", "W"},
    {"h.#.ln_1.bias", "W"},
    {"h.#.attn.c_attn.weight", "QW", Kind::transposed},
    {"h.#.attn.c_attn.bias", "Q"},
    {"h.#.attn.c_proj.weight", "WW", Kind::transposed},
    {"h.#.attn.c_proj.bias", "W"},
    {"h.#.ln_2.weight", "W"},
    {"h.#.ln_2.bias", "W"},
    {"h.#.mlp.c_fc.weight", "HW", Kind::transposed},
    {"h.#.mlp.c_fc.bias", "H"},
    {"h.#.mlp.c_proj.weight", "WH", Kind::transposed},
    {"h.#.mlp.c_proj.bias", "W"},
    {"ln_f.weight", "W"},
    {"ln_f.bias", "W"},
    {"lm_head.weight", "VW", Kind::plain, "lm_head"},
};

constexpr Rule bert_rules[] = {
    {"embeddings.word_embeddings.weight", "VW"},
    {"embeddings.position_embeddings.weight", "PW"},
    {"embeddings.token_type_embeddings.weight", "SW"},
    {"embeddings.LayerNorm.weight", "W"},
    {"embeddings.LayerNorm.bias", "W"},
    {"encoder.layer.#.attention.self.qkv.weight", "QW", Kind::joined},
    {"encoder.layer.#.attention.self.qkv.bias", "Q", Kind::joined},
    {"encoder.layer.#.attention.output.dense.weight", "WW"},
    {"encoder.layer.#.attention.output.dense.bias", "W"},
    {"encoder.layer.#.attention.output.LayerNorm.weight", "W"},
    {"encoder.layer.#.attention.output.LayerNorm.bias", "W"},
    {"encoder.layer.#.intermediate.dense.weight", "HW"},
    {"encoder.layer.#.intermediate.dense.bias", "H"},
    {"encoder.layer.#.output.dense.weight", "WH"},
    {"encoder.layer.#.output.dense.bias", "W"},
    {"encoder.layer.#.output.LayerNorm.weight", "W"},
    {"encoder.layer.#.output.LayerNorm.bias", "W"},
    {"pooler.dense.weight", "WW", Kind::plain, "pooler"},
    {"pooler.dense.bias", "W", Kind::plain, "pooler"},
    {"cls.predictions.bias", "V", Kind::plain, "cls"},
    {"cls.predictions.transform.dense.weight", "WW", Kind::plain, "cls"},
    {"cls.predictions.transform.dense.bias", "W", Kind::plain, "cls"},
    {"cls.predictions.transform.LayerNorm.weight", "W", Kind::plain, "cls"},
    {"cls.predictions.transform.LayerNorm.bias", "W", Kind::plain, "cls"},
    {"classifier.weight", "CW", Kind::plain, "classifier"},
    {"classifier.bias", "C", Kind::plain, "classifier"},
};

/// A name of theirs that may be there beside the tensor it equals.
struct Tie {
  std::string_view copy;
  std::string_view of;
};
constexpr Tie gpt2_ties[] = {{"lm_head.weight", "wte.weight"}};
constexpr Tie bert_ties[] = {{"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"},
                             {"cls.predictions.decoder.bias", "cls.predictions.bias"}};

struct Family {
  std::string_view prefix;
  std::string_view layers;  // what a layer's number follows
  std::span<const Rule> rules;
  std::span<const Tie> ties;
};

const Family& family_of(WeightFormat format) {
  static constexpr Family gpt2{"transformer.", "h.", gpt2_rules, gpt2_ties};
  static constexpr Family bert{"bert.", "encoder.layer.", bert_rules, bert_ties};
  return format == WeightFormat::hf_gpt2 ? gpt2 : bert;
}

/// Buffers, and the head that guesses whether one sentence follows another.
bool is_needless(const Family& family, std::string_view name) {
  if (&family == &family_of(WeightFormat::hf_bert)) return name.starts_with("cls.seq_relationship.");
  return name.starts_with(family.layers) && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0;
}

/// [1, count] of 0, 1, 2, ...
Tensor positions(std::int64_t count) {
  const Tensor result = Tensor::empty({1, count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) result.data<std::int64_t>()[i] = i;
  return result;
}

/// The walk over a family's rules.
class Walk : public NamedTensors {
 public:
  Walk(const Family& family, ByName given, NameReport& report)
      : NamedTensors(std::move(given), report), family_(family) {}

  /// f(rule, name) for every tensor that is expected. `names` gives the names under which a rule's tensor is looked
  /// for.
  template <class Names, class F>
  void each(const Names& names, const F& f) {
    std::set<std::string_view> groups;
    for (const Rule& rule : family_.rules)
      for (const std::string& name : names(rule, std::string(rule.name)))
        if (!rule.group.empty() && has(name)) groups.insert(rule.group);
    const std::int64_t layers = layer_count();
    // All before the layers, each layer, all behind them.
    const auto is_layer = [](const Rule& rule) { return rule.name.find('#') != std::string_view::npos; };
    const auto begin = std::find_if(family_.rules.begin(), family_.rules.end(), is_layer);
    const auto end = std::find_if_not(begin, family_.rules.end(), is_layer);
    for (auto rule = family_.rules.begin(); rule != begin; ++rule) f(*rule, std::string(rule->name));
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (auto rule = begin; rule != end; ++rule) f(*rule, replaced(rule->name, "#", std::to_string(layer)));
    for (auto rule = end; rule != family_.rules.end(); ++rule)
      if (rule->group.empty() || groups.contains(rule->group)) f(*rule, std::string(rule->name));
  }

 private:
  std::int64_t layer_count() const {
    std::int64_t layers = 0;
    for (const auto& [name, tensor] : given()) {
      if (!name.starts_with(family_.layers)) continue;
      std::int64_t number = -1;
      const char* const begin = name.data() + family_.layers.size();
      const auto read = std::from_chars(begin, name.data() + name.size(), number);
      // A number beyond what there are tensors for is no layer's.
      if (read.ec == std::errc() && *read.ptr == '.' && number >= 0 &&
          number < static_cast<std::int64_t>(given().size()))
        layers = std::max(layers, number + 1);
    }
    return layers;
  }

  const Family& family_;
};

constexpr std::array<std::string_view, 3> part_names{"query", "key", "value"};

std::vector<std::string> their_names(const Rule& rule, const std::string& ours) {
  if (rule.kind != Kind::joined) return {ours};
  std::vector<std::string> names;
  for (const std::string_view part : part_names) names.push_back(replaced(ours, "qkv", part));
  return names;
}

/// Axis 0 of the parts in a row; all of one type and shape.
Tensor joined(const std::vector<Tensor>& parts) {
  std::vector<std::int64_t> extents(parts[0].shape().begin(), parts[0].shape().end());
  extents[0] = checked_mul(extents[0], static_cast<std::int64_t>(parts.size()), "weights: rows");
  const Tensor result = Tensor::empty(Shape(std::span<const std::int64_t>(extents)), parts[0].dtype());
  std::byte* to = result.bytes();
  for (const Tensor& part : parts) {
    std::memcpy(to, part.bytes(), part.byte_size());
    to += part.byte_size();
  }
  return result;
}

/// By names without the prefix, norms having weight and bias.
ByName by_present_name(const WeightSet& set, const Family& family, NameReport& report, std::string& prefix) {
  return by_name(set, report, [&](const Weight& weight) {
    std::string name = weight.name;
    if (name.starts_with(family.prefix)) {
      name = name.substr(family.prefix.size());
      prefix = family.prefix;
    }
    if (name.ends_with(".gamma")) name.replace(name.size() - 5, 5, "weight");
    if (name.ends_with(".beta")) name.replace(name.size() - 4, 4, "bias");
    return name;
  });
}

/// A note for each that is to be written again, and out of the way.
void leave_out(const Family& family, ByName& given, NameReport& report, SafetensorsMetadata& notes) {
  const auto ids = given.find(positions_name), table = given.find(positions_table);
  if (ids != given.end() && table != given.end() && table->second.rank() == 2 &&
      are_equal(ids->second, positions(table->second.dim(0)))) {
    notes[positions_note] = "1";
    report.left_out.push_back(positions_name);
    given.erase(ids);
  }
  for (const Tie& tie : family.ties) {
    const auto copy = given.find(tie.copy), of = given.find(tie.of);
    if (copy == given.end() || of == given.end() || !are_equal(copy->second, of->second)) continue;
    report.left_out.push_back(join_text(tie.copy, ", equal to ", tie.of));
    given.erase(copy);
  }
  for (auto each = given.begin(); each != given.end();) {
    const bool needless = is_needless(family, each->first);
    if (needless) report.left_out.push_back(each->first);
    each = needless ? given.erase(each) : std::next(each);
  }
}

/// How often PyTorch's batch norm moved its running statistics. With a fixed momentum nothing depends on it, and
/// PyTorch loads weights without it.
bool counts_batches(const Weight& weight) {
  return weight.name.ends_with(".num_batches_tracked") && weight.value.rank() == 0 &&
         !is_floating(weight.value.dtype());
}

WeightSet from_torch(const WeightSet& theirs, NameReport& report) {
  WeightSet ours{{}, theirs.metadata};
  for (const Weight& weight : theirs.weights) {
    if (is_position_index(weight, theirs) || counts_batches(weight))
      report.left_out.push_back(weight.name);
    else
      ours.weights.push_back({weight.name, from_torch_layout(weight.name, weight.value)});
  }
  return ours;
}

WeightSet to_torch(const WeightSet& ours) {
  WeightSet theirs{{}, ours.metadata};
  for (const Weight& weight : ours.weights) {
    theirs.weights.push_back({weight.name, to_torch_layout(weight.name, weight.value)});
    if (!weight.name.ends_with(swin_table_ending)) continue;
    if (const Tensor index = relative_position_index(weight.value); index.defined())
      theirs.weights.push_back({replaced(weight.name, swin_table_ending, swin_index_ending), index});
  }
  return theirs;
}

bool begins_with_any(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

/// Floating values of any type are weights; an integer or a boolean is not made one.
bool converts(DType from, DType to) { return from == to || (is_floating(from) && is_floating(to)); }

/// "NAME: 2 NaN of 12 values"; "" where all are finite.
std::string non_finite_text(const std::string& name, const Tensor& value) {
  const Tensor on_host = value.to(Device{}).contiguous();
  const NonFinite found = count_non_finite(on_host.dtype(), {on_host.bytes(), on_host.byte_size()});
  return found.any() ? join_text(name, ": ", found.text(), " of ", on_host.size(), " values") : std::string();
}

/// ConfigError for a beginning that no name has.
void check_rule(const char* rule, const std::vector<std::string>& beginnings, const std::vector<std::string>& names,
                const char* which) {
  for (const std::string& beginning : beginnings)
    HEARTH_CHECK(
        ConfigError,
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(beginning); }),
        "/weights/", rule, ": \"", beginning, "\" begins the name of no tensor ", which,
        "; correct it, or leave it out");
}

}  // namespace

WeightFormat weight_format_named(const std::string& name) {
  static const std::map<std::string, WeightFormat> known{
      {"hearth", WeightFormat::hearth},       {"torch", WeightFormat::torch},
      {"hf-gpt2", WeightFormat::hf_gpt2},     {"hf-bert", WeightFormat::hf_bert},
      {"timm-swin", WeightFormat::timm_swin}, {"microsoft-swin", WeightFormat::microsoft_swin}};
  if (const auto found = known.find(name); found != known.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [each, format] : known) names.push_back(each);
  throw UsageError(join_text("weights: the format \"", name, "\" is not known; ", suggest(name, names, "formats")));
}

std::string NameReport::faults(const std::string& prefix) const {
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    for (const std::string& name : names) text += (text.empty() ? "" : "\n") + prefix + what + " " + name;
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("wrong shape:", misshaped);
  add("wrong type:", mistyped);
  add("not finite:", non_finite);
  return text;
}

WeightSet read_weights(const std::string& path) {
  const SafetensorsSet set{path};
  set.verify();
  WeightSet result{{}, set.metadata()};
  for (const SafetensorsSet::Item& item : set.items()) {
    const Tensor tensor = Tensor::empty(item.record->shape, item.record->dtype);
    const auto bytes = item.bytes();
    std::copy(bytes.begin(), bytes.end(), tensor.bytes());
    result.weights.push_back({item.record->name, tensor});
  }
  return result;
}

WeightSet to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report) {
  if (from == WeightFormat::hearth) return theirs;
  if (from == WeightFormat::torch) return from_torch(theirs, report);
  if (is_swin(from)) return swin_to_hearth(theirs, from, report);
  const Family& family = family_of(from);
  WeightSet ours{{}, theirs.metadata};
  std::string prefix;
  ByName given = by_present_name(theirs, family, report, prefix);
  ours.metadata[prefix_note] = prefix;
  leave_out(family, given, report, ours.metadata);
  Walk walk(family, std::move(given), report);
  walk.each(their_names, [&](const Rule& rule, const std::string& name) {
    std::string shape(rule.shape);
    if (rule.kind == Kind::transposed) std::reverse(shape.begin(), shape.end());
    if (rule.kind == Kind::joined) std::replace(shape.begin(), shape.end(), 'Q', 'W');
    std::vector<Tensor> parts;
    for (const std::string& part : their_names(rule, name)) parts.push_back(walk.take(part, shape));
    for (const Tensor& part : parts)
      if (!part.defined()) return;
    if (rule.kind == Kind::transposed) parts[0] = transpose(parts[0], {1, 0}).contiguous();
    for (const Tensor& part : parts)
      if (part.dtype() != parts[0].dtype()) {
        report.misshaped.push_back(join_text(name, " is joined from ", parts[0].dtype(), " and ", part.dtype()));
        return;
      }
    ours.weights.push_back({name, parts.size() > 1 ? joined(parts) : parts[0]});
  });
  walk.finish();
  return ours;
}

WeightSet from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report) {
  if (to == WeightFormat::hearth) return ours;
  if (to == WeightFormat::torch) return to_torch(ours);
  if (is_swin(to)) return swin_from_hearth(ours, to, report);
  const Family& family = family_of(to);
  WeightSet theirs{{}, ours.metadata};
  std::string prefix;
  Walk walk(family, by_name(ours, report), report);
  bool has_head = false;
  walk.each([](const Rule&, const std::string& name) { return std::vector{name}; },
            [&](const Rule& rule, const std::string& name) {
              const Tensor tensor = walk.take(name, rule.shape);
              if (!tensor.defined()) return;
              has_head = has_head || rule.group == "cls" || rule.group == "classifier";
              const std::vector<std::string> names = their_names(rule, name);
              const std::int64_t rows = tensor.dim(0) / static_cast<std::int64_t>(names.size());
              for (std::size_t i = 0; i < names.size(); ++i) {
                const auto first = static_cast<std::int64_t>(i) * rows;
                Tensor part = slice(tensor, 0, first, first + rows);
                if (rule.kind == Kind::transposed) part = transpose(part, {1, 0});
                theirs.weights.push_back({names[i], part.contiguous()});
              }
            });
  walk.finish();
  const auto note = theirs.metadata.extract(prefix_note);
  if (!note.empty())
    prefix = note.mapped();
  else if (to == WeightFormat::hf_bert && has_head)
    prefix = family.prefix;
  const bool with_positions = !theirs.metadata.extract(positions_note).empty();
  for (std::size_t i = 0; with_positions && i < theirs.weights.size(); ++i)
    if (const Weight& weight = theirs.weights[i]; weight.name == positions_table)
      theirs.weights.push_back({positions_name, positions(weight.value.dim(0))});
  for (Weight& weight : theirs.weights)
    if (!weight.name.starts_with("cls.") && !weight.name.starts_with("classifier.") &&
        !weight.name.starts_with("lm_head."))
      weight.name = prefix + weight.name;
  return theirs;
}

NameReport load_weights(const std::vector<NamedTensor>& tensors, const WeightSet& ours, const LoadRules& rules) {
  NameReport report;
  std::map<std::string, const Tensor*> given;
  for (const Weight& weight : ours.weights) given[weight.name] = &weight.value;
  std::vector<std::pair<Tensor*, const Tensor*>> copies;
  std::vector<std::string> of_network, left;
  for (const NamedTensor& named : tensors) {
    const auto found = given.find(named.name);
    const Tensor* const value = found == given.end() ? nullptr : found->second;
    if (value) given.erase(found);
    of_network.push_back(named.name);
    if (begins_with_any(named.name, rules.fresh))
      report.left_out.push_back(named.name + ", fresh");
    else if (!value)
      report.missing.push_back(join_text(named.name, " ", named.tensor->shape()));
    else if (value->shape() != named.tensor->shape())
      report.misshaped.push_back(join_text(named.name, " ", value->shape(), ", expected ", named.tensor->shape()));
    else if (!converts(value->dtype(), named.tensor->dtype()))
      report.mistyped.push_back(join_text(named.name, " ", value->dtype(), ", expected ", named.tensor->dtype()));
    else if (const std::string fault = non_finite_text(named.name, *value); !fault.empty())
      report.non_finite.push_back(fault);
    else
      copies.emplace_back(named.tensor, value);
  }
  for (const auto& [name, value] : given) {
    left.push_back(name);
    if (begins_with_any(name, rules.unused) || begins_with_any(name, rules.fresh))
      report.left_out.push_back(name + ", unused");
    else
      report.unexpected.push_back(join_text(name, " ", value->shape()));
  }
  check_rule("fresh", rules.fresh, of_network, "of the network");
  check_rule("unused", rules.unused, left, "of the file that the network has no place for");
  if (report.fits())
    for (const auto& [to, from] : copies) to->copy_from(*from);
  return report;
}

std::vector<std::string> non_finite_tensors(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> found;
  for (const NamedTensor& named : tensors)
    if (std::string text = non_finite_text(named.name, *named.tensor); !text.empty()) found.push_back(std::move(text));
  return found;
}

std::vector<std::string> non_finite_tensors(const WeightSet& set) {
  std::vector<std::string> found;
  for (const Weight& weight : set.weights)
    if (std::string text = non_finite_text(weight.name, weight.value); !text.empty()) found.push_back(std::move(text));
  return found;
}

}  // namespace hearth::models
