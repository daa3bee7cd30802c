# SPDX-License-Identifier: Apache-2.0
# The CUDA backend. ON: kernel sources (.cu) go through nvcc. EMULATE: the same sources are compiled as C++ against
# tests/emulated_gpu, which needs the toolkit's headers and nothing else of it. OFF: they are left out.
include(${CMAKE_CURRENT_LIST_DIR}/HearthKernels.cmake)
set(HEARTH_HAS_CUDA 0)
set(HEARTH_CUDA_EMULATED 0)
# What sources of the CUDA backend compile and link with; empty without it.
add_library(hearth_cuda INTERFACE)

# The toolkit's headers, by the same path for nvcc and for the emulated GPU: host sources come from the compiler cache.
function(hearth_cuda_include)
  find_path(HEARTH_CUDA_INCLUDE cuda_runtime_api.h PATHS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include /usr/include
    ENV CUDA_HOME PATH_SUFFIXES include REQUIRED)
  get_filename_component(folder ${HEARTH_CUDA_INCLUDE} REALPATH)
  target_include_directories(hearth_cuda SYSTEM INTERFACE ${folder})
endfunction()

# In words, for messages.
set(HEARTH_CUDA_ARCHITECTURES "")

if(HEARTH_CUDA STREQUAL "OFF")
elseif(HEARTH_CUDA STREQUAL "EMULATE")
  set(HEARTH_HAS_CUDA 1)
  set(HEARTH_CUDA_EMULATED 1)
  set(HEARTH_CUDA_ARCHITECTURES sm_90)
  hearth_cuda_include()
  if(HEARTH_EMULATE_CHECK)
    if(HEARTH_SANITIZE)
      message(FATAL_ERROR "HEARTH_EMULATE_CHECK and HEARTH_SANITIZE exclude each other")
    endif()
    # The compiler comes with a library that knows source lines.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libbacktrace.a OUTPUT_VARIABLE backtrace
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(IS_ABSOLUTE "${backtrace}" AND EXISTS "${backtrace}")
      set(HEARTH_BACKTRACE ${backtrace})
      target_link_libraries(hearth_cuda INTERFACE ${backtrace})
    endif()
  endif()
elseif(HEARTH_CUDA STREQUAL "ON")
  set(HEARTH_HAS_CUDA 1)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures")
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^([0-9]+[af]?)(-real|-virtual)?$" "sm_\\1"
    OUTPUT_VARIABLE HEARTH_CUDA_ARCHITECTURES)
  list(REMOVE_DUPLICATES HEARTH_CUDA_ARCHITECTURES)
  list(JOIN HEARTH_CUDA_ARCHITECTURES ", " HEARTH_CUDA_ARCHITECTURES)
  enable_language(CUDA)
  # CMake before 3.25.2 does not know that this compiler takes C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit REQUIRED)
  # The runtime is linked statically: it finds the driver when the program runs, so the program also starts without one.
  hearth_cuda_include()
  target_link_libraries(hearth_cuda INTERFACE $<LINK_ONLY:CUDA::cudart_static>)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(HEARTH_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${HEARTH_CCACHE})
  endif()
else()
  message(FATAL_ERROR "HEARTH_CUDA=${HEARTH_CUDA}; use OFF, EMULATE or ON")
endif()

# Adds the kernel sources of a module, or of the tests of one, to the list, or takes its CUDA sources out, as the backend
# asks.
function(hearth_cuda_sources module list)
  set(sources ${${list}})
  if(NOT HEARTH_HAS_CUDA)
    # Of the path below the tree, which may lie in a folder of such a name itself.
    foreach(source ${sources})
      file(RELATIVE_PATH path ${CMAKE_CURRENT_SOURCE_DIR} ${source})
      if(path MATCHES "/(cuda|cudnn|cublaslt|nccl)/|_(cuda|cudnn|cublaslt)(_[a-z_]+)?\\.cpp$")
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
  else()
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${module}/*.cu)
    if(NOT HEARTH_CUDA_EMULATED)
      list(FILTER sources EXCLUDE REGEX "/cuda/emulated_gpu/")
      list(FILTER kernels EXCLUDE REGEX "/cuda/emulated_gpu/")
    endif()
    if(kernels)
      hearth_kernel_properties(${kernels})
    endif()
    list(APPEND sources ${kernels})
  endif()
  # The absence of the backend has its own sources: what exists in every build.
  set(${list} ${sources} PARENT_SCOPE)
endfunction()
