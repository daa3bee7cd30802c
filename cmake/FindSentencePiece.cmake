# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/HearthFind.cmake)
hearth_find(SentencePiece SentencePiece::sentencepiece sentencepiece_processor.h sentencepiece)
