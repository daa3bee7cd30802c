// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cpu/dnn_library.h"

#if HEARTH_HAS_DNNL

#include <array>

#include "hearth/core/cpu/scratch.h"

namespace hearth::cpu::dnn {

// Leaked on purpose: plans and streams of other threads may outlive static destruction.
dnnl::engine& engine() {
  static auto* const instance = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

dnnl::memory::data_type library_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

bool is_reference(std::string_view implementation) {
  return implementation.starts_with("ref") || implementation.find(":ref") != std::string_view::npos;
}

Reorder::Reorder(const dnnl::memory::desc& from_desc, const dnnl::memory::desc& to_desc)
    : from(from_desc), to(to_desc), needed(from_desc != to_desc) {
  if (!needed) return;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc descriptor(engine(), from, engine(), to, attributes);
  scratchpad = descriptor.scratchpad_desc();
  primitive = dnnl::reorder(descriptor);
}

void Reorder::run(const void* source, void* destination) const {
  const Argument arguments[] = {{DNNL_ARG_FROM, &from, source}, {DNNL_ARG_TO, &to, destination}};
  execute(primitive, scratchpad, arguments, 2);
}

void execute(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad, const Argument* arguments,
             int count) {
  constexpr int most = 8;
  std::array<dnnl::memory, most> memories;
  std::array<dnnl_exec_arg_t, most> list;
  int used = 0;
  const auto add = [&](int index, const dnnl::memory::desc& desc, const void* data) {
    auto& memory = memories[static_cast<std::size_t>(used)];
    memory = dnnl::memory(desc, engine(), const_cast<void*>(data));
    list[static_cast<std::size_t>(used++)] = {index, memory.get()};
  };
  for (int i = 0; i < count; ++i) add(arguments[i].index, *arguments[i].desc, arguments[i].data);
  Scratch scratch;
  const std::size_t bytes = scratchpad.get_size();
  if (bytes != 0) add(DNNL_ARG_SCRATCHPAD, scratchpad, scratch.take_bytes(bytes));
  const dnnl_status_t status = dnnl_primitive_execute(primitive.get(), stream().get(), used, list.data());
  HEARTH_CHECK(InternalError, status == dnnl_success, "oneDNN: executing a primitive failed with status ",
               static_cast<int>(status), "; HEARTH_PICK another implementation");
}

}  // namespace hearth::cpu::dnn

#endif
