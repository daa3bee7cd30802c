# SPDX-License-Identifier: Apache-2.0
# hearth_embed(MODULE FILE SYMBOL): makes the bytes of FILE part of the module, as
# `extern const unsigned char hearth_embedded_SYMBOL[]` and `extern const unsigned long hearth_embedded_SYMBOL_size`.
# Run as a script (cmake -P, with INPUT, OUTPUT and SYMBOL set) the same file writes the C++ source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE "${OUTPUT}" "extern const unsigned char hearth_embedded_${SYMBOL}[];\n"
    "extern const unsigned long hearth_embedded_${SYMBOL}_size;\n"
    "const unsigned char hearth_embedded_${SYMBOL}[] = {\n${bytes}};\n"
    "const unsigned long hearth_embedded_${SYMBOL}_size = ${size};\n")
  return()
endif()

set(HEARTH_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(hearth_embed module file symbol)
  set(input ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(output ${PROJECT_BINARY_DIR}/generated/embedded/${symbol}.cpp)
  add_custom_command(OUTPUT ${output} DEPENDS ${input} ${HEARTH_EMBED_SCRIPT} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DSYMBOL=${symbol} -P ${HEARTH_EMBED_SCRIPT}
    COMMENT "Embedding ${file}")
  target_sources(hearth_${module} PRIVATE ${output})
endfunction()
