// SPDX-License-Identifier: Apache-2.0
// The tables of names, and the walk over them in both directions.
#include "models/weights/transformers_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/named_tensors.h"
#include "ops/shape/view.h"

namespace hearth::models {
namespace {

constexpr const char* prefix_note = "hearth.prefix";
constexpr const char* positions_note = "hearth.position_ids";
constexpr const char* positions_name = "embeddings.position_ids";
constexpr const char* positions_table = "embeddings.position_embeddings.weight";

enum class LayerKind {
  plain,
  transposed,  // theirs is [inputs, outputs]
  joined,      // theirs are the query's, the key's and the value's, ours is "qkv"
};

enum class Has { both, weight, bias };

/// A layer of ours, "#" standing for its number, with the shape of its weight; its bias has the first extent. Shapes
/// name each extent by a letter, which is the same number wherever it stands; Q is three times W. Layers of a group are
/// expected where one of them is there.
struct Layer {
  std::string_view name;
  std::string_view shape;
  std::string_view group = {};
  LayerKind kind = LayerKind::plain;
  Has has = Has::both;
};

constexpr Layer gpt2_layers[] = {
    {"wte", "VW", "", LayerKind::plain, Has::weight},
    {"wpe", "PW", "", LayerKind::plain, Has::weight},
    {"h.#.ln_1", "W"},
    {"h.#.attn.c_attn", "QW", "", LayerKind::transposed},
    {"h.#.attn.c_proj", "WW", "", LayerKind::transposed},
    {"h.#.ln_2", "W"},
    {"h.#.mlp.c_fc", "HW", "", LayerKind::transposed},
    {"h.#.mlp.c_proj", "WH", "", LayerKind::transposed},
    {"ln_f", "W"},
    {"lm_head", "VW", "lm_head", LayerKind::plain, Has::weight},
};

constexpr Layer bert_layers[] = {
    {"embeddings.word_embeddings", "VW", "", LayerKind::plain, Has::weight},
    {"embeddings.position_embeddings", "PW", "", LayerKind::plain, Has::weight},
    {"embeddings.token_type_embeddings", "SW", "", LayerKind::plain, Has::weight},
    {"embeddings.LayerNorm", "W"},
    {"encoder.layer.#.attention.self.qkv", "QW", "", LayerKind::joined},
    {"encoder.layer.#.attention.output.dense", "WW"},
    {"encoder.layer.#.attention.output.LayerNorm", "W"},
    {"encoder.layer.#.intermediate.dense", "HW"},
    {"encoder.layer.#.output.dense", "WH"},
    {"encoder.layer.#.output.LayerNorm", "W"},
    {"pooler.dense", "WW", "pooler"},
    {"cls.predictions", "V", "cls", LayerKind::plain, Has::bias},
    {"cls.predictions.transform.dense", "WW", "cls"},
    {"cls.predictions.transform.LayerNorm", "W", "cls"},
    {"classifier", "CW", "classifier"},
};

/// A part of our names and what stands there in theirs; "*" is query, key or value. Applied in this order.
struct Rename {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Rename bert_names[] = {{"self.qkv", "self.*"}};
constexpr Rename roberta_names[] = {
    {"self.qkv", "self.*"},
    {"cls.predictions.transform.dense", "lm_head.dense"},
    {"cls.predictions.transform.LayerNorm", "lm_head.layer_norm"},
    {"cls.predictions", "lm_head"},
};
/// The layer that is the pooler here is the classifier's own there.
constexpr Rename roberta_classifier_names[] = {
    {"self.qkv", "self.*"},
    {"classifier", "classifier.out_proj"},
    {"pooler", "classifier"},
};
constexpr Rename distilbert_names[] = {
    {"encoder.layer", "transformer.layer"},
    {"attention.self.qkv", "attention.*_lin"},
    {"attention.output.dense", "attention.out_lin"},
    {"attention.output.LayerNorm", "sa_layer_norm"},
    {"intermediate.dense", "ffn.lin1"},
    {"output.dense", "ffn.lin2"},
    {"output.LayerNorm", "output_layer_norm"},
    {"cls.predictions.transform.dense", "vocab_transform"},
    {"cls.predictions.transform.LayerNorm", "vocab_layer_norm"},
    {"cls.predictions", "vocab_projector"},
    {"pooler.dense", "pre_classifier"},
};

/// A name of theirs that may be there beside the tensor of theirs that it equals.
struct Tie {
  std::string_view copy;
  std::string_view of;
};
constexpr Tie gpt2_ties[] = {{"lm_head.weight", "wte.weight"}};
constexpr Tie bert_ties[] = {{"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"},
                             {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
constexpr Tie roberta_ties[] = {{"lm_head.decoder.weight", "embeddings.word_embeddings.weight"},
                                {"lm_head.decoder.bias", "lm_head.bias"}};
constexpr Tie distilbert_ties[] = {{"vocab_projector.weight", "embeddings.word_embeddings.weight"}};

using Parts = std::array<std::string_view, 3>;
constexpr Parts whole_words{"query", "key", "value"}, letters{"q", "k", "v"};

/// One tensor of ours and what it is called there, "#" standing for a layer's number.
struct Rule {
  std::string name;
  std::string theirs;
  std::string_view shape;
  LayerKind kind;
  std::string_view group;
};

struct Family {
  WeightFormat format;
  std::string_view prefix;
  std::string_view our_layers, their_layers;  // what a layer's number follows
  Parts parts;
  std::vector<Rule> rules;
  std::span<const Tie> ties;
};

/// The rules of all layers but those whose names begin as `without`. `pooler_group` is the group of the pooler's
/// tensors.
std::vector<Rule> rules_of(std::span<const Layer> layers, std::span<const Rename> renames,
                           std::string_view without = {}, std::string_view pooler_group = "pooler") {
  std::vector<Rule> rules;
  for (const Layer& layer : layers) {
    if (!without.empty() && layer.name.starts_with(without)) continue;
    std::string theirs(layer.name);
    for (const Rename& rename : renames) theirs = replaced(theirs, rename.ours, rename.theirs);
    const std::string_view group = layer.group == "pooler" ? pooler_group : layer.group;
    const std::string ours(layer.name);
    if (layer.has != Has::bias) rules.push_back({ours + ".weight", theirs + ".weight", layer.shape, layer.kind, group});
    // Biases have one axis, which nothing transposes.
    const LayerKind kind = layer.kind == LayerKind::transposed ? LayerKind::plain : layer.kind;
    if (layer.has != Has::weight)
      rules.push_back({ours + ".bias", theirs + ".bias", layer.shape.substr(0, 1), kind, group});
  }
  return rules;
}

/// `classifies` tells whether there is the head that scores classes, in either's names.
const Family& family_of(WeightFormat format, bool classifies) {
  static constexpr std::string_view bert = "encoder.layer.";
  static const Family families[] = {
      {WeightFormat::hf_gpt2, "transformer.", "h.", "h.", whole_words, rules_of(gpt2_layers, {}), gpt2_ties},
      {WeightFormat::hf_bert, "bert.", bert, bert, whole_words, rules_of(bert_layers, bert_names), bert_ties},
      {WeightFormat::hf_distilbert, "distilbert.", bert, "transformer.layer.", letters,
       rules_of(bert_layers, distilbert_names, "embeddings.token_type", "classifier"), distilbert_ties},
      {WeightFormat::hf_roberta, "roberta.", bert, bert, whole_words,
       rules_of(bert_layers, roberta_names, "classifier"), roberta_ties}};
  static const Family classifier{WeightFormat::hf_roberta,
                                 "roberta.",
                                 bert,
                                 bert,
                                 whole_words,
                                 rules_of(bert_layers, roberta_classifier_names, "cls.", "classifier"),
                                 roberta_ties};
  if (format == WeightFormat::hf_roberta && classifies) return classifier;
  return *std::find_if(std::begin(families), std::end(families), [&](const Family& f) { return f.format == format; });
}

/// Heads are outside of what the prefix names.
bool is_head(const Rule& rule) { return rule.group == "cls" || rule.group == "classifier" || rule.group == "lm_head"; }

/// Buffers, and the head that guesses whether one sentence follows another.
bool is_needless(const Family& family, std::string_view name) {
  if (family.format == WeightFormat::hf_bert) return name.starts_with("cls.seq_relationship.");
  return family.format == WeightFormat::hf_gpt2 && name.starts_with(family.their_layers) &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
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

/// The name of a layer's tensor, or of one outside of the layers.
std::string our_name(const Rule& rule, std::int64_t layer) { return replaced(rule.name, "#", std::to_string(layer)); }

std::vector<std::string> their_names(const Family& family, const Rule& rule, std::int64_t layer) {
  const std::string name = replaced(rule.theirs, "#", std::to_string(layer));
  if (rule.kind != LayerKind::joined) return {name};
  std::vector<std::string> names;
  for (const std::string_view part : family.parts) names.push_back(replaced(name, "*", part));
  return names;
}

/// The walk over a family's rules. `theirs` tells whose names the given tensors have.
class Walk : public NamedTensors {
 public:
  Walk(const Family& family, bool theirs, ByName given, NameReport& report)
      : NamedTensors(std::move(given), report), family_(family), theirs_(theirs) {}

  /// f(rule, layer) for every tensor that is expected: all before the layers, each layer, all behind them.
  template <class F>
  void each(const F& f) {
    std::set<std::string_view> groups;
    for (const Rule& rule : family_.rules)
      if (!rule.group.empty() && has(theirs_ ? their_names(family_, rule, 0).front() : our_name(rule, 0)))
        groups.insert(rule.group);
    const std::int64_t layers = layer_count();
    const auto is_layer = [](const Rule& rule) { return rule.name.find('#') != std::string::npos; };
    const auto begin = std::find_if(family_.rules.begin(), family_.rules.end(), is_layer);
    const auto end = std::find_if_not(begin, family_.rules.end(), is_layer);
    for (auto rule = family_.rules.begin(); rule != begin; ++rule) f(*rule, 0);
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (auto rule = begin; rule != end; ++rule) f(*rule, layer);
    for (auto rule = end; rule != family_.rules.end(); ++rule)
      if (rule->group.empty() || groups.contains(rule->group)) f(*rule, 0);
  }

 private:
  std::int64_t layer_count() const {
    const std::string_view before = theirs_ ? family_.their_layers : family_.our_layers;
    std::int64_t layers = 0;
    for (const auto& [name, tensor] : given()) {
      if (!name.starts_with(before)) continue;
      std::int64_t number = -1;
      const char* const begin = name.data() + before.size();
      const auto read = std::from_chars(begin, name.data() + name.size(), number);
      // A number beyond what there are tensors for is no layer's.
      if (read.ec == std::errc() && *read.ptr == '.' && number >= 0 &&
          number < static_cast<std::int64_t>(given().size()))
        layers = std::max(layers, number + 1);
    }
    return layers;
  }

  const Family& family_;
  bool theirs_;
};

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

/// BERT's classifier of tokens has the names and shapes of that of sequences, but for the pooler.
void require_pooler(const Family& family, const Walk& walk, NameReport& report) {
  if (family.format == WeightFormat::hf_bert && walk.has("classifier.weight") && !walk.has("pooler.dense.weight"))
    report.unexpected.push_back(
        "classifier, which without pooler.dense.weight is not BERT's classifier of sequences; leave it out to take the "
        "encoder alone");
}

}  // namespace

std::string_view prefix_of(WeightFormat format) {
  return is_of_transformers(format) ? family_of(format, false).prefix : std::string_view();
}

WeightSet transformers_to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report) {
  const Family& family = family_of(from, find_weight(theirs, "classifier.out_proj.weight") != nullptr);
  WeightSet ours{{}, theirs.metadata};
  std::string prefix;
  ByName given = by_present_name(theirs, family, report, prefix);
  ours.metadata[prefix_note] = prefix;
  leave_out(family, given, report, ours.metadata);
  Walk walk(family, true, std::move(given), report);
  require_pooler(family, walk, report);
  walk.each([&](const Rule& rule, std::int64_t layer) {
    std::string shape(rule.shape);
    if (rule.kind == LayerKind::transposed) std::reverse(shape.begin(), shape.end());
    if (rule.kind == LayerKind::joined) std::replace(shape.begin(), shape.end(), 'Q', 'W');
    std::vector<Tensor> parts;
    for (const std::string& part : their_names(family, rule, layer)) parts.push_back(walk.take(part, shape));
    for (const Tensor& part : parts)
      if (!part.defined()) return;
    const std::string name = our_name(rule, layer);
    if (rule.kind == LayerKind::transposed) parts[0] = transpose(parts[0], {1, 0}).contiguous();
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

WeightSet transformers_from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report) {
  const Family& family = family_of(to, find_weight(ours, "classifier.weight") != nullptr);
  WeightSet theirs{{}, ours.metadata};
  const bool has_head =
      find_weight(ours, "cls.predictions.bias") != nullptr || find_weight(ours, "classifier.weight") != nullptr;
  const auto note = theirs.metadata.extract(prefix_note);
  const std::string prefix(!note.empty()                             ? std::string_view(note.mapped())
                           : to != WeightFormat::hf_gpt2 && has_head ? family.prefix
                                                                     : std::string_view());
  const bool with_positions = !theirs.metadata.extract(positions_note).empty();
  Walk walk(family, false, by_name(ours, report), report);
  require_pooler(family, walk, report);
  walk.each([&](const Rule& rule, std::int64_t layer) {
    const Tensor tensor = walk.take(our_name(rule, layer), rule.shape);
    if (!tensor.defined()) return;
    const std::vector<std::string> names = their_names(family, rule, layer);
    const std::int64_t rows = tensor.dim(0) / static_cast<std::int64_t>(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto first = static_cast<std::int64_t>(i) * rows;
      Tensor part = slice(tensor, 0, first, first + rows);
      if (rule.kind == LayerKind::transposed) part = transpose(part, {1, 0});
      theirs.weights.push_back({(is_head(rule) ? "" : prefix) + names[i], part.contiguous()});
    }
    if (with_positions && rule.name == positions_table)
      theirs.weights.push_back({prefix + positions_name, positions(tensor.dim(0))});
  });
  walk.finish();
  return theirs;
}

}  // namespace hearth::models
