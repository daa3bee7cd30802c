# SPDX-License-Identifier: Apache-2.0
# `cpack --config build/release/CPackConfig.cmake` makes hearth_VERSION_ARCHITECTURE.deb of what is installed.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hearth)
set(CPACK_PACKAGE_VENDOR Hearth)
set(CPACK_PACKAGE_CONTACT "Hearth maintainers <maintainers@hearth.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "Hearth trains ResNet, Swin, GPT, BERT and translators from one JSON file, without Python.
This package has the program hearth, and the library and headers for programs that use it.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Of the shared libraries that the program loads; needs dpkg-shlibdeps.
find_program(HEARTH_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(HEARTH_SHLIBDEPS)
if(HEARTH_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
# For find_package(hearth), which looks for the libraries that a static libhearth was built with.
string(JOIN ", " CPACK_DEBIAN_PACKAGE_SUGGESTS g++ cmake libutf8proc-dev libdnnl-dev libjpeg-dev libpng-dev libwebp-dev
  zlib1g-dev libexpat1-dev libsentencepiece-dev)
include(CPack)
