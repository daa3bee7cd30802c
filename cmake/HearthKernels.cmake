# SPDX-License-Identifier: Apache-2.0
# Kernel sources (.cu) of Hearth and of projects that use it, compiled as the library's HEARTH_CUDA asks: by nvcc (ON), by
# the host compiler for the emulated GPU (EMULATE), not at all (OFF).

# How these files are compiled.
function(hearth_kernel_properties)
  if(HEARTH_CUDA STREQUAL "EMULATE")
    # Kernels reinterpret memory, as CUDA allows. Their attributes mean nothing to the host compiler, which takes arrays
    # that a loop fills in part for uninitialised. -O1 compiles the largest in 40 % of the time.
    set(options -fno-strict-aliasing -Wno-attributes -Wno-maybe-uninitialized $<$<CONFIG:Release>:-O1>)
    if(HEARTH_EMULATE_CHECK)
      # -Wtsan: that sanitizer does not know fences.
      list(APPEND options -fsanitize=thread -g1 -Wno-tsan)
      hearth_checker_properties(${ARGN})
    endif()
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}")
  else()
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS
      "--expt-relaxed-constexpr;--extended-lambda;-Wno-deprecated-gpu-targets")
  endif()
endfunction()

# What knows of the race checker: kernels, and the engine. Other sources are those of a build without it, so that they come
# from the compiler cache.
function(hearth_checker_properties)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS HEARTH_EMULATE_CHECK=1
    $<$<BOOL:${HEARTH_BACKTRACE}>:HEARTH_HAS_BACKTRACE=1>)
endfunction()

# hearth_target_kernels(TARGET SOURCES...): adds kernel sources to a target that links hearth::hearth.
function(hearth_target_kernels target)
  if(HEARTH_CUDA STREQUAL "OFF")
    return()
  endif()
  hearth_kernel_properties(${ARGN})
  target_sources(${target} PRIVATE ${ARGN})
  target_include_directories(${target} SYSTEM PRIVATE ${HEARTH_CUDA_INCLUDE})
endfunction()
