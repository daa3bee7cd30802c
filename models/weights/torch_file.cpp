// SPDX-License-Identifier: Apache-2.0
#include "models/weights/torch_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "models/weights/pickle.h"
#include "models/weights/stored_zip.h"

namespace hearth::models {
namespace {

using pickle::Kind;
using pickle::Machine;
using pickle::remedy;
using pickle::shown;
using pickle::Value;

constexpr std::size_t max_pickle = 16U << 20;
constexpr std::string_view state_keys[] = {"state_dict", "model", "model_state_dict", "module"};

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
