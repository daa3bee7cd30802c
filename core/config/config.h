// SPDX-License-Identifier: Apache-2.0
// Run configurations: the fields of option structs and registries of component types. One description of a struct's
// fields yields its parsing, range checks, messages that suggest the nearest key, JSON schema, reference page and
// resolved configuration. Usage:
//
//   struct SgdOptions { double lr = 0.1; double momentum = 0; std::optional<double> clip; bool nesterov = false; };
//   void describe(Fields<SgdOptions>& f) {                             // found by argument-dependent lookup
//     f.number("lr", &SgdOptions::lr, {.above = 0}, "Learning rate.").required();
//     f.number("momentum", &SgdOptions::momentum, {.min = 0, .below = 1}, "Share of the last step that is kept.");
//     f.number("clip", &SgdOptions::clip, {.above = 0}, "Largest gradient norm; null for no limit.");
//     f.boolean("nesterov", &SgdOptions::nesterov, "Looks ahead along the momentum.");
//     f.rule([](const SgdOptions& o) { return o.nesterov && o.momentum == 0 ? "nesterov needs momentum" : ""; });
//   }
//   using Optimizers = Registry<std::unique_ptr<Optimizer>(const Parameters&)>;
//   Optimizers& optimizers() {
//     static Optimizers registry("optimizer", "Update rules of the weights.", [](Optimizers& r) {
//       r.add<SgdOptions>("sgd", "Stochastic gradient descent.",
//                         [](const SgdOptions& o, const Parameters& p) { return make_sgd(o, p); });
//     });
//     return registry;  // others add types of their own at run time
//   }
//
//   struct RunConfig { std::string name = "run"; Optimizers::Component optimizer; TrainOptions train; };
//   void describe(Fields<RunConfig>& f) {  // TrainOptions has a describe() too
//     f.text("name", &RunConfig::name, "Name of the run.");
//     f.component("optimizer", &RunConfig::optimizer, optimizers(), "How weights are updated.").required();
//     f.object("train", &RunConfig::train, "The training loop.");
//   }
//   Json root = read_json("run.json");
//   apply_override(root, "optimizer.lr=0.05");
//   Json full;                                                   // every key; origins(full) tells from where
//   RunConfig config = parse_fields<RunConfig>(root, "", &full);  // all faults in one ConfigError, one a line
//   auto optimizer = config.optimizer.make(parameters);
//   Json schema = json_schema(*schema_of<RunConfig>(), "Hearth run");
//   std::string page = reference_markdown(*schema_of<RunConfig>(), "Configuration");
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/config/component.h"
#include "core/config/schema.h"
#include "core/error.h"
#include "core/io/json_text.h"

namespace hearth {

namespace config_detail {

template <class V>
struct Leaf {
  using type = V;
  static constexpr bool list = false;
  static constexpr bool nullable = false;
  static constexpr std::size_t count = 0;
};
template <class V>
struct Leaf<std::optional<V>> : Leaf<V> {
  static constexpr bool nullable = true;
};
template <class V>
struct Leaf<std::vector<V>> : Leaf<V> {
  static constexpr bool list = true;
};
template <class V, std::size_t n>
struct Leaf<std::array<V, n>> : Leaf<V> {
  static constexpr bool list = true;
  static constexpr std::size_t count = n;
};

template <class V>
using LeafType = typename Leaf<V>::type;

/// The double nearest to the shortest text, so that 0.1f is shown as 0.1.
HEARTH_API Json load_float(float value);

template <class V>
concept OptionalValue = requires(const V& v) {
  v.has_value();
};

template <class V>
void store(const Json& value, V& member) {
  if constexpr (OptionalValue<V>) {
    member.reset();
    if (!value.is_null()) store(value, member.emplace());
  } else if constexpr (Leaf<V>::count > 0) {
    for (std::size_t i = 0; i < member.size(); ++i) store(value.at(i), member[i]);
  } else if constexpr (Leaf<V>::list) {
    member.clear();
    for (const Json& item : value.items()) store(item, member.emplace_back());
  } else if constexpr (std::same_as<V, bool>) {
    member = value.as_boolean();
  } else if constexpr (std::same_as<V, std::string>) {
    member = value.as_string();
  } else if constexpr (std::floating_point<V>) {
    member = static_cast<V>(value.as_number());
  } else {
    member = static_cast<V>(value.as_integer());
  }
}

template <class V>
Json load(const V& member) {
  if constexpr (OptionalValue<V>) {
    return member ? load(*member) : Json();
  } else if constexpr (Leaf<V>::list) {
    Json result = Json::array();
    for (const auto& item : member) result.push_back(load(item));
    return result;
  } else if constexpr (std::derived_from<V, AnyComponent>) {
    return member.node();
  } else if constexpr (std::same_as<V, float>) {
    return load_float(member);
  } else if constexpr (std::same_as<V, bool> || std::same_as<V, std::string> || std::same_as<V, double>) {
    return Json(member);
  } else {
    return Json(static_cast<std::int64_t>(member));
  }
}

/// What the type of a struct's member means for its field.
struct MemberType {
  bool list = false, nullable = false, text = false;
  std::size_t count = 0;           ///< elements of a list, 0 for any number
  double least = 0, greatest = 0;  ///< of numbers and integers
  void (*store)(void* member, const Json& value) = nullptr;
  Json (*load)(const void* member) = nullptr;
};

template <class V>
MemberType member_type() {
  using Traits = Leaf<V>;
  using Value = typename Traits::type;
  MemberType type{.list = Traits::list,
                  .nullable = Traits::nullable,
                  .text = std::same_as<Value, std::string>,
                  .count = Traits::count};
  if constexpr (std::is_arithmetic_v<Value>) {
    type.least = static_cast<double>(std::numeric_limits<Value>::lowest());
    type.greatest = static_cast<double>(std::numeric_limits<Value>::max());
  }
  if constexpr (!std::derived_from<Value, AnyComponent>)
    type.store = [](void* target, const Json& value) { config_detail::store(value, *static_cast<V*>(target)); };
  type.load = [](const void* source) { return config_detail::load(*static_cast<const V*>(source)); };
  return type;
}

}  // namespace config_detail

/// What describing a struct's fields does whatever the struct.
class HEARTH_API FieldList {
 public:
  std::shared_ptr<const Schema> schema() const { return schema_; }

 protected:
  using MemberType = config_detail::MemberType;

  explicit FieldList(std::shared_ptr<void> (*make)());

  Field& add(Field::Kind kind, std::string_view name, std::ptrdiff_t offset, const MemberType& type,
             const Limits& limits, std::string_view doc);
  void add_object(std::string_view name, std::ptrdiff_t offset, std::shared_ptr<const Schema> object,
                  std::string_view doc);
  void add_rule(std::function<std::string(const void*)> rule);
  Field& last();
  void set_shorthand(std::string_view key);
  void set_required();
  /// A struct with its default values, which members' places are told by.
  const std::byte* sample() const { return static_cast<const std::byte*>(sample_.get()); }

 private:
  std::shared_ptr<Schema> schema_;
  std::shared_ptr<void> sample_;
};

/// Describes the fields of the struct T; handed to describe(Fields<T>&). A member may be the plain type, a
/// std::optional of it (null in JSON), a std::vector or a std::array of it. Defaults are the member initialisers.
/// Keys that repeat or are reserved ("type", "$schema", "comment") are a UsageError.
template <class T>
class Fields : public FieldList {
 public:
  Fields() : FieldList([]() -> std::shared_ptr<void> { return std::make_shared<T>(); }) {}

  template <class V, class Owner>
  Fields& boolean(std::string_view name, V Owner::*member, std::string_view doc) {
    static_assert(std::same_as<config_detail::LeafType<V>, bool>, "a boolean field needs a bool member");
    return add(Field::Kind::boolean, name, member, {}, doc);
  }
  template <class V, class Owner>
  Fields& number(std::string_view name, V Owner::*member, const Limits& limits, std::string_view doc) {
    static_assert(std::floating_point<config_detail::LeafType<V>>, "a number field needs a float or double member");
    return add(Field::Kind::number, name, member, limits, doc);
  }
  /// Members of any integer type; values are limited to those of 63 bits and a sign.
  template <class V, class Owner>
  Fields& integer(std::string_view name, V Owner::*member, const Limits& limits, std::string_view doc) {
    using Value = config_detail::LeafType<V>;
    static_assert(std::integral<Value> && !std::same_as<Value, bool>, "an integer field needs an integer member");
    return add(Field::Kind::integer, name, member, limits, doc);
  }
  template <class V, class Owner>
  Fields& text(std::string_view name, V Owner::*member, std::string_view doc) {
    return text(name, member, {}, doc);
  }
  template <class V, class Owner>
  Fields& text(std::string_view name, V Owner::*member, const Limits& limits, std::string_view doc) {
    static_assert(std::same_as<config_detail::LeafType<V>, std::string>, "a text field needs a std::string member");
    return add(Field::Kind::text, name, member, limits, doc);
  }
  /// One of some words, kept as the string it is.
  template <class V, class Owner>
  requires std::same_as<config_detail::LeafType<V>, std::string> Fields& choice(
      std::string_view name, V Owner::*member, std::initializer_list<std::string_view> choices, std::string_view doc) {
    Limits limits;
    for (const std::string_view text : choices) limits.words.push_back({std::string(text), 0});
    return add(Field::Kind::choice, name, member, limits, doc);
  }
  /// One of some words, each naming an enumerator: {{"mean", Pooling::mean}, {"max", Pooling::max}}.
  template <class V, class Owner>
  requires std::is_enum_v<config_detail::LeafType<V>> Fields& choice(
      std::string_view name, V Owner::*member,
      std::initializer_list<std::pair<std::string_view, config_detail::LeafType<V>>> choices, std::string_view doc) {
    Limits limits;
    for (const auto& [text, value] : choices) limits.words.push_back({std::string(text), static_cast<double>(value)});
    return add(Field::Kind::choice, name, member, limits, doc);
  }
  /// A nested struct that has a describe() of its own; its defaults are those the member has in T.
  template <class V, class Owner>
  Fields& object(std::string_view name, V Owner::*member, std::string_view doc) {
    add_object(name, offset_of(member), schema_of<V>(), doc);
    return *this;
  }
  /// A component `{"type": name, ...}` of a registry: a Component of its signature, or a std::vector of them. null is
  /// accepted unless it is required.
  template <class V, class Owner>
  Fields& component(std::string_view name, V Owner::*member, const typename config_detail::LeafType<V>::Types& types,
                    std::string_view doc) {
    add(Field::Kind::component, name, member, {}, doc);
    last().types = &types;
    last().nullable = !last().list;
    last().component = [](void* target, std::size_t count, std::size_t index) -> AnyComponent* {
      V& value = *static_cast<V*>(target);
      if constexpr (config_detail::Leaf<V>::list) {
        value.resize(count);
        return count == 0 ? nullptr : &value[index];
      } else {
        return &value;
      }
    };
    return *this;
  }

  /// Lets a value that is no object stand for one key of the object described last: 0.9 for {"decay": 0.9}.
  Fields& shorthand(std::string_view key) {
    set_shorthand(key);
    return *this;
  }
  /// Goes on reading the field described last under the name that it had in an earlier release.
  Fields& formerly(std::string_view name) {
    last().formerly = name;
    return *this;
  }
  /// Makes the field described last one that has to be given.
  Fields& required() {
    set_required();
    return *this;
  }
  /// A condition on several fields: `broken(options)` gives what is wrong, or an empty text.
  template <class F>
  Fields& rule(F broken) {
    add_rule([broken](const void* options) -> std::string { return broken(*static_cast<const T*>(options)); });
    return *this;
  }

 private:
  template <class V, class Owner>
  std::ptrdiff_t offset_of(V Owner::*member) const {
    static_assert(std::derived_from<T, Owner>, "the member belongs to another struct");
    const T& options = *reinterpret_cast<const T*>(sample());
    return reinterpret_cast<const std::byte*>(&(options.*member)) - sample();
  }
  template <class V, class Owner>
  Fields& add(Field::Kind kind, std::string_view name, V Owner::*member, const Limits& limits, std::string_view doc) {
    FieldList::add(kind, name, offset_of(member), config_detail::member_type<V>(), limits, doc);
    return *this;
  }
};

template <class T>
const std::shared_ptr<const Schema>& schema_of() {
  static const std::shared_ptr<const Schema> schema = [] {
    Fields<T> fields;
    describe(fields);
    return fields.schema();
  }();
  return schema;
}

/// The struct that a node describes, and into `resolved` the node with every key. Errors as of Schema::parse().
template <class T>
T parse_fields(const Json& node, const std::string& pointer = "", Json* resolved = nullptr) {
  T result{};
  Json full = schema_of<T>()->parse(&result, node, pointer);
  if (resolved != nullptr) *resolved = std::move(full);
  return result;
}

/// The struct as an object of all its fields; parse_fields reads it back.
template <class T>
Json to_json(const T& options) {
  return schema_of<T>()->load(&options);
}

/// For component types that have nothing to set.
struct NoOptions {};
inline void describe(Fields<NoOptions>&) {}

/// Named component types and their fields, without what makes them: what checks, schema and reference page need.
class HEARTH_API ComponentTypes {
 public:
  struct Type {
    std::string name;
    std::string doc;
    /// Called at the first use, so that a type's fields may refer to the registry it is being added to.
    const std::shared_ptr<const Schema>& (*schema)();
  };

  /// `name` is what one component is called in messages and in the schema: "optimizer".
  ComponentTypes(std::string name, std::string doc) : name_(std::move(name)), doc_(std::move(doc)) {}
  ComponentTypes(const ComponentTypes&) = delete;
  ComponentTypes& operator=(const ComponentTypes&) = delete;

  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  /// In the order they were added.
  const std::deque<Type>& types() const { return types_; }
  std::vector<std::string> names() const;
  /// Null if there is no such type.
  const Type* find(std::string_view type) const;

  /// As Schema::read(), into a component of this registry; null gives none.
  Json read(AnyComponent& component, const Json& node, const std::string& pointer, Reading& reading) const;

 protected:
  void add_type(std::string type, std::string doc, const std::shared_ptr<const Schema>& (*schema)());
  /// ConfigError with every fault if the node is not right.
  void parse_into(AnyComponent& component, const Json& node) const;

 private:
  std::string name_;
  std::string doc_;
  std::deque<Type> types_;
};

/// Component types by name, and how each is made from its options and what surrounds it. Types are added before runs
/// are parsed; adding while another thread reads is not synchronised.
template <class Result, class... Context>
class Registry<Result(Context...)> : public ComponentTypes {
 public:
  using ComponentTypes::ComponentTypes;
  using Component = hearth::Component<Result(Context...)>;
  /// A registry that begins with the types `add_own` adds.
  Registry(std::string name, std::string doc, void (*add_own)(Registry&))
      : ComponentTypes(std::move(name), std::move(doc)) {
    add_own(*this);
  }

  /// Adds a type whose fields are those of Options. UsageError if the name is empty or taken.
  template <class Options, std::invocable<const Options&, Context...> Factory>
  void add(std::string type, std::string doc, Factory factory) {
    add_type(std::move(type), std::move(doc), &schema_of<Options>);
    factories_.push_back([factory = std::move(factory)](const void* options, Context... context) -> Result {
      return factory(*static_cast<const Options*>(options), std::forward<Context>(context)...);
    });
  }

  /// The component that a node describes. ConfigError with every fault of the node.
  Component parse(const Json& node) const {
    Component component;
    parse_into(component, node);
    return component;
  }
  /// Makes the component that a node describes.
  Result make(const Json& node, Context... context) const {
    return parse(node).make(std::forward<Context>(context)...);
  }

 private:
  friend Component;
  std::vector<std::function<Result(const void*, Context...)>> factories_;
};

/// The document with every key present, checked first; each value's position().origin says who supplied it.
HEARTH_API Json resolve(const Schema& schema, const Json& root);

/// A line for each key of a document that is given by its former name, as `FILE:LINE:COL: /pointer: message`.
HEARTH_API std::vector<std::string> renamed_keys(const Schema& schema, const Json& root);

/// For a resolved document, an object from each value's JSON pointer to "file", "--set", "default" or "code".
HEARTH_API Json origins(const Json& resolved);

/// JSON schema (draft 2020-12) of a document. Component types are under "$defs".
HEARTH_API Json json_schema(const Schema& schema, const std::string& title);

/// The reference page: a table of keys for the document, each nested object and each component type.
HEARTH_API std::string reference_markdown(const Schema& schema, const std::string& title);

/// Applies one `PATH=VALUE` to a document. PATH is `a.b[2].c`, `a.b.2.c` or a JSON pointer `/a/b/2/c`; VALUE is JSON if
/// it parses as JSON, otherwise a string. Missing keys of objects are created, array elements are not. Such values give
/// `--set PATH=VALUE` as their position. ConfigError for a malformed assignment or a path that leads through a scalar.
HEARTH_API void apply_override(Json& root, std::string_view assignment);

}  // namespace hearth
