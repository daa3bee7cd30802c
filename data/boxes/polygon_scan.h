// SPDX-License-Identifier: Apache-2.0
// The form of a list of polygons in JSON, [[x, y, x, y, ...], ...], without the values: a state and a table.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace hearth::data {
namespace polygon_states {

enum State : std::uint8_t {
  first_polygon,
  next_polygon,
  after_polygon,
  first_number,
  next_number,
  sign,
  zero,
  digits,
  point,
  fraction,
  exponent,
  exponent_sign,
  exponent_digits,
  after_number,
  closed,  ///< a polygon ended
  done,
  fault,
};
using Table = std::array<std::array<std::uint8_t, 256>, closed>;

constexpr Table make_table() {
  Table table{};
  for (auto& row : table) row.fill(fault);
  const auto set = [&](std::initializer_list<State> from, std::string_view bytes, State to) {
    for (const State state : from)
      for (const char byte : bytes) table[state][static_cast<unsigned char>(byte)] = to;
  };
  constexpr std::string_view space = " \t\r\n", any = "0123456789";
  for (const State state : {first_polygon, next_polygon, after_polygon, first_number, next_number, after_number})
    set({state}, space, state);
  set({first_polygon, next_polygon}, "[", first_number);
  set({first_polygon, after_polygon}, "]", done);
  set({after_polygon}, ",", next_polygon);
  set({first_number, next_number}, "-", sign);
  set({first_number, next_number, sign}, "123456789", digits);
  set({first_number, next_number, sign}, "0", zero);
  set({digits}, any, digits);
  set({zero, digits}, ".", point);
  set({point, fraction}, any, fraction);
  set({zero, digits, fraction}, "eE", exponent);
  set({exponent}, "+-", exponent_sign);
  set({exponent, exponent_sign, exponent_digits}, any, exponent_digits);
  set({zero, digits, fraction, exponent_digits}, space, after_number);
  set({zero, digits, fraction, exponent_digits, after_number}, ",", next_number);
  set({first_number, zero, digits, fraction, exponent_digits, after_number}, "]", closed);
  return table;
}

}  // namespace polygon_states

class PolygonScan {
 public:
  enum class Event : std::uint8_t { none, polygon, end, fault };

  /// Takes bytes behind the first '['. Stops at the end, and behind what an event stands for, but before a fault.
  Event scan(const char*& at, const char* end) {
    using namespace polygon_states;
    std::uint8_t state = state_;
    std::int64_t commas = commas_;
    while (at != end) {
      const char byte = *at;
      const std::uint8_t next = table[state][static_cast<unsigned char>(byte)];
      if (next >= closed) {
        if (next == fault) return Event::fault;
        ++at;
        numbers_ = state == first_number ? 0 : commas + 1;
        state_ = next == done ? done : after_polygon, commas_ = 0;
        return next == done ? Event::end : Event::polygon;
      }
      commas += byte == ',' && next == next_number;
      state = next;
      ++at;
    }
    state_ = state, commas_ = commas;
    return Event::none;
  }
  /// Of the polygon that ended.
  std::int64_t numbers() const { return numbers_; }

 private:
  static constexpr polygon_states::Table table = polygon_states::make_table();

  std::uint8_t state_ = polygon_states::first_polygon;
  std::int64_t commas_ = 0;
  std::int64_t numbers_ = 0;
};

}  // namespace hearth::data
