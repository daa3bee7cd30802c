# SPDX-License-Identifier: Apache-2.0
# Installation: headers as they are included in the tree, the library, the program, and a package for
# find_package(hearth).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(module ${HEARTH_MODULES})
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${module}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hearth/${module}
    FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/hearth.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hearth)
install(FILES ${CMAKE_BINARY_DIR}/generated/hearth/core/build.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hearth/core)

install(TARGETS hearth EXPORT hearthTargets)
if(TARGET hearth_cli)
  install(TARGETS hearth_cli)
endif()
install(EXPORT hearthTargets NAMESPACE hearth:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hearthConfig.cmake.in
  ${CMAKE_BINARY_DIR}/hearthConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/hearthConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/hearthConfig.cmake ${CMAKE_BINARY_DIR}/hearthConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/Finddnnl.cmake ${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake
  ${CMAKE_CURRENT_LIST_DIR}/HearthKernels.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
