# SPDX-License-Identifier: Apache-2.0
# xxhash without its library: the header alone, staged as fmt's are (Findfmt.cmake).
set(staged ${CMAKE_BINARY_DIR}/staged_include)
file(MAKE_DIRECTORY ${staged})
if(EXISTS /usr/include/xxhash.h)
  file(CREATE_LINK /usr/include/xxhash.h ${staged}/xxhash.h SYMBOLIC)
  set(xxhash_FOUND TRUE)
  if(NOT TARGET xxhash::xxhash)
    add_library(xxhash::xxhash INTERFACE IMPORTED)
    target_include_directories(xxhash::xxhash INTERFACE ${staged})
  endif()
else()
  set(xxhash_FOUND FALSE)
endif()
