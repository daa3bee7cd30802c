// SPDX-License-Identifier: Apache-2.0
#include "ops/onednn/library.h"

#if HEARTH_HAS_DNNL

#include <array>

#include "core/thread_object.h"
#include "ops/scratch.h"

namespace hearth::cpu::dnn {

using Desc = dnnl::memory::desc;

// Leaked on purpose: plans and streams of other threads may outlive static destruction.
dnnl::engine& engine() {
  static auto* const instance = [] {
    reserve_for_library("oneDNN");
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *instance;
}

dnnl::stream& stream() {
  struct ThreadStream {
    dnnl::stream stream{engine()};
  };
  return hearth::detail::thread_object<ThreadStream>().stream;
}

dnnl::memory::data_type library_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

bool is_reference(std::string_view implementation) {
  return implementation.starts_with("ref") || implementation.find(":ref") != std::string_view::npos;
}

namespace {

// What a descriptor says, in the words of either version of the interface.
struct Layout {
  dnnl::memory::dims dims, padded, strides, inner_sizes, inner_dims;
  dnnl::memory::data_type type{};
  bool plain_or_blocked = false;
};

#if DNNL_VERSION_MAJOR >= 3
Layout layout_of(const Desc& desc) {
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  return {desc.get_dims(),
          desc.get_padded_dims(),
          desc.get_strides(),
          desc.get_inner_blks(),
          desc.get_inner_idxs(),
          desc.get_data_type(),
          desc.get_submemory_offset() == 0};
}
#else
Layout layout_of(const Desc& desc) {
  const dnnl_memory_desc_t& d = desc.data;
  if (d.format_kind != dnnl_blocked || d.offset0 != 0 || d.extra.flags != dnnl_memory_extra_flag_none) return {};
  const auto list = [](const dnnl_dims_t& values, int count) { return dnnl::memory::dims(values, values + count); };
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  return {list(d.dims, d.ndims),
          list(d.padded_dims, d.ndims),
          list(b.strides, d.ndims),
          list(b.inner_blks, b.inner_nblks),
          list(b.inner_idxs, b.inner_nblks),
          static_cast<dnnl::memory::data_type>(d.data_type),
          true};
}
#endif

// Fills in what the inner blocks say: whether they are a table of units as FilterBlocks has it.
bool read_inner_blocks(const Layout& to, std::int64_t index_of_k, FilterBlocks& blocks) {
  auto sizes = to.inner_sizes;
  auto dims = to.inner_dims;
  if (to.type == dnnl::memory::data_type::bf16) {
    if (sizes.empty() || sizes.back() != 2) return false;
    blocks.unit = dims.back() == index_of_k ? FilterBlocks::Unit::pair_of_k : FilterBlocks::Unit::pair_of_c;
    (dims.back() == index_of_k ? blocks.block_k : blocks.block_c) *= 2;
    if (dims.back() != index_of_k && dims.back() != index_of_k + 1) return false;
    sizes.pop_back();
    dims.pop_back();
  }
  if (sizes.size() > 2 || (sizes.size() == 2 && dims[0] == dims[1])) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (dims[i] != index_of_k && dims[i] != index_of_k + 1) return false;
    (dims[i] == index_of_k ? blocks.block_k : blocks.block_c) *= sizes[i];
  }
  blocks.k_runs_fastest = !dims.empty() && dims.back() == index_of_k;
  return true;
}

}  // namespace

std::optional<FilterBlocks> blocks_of(const Desc& from_desc, const Desc& to_desc) {
  const Layout from = layout_of(from_desc), to = layout_of(to_desc);
  if (!from.plain_or_blocked || !to.plain_or_blocked || !from.inner_sizes.empty() || from.dims != to.dims) return {};
  const bool grouped = from.dims.size() == 5;
  if (!grouped && from.dims.size() != 4) return {};
  const std::size_t at = grouped ? 1 : 0;  // dimensions are [g,] k, c, r, s
  FilterBlocks b;
  b.groups = grouped ? from.dims[0] : 1;
  b.k = from.dims[at], b.c = from.dims[at + 1], b.r = from.dims[at + 2], b.s = from.dims[at + 3];
  dnnl::memory::dims plain{b.r * b.s * b.c, 1, b.s * b.c, b.c};
  if (grouped) plain.insert(plain.begin(), b.k * b.r * b.s * b.c);
  if (from.strides != plain || !read_inner_blocks(to, static_cast<std::int64_t>(at), b)) return {};
  b.stride_g = grouped ? to.strides[0] : 0;
  b.stride_k = to.strides[at], b.stride_c = to.strides[at + 1];
  b.stride_r = to.strides[at + 2], b.stride_s = to.strides[at + 3];
  const auto padded = [](std::int64_t n, std::int64_t block) { return (n + block - 1) / block * block; };
  dnnl::memory::dims expected = from.dims;
  expected[at] = padded(b.k, b.block_k), expected[at + 1] = padded(b.c, b.block_c);
  const bool types = from.type == dnnl::memory::data_type::f32 ||
                     (from.type == dnnl::memory::data_type::bf16 && to.type == dnnl::memory::data_type::bf16);
  if (to.padded != expected || !types || !is_packable(b)) return {};
  return b;
}

Reorder::Reorder(const dnnl::memory::desc& from_desc, const dnnl::memory::desc& to_desc)
    : from(from_desc), to(to_desc), needed(from_desc != to_desc) {
  if (!needed) return;
  blocks = blocks_of(from, to);
  if (blocks) return;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc descriptor(engine(), from, engine(), to, attributes);
  scratchpad = descriptor.scratchpad_desc();
  primitive = dnnl::reorder(descriptor);
}

void Reorder::run(const void* source, void* destination) const {
  if (blocks) {
    const bool narrow = layout_of(from).type == dnnl::memory::data_type::bf16;
    pack_filters(*blocks, source, narrow ? DType::bf16 : DType::f32, destination);
    return;
  }
  const Argument arguments[] = {{DNNL_ARG_FROM, &from, source}, {DNNL_ARG_TO, &to, destination}};
  execute(primitive, scratchpad, arguments, 2);
}

void execute(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad, const Argument* arguments,
             int count) {
  reserve_for_library("oneDNN");
  constexpr int most = 8;
  std::array<dnnl::memory, most> memories;
  std::array<dnnl_exec_arg_t, most> list;
  int used = 0;
  const auto add = [&](int index, const dnnl::memory::desc& desc, const void* data) {
    auto& memory = memories[static_cast<std::size_t>(used)];
    try {
      memory = dnnl::memory(desc, engine(), const_cast<void*>(data));
    } catch (const dnnl::error& error) {
      check_status(error.status, "describing an operand");
    }
    list[static_cast<std::size_t>(used++)] = {index, memory.get()};
  };
  for (int i = 0; i < count; ++i) add(arguments[i].index, *arguments[i].desc, arguments[i].data);
  Scratch scratch;
  const std::size_t bytes = scratchpad.get_size();
  if (bytes != 0) add(DNNL_ARG_SCRATCHPAD, scratchpad, scratch.take_bytes(bytes));
  const SignalBlock no_signals;
  check_status(dnnl_primitive_execute(primitive.get(), stream().get(), used, list.data()), "executing a primitive");
}

std::string reason_of(const dnnl::error& error) {
  HEARTH_CHECK(OutOfMemory, error.status != dnnl_out_of_memory, "oneDNN: no memory to plan a problem: ", error.what(),
               "; use a smaller batch");
  return join_text("oneDNN does not take this problem (", error.what(), ")");
}

void check_status(dnnl_status_t status, const char* call) {
  HEARTH_CHECK(OutOfMemory, status != dnnl_out_of_memory, "oneDNN: no memory for ", call, "; use a smaller batch");
  HEARTH_CHECK(InternalError, status == dnnl_success, "oneDNN: ", call, " failed with status ",
               static_cast<int>(status), "; HEARTH_PICK another implementation");
}

}  // namespace hearth::cpu::dnn

#endif
