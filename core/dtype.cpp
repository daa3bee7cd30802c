// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <array>
#include <ostream>

#include "core/text_stream.h"

namespace hearth {
namespace {

struct Row {
  DType dtype;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<Row, 8> rows{{{DType::f32, "f32", 4},
                                   {DType::f64, "f64", 8},
                                   {DType::f16, "f16", 2},
                                   {DType::bf16, "bf16", 2},
                                   {DType::i32, "i32", 4},
                                   {DType::i64, "i64", 8},
                                   {DType::u8, "u8", 1},
                                   {DType::boolean, "bool", 1}}};

}  // namespace

std::size_t size_of(DType dtype) { return rows[static_cast<std::size_t>(dtype)].bytes; }

const char* name_of(DType dtype) { return rows[static_cast<std::size_t>(dtype)].name; }

DType dtype_named(std::string_view name) {
  for (const Row& row : rows)
    if (name == row.name) return row.dtype;
  throw DTypeError(join_text("unknown element type \"", name, "\"; known: f32 f64 f16 bf16 i32 i64 u8 bool"));
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

void throw_unsupported(const char* op, DType found, const DType* allowed, std::size_t count) {
  TextStream out;
  out << op << ": element type " << found << " is not supported; convert to one of:";
  for (std::size_t i = 0; i < count; ++i) out << ' ' << allowed[i];
  throw DTypeError(out.str());
}

}  // namespace hearth
