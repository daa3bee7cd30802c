// SPDX-License-Identifier: Apache-2.0
// The configuration fields of the models.
#include "models/registry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/detection/fcos.h"
#include "models/detection/retinanet.h"
#include "models/detection/ssd.h"
#include "models/detection/yolox.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/segmentation/dilated.h"
#include "models/segmentation/unet.h"
#include "models/swin.h"
#include "models/transformer/bert.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"
#include "models/vgg.h"
#include "ops/attention/window_attention.h"

namespace hearth::models {

namespace {

/// Sizes that the data decides unless the configuration does.
struct DataSizes {
  std::optional<std::int64_t> given_channels = {};
  std::optional<std::int64_t> given_classes = {};

  std::int64_t channels_of(const InputInfo& input) const {
    return chosen(given_channels, input.channels, "in_channels");
  }
  std::int64_t classes_of(const InputInfo& input) const {
    const std::int64_t classes = chosen(given_classes, input.classes, "classes");
    HEARTH_CHECK(ConfigError, !input.labelled || classes == input.classes, "/model/classes: ", classes,
                 ", but the data has ", input.classes, " classes; leave it out");
    return classes;
  }

 protected:
  static std::int64_t chosen(const std::optional<std::int64_t>& given, std::int64_t of_data, const char* key) {
    const std::int64_t size = given.value_or(of_data);
    HEARTH_CHECK(ConfigError, size >= 1, "model: the data does not tell \"", key, "\"; give it in the model");
    return size;
  }
};

template <class Config>
void describe_classes(Fields<Config>& f) {
  f.integer("classes", &Config::given_classes, {.min = 1}, "Outputs; null takes the data's.");
}

template <class Config>
void describe_sizes(Fields<Config>& f) {
  f.integer("in_channels", &Config::given_channels, {.min = 1}, "Channels of an image; null takes the data's.");
  describe_classes(f);
}

struct MlpConfig : MlpOptions, DataSizes {};
struct ResNetConfig : ResNetOptions, DataSizes {};
struct SwinConfig : SwinOptions, DataSizes {};
struct VggConfig : VggOptions, DataSizes {};
struct UnetConfig : UnetOptions, DataSizes {};
/// Fields of a residual trunk.
struct TrunkConfig : DataSizes {
  int depth = ResNetOptions().depth;
  std::vector<std::int64_t> blocks = {};
  bool bottleneck = false;
  ResNetStem stem = ResNetStem::imagenet;
  std::int64_t width = ResNetOptions().width;
  bool recompute = false;

  ResNetOptions trunk_for(const InputInfo& input) const {
    return {.depth = depth,
            .blocks = blocks,
            .bottleneck = bottleneck,
            .stem = stem,
            .width = width,
            .in_channels = channels_of(input),
            .classes = 0,
            .recompute = recompute};
  }
};
/// A dilated trunk's fields beside its head's.
template <class Options>
struct DilatedConfig : Options, TrunkConfig {
  std::int64_t dilated_stages = dilated_trunk().dilated_stages;
};
using FcnConfig = DilatedConfig<FcnOptions>;
using DeepLabConfig = DilatedConfig<DeepLabOptions>;
struct FcosConfig : FcosOptions, TrunkConfig {};
struct RetinaNetConfig : RetinaNetOptions, TrunkConfig {};
struct SsdConfig : SsdOptions, TrunkConfig {
  SsdConfig() { depth = SsdOptions::trunk.depth; }
};

struct YoloxConfig : YoloxOptions, DataSizes {};

/// What a model of text takes from the data.
struct TextSizes : DataSizes {
  std::optional<std::int64_t> given_vocabulary = {};
  std::optional<std::int64_t> given_context = {};

 protected:
  template <class Options>
  Options fitted(Options options, const InputInfo& input) const {
    options.vocabulary = chosen(given_vocabulary, input.vocabulary, "vocabulary");
    options.context = chosen(given_context, input.length, "context");
    HEARTH_CHECK(ConfigError, input.length <= options.context, "/model/context: ", options.context,
                 " is less than the data's rows of ", input.length, " tokens");
    HEARTH_CHECK(ConfigError, input.vocabulary <= options.vocabulary, "/model/vocabulary: ", options.vocabulary,
                 " is less than the data's ", input.vocabulary, " tokens");
    return options;
  }
};

template <class Config>
void describe_text_sizes(Fields<Config>& f) {
  f.integer("vocabulary", &Config::given_vocabulary, {.min = 1, .max = 1 << 28},
            "Different tokens; null takes the data's.");
  f.integer("context", &Config::given_context, {.min = 1, .max = 1 << 24}, "Longest sequence; null takes the data's.");
}

/// Of GPT and BERT.
template <class Config>
void describe_feed_forward(Fields<Config>& f) {
  f.choice("activation", &Config::activation,
           {{"relu", Activation::relu},
            {"gelu", Activation::gelu},
            {"gelu_tanh", Activation::gelu_tanh},
            {"silu", Activation::silu}},
           "Activation of the feed-forward networks.");
  f.number("norm_eps", &Config::norm_eps, {.above = 0, .max = 1}, "Added to the variance in every layer norm.");
}

struct GptConfig : GptOptions, TextSizes {
  GptOptions options_for(const InputInfo& input) const { return fitted<GptOptions>(*this, input); }
};

struct BertConfig : BertOptions, TextSizes {
  BertOptions options_for(const InputInfo& input) const {
    BertOptions options = fitted<BertOptions>(*this, input);
    const bool classifies = options.head == BertHead::classification;
    HEARTH_CHECK(ConfigError, classifies || !input.labelled, "/model/head: \"",
                 options.head == BertHead::embedding ? "embedding" : "masked_lm",
                 "\" has no scores of the data's classes; use \"classification\"");
    if (classifies) options.classes = classes_of(input);
    options.pad = input.pad;
    return options;
  }
};

struct TransformerConfig : TransformerOptions, TextSizes {
  std::optional<std::int64_t> given_source_vocabulary = {};

  TransformerOptions options_for(const InputInfo& input) const {
    TransformerOptions options = fitted<TransformerOptions>(*this, input);
    options.source_vocabulary = chosen(given_source_vocabulary, input.source_vocabulary, "source_vocabulary");
    options.source_pad = input.source_pad;
    HEARTH_CHECK(ConfigError, input.source_vocabulary <= options.source_vocabulary,
                 "/model/source_vocabulary: ", options.source_vocabulary, " is less than the data's ",
                 input.source_vocabulary, " tokens");
    return options;
  }
};

template <class Config>
std::string undivided_width(const Config& o) {
  return o.width % o.heads == 0 ? std::string()
                                : join_text("a width of ", o.width, " does not divide into ", o.heads, " heads");
}

template <std::size_t n>
std::string wrong_depth(std::int64_t depth, const std::array<int, n>& depths) {
  if (std::find(depths.begin(), depths.end(), depth) != depths.end()) return "";
  std::string known;
  for (const int each : depths) known += (known.empty() ? "" : ", ") + std::to_string(each);
  return join_text("there is no depth ", depth, "; known are ", known);
}

void describe(Fields<MlpConfig>& f) {
  f.integer("hidden", &MlpConfig::hidden, {.min = 1, .max = 1 << 24}, "Units of each hidden layer.");
  f.choice("activation", &MlpConfig::activation,
           {{"none", Activation::none},
            {"relu", Activation::relu},
            {"gelu", Activation::gelu},
            {"gelu_tanh", Activation::gelu_tanh},
            {"silu", Activation::silu}},
           "Activation of the hidden layers.");
  f.number("dropout", &MlpConfig::dropout, {.min = 0, .below = 1}, "Dropout after each hidden layer.");
  describe_classes(f);
}

/// Fields of a residual network but for its head.
template <class Config>
void describe_trunk(Fields<Config>& f) {
  f.integer("depth", &Config::depth, {.min = 1}, "10, 18, 34, 50, 101 or 152 layers.");
  f.integer("blocks", &Config::blocks, {.min = 1, .max = 1000, .max_items = 6},
            "Blocks of each stage, instead of a depth.");
  f.boolean("bottleneck", &Config::bottleneck, "Bottleneck blocks, where blocks are given.");
  f.choice("stem", &Config::stem, {{"imagenet", ResNetStem::imagenet}, {"small", ResNetStem::small}},
           "First layers: for large images, or for those of about 32 pixels.");
  f.integer("width", &Config::width, {.min = 1, .max = 1 << 16}, "Channels of the first stage.");
  f.boolean("recompute", &Config::recompute,
            "Keep only what goes into each block and compute the rest again in the backward pass: less memory, about a "
            "third more time, the same bits.");
  f.rule([](const Config& o) {
    return o.blocks.empty() ? wrong_depth(o.depth, std::array{10, 18, 34, 50, 101, 152}) : std::string();
  });
}

void describe(Fields<ResNetConfig>& f) {
  describe_trunk(f);
  f.boolean("zero_init_residual", &ResNetConfig::zero_init_residual, "Start each block as the identity.");
  f.number("norm_momentum", &ResNetConfig::norm_momentum, {.min = 0, .max = 1},
           "Share of a batch in the running statistics.");
  describe_sizes(f);
}

/// Fields of a detector on a feature pyramid.
template <class Config>
void describe_pyramid(Fields<Config>& f, const char* channels) {
  describe_trunk(f);
  f.integer("channels", &Config::channels, {.min = 1, .max = 1 << 16}, channels);
  f.integer("convolutions", &Config::convolutions, {.min = 0, .max = 64}, "Convolutions of each head.");
  f.rule([](const Config& o) {
    return o.blocks.empty() || o.blocks.size() == 4
               ? std::string()
               : join_text("\"blocks\" has ", o.blocks.size(), " stages; a feature pyramid is of four");
  });
}

void describe(Fields<FcosConfig>& f) {
  describe_pyramid(f, "Channels of the feature pyramid and the heads; \"groups\" divide them.");
  f.integer("groups", &FcosConfig::groups, {.min = 1, .max = 1 << 16}, "Groups of the heads' norms.");
  f.number("radius", &FcosConfig::radius, {.above = 0},
           "How far from a box's centre its points are, in strides of their feature map.");
  describe_sizes(f);
  f.rule([](const FcosConfig& o) {
    return o.channels % o.groups == 0
               ? std::string()
               : join_text("\"groups\" (", o.groups, ") do not divide \"channels\" (", o.channels, ")");
  });
}

void describe(Fields<RetinaNetConfig>& f) {
  describe_pyramid(f, "Channels of the feature pyramid and the heads.");
  f.number("anchor_scale", &RetinaNetConfig::anchor_scale, {.min = 1, .max = 1 << 10},
           "Sides of the smallest anchors of each feature map, in its strides. Smaller ones suit smaller objects.");
  describe_sizes(f);
}

void describe(Fields<SsdConfig>& f) {
  describe_trunk(f);
  describe_sizes(f);
  f.rule([](const SsdConfig& o) {
    return o.blocks.empty() || o.blocks.size() >= 3
               ? std::string()
               : join_text("\"blocks\" has ", o.blocks.size(), " stages; the trunk is of the first three");
  });
}

void describe(Fields<YoloxConfig>& f) {
  f.choice("size", &YoloxConfig::size,
           {{"yolox_nano", YoloxSize::nano},
            {"yolox_tiny", YoloxSize::tiny},
            {"yolox_s", YoloxSize::s},
            {"yolox_m", YoloxSize::m},
            {"yolox_l", YoloxSize::l},
            {"yolox_x", YoloxSize::x}},
           "Depth and width where they are not given; yolox_nano has depthwise convolutions.");
  f.number("depth", &YoloxConfig::depth, {.min = 0, .max = 64},
           "Blocks of each stage, those of yolox_l being 1; 0 takes the size's.");
  f.number("width", &YoloxConfig::width, {.min = 0, .max = 64},
           "Channels of each stage, those of yolox_l being 1, which has 64 in the first; 0 takes the size's.");
  f.number("radius", &YoloxConfig::radius, {.above = 0},
           "How far from a box's centre its points are, in strides of their feature map.");
  describe_sizes(f);
  f.rule([](const YoloxConfig& o) {
    return o.width == 0 || 64 * o.width >= 1
               ? std::string()
               : join_text("a \"width\" of ", o.width, " leaves no channels; 1/64 has one");
  });
}

template <class Options>
void describe_dilated(Fields<DilatedConfig<Options>>& f) {
  using Config = DilatedConfig<Options>;
  describe_trunk(f);
  f.integer("dilated_stages", &Config::dilated_stages, {.min = 0, .max = 5},
            "The last so many stages keep the rows and columns of the one before, by dilation in place of stride.");
  f.number("dropout", &Config::dropout, {.min = 0, .below = 1}, "Dropout in the head.");
  describe_sizes(f);
  f.rule([](const Config& o) {
    const auto stages = static_cast<std::int64_t>(o.blocks.empty() ? 4 : o.blocks.size());
    return o.dilated_stages < stages
               ? std::string()
               : join_text("\"dilated_stages\" (", o.dilated_stages, ") must be fewer than the ", stages, " stages");
  });
}

void describe(Fields<FcnConfig>& f) { describe_dilated(f); }

void describe(Fields<DeepLabConfig>& f) {
  describe_dilated(f);
  f.integer("channels", &DeepLabConfig::channels, {.min = 1, .max = 1 << 16}, "Channels of the head.");
  f.integer("rates", &DeepLabConfig::rates, {.min = 1, .max = 1024, .max_items = 16},
            "Dilations of the pyramid's 3x3 convolutions, in pixels of the trunk's last map.");
}

void describe(Fields<UnetConfig>& f) {
  f.integer("width", &UnetConfig::width, {.min = 1, .max = 1 << 16},
            "Channels at full size; each level below has twice as many.");
  f.integer("levels", &UnetConfig::levels, {.min = 1, .max = 10},
            "Sizes of maps, each of half the rows and columns of the one before.");
  describe_sizes(f);
}

void describe(Fields<SwinConfig>& f) {
  f.choice("size", &SwinConfig::size,
           {{"swin_t", SwinSize::tiny},
            {"swin_s", SwinSize::small},
            {"swin_b", SwinSize::base},
            {"swin_mini", SwinSize::mini}},
           "Depths, heads and width where they are not given.");
  f.integer("depths", &SwinConfig::depths, {.min = 1, .max = 1000, .max_items = max_swin_stages},
            "Blocks of each stage, instead of the size's.");
  f.integer("heads", &SwinConfig::heads, {.min = 1, .max = 1 << 16, .max_items = max_swin_stages},
            "Heads of attention of each stage, which divide its channels; instead of the size's.");
  f.integer("width", &SwinConfig::width, {.min = 0, .max = 1 << 16},
            "Channels of the first stage, each later one having twice as many; 0 takes the size's.");
  f.integer("patch", &SwinConfig::patch, {.min = 1, .max = 1 << 10}, "Rows and columns of pixels in a token.");
  f.integer("window", &SwinConfig::window, {.min = 1, .max = max_window},
            "Rows and columns of tokens in a window, at most those of the first stage. Where windows do not divide the "
            "image, or are larger in a later stage, they are filled up; blocks in which one window sees all are not "
            "shifted.");
  f.number("mlp_ratio", &SwinConfig::mlp_ratio, {.min = 0, .max = 1024},
           "Hidden units of each block's feed-forward network for each channel.");
  f.number("dropout", &SwinConfig::dropout, {.min = 0, .below = 1}, "Dropout of hidden units and what each part adds.");
  f.number("attention_dropout", &SwinConfig::attention_dropout, {.min = 0, .below = 1},
           "Dropout of attention weights.");
  f.number("drop_path", &SwinConfig::drop_path, {.min = 0, .below = 1},
           "Stochastic depth: the probability that the last block's parts are left out, rising from 0 at the "
           "first block.");
  f.boolean("absolute_positions", &SwinConfig::absolute_positions,
            "Add a learned place to each token, as the paper's option; images are then of one size.");
  f.integer("image_size", &SwinConfig::image_size, {.min = 0, .max = 1 << 20},
            "Rows and columns of pixels of every image, others being refused; 0 takes any, and the data's where there "
            "are absolute_positions.");
  f.boolean("recompute", &SwinConfig::recompute,
            "Keep only what goes into each block and compute the rest again in the backward pass.");
  describe_sizes(f);
  f.rule([](SwinConfig o) {
    // A size that is not given may be the data's.
    o.absolute_positions = o.absolute_positions && o.image_size > 0;
    return fault_of(o);
  });
}

void describe(Fields<VggConfig>& f) {
  f.integer("depth", &VggConfig::depth, {.min = 1}, "11, 13, 16 or 19 layers.");
  f.boolean("batch_norm", &VggConfig::batch_norm, "Batch normalisation after each convolution.");
  f.choice("head", &VggConfig::head, {{"imagenet", VggHead::imagenet}, {"small", VggHead::small}},
           "Three linear layers on 7x7 features, or one on their mean.");
  f.integer("width", &VggConfig::width, {.min = 1, .max = 1 << 16}, "Channels of the first stage.");
  f.integer("head_width", &VggConfig::head_width, {.min = 1, .max = 1 << 20}, "Units of the imagenet head's layers.");
  f.number("dropout", &VggConfig::dropout, {.min = 0, .below = 1}, "Dropout in the imagenet head.");
  f.boolean("recompute", &VggConfig::recompute,
            "Keep only what goes into each of the five stages and compute the rest again in the backward pass.");
  describe_sizes(f);
  f.rule([](const VggConfig& o) { return wrong_depth(o.depth, std::array{11, 13, 16, 19}); });
}

void describe(Fields<GptConfig>& f) {
  describe_text_sizes(f);
  f.integer("layers", &GptConfig::layers, {.min = 1, .max = 1000}, "Blocks.");
  f.integer("heads", &GptConfig::heads, {.min = 1, .max = 1 << 16}, "Heads of attention; they divide the width.");
  f.integer("width", &GptConfig::width, {.min = 1, .max = 1 << 20}, "Channels of a token.");
  f.integer("hidden", &GptConfig::hidden, {.min = 0, .max = 1 << 24},
            "Hidden units of each block's feed-forward network; 0 is 4 times the width.");
  f.number("dropout", &GptConfig::dropout, {.min = 0, .below = 1},
           "Dropout of embeddings, attention weights and what each part adds.");
  describe_feed_forward(f);
  f.boolean("scale_attention", &GptConfig::scale_attention,
            "Divide the scores of attention by the square root of a head's channels.");
  f.boolean("scale_by_layer", &GptConfig::scale_by_layer,
            "Divide the scores of attention by the block's number, counted from 1, as well.");
  f.choice("positions", &GptConfig::positions, {{"learned", GptPositions::learned}, {"rotary", GptPositions::rotary}},
           "A table that is added to the tokens, or a rotary position embedding of queries and keys.");
  f.boolean("tie_head", &GptConfig::tie_head, "The head's weight is the token table.");
  f.boolean("recompute", &GptConfig::recompute,
            "Keep only what goes into each block and compute the rest again in the backward pass.");
  f.rule(undivided_width<GptConfig>);
  f.rule([](const GptConfig& o) {
    return o.positions == GptPositions::rotary && o.width / o.heads % 2 != 0
               ? join_text("rotary positions turn channels in pairs; a head has ", o.width / o.heads, " channels")
               : "";
  });
}

void describe(Fields<BertConfig>& f) {
  describe_text_sizes(f);
  f.integer("segments", &BertConfig::segments, {.min = 0, .max = 1 << 10},
            "Rows of the table of token types, of which sequences use the first; 0 for no table, as in DistilBERT.");
  f.integer("layers", &BertConfig::layers, {.min = 1, .max = 1000}, "Layers.");
  f.integer("heads", &BertConfig::heads, {.min = 1, .max = 1 << 16}, "Heads of attention; they divide the width.");
  f.integer("width", &BertConfig::width, {.min = 1, .max = 1 << 20}, "Channels of a token.");
  f.integer("hidden", &BertConfig::hidden, {.min = 0, .max = 1 << 24},
            "Hidden units of each layer's feed-forward network; 0 is 4 times the width.");
  f.number("dropout", &BertConfig::dropout, {.min = 0, .below = 1},
           "Dropout of embeddings, attention weights, what each part adds, and what a classifier gets.");
  describe_feed_forward(f);
  f.integer("position_offset", &BertConfig::position_offset, {.min = 0, .max = 1 << 20},
            "The row of the position table that the first token takes; 2 for RoBERTa.");
  f.choice("head", &BertConfig::head,
           {{"masked_lm", BertHead::masked_lm},
            {"classification", BertHead::classification},
            {"embedding", BertHead::embedding}},
           "Scores of each token, scores of the text's classes, or the text as a vector.");
  f.choice("pool", &BertConfig::pool, {{"first", BertPool::first}, {"mean", BertPool::mean}},
           "What a classifier sees: the first token behind a layer with an activation, or the mean of the tokens.");
  f.choice("pool_activation", &BertConfig::pool_activation,
           {{"tanh", PoolActivation::tanh}, {"relu", PoolActivation::relu}},
           "Activation of the layer on the first token; relu for DistilBERT.");
  f.choice("embedding_pool", &BertConfig::embedding_pool,
           {{"mean", EmbeddingPool::mean}, {"first", EmbeddingPool::first}},
           "What the head `embedding` gives: the mean of the tokens, or the first.");
  f.boolean("normalize", &BertConfig::normalize, "Divide an embedding by its length.");
  describe_classes(f);
  f.boolean("recompute", &BertConfig::recompute,
            "Keep only what goes into each layer and compute the rest again in the backward pass.");
  f.rule(undivided_width<BertConfig>);
}

void describe(Fields<TransformerConfig>& f) {
  f.integer("source_vocabulary", &TransformerConfig::given_source_vocabulary, {.min = 1, .max = 1 << 28},
            "Different tokens of the source; null takes the data's.");
  f.integer("vocabulary", &TransformerConfig::given_vocabulary, {.min = 1, .max = 1 << 28},
            "Different tokens of the target; null takes the data's.");
  f.integer("context", &TransformerConfig::given_context, {.min = 1, .max = 1 << 24},
            "Longest source or target; null takes the data's.");
  f.integer("layers", &TransformerConfig::layers, {.min = 1, .max = 1000}, "Layers of the encoder.");
  f.integer("decoder_layers", &TransformerConfig::decoder_layers, {.min = 1, .max = 1000}, "Layers of the decoder.");
  f.integer("heads", &TransformerConfig::heads, {.min = 1, .max = 1 << 16},
            "Heads of attention; they divide the width.");
  f.integer("width", &TransformerConfig::width, {.min = 1, .max = 1 << 20}, "Channels of a token.");
  f.integer("hidden", &TransformerConfig::hidden, {.min = 1, .max = 1 << 24},
            "Hidden units of each layer's feed-forward network.");
  f.number("dropout", &TransformerConfig::dropout, {.min = 0, .below = 1},
           "Dropout of embeddings, attention weights and what each part adds.");
  f.choice("norm", &TransformerConfig::norm, {{"before", NormPosition::before}, {"after", NormPosition::after}},
           "Where each part's layer norm stands.");
  f.boolean("share_tables", &TransformerConfig::share_tables,
            "One table for the tokens of source and target, which have one vocabulary.");
  f.boolean("recompute", &TransformerConfig::recompute,
            "Keep only what goes into each layer and compute the rest again in the backward pass.");
  f.rule(undivided_width<TransformerConfig>);
}

std::unique_ptr<nn::Module> make_mlp(const MlpConfig& config, const InputInfo& input) {
  MlpOptions options = config;
  options.in_features = input.features();
  HEARTH_CHECK(ConfigError, options.in_features >= 1, "mlp: the data does not tell the size of a sample");
  options.classes = config.classes_of(input);
  return std::make_unique<Mlp>(options);
}

template <class Network, class Options, class Config>
std::unique_ptr<nn::Module> make_image_model(const Config& config, const InputInfo& input) {
  Options options = config;
  options.in_channels = config.channels_of(input);
  options.classes = config.classes_of(input);
  return std::make_unique<Network>(options);
}

template <class Network, class Config>
std::unique_ptr<nn::Module> make_text_model(const Config& config, const InputInfo& input) {
  return std::make_unique<Network>(config.options_for(input));
}

std::unique_ptr<nn::Module> make_swin(SwinConfig config, const InputInfo& input) {
  if (config.absolute_positions && config.image_size == 0) {
    HEARTH_CHECK(
        ConfigError, input.height == input.width, "/model: absolute_positions belong to square images, and ",
        "the data's have ", input.height, " x ", input.width,
        " pixels; make squares of them (image_size in the data's \"augment\"), or leave absolute_positions out");
    config.image_size = input.height;
  }
  std::string fault = fault_of(config);
  if (fault.empty() && input.height > 0 && input.width > 0) fault = fault_of(config, input.height, input.width);
  HEARTH_CHECK(ConfigError, fault.empty(), "/model: ", fault);
  return make_image_model<Swin, SwinOptions>(config, input);
}

template <class Network, class Options>
std::unique_ptr<nn::Module> make_dilated(const DilatedConfig<Options>& config, const InputInfo& input) {
  Options options = config;
  options.trunk = config.trunk_for(input);
  options.trunk.dilated_stages = config.dilated_stages;
  options.classes = config.classes_of(input);
  return std::make_unique<Network>(options);
}

template <class Network, class Options, class Config>
std::unique_ptr<nn::Module> make_detector(const Config& config, const InputInfo& input) {
  Options options = config;
  options.trunk = config.trunk_for(input);
  options.classes = config.classes_of(input);
  return std::make_unique<Network>(options);
}

std::unique_ptr<nn::Module> make_ssd(const SsdConfig& config, const InputInfo& input) {
  const std::int64_t least = Ssd::smallest_image(config.stem);
  HEARTH_CHECK(ConfigError, input.height == 0 || (input.height >= least && input.width >= least),
               "/model/type: \"ssd\" is for images of at least ", least, " x ", least, " pixels, and the data's have ",
               input.height, " x ", input.width, "; enlarge them (image_size in the data's \"augment\")",
               config.stem == ResNetStem::imagenet ? ", or take the \"stem\" for small images" : "");
  return make_detector<Ssd, SsdOptions>(config, input);
}

std::unique_ptr<nn::Module> make_yolox(const YoloxConfig& config, const InputInfo& input) {
  for (const std::int64_t size : {input.height, input.width})
    HEARTH_CHECK(ConfigError, size % Yolox::stride == 0, "/model/type: yolox takes images whose rows and columns ",
                 Yolox::stride, " divides, and the data's have ", input.height, " x ", input.width,
                 " pixels; set image_size in the data's \"augment\"");
  return make_image_model<Yolox, YoloxOptions>(config, input);
}

}  // namespace

std::int64_t InputInfo::features() const {
  return checked_mul(checked_mul(height, width, "sample size"), channels, "sample size");
}

Models& registry() {
  static Models models("model", "The model.", [](Models& r) {
    r.add<BertConfig>("bert", "Transformer encoder for text, as BERT.", make_text_model<Bert, BertConfig>);
    r.add<DeepLabConfig>("deeplabv3", "Classes of pixels by a dilated residual network and an atrous pyramid.",
                         make_dilated<DeepLabV3, DeepLabOptions>);
    r.add<FcnConfig>("fcn", "Classes of pixels by a dilated residual network.", make_dilated<Fcn, FcnOptions>);
    r.add<FcosConfig>("fcos", "Detector of boxes on a residual network with a feature pyramid.",
                      make_detector<Fcos, FcosOptions, FcosConfig>);
    r.add<MlpConfig>("mlp", "Multilayer perceptron.", make_mlp);
    r.add<ResNetConfig>("resnet", "Residual network, version 1.5.",
                        make_image_model<ResNet, ResNetOptions, ResNetConfig>);
    r.add<RetinaNetConfig>("retinanet", "Detector of boxes by anchors on a residual network with a feature pyramid.",
                           make_detector<RetinaNet, RetinaNetOptions, RetinaNetConfig>);
    r.add<SsdConfig>("ssd", "Detector of boxes by anchors on six feature maps, as MLPerf's SSD300.", make_ssd);
    r.add<GptConfig>("gpt", "Decoder-only Transformer for language, as GPT-2.", make_text_model<Gpt, GptConfig>);
    r.add<TransformerConfig>("transformer", "Encoder-decoder Transformer for translation.",
                             make_text_model<Transformer, TransformerConfig>);
    r.add<SwinConfig>("swin", "Transformer for images with attention within shifted windows.", make_swin);
    r.add<UnetConfig>("unet", "Classes of pixels by a U-Net with batch norm.",
                      make_image_model<Unet, UnetOptions, UnetConfig>);
    r.add<VggConfig>("vgg", "VGG model.", make_image_model<Vgg, VggOptions, VggConfig>);
    r.add<YoloxConfig>("yolox", "Detector of boxes with a decoupled head and SimOTA assignment.", make_yolox);
  });
  return models;
}

void add(const std::string& name, std::function<std::unique_ptr<nn::Module>(const InputInfo&)> factory,
         const std::string& doc) {
  HEARTH_CHECK(UsageError, factory != nullptr, "models: the factory of \"", name, "\" is empty; give a function");
  registry().add<NoOptions>(
      name, doc, [factory = std::move(factory)](const NoOptions&, const InputInfo& input) { return factory(input); });
}

std::unique_ptr<nn::Module> make(const Json& node, const InputInfo& input) {
  std::unique_ptr<nn::Module> model = registry().make(node, input);
  HEARTH_CHECK(UsageError, model != nullptr, "models: the factory of ", to_text(node),
               " has made no model; it has to return one, or to throw");
  return model;
}

}  // namespace hearth::models
