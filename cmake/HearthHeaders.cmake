# SPDX-License-Identifier: Apache-2.0
# hearth_headers(): copies of the headers for programs that use the library, in the build folder's include/hearth, with
# "core/tensor.h" written as "hearth/core/tensor.h". core/build.h is the one that CMake wrote.
# Run as a script (cmake -P, with SOURCE, OUTPUT, BUILD_HEADER, FOLDERS and STAMP set) the same file writes them.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_policy(VERSION 3.25)
  set(expected "")
  string(REPLACE ";" "|" alternatives "${FOLDERS}")
  # A list would split lines at their semicolons and join others at their brackets: the text stays one string.
  foreach(folder hearth.h ${FOLDERS})
    file(GLOB_RECURSE found RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.h ${SOURCE}/${folder}/*.cuh)
    if(folder STREQUAL "hearth.h")
      set(found hearth.h)
    endif()
    foreach(header ${found})
      if(header STREQUAL "core/build.h")
        file(READ ${BUILD_HEADER} text)
      else()
        file(READ ${SOURCE}/${header} text)
      endif()
      string(REGEX REPLACE "(#include \")((${alternatives})/)" "\\1hearth/\\2" text "${text}")
      file(CONFIGURE OUTPUT ${OUTPUT}/hearth/${header} CONTENT "@text@" @ONLY)
      list(APPEND expected ${header})
    endforeach()
  endforeach()
  # Those of headers that are gone.
  file(GLOB_RECURSE written RELATIVE ${OUTPUT}/hearth ${OUTPUT}/hearth/*)
  foreach(header ${written})
    if(NOT header IN_LIST expected)
      file(REMOVE ${OUTPUT}/hearth/${header})
    endif()
  endforeach()
  file(TOUCH ${STAMP})
  return()
endif()

set(HEARTH_HEADERS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(hearth_headers)
  set(folders ${HEARTH_MODULES})
  if(HEARTH_CUDA_EMULATED)
    list(APPEND folders tests/emulated_gpu)
  endif()
  set(sources ${CMAKE_CURRENT_SOURCE_DIR}/hearth.h)
  foreach(folder ${folders})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.h
      ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cuh)
    list(APPEND sources ${found})
  endforeach()
  set(build_header ${CMAKE_BINARY_DIR}/generated/hearth_build.h)
  set(stamp ${CMAKE_BINARY_DIR}/generated/headers.stamp)
  add_custom_command(OUTPUT ${stamp} DEPENDS ${sources} ${build_header} ${HEARTH_HEADERS_SCRIPT} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR} -DOUTPUT=${CMAKE_BINARY_DIR}/include
      -DBUILD_HEADER=${build_header} "-DFOLDERS=${folders}" -DSTAMP=${stamp} -P ${HEARTH_HEADERS_SCRIPT}
    COMMENT "Copying headers")
  add_custom_target(hearth_headers ALL DEPENDS ${stamp})
  add_dependencies(hearth hearth_headers)
endfunction()
