// SPDX-License-Identifier: Apache-2.0
#include "models/weights/torch_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "models/weights/stored_zip.h"

namespace hearth::models {
namespace {

constexpr std::size_t max_pickle = 16U << 20, max_values = 1U << 20;
constexpr std::string_view state_keys[] = {"state_dict", "model", "model_state_dict", "module"};

std::string remedy(const std::string& path) {
  return join_text(
      "; make a safetensors file of it in Python:\n  state = torch.load(\"", path,
      "\", map_location=\"cpu\", weights_only=True)  # or the part of it that is the state dict\n"
      "  # where PyTorch refuses that: weights_only=False, which runs what is in the file; trust it first\n"
      "  safetensors.torch.save_file({k: v.clone().contiguous() for k, v in state.items()}, "
      "\"model.safetensors\")");
}

/// A name for a message: as far as it can be printed.
std::string shown(std::string_view text) {
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

/// Copies tensors out of their storages.
class Tensors {
 public:
  Tensors(const StoredZip& zip, const Machine& machine, std::string folder)
      : zip_(zip), machine_(machine), folder_(std::move(folder)) {}

  /// Each tensor is told of before the first is read, so that a storage is held no longer than it is needed.
  void expect(const Value& tensor) { ++uses_[machine_.at(tensor.items[0]).text]; }

  Tensor read(const std::string& name, const Value& tensor) {
    const Value& storage = machine_.at(tensor.items[0]);
    const std::vector<std::int64_t> sizes = numbers(tensor.items[2]), strides = numbers(tensor.items[3]);
    const auto size = static_cast<std::int64_t>(size_of(storage.dtype));
    const Tensor& bytes = storage_bytes(storage.text);
    const std::int64_t elements = bytes.size() / size;
    const bool fits = storage.integer == elements && bytes.size() % size == 0;
    const std::int64_t count = fits ? count_within(elements, offset_of(tensor), sizes, strides) : -1;
    if (count < 0)
      machine_.fail(join_text("says of \"", shown(name), "\" what its storage of ", elements, " values does not hold"));
    taken_ += static_cast<std::size_t>(count * size);
    if (taken_ > 4 * zip_.size())
      machine_.fail(join_text(
          "shares storages so often, or has them expanded so far, that the tensors are beyond the file's size; the "
          "last one is \"",
          shown(name), "\""));
    const Shape shape{std::span<const std::int64_t>(sizes)};
    Strides steps{};
    std::copy(strides.begin(), strides.end(), steps.begin());
    const Tensor result =
        count == 0 ? Tensor::empty(shape, storage.dtype)
                   : Tensor::view(bytes.storage(), shape, steps, offset_of(tensor), storage.dtype, Device{}).clone();
    if (--uses_[storage.text] == 0) storages_.erase(storage.text);
    if (is_negated(name, tensor)) flip_signs(name, result);
    return result;
  }

 private:
  /// Whether the tensor is a view that PyTorch negates as it is read ("neg"), such as the imaginary part of a
  /// conjugate.
  bool is_negated(const std::string& name, const Value& tensor) const {
    bool negated = false;
    if (tensor.items.size() < 5) return negated;
    const Value& marks = machine_.at(tensor.items[4]);
    const auto refuse = [&] {
      machine_.fail(
          join_text("marks \"", shown(name), "\" in an unknown way; save it after resolve_conj() and resolve_neg()"));
    };
    if (marks.kind != Kind::dict) refuse();
    for (std::size_t i = 0; i < marks.items.size(); i += 2) {
      const Value& set = machine_.at(marks.items[i + 1]);
      if (set.kind != Kind::boolean) refuse();
      if (set.integer == 0) continue;
      if (machine_.at(marks.items[i]).text != "neg") refuse();
      negated = true;
    }
    return negated;
  }
  void flip_signs(const std::string& name, const Tensor& tensor) const {
    if (!is_floating(tensor.dtype()))
      machine_.fail(
          join_text("negates \"", shown(name), "\", which is of ", tensor.dtype(), "; save it after resolve_neg()"));
    const std::size_t size = size_of(tensor.dtype());
    for (std::size_t last = size - 1; last < tensor.byte_size(); last += size) tensor.bytes()[last] ^= std::byte{0x80};
  }
  std::int64_t offset_of(const Value& tensor) const { return machine_.at(tensor.items[1]).integer; }
  std::vector<std::int64_t> numbers(std::size_t tuple) const {
    std::vector<std::int64_t> result;
    for (const std::size_t item : machine_.at(tuple).items) {
      if (machine_.at(item).kind != Kind::integer) machine_.fail("has a shape that is not of numbers");
      result.push_back(machine_.at(item).integer);
    }
    return result;
  }
  /// How many elements a tensor has; -1 if they do not all lie among so many of a storage. They may be more than these:
  /// expanded ones have strides of 0.
  static std::int64_t count_within(std::int64_t elements, std::int64_t offset, const std::vector<std::int64_t>& sizes,
                                   const std::vector<std::int64_t>& strides) {
    constexpr std::int64_t max_size = std::int64_t{1} << 40;
    if (sizes.size() != strides.size() || sizes.size() > static_cast<std::size_t>(Shape::max_rank) || offset < 0 ||
        offset > elements)
      return -1;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] < 0 || sizes[i] > max_size || strides[i] < 0) return -1;
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
    std::int64_t last = offset, count = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (count > max_size / sizes[i] || (strides[i] > 0 && sizes[i] - 1 > (elements - last) / strides[i])) return -1;
      count *= sizes[i];
      last += (sizes[i] - 1) * strides[i];
    }
    return last < elements ? count : -1;
  }
  /// Compared with its checksum once.
  const Tensor& storage_bytes(const std::string& entry) {
    const auto [found, is_new] = storages_.try_emplace(entry);
    if (!is_new) return found->second;
    const std::vector<std::byte> bytes = zip_.read(folder_ + "data/" + entry, {UINT64_MAX, "tensors"});
    found->second = Tensor::empty({static_cast<std::int64_t>(bytes.size())}, DType::u8);
    std::copy(bytes.begin(), bytes.end(), found->second.bytes());
    return found->second;
  }

  const StoredZip& zip_;
  const Machine& machine_;
  std::string folder_;
  std::map<std::string, Tensor> storages_;  // as bytes
  std::map<std::string, std::int64_t> uses_;
  std::size_t taken_ = 0;
};

/// Whether it is a dictionary of tensors only.
bool is_state_dict(const Machine& machine, const Value& value) {
  if (value.kind != Kind::dict || value.items.empty()) return false;
  for (std::size_t i = 1; i < value.items.size(); i += 2)
    if (machine.at(value.items[i]).kind != Kind::tensor) return false;
  return true;
}

/// The dictionary of tensors, and what a note says of others.
struct Found {
  Value state;
  std::string note{};
};

/// The value itself, or what it has under one of the known keys, the first of which counts.
Found state_dict(const Machine& machine, const Value& root) {
  if (root.kind != Kind::dict) machine.fail("is no dictionary");
  std::string keys, others;
  const Value* state = nullptr;
  std::string_view key_of_state;
  for (const std::string_view known : state_keys)
    for (std::size_t i = 0; state == nullptr && i < root.items.size(); i += 2)
      if (machine.at(root.items[i]).text == known && is_state_dict(machine, machine.at(root.items[i + 1])))
        state = &machine.at(root.items[i + 1]), key_of_state = known;
  bool has_tensors = false;
  for (std::size_t i = 0; i < root.items.size(); i += 2) {
    const Value& key = machine.at(root.items[i]);
    const Value& value = machine.at(root.items[i + 1]);
    has_tensors = has_tensors || value.kind == Kind::tensor;
    if (keys.size() < 200) keys += (keys.empty() ? "" : ", ") + shown(key.text);
    const bool holds_tensors = value.kind == Kind::tensor || is_state_dict(machine, value);
    if (&value != state && holds_tensors && others.size() < 200)
      others += join_text(others.empty() ? "" : ", ", "\"", shown(key.text), "\"");
  }
  if (state != nullptr && others.empty()) return {*state};
  if (state != nullptr)
    return {*state,
            join_text("the weights are those of \"", key_of_state, "\"; beside it are ", others,
                      ", of which nothing is read: for an average save it by itself, torch.save(torch.load(PATH)"
                      "[KEY], NEW)")};
  if (has_tensors) return {root};
  machine.fail(join_text("has no tensors among its keys (", keys, "), nor below state_dict, model or module",
                         others.empty() ? "" : "; " + others + " has: save it by itself"));
}

/// The first bytes of a file, which tell its kind.
std::vector<std::byte> front_of(const std::string& path) {
  const FileReader file(path);
  std::vector<std::byte> front(std::min<std::uint64_t>(4, file.size()));
  file.read(0, front);
  return front;
}

}  // namespace

bool is_torch_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const std::vector<std::byte> front = front_of(path);
  // Before PyTorch 1.6: a pickle of protocol 2 that begins with a number of 80 bits.
  static constexpr std::byte before[] = {std::byte{0x80}, std::byte{2}, std::byte{0x8a}, std::byte{10}};
  return StoredZip::is_zip(front) ||
         (front.size() >= sizeof before && std::equal(std::begin(before), std::end(before), front.begin()));
}

std::string torch_file_at(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::string file = path;
  if (fs::is_directory(path, ignored)) {
    for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
      if (fs::exists(fs::path(path) / name, ignored)) return "";
    file = (fs::path(path) / "pytorch_model.bin").string();
    if (!fs::exists(file, ignored)) file += ".index.json";
  }
  HEARTH_CHECK(FileError, !file.ends_with(".bin.index.json") || !fs::exists(file, ignored), file,
               ": several files of torch.save() are not joined; make safetensors files of them in Python:\n"
               "  transformers.AutoModel.from_pretrained(\"",
               path, "\").save_pretrained(\"OUT\", safe_serialization=True)  # or the class with the head");
  return is_torch_file(file) ? file : "";
}

WeightSet read_torch_file(const std::string& path) {
  HEARTH_CHECK(FileError, StoredZip::is_zip(front_of(path)), path,
               ": was saved in the format before PyTorch 1.6, which is not read", remedy(path));
  const StoredZip zip(path);
  constexpr std::string_view program_name = "data.pkl";
  const auto found = std::find_if(zip.entries().begin(), zip.entries().end(), [&](const auto& entry) {
    return entry.first == program_name || entry.first.ends_with("/data.pkl");
  });
  HEARTH_CHECK(FileError, found != zip.entries().end(), path,
               ": the archive has no data.pkl, as torch.save() writes it");
  const std::string folder = found->first.substr(0, found->first.size() - program_name.size());
  if (zip.entries().contains(folder + "byteorder")) {
    const auto order = zip.read(folder + "byteorder", small_file);
    HEARTH_CHECK(FileError, std::string_view(reinterpret_cast<const char*>(order.data()), order.size()) == "little",
                 path, ": was saved on a big-endian machine", remedy(path));
  }
  HEARTH_CHECK(FileError, found->second.size <= max_pickle, path, ": the pickle has ", found->second.size,
               " bytes, more than ", max_pickle, remedy(path));
  const std::vector<std::byte> program = zip.read(found->first, {max_pickle, "pickles"});
  Machine machine(zip, program);
  const Value root = machine.at(machine.run());
  const auto [state, note] = state_dict(machine, root);
  if (state.items.empty()) machine.fail("has no tensors");
  Tensors tensors(zip, machine, folder);
  for (std::size_t i = 1; i < state.items.size(); i += 2)
    if (const Value& value = machine.at(state.items[i]); value.kind == Kind::tensor) tensors.expect(value);
  std::set<std::string> names;
  WeightSet result;
  if (!note.empty()) result.notes.push_back(path + ": " + note);
  for (std::size_t i = 0; i < state.items.size(); i += 2) {
    const Value& key = machine.at(state.items[i]);
    const Value& value = machine.at(state.items[i + 1]);
    if (key.kind != Kind::text) machine.fail("has a key that is no text");
    if (!names.insert(key.text).second) machine.fail(join_text("has \"", shown(key.text), "\" twice"));
    if (value.kind != Kind::tensor) machine.fail(join_text("has \"", shown(key.text), "\", which is no tensor"));
    result.weights.push_back({key.text, tensors.read(key.text, value)});
  }
  return result;
}

}  // namespace hearth::models
