// SPDX-License-Identifier: Apache-2.0
// The pickle in a file of torch.save, as far as tensors need it. Nothing of the file is run: names are compared with
// those that are known.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "models/weights/stored_zip.h"

namespace hearth::models::pickle {

constexpr std::size_t max_values = 1U << 20;

/// What to do about a file that is refused.
inline std::string remedy(const std::string& path) {
  return join_text(
      "; make a safetensors file of it in Python:\n  state = torch.load(\"", path,
      "\", map_location=\"cpu\", weights_only=True)  # or the part of it that is the state dict\n"
      "  # where PyTorch refuses that: weights_only=False, which runs what is in the file; trust it first\n"
      "  safetensors.torch.save_file({k: v.clone().contiguous() for k, v in state.items()}, "
      "\"model.safetensors\")");
}

/// A name for a message: as far as it can be printed.
inline std::string shown(std::string_view text) {
  std::string result(text.substr(0, 80));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}

/// What an instruction makes. Values lie in one list and refer to each other by their number in it, so that neither
/// nesting nor cycles matter.
struct Value {
  enum class Kind : std::uint8_t { none, boolean, integer, number, text, tuple, list, dict, name, storage, tensor };
  Kind kind = Kind::none;
  std::int64_t integer = 0;
  std::string text{};  ///< also of a global's name, and of a storage its entry
  /// Of a dict keys and values in turn; of a tensor its storage, offset, sizes and strides, and its metadata if any.
  std::vector<std::size_t> items{};
  DType dtype = DType::f32;  ///< of a storage
};
using Kind = Value::Kind;

/// Runs the pickle of an archive.
class Machine {
 public:
  Machine(const StoredZip& zip, std::span<const std::byte> program) : zip_(zip), program_(program) {}

  /// The number of the value that the pickle gives.
  std::size_t run() {
    for (;;) {
      if (values_.size() + stack_.size() + marks_.size() + memo_.size() > max_values) fail("makes too many values");
      const int code = std::to_integer<int>(take(1)[0]);
      if (code == '.') return pop();
      step(code);
    }
  }
  const Value& at(std::size_t index) const { return values_[index]; }

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(join_text(zip_.path().string(), ": the pickle ", what, ", at byte ", next_, " of it",
                              remedy(zip_.path().string())));
  }

 private:
  void step(int code) {
    switch (code) {
      case 0x80:  // PROTO
        if (const std::int64_t protocol = whole(1); protocol < 2 || protocol > 5)
          fail(join_text("has protocol ", protocol));
        return;
      case 'c':  // GLOBAL
        return push_global();
      case 'q':  // BINPUT, LONG_BINPUT
      case 'r':
        memo_[whole(code == 'q' ? 1 : 4)] = top();
        return;
      case 'h':  // BINGET, LONG_BINGET
      case 'j': {
        const auto found = memo_.find(whole(code == 'h' ? 1 : 4));
        if (found == memo_.end()) fail("refers to what it has not kept");
        stack_.push_back(found->second);
        return;
      }
      case '(':  // MARK
        marks_.push_back(stack_.size());
        return;
      case 'N':  // NONE
        return push({});
      case 0x88:  // NEWTRUE, NEWFALSE
      case 0x89:
        return push({.kind = Kind::boolean, .integer = code == 0x88});
      case 'K':  // BININT1, BININT2, BININT
      case 'M':
        return push({.kind = Kind::integer, .integer = whole(code == 'K' ? 1 : 2)});
      case 'J':
        return push({.kind = Kind::integer, .integer = static_cast<std::int32_t>(whole(4))});
      case 0x8a:  // LONG1
        return push_long();
      case 'G':  // BINFLOAT, which no tensor has
        (void)take(8);
        return push({.kind = Kind::number});
      case 'X':  // BINUNICODE
        return push({.kind = Kind::text, .text = text(static_cast<std::uint64_t>(whole(4)))});
      default:
        return step_on_stack(code);
    }
  }

  void step_on_stack(int code) {
    switch (code) {
      case ')':  // EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT
      case ']':
      case '}':
        return push({.kind = code == ')' ? Kind::tuple : code == ']' ? Kind::list : Kind::dict});
      case 't':  // TUPLE
        return push_tuple(since_mark());
      case 0x85:  // TUPLE1, TUPLE2, TUPLE3
      case 0x86:
      case 0x87:
        return push_tuple(last(static_cast<std::size_t>(code - 0x84)));
      case 'a':  // APPEND, APPENDS, SETITEM, SETITEMS
        return add(last(1), Kind::list);
      case 'e':
        return add(since_mark(), Kind::list);
      case 's':
        return add(last(2), Kind::dict);
      case 'u':
        return add(since_mark(), Kind::dict);
      case 'Q':  // BINPERSID
        return push_storage();
      case 'R':  // REDUCE
        return call();
      case 'b':  // BUILD: what a dictionary has beside its items, as "_metadata", is no weight
        (void)pop();
        if (values_[top()].kind != Kind::dict) fail("sets the state of an object");
        return;
      default:
        fail(join_text("has the instruction ", code, ", which no file of tensors needs"));
    }
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > program_.size() - next_) fail("is cut off");
    const auto bytes = program_.subspan(next_, count);
    next_ += count;
    return bytes;
  }
  /// Little-endian and not negative.
  std::int64_t whole(std::uint64_t count) {
    const auto bytes = take(count);
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    return static_cast<std::int64_t>(value);
  }
  std::string text(std::uint64_t count) {
    const auto bytes = take(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string line() {
    const auto rest = program_.subspan(next_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) fail("is cut off");
    std::string result = text(static_cast<std::uint64_t>(end - rest.begin()));
    ++next_;
    return result;
  }

  void push(Value value) {
    values_.push_back(std::move(value));
    stack_.push_back(values_.size() - 1);
  }
  std::size_t top() const {
    if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) fail("takes what is not there");
    return stack_.back();
  }
  std::size_t pop() {
    const std::size_t value = top();
    stack_.pop_back();
    return value;
  }
  std::vector<std::size_t> last(std::size_t count) {
    std::vector<std::size_t> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  std::vector<std::size_t> since_mark() {
    if (marks_.empty()) fail("takes what is not there");
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::size_t> items(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return items;
  }

  void push_long() {
    const std::int64_t count = whole(1);
    if (count > 8) fail("has a number of more than 64 bits");
    const std::int64_t value = whole(static_cast<std::uint64_t>(count));
    const int unused = static_cast<int>(64 - 8 * count);  // sign-extended
    push(
        {.kind = Kind::integer,
         .integer = count == 0 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << unused) >> unused});
  }
  void push_tuple(std::vector<std::size_t> items) { push({.kind = Kind::tuple, .items = std::move(items)}); }
  void add(const std::vector<std::size_t>& items, Kind kind) {
    Value& to = values_[top()];
    if (to.kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) fail("adds to what is no list or dictionary");
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  void push_global() {
    const std::string module = line(), name = line();
    const std::string full = module + "." + name;
    static const std::set<std::string, std::less<>> allowed{
        "collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"};
    if (!allowed.contains(full) && !(module == "torch" && storage_type(name)))
      fail(join_text("names \"", shown(full), "\", which no file of tensors of the known types needs; it was not run"));
    push({.kind = Kind::name, .text = full});
  }
  static std::optional<DType> storage_type(std::string_view name) {
    static constexpr std::pair<std::string_view, DType> types[] = {
        {"FloatStorage", DType::f32}, {"DoubleStorage", DType::f64},    {"HalfStorage", DType::f16},
        {"IntStorage", DType::i32},   {"BFloat16Storage", DType::bf16}, {"LongStorage", DType::i64},
        {"ByteStorage", DType::u8},   {"BoolStorage", DType::boolean}};
    for (const auto& [each, dtype] : types)
      if (each == name) return dtype;
    return std::nullopt;
  }

  /// ("storage", type, entry, device, elements)
  void push_storage() {
    const Value& id = values_[pop()];
    if (id.kind != Kind::tuple || id.items.size() != 5 || at(id.items[0]).text != "storage" ||
        at(id.items[1]).kind != Kind::name || at(id.items[2]).kind != Kind::text ||
        at(id.items[4]).kind != Kind::integer)
      fail("refers to a storage in an unknown way");
    const auto dtype = storage_type(std::string_view(at(id.items[1]).text).substr(std::strlen("torch.")));
    if (!dtype) fail("refers to a storage of an unknown type");
    push({.kind = Kind::storage, .integer = at(id.items[4]).integer, .text = at(id.items[2]).text, .dtype = *dtype});
  }

  void call() {
    const Value& arguments = values_[pop()];
    const Value& callee = values_[pop()];
    if (callee.kind != Kind::name || arguments.kind != Kind::tuple) fail("calls what is no function");
    const std::vector<std::size_t>& items = arguments.items;
    if (callee.text == "collections.OrderedDict" && items.empty()) return push({.kind = Kind::dict});
    if (callee.text == "torch._utils._rebuild_parameter" && items.size() == 3 && at(items[0]).kind == Kind::tensor) {
      stack_.push_back(items[0]);
      return;
    }
    if (callee.text != "torch._utils._rebuild_tensor_v2" || items.size() < 6 || items.size() > 7)
      fail(join_text("calls ", callee.text, " in an unknown way"));
    if (at(items[0]).kind != Kind::storage || at(items[1]).kind != Kind::integer || at(items[2]).kind != Kind::tuple ||
        at(items[3]).kind != Kind::tuple)
      fail("makes a tensor in an unknown way");
    Value tensor{.kind = Kind::tensor, .items = {items[0], items[1], items[2], items[3]}};
    if (items.size() == 7) tensor.items.push_back(items[6]);
    push(std::move(tensor));
  }

  const StoredZip& zip_;
  std::span<const std::byte> program_;
  std::size_t next_ = 0;
  std::vector<Value> values_;
  std::vector<std::size_t> stack_, marks_;
  std::map<std::int64_t, std::size_t> memo_;
};

}  // namespace hearth::models::pickle
