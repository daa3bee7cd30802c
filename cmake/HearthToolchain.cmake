# SPDX-License-Identifier: Apache-2.0
# Language level, visibility, warnings, sanitizers, and the compiler cache and linker where they are present.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Hidden is what HEARTH_API does not mark. Tests in a program of their own beside a shared library need all of it.
set(CMAKE_CXX_VISIBILITY_PRESET hidden CACHE STRING "Symbols without HEARTH_API: hidden or default")
set(CMAKE_CUDA_VISIBILITY_PRESET ${CMAKE_CXX_VISIBILITY_PRESET})
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The cache refuses to compile at all where it cannot write, as in a home that is not there.
find_program(HEARTH_CCACHE ccache)
if(HEARTH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(probe ${PROJECT_BINARY_DIR}/generated/probe)
  file(CONFIGURE OUTPUT ${probe}.cpp CONTENT "int probe;\n")
  execute_process(COMMAND ${HEARTH_CCACHE} ${CMAKE_CXX_COMPILER} -c ${probe}.cpp -o ${probe}.o
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE said ERROR_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(STATUS "Hearth: compiling without ccache: ${said}")
  else()
    # By the list of headers that the compiler writes: a file that is not found is not preprocessed on top. What comes
    # behind a precompiled header is kept too.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${HEARTH_CCACHE})
  endif()
endif()
# A linker that is installed need not be one that this compiler can call.
find_program(HEARTH_MOLD mold)
find_program(HEARTH_LLD ld.lld)
include(CheckLinkerFlag)
if(HEARTH_MOLD)
  check_linker_flag(CXX -fuse-ld=mold HEARTH_LINKS_WITH_MOLD)
elseif(HEARTH_LLD)
  check_linker_flag(CXX -fuse-ld=lld HEARTH_LINKS_WITH_LLD)
endif()

# Levels of optimization are chosen for each target and source where the user has not chosen any: -O2, and what
# HEARTH_LEVEL says for targets that are made from here on.
set(HEARTH_CHOOSES_LEVELS OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(HEARTH_CHOOSES_LEVELS ON)
endif()
define_property(TARGET PROPERTY HEARTH_LEVEL INITIALIZE_FROM_VARIABLE HEARTH_LEVEL)

# Private compile settings of every target of this project; never exported.
add_library(hearth_settings INTERFACE)
# Includes are paths from the root; what CMake found is in a header beside.
target_include_directories(hearth_settings INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(hearth_settings INTERFACE HEARTH_CONFIGURED)
target_compile_options(hearth_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wno-unknown-pragmas>
  # The compiler collects garbage from 500 MB on, not from 30: units take a tenth less time, and up to 750 MB.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-expand=200 --param ggc-min-heapsize=500000>
  # g++ 12 warns of overlaps inside std::string that cannot happen (GCC bug 105651).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  # clang may leave an `omp simd` loop as it is, and takes what std::stable_sort of libstdc++ 12 calls for a call of ours.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-pass-failed;-Wno-deprecated-declarations>
  # -O3 doubles the time to compile kernels (docs/decisions/0032). What computes little itself has a level of its own.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${HEARTH_CHOOSES_LEVELS}>>:$<IF:$<BOOL:$<TARGET_PROPERTY:HEARTH_LEVEL>>,$<TARGET_PROPERTY:HEARTH_LEVEL>,-O2>>
  # Vector code needs both: errno and floating-point traps are never looked at.
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>)
if(HEARTH_WERROR)
  target_compile_options(hearth_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
# What turns a fault of memory into an end instead of a way in (SECURITY.md). A user's own level of fortification stays.
include(CheckCXXSourceCompiles)
set(hardening -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND hardening -fcf-protection)
endif()
if(HEARTH_CHOOSES_LEVELS AND NOT CMAKE_CXX_FLAGS MATCHES "_FORTIFY_SOURCE")
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("#include <string>\nstatic_assert(__USE_FORTIFY_LEVEL == 3);\nint main() {}"
    HEARTH_FORTIFIES_3)
  unset(CMAKE_REQUIRED_FLAGS)
  list(APPEND hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$<IF:$<BOOL:${HEARTH_FORTIFIES_3}>,3,2>)
endif()
# Modules that are not sanitized compile as in a Release build, and so come from the compiler cache.
set(hardened "$<COMPILE_LANGUAGE:CXX>")
if(HEARTH_SANITIZE)
  set(hardened "$<AND:${hardened},$<BOOL:$<TARGET_PROPERTY:HEARTH_NOT_SANITIZED>>>")
endif()
# Of what is shipped; tests compile sooner without.
add_library(hearth_hardened INTERFACE)
target_compile_options(hearth_hardened INTERFACE "$<${hardened}:${hardening}>")
target_link_options(hearth_settings INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
if(HEARTH_SANITIZE)
  set(level -O1)
  if(HEARTH_SANITIZE_MODULES)
    set(level -O0)
  endif()
  set(options -fsanitize=${HEARTH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1 ${level} -UNDEBUG
    -Wno-error)
  target_compile_options(hearth_settings INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:HEARTH_NOT_SANITIZED>>>:${options}>")
  target_link_options(hearth_settings INTERFACE -fsanitize=${HEARTH_SANITIZE})
endif()
if(HEARTH_LINKS_WITH_MOLD)
  target_link_options(hearth_settings INTERFACE -fuse-ld=mold)
elseif(HEARTH_LINKS_WITH_LLD)
  target_link_options(hearth_settings INTERFACE -fuse-ld=lld)
endif()
