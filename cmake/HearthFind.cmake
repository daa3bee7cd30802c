# SPDX-License-Identifier: Apache-2.0
# hearth_find(PACKAGE TARGET HEADER LIBRARY [REQUIRED_VARIABLE...] [OPTION...]): for the find module of a library that
# comes without a package file. Finds it by its header and its library, as the imported target TARGET. Options are those
# of find_package_handle_standard_args.
include(FindPackageHandleStandardArgs)

macro(hearth_find package target header library)
  string(TOUPPER ${package} prefix)
  find_path(${prefix}_INCLUDE_DIR ${header})
  find_library(${prefix}_LIBRARY ${library})
  mark_as_advanced(${prefix}_INCLUDE_DIR ${prefix}_LIBRARY)
  find_package_handle_standard_args(${package} REQUIRED_VARS ${prefix}_LIBRARY ${prefix}_INCLUDE_DIR ${ARGN})
  if(${package}_FOUND AND NOT TARGET ${target})
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${prefix}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${${prefix}_INCLUDE_DIR})
  endif()
endmacro()
