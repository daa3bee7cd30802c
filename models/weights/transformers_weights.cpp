// SPDX-License-Identifier: Apache-2.0
// The tables of names, and the walk over them in both directions.
#include "models/weights/transformers_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <set>
#include <span>
#include <string_view>

#include "models/weights/named_tensors.h"
#include "ops/shape/view.h"

namespace hearth::models {
namespace {

constexpr const char* prefix_note = "hearth.prefix";
constexpr const char* positions_note = "hearth.position_ids";
constexpr const char* positions_name = "embeddings.position_ids";
constexpr const char* positions_table = "embeddings.position_embeddings.weight";

enum class Kind {
  plain,
  transposed,  // theirs is [inputs, outputs]
  joined,      // theirs are the query's, the key's and the value's, ours is "qkv"
};

/// One tensor of ours, "#" standing for a layer's number. The shape names each extent by a letter, which is the same
/// number wherever it stands; Q is three times W. Tensors of a group are expected where one of them is there. Their
/// name is given where it is another; "*" in it stands for query, key or value.
struct Rule {
  std::string_view name;
  std::string_view shape;
  Kind kind = Kind::plain;
  std::string_view group = {};
  std::string_view theirs = {};
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

constexpr Rule bert_encoder[] = {
    {"embeddings.word_embeddings.weight", "VW"},
    {"embeddings.position_embeddings.weight", "PW"},
    {"embeddings.token_type_embeddings.weight", "SW"},
    {"embeddings.LayerNorm.weight", "W"},
    {"embeddings.LayerNorm.bias", "W"},
    {"encoder.layer.#.attention.self.qkv.weight", "QW", Kind::joined, "", "encoder.layer.#.attention.self.*.weight"},
    {"encoder.layer.#.attention.self.qkv.bias", "Q", Kind::joined, "", "encoder.layer.#.attention.self.*.bias"},
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
};
constexpr Rule bert_pooler[] = {
    {"pooler.dense.weight", "WW", Kind::plain, "pooler"},
    {"pooler.dense.bias", "W", Kind::plain, "pooler"},
};
constexpr Rule bert_heads[] = {
    {"cls.predictions.bias", "V", Kind::plain, "cls"},
    {"cls.predictions.transform.dense.weight", "WW", Kind::plain, "cls"},
    {"cls.predictions.transform.dense.bias", "W", Kind::plain, "cls"},
    {"cls.predictions.transform.LayerNorm.weight", "W", Kind::plain, "cls"},
    {"cls.predictions.transform.LayerNorm.bias", "W", Kind::plain, "cls"},
    {"classifier.weight", "CW", Kind::plain, "classifier"},
    {"classifier.bias", "C", Kind::plain, "classifier"},
};

constexpr Rule roberta_lm_head[] = {
    {"cls.predictions.bias", "V", Kind::plain, "cls", "lm_head.bias"},
    {"cls.predictions.transform.dense.weight", "WW", Kind::plain, "cls", "lm_head.dense.weight"},
    {"cls.predictions.transform.dense.bias", "W", Kind::plain, "cls", "lm_head.dense.bias"},
    {"cls.predictions.transform.LayerNorm.weight", "W", Kind::plain, "cls", "lm_head.layer_norm.weight"},
    {"cls.predictions.transform.LayerNorm.bias", "W", Kind::plain, "cls", "lm_head.layer_norm.bias"},
};
/// The layer that is the pooler here is the classifier's own there.
constexpr Rule roberta_classifier[] = {
    {"pooler.dense.weight", "WW", Kind::plain, "classifier", "classifier.dense.weight"},
    {"pooler.dense.bias", "W", Kind::plain, "classifier", "classifier.dense.bias"},
    {"classifier.weight", "CW", Kind::plain, "classifier", "classifier.out_proj.weight"},
    {"classifier.bias", "C", Kind::plain, "classifier", "classifier.out_proj.bias"},
};

constexpr Rule distilbert_encoder[] = {
    {"embeddings.word_embeddings.weight", "VW"},
    {"embeddings.position_embeddings.weight", "PW"},
    {"embeddings.LayerNorm.weight", "W"},
    {"embeddings.LayerNorm.bias", "W"},
    {"encoder.layer.#.attention.self.qkv.weight", "QW", Kind::joined, "", "transformer.layer.#.attention.*_lin.weight"},
    {"encoder.layer.#.attention.self.qkv.bias", "Q", Kind::joined, "", "transformer.layer.#.attention.*_lin.bias"},
    {"encoder.layer.#.attention.output.dense.weight", "WW", Kind::plain, "",
     "transformer.layer.#.attention.out_lin.weight"},
    {"encoder.layer.#.attention.output.dense.bias", "W", Kind::plain, "", "transformer.layer.#.attention.out_lin.bias"},
    {"encoder.layer.#.attention.output.LayerNorm.weight", "W", Kind::plain, "",
     "transformer.layer.#.sa_layer_norm.weight"},
    {"encoder.layer.#.attention.output.LayerNorm.bias", "W", Kind::plain, "", "transformer.layer.#.sa_layer_norm.bias"},
    {"encoder.layer.#.intermediate.dense.weight", "HW", Kind::plain, "", "transformer.layer.#.ffn.lin1.weight"},
    {"encoder.layer.#.intermediate.dense.bias", "H", Kind::plain, "", "transformer.layer.#.ffn.lin1.bias"},
    {"encoder.layer.#.output.dense.weight", "WH", Kind::plain, "", "transformer.layer.#.ffn.lin2.weight"},
    {"encoder.layer.#.output.dense.bias", "W", Kind::plain, "", "transformer.layer.#.ffn.lin2.bias"},
    {"encoder.layer.#.output.LayerNorm.weight", "W", Kind::plain, "", "transformer.layer.#.output_layer_norm.weight"},
    {"encoder.layer.#.output.LayerNorm.bias", "W", Kind::plain, "", "transformer.layer.#.output_layer_norm.bias"},
};
constexpr Rule distilbert_heads[] = {
    {"cls.predictions.bias", "V", Kind::plain, "cls", "vocab_projector.bias"},
    {"cls.predictions.transform.dense.weight", "WW", Kind::plain, "cls", "vocab_transform.weight"},
    {"cls.predictions.transform.dense.bias", "W", Kind::plain, "cls", "vocab_transform.bias"},
    {"cls.predictions.transform.LayerNorm.weight", "W", Kind::plain, "cls", "vocab_layer_norm.weight"},
    {"cls.predictions.transform.LayerNorm.bias", "W", Kind::plain, "cls", "vocab_layer_norm.bias"},
    {"pooler.dense.weight", "WW", Kind::plain, "classifier", "pre_classifier.weight"},
    {"pooler.dense.bias", "W", Kind::plain, "classifier", "pre_classifier.bias"},
    {"classifier.weight", "CW", Kind::plain, "classifier"},
    {"classifier.bias", "C", Kind::plain, "classifier"},
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

struct Family {
  WeightFormat format;
  std::string_view prefix;
  std::string_view our_layers, their_layers;  // what a layer's number follows
  Parts parts;
  std::vector<Rule> rules;
  std::span<const Tie> ties;
};

std::vector<Rule> together(std::initializer_list<std::span<const Rule>> tables) {
  std::vector<Rule> rules;
  for (const auto table : tables) rules.insert(rules.end(), table.begin(), table.end());
  return rules;
}

/// `classifies` tells whether there is the head that scores classes, in either's names.
const Family& family_of(WeightFormat format, bool classifies) {
  static constexpr std::string_view bert_layers = "encoder.layer.";
  static const Family gpt2{WeightFormat::hf_gpt2, "transformer.",         "h.",     "h.",
                           whole_words,           together({gpt2_rules}), gpt2_ties};
  static const Family bert{WeightFormat::hf_bert,
                           "bert.",
                           bert_layers,
                           bert_layers,
                           whole_words,
                           together({bert_encoder, bert_pooler, bert_heads}),
                           bert_ties};
  static const Family roberta{WeightFormat::hf_roberta,
                              "roberta.",
                              bert_layers,
                              bert_layers,
                              whole_words,
                              together({bert_encoder, bert_pooler, roberta_lm_head}),
                              roberta_ties};
  static const Family classifier{WeightFormat::hf_roberta,
                                 "roberta.",
                                 bert_layers,
                                 bert_layers,
                                 whole_words,
                                 together({bert_encoder, roberta_classifier}),
                                 roberta_ties};
  static const Family distilbert{WeightFormat::hf_distilbert,
                                 "distilbert.",
                                 bert_layers,
                                 "transformer.layer.",
                                 letters,
                                 together({distilbert_encoder, distilbert_heads}),
                                 distilbert_ties};
  if (format == WeightFormat::hf_gpt2) return gpt2;
  if (format == WeightFormat::hf_bert) return bert;
  if (format == WeightFormat::hf_distilbert) return distilbert;
  return classifies ? classifier : roberta;
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
  const std::string name = replaced(rule.theirs.empty() ? rule.name : rule.theirs, "#", std::to_string(layer));
  if (rule.kind != Kind::joined) return {name};
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
    const auto is_layer = [](const Rule& rule) { return rule.name.find('#') != std::string_view::npos; };
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

bool has_name(const WeightSet& set, std::string_view name) {
  return std::any_of(set.weights.begin(), set.weights.end(), [&](const Weight& w) { return w.name == name; });
}

/// BERT's classifier of tokens has the names and shapes of that of sequences, but for the pooler.
void require_pooler(const Family& family, const Walk& walk, NameReport& report) {
  if (family.format == WeightFormat::hf_bert && walk.has("classifier.weight") && !walk.has("pooler.dense.weight"))
    report.missing.push_back(
        "pooler.dense.weight, without which \"classifier\" is not BERT's classifier of sequences; leave "
        "\"classifier\" out to convert the encoder alone");
}

}  // namespace

WeightSet transformers_to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report) {
  const Family& family = family_of(from, has_name(theirs, "classifier.out_proj.weight"));
  WeightSet ours{{}, theirs.metadata};
  std::string prefix;
  ByName given = by_present_name(theirs, family, report, prefix);
  ours.metadata[prefix_note] = prefix;
  leave_out(family, given, report, ours.metadata);
  Walk walk(family, true, std::move(given), report);
  require_pooler(family, walk, report);
  walk.each([&](const Rule& rule, std::int64_t layer) {
    std::string shape(rule.shape);
    if (rule.kind == Kind::transposed) std::reverse(shape.begin(), shape.end());
    if (rule.kind == Kind::joined) std::replace(shape.begin(), shape.end(), 'Q', 'W');
    std::vector<Tensor> parts;
    for (const std::string& part : their_names(family, rule, layer)) parts.push_back(walk.take(part, shape));
    for (const Tensor& part : parts)
      if (!part.defined()) return;
    const std::string name = our_name(rule, layer);
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

WeightSet transformers_from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report) {
  const Family& family = family_of(to, has_name(ours, "classifier.weight"));
  WeightSet theirs{{}, ours.metadata};
  const bool has_head = has_name(ours, "cls.predictions.bias") || has_name(ours, "classifier.weight");
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
      if (rule.kind == Kind::transposed) part = transpose(part, {1, 0});
      theirs.weights.push_back({(is_head(rule) ? "" : prefix) + names[i], part.contiguous()});
    }
    if (with_positions && rule.name == positions_table)
      theirs.weights.push_back({prefix + positions_name, positions(tensor.dim(0))});
  });
  walk.finish();
  return theirs;
}

}  // namespace hearth::models
