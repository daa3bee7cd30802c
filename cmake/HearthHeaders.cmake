# SPDX-License-Identifier: Apache-2.0
# hearth_headers(): copies of the public headers for programs that use the library, in the build folder's include/hearth,
# with "core/tensor.h" written as "hearth/core/tensor.h". Public is what hearth_headers() names and what that includes;
# all other headers are internal, and so is what a public one has in `namespace kernels`: the copies leave it out, but for
# the name of a type.
# core/build.h is the one that CMake wrote.
cmake_policy(VERSION 3.25)

# The headers FIRST below SOURCE, and what they include of FOLDERS.
function(hearth_included source first folders result)
  string(REPLACE ";" "|" folders "${folders}")
  set(found ${first})
  set(next ${first})
  while(next)
    list(POP_FRONT next header)
    file(STRINGS ${source}/${header} lines REGEX "^#include \"(${folders})/")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
      if(NOT included IN_LIST found)
        list(APPEND found ${included})
        list(APPEND next ${included})
      endif()
    endforeach()
  endwhile()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Run as a script (cmake -P, with SOURCE, PUBLIC, OUTPUT, BUILD_HEADER, FOLDERS and STAMP set) this file writes the copies.
if(CMAKE_SCRIPT_MODE_FILE)
  hearth_included(${SOURCE} "${PUBLIC}" "${FOLDERS}" headers)
  string(REPLACE ";" "|" alternatives "${FOLDERS}")
  # A list would split lines at their semicolons and join others at their brackets: the text stays one string.
  foreach(header ${headers})
    if(header STREQUAL "core/build.h")
      file(READ ${BUILD_HEADER} text)
    else()
      file(READ ${SOURCE}/${header} text)
    endif()
    string(REGEX REPLACE "(#include \")((${alternatives})/)" "\\1hearth/\\2" text "${text}")
    # Written so that it is not taken for a beginning of what is left out.
    string(REGEX REPLACE "\nnamespace kernels {\n(struct [A-Za-z]+;)\n}\n" "\nnamespace kernels\n{ \\1 }\n" text "${text}")
    foreach(name kernels hearth::kernels)
      set(end "\n}  // namespace ${name}\n")
      string(LENGTH "${end}" end_length)
      string(FIND "${text}" "\nnamespace ${name} {" from)
      while(NOT from EQUAL -1)
        string(SUBSTRING "${text}" 0 ${from} before)
        string(SUBSTRING "${text}" ${from} -1 text)
        string(FIND "${text}" "${end}" to)
        math(EXPR to "${to} + ${end_length}")
        string(SUBSTRING "${text}" ${to} -1 text)
        string(APPEND before "${text}")
        set(text "${before}")
        string(FIND "${text}" "\nnamespace ${name} {" from)
      endwhile()
    endforeach()
    file(CONFIGURE OUTPUT ${OUTPUT}/hearth/${header} CONTENT "@text@" @ONLY)
  endforeach()
  # Those of headers that are gone.
  file(GLOB_RECURSE written RELATIVE ${OUTPUT}/hearth ${OUTPUT}/hearth/*)
  foreach(header ${written})
    if(NOT header IN_LIST headers)
      file(REMOVE ${OUTPUT}/hearth/${header})
      # An installation copies empty folders too.
      get_filename_component(folder ${OUTPUT}/hearth/${header} DIRECTORY)
      file(GLOB left ${folder}/*)
      if(NOT left)
        file(REMOVE_RECURSE ${folder})
      endif()
    endif()
  endforeach()
  file(TOUCH ${STAMP})
  return()
endif()

set(HEARTH_HEADERS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(hearth_headers)
  set(folders ${HEARTH_MODULES})
  # What all of the library is reached by, and what kernels of one's own are written with.
  set(public hearth.h core/cpu/parallel.h)
  if(HEARTH_HAS_CUDA)
    list(APPEND public core/cuda/elementwise.h)
  endif()
  # For kernels of one's own in tests; what is installed is built for a real device or for none.
  if(HEARTH_CUDA_EMULATED)
    list(APPEND folders tests/emulated_gpu)
  endif()
  set(sources ${CMAKE_CURRENT_SOURCE_DIR}/hearth.h)
  foreach(folder ${folders})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.h)
    list(APPEND sources ${found})
  endforeach()
  set(HEARTH_PUBLIC_HEADERS ${public} CACHE INTERNAL "")
  set(build_header ${PROJECT_BINARY_DIR}/generated/hearth_build.h)
  set(stamp ${PROJECT_BINARY_DIR}/generated/headers.stamp)
  # Named, so that what includes them is compiled again in the build that changes them.
  hearth_included(${CMAKE_CURRENT_SOURCE_DIR} "${public}" "${folders}" copies)
  list(TRANSFORM copies PREPEND ${PROJECT_BINARY_DIR}/include/hearth/)
  add_custom_command(OUTPUT ${stamp} BYPRODUCTS ${copies} DEPENDS ${sources} ${build_header} ${HEARTH_HEADERS_SCRIPT} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR} "-DPUBLIC=${public}" -DOUTPUT=${PROJECT_BINARY_DIR}/include
      -DBUILD_HEADER=${build_header} "-DFOLDERS=${folders}" -DSTAMP=${stamp} -P ${HEARTH_HEADERS_SCRIPT}
    COMMENT "Copying headers")
  add_custom_target(hearth_headers ALL DEPENDS ${stamp})
  add_dependencies(hearth hearth_headers)
endfunction()
