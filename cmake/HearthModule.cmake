# SPDX-License-Identifier: Apache-2.0
# hearth_module(NAME USES OTHER...): an object library of all sources below NAME/, whose private include
# root holds links to itself and to the modules it may use. Including anything else does not compile.
set(HEARTH_MODULES "" CACHE INTERNAL "")

function(hearth_module name)
  cmake_parse_arguments(ARG "" "" "USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  hearth_cuda_sources(${name} sources)
  set(root ${CMAKE_BINARY_DIR}/include-roots/${name})
  file(MAKE_DIRECTORY ${root}/hearth)
  foreach(visible ${name} ${ARG_USES})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${visible} ${root}/hearth/${visible} SYMBOLIC)
  endforeach()
  set(HEARTH_MODULES ${HEARTH_MODULES} ${name} CACHE INTERNAL "")
  if(NOT sources)
    return()
  endif()
  add_library(hearth_${name} OBJECT ${sources})
  target_include_directories(hearth_${name} PRIVATE ${root} ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(hearth_${name} PRIVATE hearth_settings Threads::Threads OpenMP::OpenMP_CXX
    nlohmann_json::nlohmann_json Eigen3::Eigen hearth_cuda
    $<$<BOOL:${HEARTH_HAS_DNNL}>:DNNL::dnnl> $<$<BOOL:${HEARTH_HAS_JPEG}>:JPEG::JPEG>
    $<$<BOOL:${HEARTH_HAS_PNG}>:PNG::PNG> $<$<BOOL:${HEARTH_HAS_WEBP}>:WebP::webp> $<$<BOOL:${HEARTH_HAS_ZLIB}>:ZLIB::ZLIB>
    $<$<BOOL:${HEARTH_HAS_SENTENCEPIECE}>:SentencePiece::sentencepiece>)
endfunction()

# The library `hearth::hearth` of all modules, and the program `hearth`.
function(hearth_library)
  set(root ${CMAKE_BINARY_DIR}/include-roots/all)
  file(MAKE_DIRECTORY ${root}/hearth)
  add_library(hearth)
  add_library(hearth::hearth ALIAS hearth)
  foreach(module ${HEARTH_MODULES})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${module} ${root}/hearth/${module} SYMBOLIC)
    if(TARGET hearth_${module})
      target_sources(hearth PRIVATE $<TARGET_OBJECTS:hearth_${module}>)
    endif()
  endforeach()
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/hearth.h)
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/hearth.h ${root}/hearth/hearth.h SYMBOLIC)
  endif()
  target_include_directories(hearth PUBLIC $<BUILD_INTERFACE:${root}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
  target_compile_features(hearth PUBLIC cxx_std_20)
  target_link_libraries(hearth PRIVATE $<BUILD_INTERFACE:hearth_settings>
    PUBLIC Threads::Threads OpenMP::OpenMP_CXX
    PRIVATE $<BUILD_INTERFACE:hearth_cuda> $<$<BOOL:${HEARTH_HAS_DNNL}>:DNNL::dnnl> $<$<BOOL:${HEARTH_HAS_JPEG}>:JPEG::JPEG>
    $<$<BOOL:${HEARTH_HAS_PNG}>:PNG::PNG> $<$<BOOL:${HEARTH_HAS_WEBP}>:WebP::webp> $<$<BOOL:${HEARTH_HAS_ZLIB}>:ZLIB::ZLIB>
    $<$<BOOL:${HEARTH_HAS_SENTENCEPIECE}>:SentencePiece::sentencepiece>)
  set_target_properties(hearth PROPERTIES LINKER_LANGUAGE CXX)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/train/cli/main.cpp)
    add_executable(hearth_cli train/cli/main.cpp)
    set_target_properties(hearth_cli PROPERTIES OUTPUT_NAME hearth)
    target_link_libraries(hearth_cli PRIVATE hearth hearth_settings)
  endif()
endfunction()
