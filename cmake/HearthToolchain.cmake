# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, and the compiler cache and linker where they are present.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET default)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

find_program(HEARTH_CCACHE ccache)
if(HEARTH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEARTH_CCACHE})
endif()
find_program(HEARTH_MOLD mold)
find_program(HEARTH_LLD ld.lld)

# Private compile settings of every target of this project; never exported.
add_library(hearth_settings INTERFACE)
target_compile_options(hearth_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wno-unknown-pragmas>
  # g++ 12 warns of overlaps inside std::string that cannot happen (GCC bug 105651).
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
  # Vector code needs both: errno and floating-point traps are never looked at.
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>)
if(HEARTH_WERROR)
  target_compile_options(hearth_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(HEARTH_SANITIZE)
  target_compile_options(hearth_settings INTERFACE -fsanitize=${HEARTH_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1)
  target_link_options(hearth_settings INTERFACE -fsanitize=${HEARTH_SANITIZE})
endif()
if(HEARTH_MOLD)
  target_link_options(hearth_settings INTERFACE -fuse-ld=mold)
elseif(HEARTH_LLD)
  target_link_options(hearth_settings INTERFACE -fuse-ld=lld)
endif()
