# SPDX-License-Identifier: Apache-2.0
# fmt without its library: the headers alone, through a folder that holds nothing else, because
# /usr/include as a whole belongs to this machine's C library.
set(staged ${CMAKE_BINARY_DIR}/staged_include)
file(MAKE_DIRECTORY ${staged})
if(EXISTS /usr/include/fmt/format.h)
  file(CREATE_LINK /usr/include/fmt ${staged}/fmt SYMBOLIC)
  set(fmt_FOUND TRUE)
  if(NOT TARGET fmt::fmt)
    add_library(fmt::fmt INTERFACE IMPORTED)
    target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
    target_include_directories(fmt::fmt INTERFACE ${staged})
  endif()
else()
  set(fmt_FOUND FALSE)
endif()
