# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/HearthFind.cmake)
hearth_find(WebP WebP::webp webp/decode.h webp)
