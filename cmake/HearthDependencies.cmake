# SPDX-License-Identifier: Apache-2.0
# Everything is found, nothing is downloaded. Optional libraries report their absence and what replaces them.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)

macro(hearth_optional variable package target without)
  find_package(${package} QUIET)
  if(TARGET ${target})
    set(${variable} 1)
    message(STATUS "Hearth: ${package} found")
  else()
    set(${variable} 0)
    message(STATUS "Hearth: ${package} absent: ${without}")
  endif()
endmacro()

hearth_optional(HEARTH_HAS_DNNL dnnl DNNL::dnnl "convolution and matmul use the portable kernels (slower; bf16 and f16 much slower)")
hearth_optional(HEARTH_HAS_JPEG JPEG JPEG::JPEG "JPEG files cannot be read")
hearth_optional(HEARTH_HAS_PNG PNG PNG::PNG "PNG files cannot be read")
hearth_optional(HEARTH_HAS_WEBP WebP WebP::webp "WebP files cannot be read")
hearth_optional(HEARTH_HAS_ZLIB ZLIB ZLIB::ZLIB "gzip-compressed data sets cannot be read")
hearth_optional(HEARTH_HAS_SENTENCEPIECE SentencePiece SentencePiece::sentencepiece "SentencePiece models cannot be read")

configure_file(${CMAKE_CURRENT_LIST_DIR}/hearth_build.h.in ${CMAKE_BINARY_DIR}/generated/hearth_build.h)
