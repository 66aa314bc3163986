# SPDX-License-Identifier: Apache-2.0
# Test programs and their ctest entries, and what LEMMA_QUICK_BUILD changes: common headers are
# compiled once for all files, eight files of a target are compiled as one (so that what their headers
# instantiate is made once for all), and test programs are optimised less. No result depends on it.
# Files that go by local names which others of their target use too are compiled alone: lemma_alone.

if(LEMMA_QUICK_BUILD)
  set(common <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory>
             <mutex> <optional> <span> <string> <string_view> <unordered_map> <utility> <variant>
             <vector> <fmt/format.h>)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/common_headers.cpp CONTENT "int main() {}\n")
  # Libraries are position-independent code, programs position-independent executables: what is
  # compiled for the one cannot be used in the other.
  add_library(lemma_common_headers OBJECT ${CMAKE_BINARY_DIR}/common_headers.cpp)
  target_precompile_headers(lemma_common_headers PRIVATE ${common})
  target_link_libraries(lemma_common_headers PRIVATE fmt::fmt lemma_warnings)
  if(LEMMA_BUILD_TESTS)
    add_executable(lemma_common_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/common_headers.cpp)
    target_precompile_headers(lemma_common_test_headers PRIVATE ${common} <gtest/gtest.h>)
    target_compile_options(lemma_common_test_headers PRIVATE -O1)
    target_link_libraries(lemma_common_test_headers PRIVATE fmt::fmt lemma_warnings GTest::gtest)
  endif()
endif()

# lemma_quick_library(TARGET): the library takes the common headers compiled beforehand.
function(lemma_quick_library target)
  if(LEMMA_QUICK_BUILD)
    target_precompile_headers(${target} REUSE_FROM lemma_common_headers)
  endif()
endfunction()

# lemma_batches(TARGET): what of its files lemma_alone does not name is compiled eight at a time.
function(lemma_batches target)
  if(LEMMA_QUICK_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# lemma_alone(SOURCES... MATCHING regex...): sources that match are compiled by themselves.
function(lemma_alone)
  cmake_parse_arguments(ARG "" "" "MATCHING" ${ARGN})
  foreach(pattern IN LISTS ARG_MATCHING)
    set(alone ${ARG_UNPARSED_ARGUMENTS})
    list(FILTER alone INCLUDE REGEX "${pattern}")
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# lemma_test_program(NAME SOURCES...): a GoogleTest program with the shared entry point.
function(lemma_test_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE lemma_warnings lemma_test_main)
  if(LEMMA_QUICK_BUILD)
    target_precompile_headers(${name} REUSE_FROM lemma_common_test_headers)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  lemma_batches(${name})
endfunction()

# lemma_add_test(NAME PROGRAM [SHARDS N] [ARGS argument...] [ENVIRONMENT NAME=VALUE...] [COST C])
# One ctest entry; under a sanitizer or an emulator, where tests are slow, one for each shard (NAME_1,
# NAME_2, ...: a share of the program's tests).
# GoogleTest names a report after its program, so an entry that is not the program's only one runs
# it through a link of its own name; then they can run at the same time. COST: what takes long
# should begin first.
function(lemma_add_test name program)
  cmake_parse_arguments(ARG "" "SHARDS;COST" "ARGS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_SHARDS OR NOT (LEMMA_SANITIZE OR CMAKE_CROSSCOMPILING))
    set(ARG_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(entry ${name})
    set(environment ${ARG_ENVIRONMENT})
    if(ARG_SHARDS GREATER 1)
      math(EXPR index "${shard} - 1")
      string(APPEND entry _${shard})
      list(APPEND environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    set(runs ${program})
    if(NOT "${entry}_test" STREQUAL program)
      set(link ${CMAKE_BINARY_DIR}/${entry}_test)
      add_custom_command(TARGET ${program} POST_BUILD
                         COMMAND ${CMAKE_COMMAND} -E create_symlink ${program} ${link})
      # An emulator is put before the names of targets only.
      set(runs ${CMAKE_CROSSCOMPILING_EMULATOR} ${link})
    endif()
    add_test(NAME ${entry} COMMAND ${runs} ${ARG_ARGS})
    if(environment)
      set_tests_properties(${entry} PROPERTIES ENVIRONMENT "${environment}")
    endif()
    if(ARG_COST)
      set_tests_properties(${entry} PROPERTIES COST ${ARG_COST})
    endif()
  endforeach()
endfunction()
