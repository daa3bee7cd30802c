# SPDX-License-Identifier: Apache-2.0
# Finds libwebp by its header and its library, as the target WebP::webp; distributions' packages have no package file.
find_path(WEBP_INCLUDE_DIR webp/decode.h)
find_library(WEBP_LIBRARY webp)
mark_as_advanced(WEBP_INCLUDE_DIR WEBP_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(WebP REQUIRED_VARS WEBP_LIBRARY WEBP_INCLUDE_DIR)
if(WebP_FOUND AND NOT TARGET WebP::webp)
  add_library(WebP::webp UNKNOWN IMPORTED)
  set_target_properties(WebP::webp PROPERTIES IMPORTED_LOCATION ${WEBP_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${WEBP_INCLUDE_DIR})
endif()
