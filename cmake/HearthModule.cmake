# SPDX-License-Identifier: Apache-2.0
# hearth_module(NAME): an object library of all sources below NAME/. Includes are paths from the repository root; what a
# module may include is checked by scripts/layers.
set(HEARTH_MODULES "" CACHE INTERNAL "")

function(hearth_module name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  hearth_cuda_sources(${name} sources)
  if(name STREQUAL "core" AND HEARTH_CUDA_EMULATED)
    file(GLOB emulated CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/emulated_gpu/*.cpp)
    # The reference libraries of the tests call the emulated runtime in the program that loads them.
    set_source_files_properties(${emulated} PROPERTIES COMPILE_OPTIONS -fvisibility=default)
    if(HEARTH_EMULATE_CHECK)
      hearth_checker_properties(${emulated})
    endif()
    list(APPEND sources ${emulated})
  endif()
  set(HEARTH_MODULES ${HEARTH_MODULES} ${name} CACHE INTERNAL "")
  hearth_units(${name} sources)
  add_library(hearth_${name} OBJECT ${sources})
  if(HEARTH_SANITIZE_MODULES AND NOT name IN_LIST HEARTH_SANITIZE_MODULES)
    set_target_properties(hearth_${name} PROPERTIES HEARTH_NOT_SANITIZED ON)
  endif()
  if(name STREQUAL "train")
    set_target_properties(hearth_train PROPERTIES HEARTH_LEVEL -O1)
  endif()
  target_link_libraries(hearth_${name} PRIVATE hearth_settings hearth_hardened Threads::Threads OpenMP::OpenMP_CXX
    nlohmann_json::nlohmann_json Eigen3::Eigen hearth_cuda ${HEARTH_LIBRARIES})
endfunction()

# The library `hearth::hearth` of all modules, and the program `hearth`.
function(hearth_library)
  add_library(hearth)
  add_library(hearth::hearth ALIAS hearth)
  foreach(module ${HEARTH_MODULES})
    target_sources(hearth PRIVATE $<TARGET_OBJECTS:hearth_${module}>)
  endforeach()
  hearth_headers()
  target_include_directories(hearth PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(hearth PUBLIC cxx_std_20)
  target_link_libraries(hearth PRIVATE $<BUILD_INTERFACE:hearth_settings>
    PUBLIC Threads::Threads OpenMP::OpenMP_CXX
    PRIVATE $<BUILD_INTERFACE:hearth_cuda> ${HEARTH_LIBRARIES})
  set_target_properties(hearth PROPERTIES LINKER_LANGUAGE CXX)
  add_executable(hearth_cli train/cli/main.cpp)
  set_target_properties(hearth_cli PROPERTIES OUTPUT_NAME hearth)
  target_link_libraries(hearth_cli PRIVATE hearth hearth_settings hearth_hardened)
endfunction()
