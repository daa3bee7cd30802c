// SPDX-License-Identifier: Apache-2.0
// `--set PATH=VALUE`: changes one value of a configuration before it is checked.
#include <charconv>
#include <optional>

#include "core/config/config.h"
#include "core/io/printable.h"
#include "core/io/utf8.h"

namespace hearth {
namespace {

struct Step {
  std::string key;
  bool bracketed = false;  // written [2], so it can only be an element of an array
};

[[noreturn]] void refuse(const std::string& source, const std::string& message) {
  throw ConfigError(printable(source + ": " + message));
}

std::vector<Step> pointer_steps(const std::string& source, std::string_view path) {
  std::vector<Step> steps;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const char c = path[at];
    if (c == '/') {
      steps.push_back({});
    } else if (c == '~') {
      const char code = at + 1 < path.size() ? path[at + 1] : '\0';
      if (code != '0' && code != '1') refuse(source, "'~' in a JSON pointer is written ~0, and '/' in a key ~1");
      steps.back().key += code == '0' ? '~' : '/';
      ++at;
    } else {
      steps.back().key += c;
    }
  }
  return steps;
}

std::vector<Step> dotted_steps(const std::string& source, std::string_view path) {
  std::vector<Step> steps{{}};
  for (std::size_t at = 0; at < path.size(); ++at) {
    const char c = path[at];
    if (c == '.') {
      steps.push_back({});
    } else if (c == '[') {
      const std::size_t close = path.find(']', at);
      const bool ended = close != std::string_view::npos &&
                         (close + 1 == path.size() || path[close + 1] == '.' || path[close + 1] == '[');
      const std::string_view index = ended ? path.substr(at + 1, close - at - 1) : std::string_view();
      if (index.empty() || index.find_first_not_of("0123456789") != std::string_view::npos) {
        refuse(source, "an element is written [NUMBER], as in transforms[2].size");
      }
      steps.push_back({std::string(index), true});
      at = close;
    } else if (c == ']') {
      refuse(source, "']' without '['");
    } else {
      steps.back().key += c;
    }
  }
  return steps;
}

std::optional<std::size_t> index_of(const std::string& key) {
  std::size_t value = 0;
  const auto result = std::from_chars(key.data(), key.data() + key.size(), value);
  if (key.empty() || result.ec != std::errc() || result.ptr != key.data() + key.size()) return std::nullopt;
  return value;
}

Json value_of(std::string_view written, const std::string& source, const JsonPosition& position) {
  try {
    return parse_json(written, source, JsonOrigin::override);
  } catch (const ConfigError&) {
    // What begins like JSON was meant to be JSON; anything else is a word.
    const std::size_t first = written.find_first_not_of(" \t");
    if (first != std::string_view::npos && std::string_view("{[\"").find(written[first]) != std::string_view::npos) {
      throw;
    }
  }
  Json word(written);
  word.set_position(position);
  return word;
}

// The place of one step below `node`, made if it is a missing key of an object.
Json& descend(Json& node, const Step& step, const std::string& walked, const JsonPosition& position) {
  const std::string& source = *position.source;
  if (node.is_array()) {
    const std::optional<std::size_t> index = index_of(step.key);
    if (!index) refuse(source, join_text(walked, " is an array; give an index in place of \"", step.key, "\""));
    if (*index >= node.size()) {
      refuse(source, join_text(walked, " has ", node.size(), " elements, there is no element ", step.key));
    }
    return node.items()[*index];
  }
  if (step.bracketed) {
    refuse(source, join_text(walked, " is ", node.describe(), ", not an array; [", step.key, "] is an element of one"));
  }
  if (node.is_null()) {
    node = Json::object();
    node.set_position(position);
  }
  if (!node.is_object()) {
    refuse(source, join_text(walked, " is ", node.describe(), "; it has no key \"", step.key, "\""));
  }
  if (!node.find(step.key)) {
    Json made;
    made.set_position(position);
    node.set(step.key, std::move(made), position);
  }
  return *node.find(step.key);
}

}  // namespace

void apply_override(Json& root, std::string_view assignment) {
  JsonPosition position;
  position.source = std::make_shared<const std::string>(join_text("--set ", assignment));
  position.origin = JsonOrigin::override;
  const std::string& source = *position.source;
  if (utf8::find_fault(assignment) != assignment.npos)
    refuse(source, "is not UTF-8, which a run's config.json could not keep; rename what it names");
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) refuse(source, "expected PATH=VALUE, as in optimizer.lr=0.1");
  const std::string_view path = assignment.substr(0, equals);
  if (path.empty()) refuse(source, "there is no path before '='; expected PATH=VALUE, as in optimizer.lr=0.1");
  const std::vector<Step> steps = path[0] == '/' ? pointer_steps(source, path) : dotted_steps(source, path);
  for (const Step& step : steps) {
    if (step.key.empty()) refuse(source, join_text("the path ", path, " has an empty key"));
  }
  Json value = value_of(assignment.substr(equals + 1), source, position);
  Json* node = &root;
  std::string walked;
  for (const Step& step : steps) {
    node = &descend(*node, step, walked.empty() ? "the document" : walked, position);
    walked = child_pointer(walked, step.key);
  }
  *node = std::move(value);
}

}  // namespace hearth
