# SPDX-License-Identifier: Apache-2.0
# Installation: the public headers, the library, the program, what a reader and a shell need, and
# packages for find_package(hearth) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_BINARY_DIR}/include/hearth DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Minor versions of 0.x break programs that were linked with another. The program finds a shared library beside its own
# folder, wherever both were put.
file(RELATIVE_PATH library_folder ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(hearth PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
install(TARGETS hearth EXPORT hearthTargets)
if(TARGET hearth_cli)
  set_target_properties(hearth_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${library_folder}")
  install(TARGETS hearth_cli)
endif()
get_target_property(library_type hearth TYPE)
install(EXPORT hearthTargets NAMESPACE hearth:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hearthConfig.cmake.in
  ${PROJECT_BINARY_DIR}/hearthConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hearthConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hearthConfig.cmake ${PROJECT_BINARY_DIR}/hearthConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/Finddnnl.cmake ${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindUtf8proc.cmake ${CMAKE_CURRENT_LIST_DIR}/FindWebP.cmake
  ${CMAKE_CURRENT_LIST_DIR}/HearthFind.cmake ${CMAKE_CURRENT_LIST_DIR}/HearthKernels.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)

# hearth.pc. Who links a static library names what it was built with; a shared one knows that itself.
set(pc_libraries "${OpenMP_CXX_FLAGS} -lpthread${HEARTH_LINK_FLAGS}")
if(HEARTH_HAS_CUDA)
  string(APPEND pc_libraries " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
if(library_type STREQUAL "SHARED_LIBRARY")
  set(pc_public "")
  set(pc_private " ${pc_libraries}")
else()
  set(pc_public " ${pc_libraries}")
  set(pc_private "")
endif()
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
configure_file(${CMAKE_CURRENT_LIST_DIR}/hearth.pc.in ${PROJECT_BINARY_DIR}/hearth.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hearth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Licences, pages, example configurations.
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The name by which Debian's tools look for the licence.
install(FILES NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The public interface by header, where there is what writes it. It is installed where it was built.
find_package(Python3 QUIET COMPONENTS Interpreter)
find_program(HEARTH_DOXYGEN doxygen)
mark_as_advanced(HEARTH_DOXYGEN)
if(Python3_Interpreter_FOUND AND HEARTH_DOXYGEN)
  set(page ${PROJECT_BINARY_DIR}/generated/share/api.md)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/share)
  # The stamp is newer than each public header.
  add_custom_command(OUTPUT ${page} DEPENDS ${PROJECT_BINARY_DIR}/generated/headers.stamp
      ${PROJECT_SOURCE_DIR}/scripts/api_docs VERBATIM
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/api_docs ${page} COMMENT "Writing api.md")
  add_custom_target(hearth_api_page ALL DEPENDS ${page})
  add_dependencies(hearth_api_page hearth_headers)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs OPTIONAL)
else()
  add_custom_target(hearth_api_page)
endif()
install(DIRECTORY examples/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/hearth)

# Written by the program itself, from its table of commands and its configuration, so that they cannot differ from it.
if(TARGET hearth_cli AND NOT CMAKE_CROSSCOMPILING)
  set(generated ${PROJECT_BINARY_DIR}/generated/share)
  file(MAKE_DIRECTORY ${generated})
  set(outputs "")
  # hearth_generate(FILE ARGUMENTS...): FILE is what `hearth ARGUMENTS` prints.
  function(hearth_generate file)
    add_custom_command(OUTPUT ${generated}/${file} DEPENDS hearth_cli VERBATIM
      COMMAND hearth_cli ${ARGN} > ${generated}/${file} COMMENT "Writing ${file}")
    set(outputs ${outputs} ${generated}/${file} PARENT_SCOPE)
  endfunction()
  hearth_generate(hearth.schema.json schema)
  hearth_generate(hearth.1 manual)
  hearth_generate(hearth completion bash)
  hearth_generate(_hearth completion zsh)
  hearth_generate(hearth.fish completion fish)
  add_custom_target(hearth_share ALL DEPENDS ${outputs})
  install(FILES ${generated}/hearth.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/hearth)
  install(FILES ${generated}/hearth.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${generated}/hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  # zsh itself looks in the first, Debian's in the second for packages.
  install(FILES ${generated}/_hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${generated}/_hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${generated}/hearth.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/HearthPackage.cmake)
