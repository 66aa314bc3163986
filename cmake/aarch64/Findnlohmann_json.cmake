# SPDX-License-Identifier: Apache-2.0
# nlohmann/json is headers only; see Findfmt.cmake for the folder.
set(staged ${CMAKE_BINARY_DIR}/staged_include)
file(MAKE_DIRECTORY ${staged})
if(EXISTS /usr/include/nlohmann/json.hpp)
  file(CREATE_LINK /usr/include/nlohmann ${staged}/nlohmann SYMBOLIC)
  set(nlohmann_json_FOUND TRUE)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
    target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${staged})
  endif()
else()
  set(nlohmann_json_FOUND FALSE)
endif()
