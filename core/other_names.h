// SPDX-License-Identifier: Apache-2.0
// Names that other libraries have for what is written otherwise here: code that uses them does not compile, and the
// compiler prints what to write.
#pragma once

/// A member function of such a name.
#define HEARTH_OTHER_MEMBER(name, text)               \
  template <class... Arguments>                       \
  void name(const Arguments&...) const {              \
    static_assert(sizeof...(Arguments) > 1000, text); \
  }

/// A class of such a name.
#define HEARTH_OTHER_CLASS(name, text)                  \
  struct name {                                         \
    template <class... Arguments>                       \
    explicit name(const Arguments&...) {                \
      static_assert(sizeof...(Arguments) > 1000, text); \
    }                                                   \
  };
