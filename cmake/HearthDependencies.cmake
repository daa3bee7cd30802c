# SPDX-License-Identifier: Apache-2.0
# Everything is found, nothing is downloaded. Optional libraries report their absence and what replaces them.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)

# What libhearth is linked with: packages, their targets, and their libraries for pkg-config.
set(HEARTH_PACKAGES "")
set(HEARTH_LIBRARIES "")
set(HEARTH_LINK_FLAGS "")
macro(hearth_links package target library)
  list(APPEND HEARTH_PACKAGES ${package})
  list(APPEND HEARTH_LIBRARIES ${target})
  string(APPEND HEARTH_LINK_FLAGS " -l${library}")
endmacro()

find_package(Utf8proc REQUIRED)
hearth_links(Utf8proc Utf8proc::utf8proc utf8proc)

macro(hearth_optional variable package target library without)
  find_package(${package} QUIET)
  if(TARGET ${target})
    set(${variable} 1)
    hearth_links(${package} ${target} ${library})
    message(STATUS "Hearth: ${package} found")
  else()
    set(${variable} 0)
    message(STATUS "Hearth: ${package} absent: ${without}")
  endif()
endmacro()

hearth_optional(HEARTH_HAS_DNNL dnnl DNNL::dnnl dnnl
  "convolution and matmul use the portable kernels (slower; bf16 and f16 much slower)")
hearth_optional(HEARTH_HAS_JPEG JPEG JPEG::JPEG jpeg "JPEG files cannot be read")
hearth_optional(HEARTH_HAS_PNG PNG PNG::PNG png "PNG files cannot be read")
hearth_optional(HEARTH_HAS_WEBP WebP WebP::webp webp "WebP files cannot be read")
hearth_optional(HEARTH_HAS_ZLIB ZLIB ZLIB::ZLIB z "gzip-compressed data sets cannot be read")
hearth_optional(HEARTH_HAS_EXPAT EXPAT EXPAT::EXPAT expat "labels in XML (Pascal VOC) cannot be read")
hearth_optional(HEARTH_HAS_SENTENCEPIECE SentencePiece SentencePiece::sentencepiece sentencepiece
  "SentencePiece models cannot be read")

configure_file(${CMAKE_CURRENT_LIST_DIR}/hearth_build.h.in ${PROJECT_BINARY_DIR}/generated/hearth_build.h)
