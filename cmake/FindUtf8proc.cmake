# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/HearthFind.cmake)
hearth_find(Utf8proc Utf8proc::utf8proc utf8proc.h utf8proc)
