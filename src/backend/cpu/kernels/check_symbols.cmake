# SPDX-License-Identifier: Apache-2.0
# cmake -DNM=nm -DOBJECTS=a.o,b.o -P check_symbols.cmake
#
# Fails if an object that was compiled with the flags of one instruction set defines anything but
# its kernel table. An inline function or template of external linkage would be a weak symbol
# there; the linker may keep that copy for the whole program, which then stops with an illegal
# instruction on a lesser processor.
string(REPLACE "," ";" objects "${OBJECTS}")
set(checked 0)
foreach(object IN LISTS objects)
  if(NOT object MATCHES "kernels_[a-z0-9]+\\.cpp")
    continue()
  endif()
  math(EXPR checked "${checked} + 1")
  execute_process(COMMAND ${NM} --defined-only --extern-only -C ${object}
                  OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "nm failed on ${object}")
  endif()
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  foreach(symbol IN LISTS symbols)
    if(NOT symbol MATCHES " [DRB] lemma::cpu::k[A-Za-z0-9]+Kernels$")
      message(FATAL_ERROR "${object} exports '${symbol}'")
    endif()
  endforeach()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no kernel object among: ${OBJECTS}")
endif()
message(STATUS "${checked} kernel objects export their tables alone")
