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
//   struct RunConfig { std::string name = "run"; Json optimizer; TrainOptions train; };
//   void describe(Fields<RunConfig>& f) {  // TrainOptions has a describe() too
//     f.text("name", &RunConfig::name, "Name of the run.");
//     f.component("optimizer", &RunConfig::optimizer, optimizers(), "How weights are updated.").required();
//     f.object("train", &RunConfig::train, "The training loop.");
//   }
//   Json root = read_json("run.json");
//   apply_override(root, "optimizer.lr=0.05");
//   RunConfig config = parse_fields<RunConfig>(root);                  // all faults in one ConfigError, one a line
//   auto optimizer = optimizers().make(config.optimizer, parameters);  // a checked {"type": "sgd", "lr": ...}
//   Json full = resolve(*schema_of<RunConfig>(), root);                // every key; origins(full) tells from where
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

#include "core/error.h"
#include "core/io/json_text.h"

namespace hearth {

class ComponentTypes;
class Schema;
template <class T>
class Fields;

/// The schema that describe(Fields<T>&) gives, made at the first call.
template <class T>
const std::shared_ptr<const Schema>& schema_of();

/// A word that may stand in place of a number, and the number that is stored for it.
struct Word {
  std::string text;
  double value = 0;
};

/// What a number, and a list, may be. For a list the bounds are those of every element.
struct HEARTH_API Limits {
  std::optional<double> min{};    ///< at least
  std::optional<double> above{};  ///< more than
  std::optional<double> max{};    ///< at most
  std::optional<double> below{};  ///< less than
  std::size_t min_items = 0;
  std::size_t max_items = std::numeric_limits<std::size_t>::max();
  std::vector<Word> words{};  ///< as in {.words = {{"auto", 0}}}
};

/// One described key, with the type of the struct it belongs to erased.
struct HEARTH_API Field {
  enum class Kind : std::uint8_t { boolean, integer, number, text, choice, object, component };

  std::string name;
  std::string doc;
  Kind kind = Kind::boolean;
  bool list = false;      ///< an array of values of that kind
  bool nullable = false;  ///< null is accepted
  bool required = false;
  bool words_are_numbers = false;  ///< words are stored as numbers, not as the text they are
  Limits limits;                   ///< its words are a choice's choices
  double least = 0, greatest = 0;  ///< what the member's type holds, for numbers and integers
  std::shared_ptr<const Schema> object;
  std::string shorthand;  ///< of an object: the key that a value stands for which is no object; empty for none
  const ComponentTypes* types = nullptr;
  std::function<void*(void*)> member;  ///< the member's address, from its struct's
  void (*store)(void* member, const Json& value) = nullptr;
  Json (*load)(const void* member) = nullptr;

  /// "a number > 0", "an array of 2 integers", "one of a, b".
  std::string expected() const;
};

/// Fault lines found in a document.
using Faults = std::vector<std::string>;

/// The keys of one object: a struct's fields with the struct's type erased. The keys "$schema" and "comment" are
/// accepted beside them and ignored.
class HEARTH_API Schema {
 public:
  const std::vector<Field>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;
  std::vector<std::string> names() const;

  /// Appends a line to `faults` for every fault of `node`. `defaults` is a struct holding the defaults (null: those of
  /// a new one); `is_component` says that a "type" key has been dealt with.
  void check(const Json& node, const std::string& pointer, Faults& faults, const void* defaults = nullptr,
             bool is_component = false) const;
  /// Stores a checked node's values in a struct; members whose key is absent stay as they are.
  void assign(void* target, const Json& node) const;
  /// The struct as an object of all its fields.
  Json load(const void* source) const;
  /// A checked node with every key present, in the order of the description; defaults have JsonOrigin::defaulted.
  Json resolve(const Json& node, const void* defaults = nullptr) const;
  /// A new struct with its default values.
  std::shared_ptr<void> make_defaults() const { return copy_(nullptr); }

 private:
  template <class T>
  friend class Fields;
  Field& add(Field field);

  std::vector<Field> fields_;
  std::function<std::shared_ptr<void>(const void* source)> copy_;  // of a new struct if source is null
  std::vector<std::function<std::string(const void*)>> rules_;
};

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

HEARTH_API void store(const Json& value, bool& member);
HEARTH_API void store(const Json& value, float& member);
HEARTH_API void store(const Json& value, double& member);
HEARTH_API void store(const Json& value, std::string& member);
HEARTH_API void store(const Json& value, Json& member);
HEARTH_API Json load(bool member);
HEARTH_API Json load(float member);
HEARTH_API Json load(double member);
HEARTH_API Json load(const std::string& member);
HEARTH_API Json load(const Json& member);

template <class V>
requires(std::integral<V> || std::is_enum_v<V>) void store(const Json& value, V& member) {
  member = static_cast<V>(value.as_integer());
}
template <class V>
requires(std::integral<V> || std::is_enum_v<V>) Json load(V member) { return Json(static_cast<std::int64_t>(member)); }
template <class V>
void store(const Json& value, std::optional<V>& member);
template <class V, std::size_t n>
void store(const Json& value, std::array<V, n>& member);
template <class V>
void store(const Json& value, std::vector<V>& member) {
  member.clear();
  for (const Json& item : value.items()) store(item, member.emplace_back());
}
template <class V, std::size_t n>
void store(const Json& value, std::array<V, n>& member) {
  for (std::size_t i = 0; i < n; ++i) store(value.at(i), member[i]);
}
template <class V>
void store(const Json& value, std::optional<V>& member) {
  member.reset();
  if (!value.is_null()) store(value, member.emplace());
}
template <class V>
Json load(const std::optional<V>& member);
template <class V, std::size_t n>
Json load(const std::array<V, n>& member);
template <class V>
Json load(const std::vector<V>& member) {
  Json result = Json::array();
  for (const V& item : member) result.push_back(load(item));
  return result;
}
template <class V, std::size_t n>
Json load(const std::array<V, n>& member) {
  Json result = Json::array();
  for (const V& item : member) result.push_back(load(item));
  return result;
}
template <class V>
Json load(const std::optional<V>& member) {
  return member ? load(*member) : Json();
}

[[noreturn]] HEARTH_API void throw_faults(const Faults& faults);

}  // namespace config_detail

/// Describes the fields of the struct T; handed to describe(Fields<T>&). A member may be the plain type, a
/// std::optional of it (null in JSON), a std::vector or a std::array of it. Defaults are the member initialisers.
/// Keys that repeat or are reserved ("type", "$schema", "comment") are a UsageError.
template <class T>
class Fields {
 public:
  Fields() : schema_(std::make_shared<Schema>()) {
    schema_->copy_ = [](const void* source) {
      return source ? std::make_shared<T>(*static_cast<const T*>(source)) : std::make_shared<T>();
    };
  }

  template <class V, class Owner>
  Fields& boolean(std::string name, V Owner::*member, std::string doc) {
    static_assert(std::same_as<config_detail::LeafType<V>, bool>, "a boolean field needs a bool member");
    return add(Field::Kind::boolean, std::move(name), member, {}, std::move(doc));
  }
  template <class V, class Owner>
  Fields& number(std::string name, V Owner::*member, Limits limits, std::string doc) {
    using Value = config_detail::LeafType<V>;
    static_assert(std::floating_point<Value>, "a number field needs a float or double member");
    add(Field::Kind::number, std::move(name), member, std::move(limits), std::move(doc));
    last().least = std::numeric_limits<Value>::lowest();
    last().greatest = std::numeric_limits<Value>::max();
    return *this;
  }
  /// Members of any integer type; values are limited to those of 63 bits and a sign.
  template <class V, class Owner>
  Fields& integer(std::string name, V Owner::*member, Limits limits, std::string doc) {
    using Value = config_detail::LeafType<V>;
    static_assert(std::integral<Value> && !std::same_as<Value, bool>, "an integer field needs an integer member");
    add(Field::Kind::integer, std::move(name), member, std::move(limits), std::move(doc));
    last().least = static_cast<double>(std::numeric_limits<Value>::lowest());
    last().greatest = static_cast<double>(std::numeric_limits<Value>::max());
    return *this;
  }
  template <class V, class Owner>
  Fields& text(std::string name, V Owner::*member, std::string doc) {
    return text(std::move(name), member, {}, std::move(doc));
  }
  template <class V, class Owner>
  Fields& text(std::string name, V Owner::*member, Limits limits, std::string doc) {
    static_assert(std::same_as<config_detail::LeafType<V>, std::string>, "a text field needs a std::string member");
    return add(Field::Kind::text, std::move(name), member, std::move(limits), std::move(doc));
  }
  /// One of some words, kept as the string it is.
  template <class V, class Owner>
  requires std::same_as<config_detail::LeafType<V>, std::string> Fields& choice(
      std::string name, V Owner::*member, std::initializer_list<std::string_view> choices, std::string doc) {
    Limits limits;
    for (const std::string_view text : choices) limits.words.push_back({std::string(text), 0});
    return add(Field::Kind::choice, std::move(name), member, std::move(limits), std::move(doc));
  }
  /// One of some words, each naming an enumerator: {{"mean", Pooling::mean}, {"max", Pooling::max}}.
  template <class V, class Owner>
  requires std::is_enum_v<config_detail::LeafType<V>> Fields& choice(
      std::string name, V Owner::*member,
      std::initializer_list<std::pair<std::string_view, config_detail::LeafType<V>>> choices, std::string doc) {
    Limits limits;
    for (const auto& [text, value] : choices) limits.words.push_back({std::string(text), static_cast<double>(value)});
    return add(Field::Kind::choice, std::move(name), member, std::move(limits), std::move(doc));
  }
  /// A nested struct that has a describe() of its own; its defaults are those the member has in T.
  template <class V, class Owner>
  Fields& object(std::string name, V Owner::*member, std::string doc) {
    static_assert(std::derived_from<T, Owner>, "the member belongs to another struct");
    Field field = named(Field::Kind::object, std::move(name), std::move(doc), locate(member));
    field.object = schema_of<V>();
    schema_->add(std::move(field));
    return *this;
  }
  /// A component `{"type": name, ...}` of a registry, kept as JSON (a Json or std::vector<Json> member) to be made
  /// later by Registry::make. null is accepted unless it is required.
  template <class V, class Owner>
  Fields& component(std::string name, V Owner::*member, const ComponentTypes& types, std::string doc) {
    static_assert(std::same_as<config_detail::LeafType<V>, Json>, "a component field needs a Json member");
    add(Field::Kind::component, std::move(name), member, {}, std::move(doc));
    last().types = &types;
    last().nullable = !last().list;
    return *this;
  }

  /// Lets a value that is no object stand for one key of the object described last: 0.9 for {"decay": 0.9}.
  Fields& shorthand(std::string key) {
    HEARTH_CHECK(UsageError, last().object != nullptr && last().object->find(key) != nullptr, "config: shorthand \"",
                 key, "\" comes after an object that has such a key");
    last().shorthand = std::move(key);
    return *this;
  }
  /// Makes the field described last one that has to be given.
  Fields& required() {
    last().required = true;
    if (last().kind == Field::Kind::component) last().nullable = false;
    return *this;
  }
  /// A condition on several fields: `broken(options)` gives what is wrong, or an empty text.
  template <class F>
  Fields& rule(F broken) {
    schema_->rules_.push_back(
        [broken](const void* options) -> std::string { return broken(*static_cast<const T*>(options)); });
    return *this;
  }

  std::shared_ptr<const Schema> schema() const { return schema_; }

 private:
  Field& last() {
    HEARTH_CHECK(UsageError, !schema_->fields_.empty(), "config: required() comes after the field it is about");
    return schema_->fields_.back();
  }
  template <class V, class Owner>
  static std::function<void*(void*)> locate(V Owner::*member) {
    return [member](void* options) -> void* { return &(static_cast<T*>(options)->*member); };
  }
  static Field named(Field::Kind kind, std::string name, std::string doc, std::function<void*(void*)> member) {
    Field field;
    field.name = std::move(name);
    field.doc = std::move(doc);
    field.kind = kind;
    field.member = std::move(member);
    return field;
  }
  template <class V, class Owner>
  Fields& add(Field::Kind kind, std::string name, V Owner::*member, Limits limits, std::string doc) {
    static_assert(std::derived_from<T, Owner>, "the member belongs to another struct");
    using Traits = config_detail::Leaf<V>;
    Field field = named(kind, std::move(name), std::move(doc), locate(member));
    field.list = Traits::list;
    field.nullable = Traits::nullable;
    field.words_are_numbers = !std::same_as<typename Traits::type, std::string>;
    field.limits = std::move(limits);
    if (Traits::count > 0) field.limits.min_items = field.limits.max_items = Traits::count;
    field.store = [](void* target, const Json& value) { config_detail::store(value, *static_cast<V*>(target)); };
    field.load = [](const void* source) { return config_detail::load(*static_cast<const V*>(source)); };
    schema_->add(std::move(field));
    return *this;
  }

  std::shared_ptr<Schema> schema_;
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

/// The struct that a node describes. ConfigError holding every fault, one a line, as
/// `FILE:LINE:COL: /pointer: message`; `pointer` is where the node is within its document.
template <class T>
T parse_fields(const Json& node, const std::string& pointer = "") {
  Faults faults;
  schema_of<T>()->check(node, pointer, faults);
  if (!faults.empty()) config_detail::throw_faults(faults);
  T result{};
  schema_of<T>()->assign(&result, node);
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

  /// Appends a line to `faults` for every fault of a node.
  void check(const Json& node, const std::string& pointer, Faults& faults) const;
  /// A checked node with every key present.
  Json resolve(const Json& node) const;

 protected:
  void add_type(std::string type, std::string doc, const std::shared_ptr<const Schema>& (*schema)());
  /// The position in types() of a node's type; ConfigError with every fault if the node is not right.
  std::size_t checked(const Json& node, const std::string& pointer) const;

 private:
  std::string name_;
  std::string doc_;
  std::deque<Type> types_;
};

template <class Signature>
class Registry;

/// Component types by name, and how each is made from its options and what surrounds it. Types are added before runs
/// are parsed; adding while another thread reads is not synchronised.
template <class Result, class... Context>
class Registry<Result(Context...)> : public ComponentTypes {
 public:
  using ComponentTypes::ComponentTypes;
  /// A registry that begins with the types `add_own` adds.
  Registry(std::string name, std::string doc, void (*add_own)(Registry&))
      : ComponentTypes(std::move(name), std::move(doc)) {
    add_own(*this);
  }

  /// Adds a type whose fields are those of Options. UsageError if the name is empty or taken.
  template <class Options>
  void add(std::string type, std::string doc, std::function<Result(const Options&, Context...)> factory) {
    add_type(std::move(type), std::move(doc), &schema_of<Options>);
    factories_.push_back([factory = std::move(factory)](const Json& node, Context... context) -> Result {
      Options options{};
      schema_of<Options>()->assign(&options, node);
      return factory(options, std::forward<Context>(context)...);
    });
  }

  /// Makes the component a node describes. ConfigError with every fault of the node, as parse_fields.
  Result make(const Json& node, Context... context) const {
    return factories_[checked(node, "")](node, std::forward<Context>(context)...);
  }

 private:
  std::vector<std::function<Result(const Json&, Context...)>> factories_;
};

/// ConfigError with every fault, one a line, if the document does not fit the schema.
HEARTH_API void check_config(const Schema& schema, const Json& root);

/// The document with every key present, checked first; each value's position().origin says who supplied it.
HEARTH_API Json resolve(const Schema& schema, const Json& root);

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
