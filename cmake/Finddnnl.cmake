# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN by its header and its library, as the target DNNL::dnnl. The library's own package file is passed by:
# where oneDNN was built with a GPU runtime, as Debian's is, that file ends the configuration unless the development
# files of OpenCL are there, which Hearth does not use.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)

set(dnnl_threads "")
if(DNNL_INCLUDE_DIR)
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h dnnl_threads
    REGEX "^#define DNNL_CPU_THREADING_RUNTIME +DNNL_RUNTIME_OMP")
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version
    REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]+" "" dnnl_version "${dnnl_version}")
  string(REPLACE ";" "." dnnl_VERSION "${dnnl_version}")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/HearthFind.cmake)
hearth_find(dnnl DNNL::dnnl oneapi/dnnl/dnnl.hpp dnnl dnnl_threads VERSION_VAR dnnl_VERSION
  REASON_FAILURE_MESSAGE "oneDNN serves only where it runs its threads with OpenMP, as Hearth does.")
