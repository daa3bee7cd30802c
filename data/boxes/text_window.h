// SPDX-License-Identifier: Apache-2.0
// A long text, read byte by byte through a window, so that no more of it than that is in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/source.h"

namespace hearth::data {

class TextWindow {
 public:
  explicit TextWindow(const SourceFile& file) : file_(file) {}
  TextWindow(const TextWindow&) = delete;
  TextWindow& operator=(const TextWindow&) = delete;

  bool at_end() { return at_ == end_ && !read_more(); }
  /// The next byte; not at the end.
  const char& byte() const { return *at_; }
  void advance() { ++at_; }
  /// The next byte and the end of those at hand. Moving the first moves the window.
  const char*& at() { return at_; }
  const char* end() const { return end_; }
  /// Puts a text before what is next. Once at a time: not before all of the text was read.
  void put_before(std::string_view text) {
    behind_ = at_, behind_end_ = end_;
    at_ = text.data(), end_ = text.data() + text.size();
  }
  /// The line of the next byte, from 1, and its position in the line, from 1.
  struct Position {
    std::int64_t line, byte;
  };
  Position position() const {
    Position position = at_begin_;
    const char* const here = behind_ != nullptr ? behind_ : at_;
    count(std::string_view(buffer_.data(), static_cast<std::size_t>(here - buffer_.data())), position);
    return position;
  }

 private:
  static void count(std::string_view text, Position& position) {
    for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n')) {
      ++position.line, position.byte = 1;
      text.remove_prefix(at + 1);
    }
    position.byte += static_cast<std::int64_t>(text.size());
  }
  [[gnu::noinline]] bool read_more() {
    if (behind_ != nullptr) {
      at_ = behind_, end_ = behind_end_;
      behind_ = nullptr;
      if (at_ != end_) return true;
    }
    count(std::string_view(buffer_.data(), buffer_.size()), at_begin_);
    constexpr std::uint64_t usual = std::uint64_t{1} << 20;
    buffer_.resize(static_cast<std::size_t>(std::min(usual, file_.size() - offset_)));
    file_.read(offset_, std::as_writable_bytes(std::span(buffer_)));
    offset_ += buffer_.size();
    at_ = buffer_.data(), end_ = at_ + buffer_.size();
    return !buffer_.empty();
  }

  const SourceFile& file_;
  std::vector<char> buffer_;
  std::uint64_t offset_ = 0;  // behind the buffer
  Position at_begin_{1, 1};   // of the buffer
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  const char* behind_ = nullptr;  // where it goes on after a text that was put before
  const char* behind_end_ = nullptr;
};

/// The bytes of a window for a parser that takes iterators. All copies move with the window.
struct WindowIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TextWindow* window = nullptr;  ///< null: the end

  reference operator*() const { return window->byte(); }
  WindowIterator& operator++() {
    window->advance();
    return *this;
  }
  bool operator==(const WindowIterator&) const { return window == nullptr || window->at_end(); }
  bool operator!=(const WindowIterator& other) const { return !(*this == other); }
};

}  // namespace hearth::data
