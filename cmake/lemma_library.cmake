# SPDX-License-Identifier: Apache-2.0
# lemma_library(NAME [DEPS target...] [TEST_DEPS target...] [EXCLUDE regex...] [ALONE regex...] [SHARDS n])
#
# Makes the static library lemma_NAME of the sources in the current folder and below, and the test
# program NAME_test of the *_test.cpp files beside them. Fuzz targets (*_fuzz.cpp) become libFuzzer
# programs when LEMMA_FUZZ is on, and replay programs (fuzz_NAME_STEM, run over tests/corpus/STEM)
# otherwise. SHARDS: see lemma_add_test, ALONE: lemma_alone. Folders that build themselves (kernels) are left to their own
# CMakeLists.txt.
include(${CMAKE_CURRENT_LIST_DIR}/lemma_test.cmake)
function(lemma_library name)
  cmake_parse_arguments(ARG "" "SHARDS" "DEPS;TEST_DEPS;EXCLUDE;ALONE" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(pattern IN LISTS ARG_EXCLUDE)
    list(FILTER all EXCLUDE REGEX "${pattern}")
  endforeach()
  lemma_alone(${all} MATCHING ${ARG_ALONE})
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")

  if(sources)
    add_library(lemma_${name} STATIC ${sources})
    target_include_directories(lemma_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(lemma_${name} PUBLIC ${ARG_DEPS} PRIVATE lemma_warnings)
    lemma_quick_library(lemma_${name})
    lemma_batches(lemma_${name})
  else()
    add_library(lemma_${name} INTERFACE)
    target_include_directories(lemma_${name} INTERFACE ${PROJECT_SOURCE_DIR}/include
                                                       ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(lemma_${name} INTERFACE ${ARG_DEPS})
  endif()

  if(LEMMA_BUILD_TESTS AND tests)
    lemma_test_program(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE lemma_${name} ${ARG_TEST_DEPS})
    lemma_add_test(${name} ${name}_test SHARDS ${ARG_SHARDS})
  endif()

  foreach(fuzzer IN LISTS fuzzers)
    get_filename_component(stem ${fuzzer} NAME_WE)
    if(LEMMA_FUZZ)
      add_executable(${stem} ${fuzzer})
      target_link_libraries(${stem} PRIVATE lemma_${name} lemma_warnings)
      target_compile_options(${stem} PRIVATE -fsanitize=fuzzer)
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    elseif(LEMMA_BUILD_TESTS)
      add_executable(${stem} ${fuzzer} ${PROJECT_SOURCE_DIR}/tests/fuzz_replay.cpp)
      target_link_libraries(${stem} PRIVATE lemma_${name} lemma_warnings)
      string(REGEX REPLACE "_fuzz$" "" corpus ${stem})
      add_test(NAME ${stem} COMMAND ${stem} ${PROJECT_SOURCE_DIR}/tests/corpus/${corpus})
    endif()
  endforeach()
endfunction()
