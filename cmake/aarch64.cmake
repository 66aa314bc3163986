# SPDX-License-Identifier: Apache-2.0
# Toolchain for AArch64 Linux, for the NEON kernels and their tests under qemu-user on another
# machine. Programs are linked statically, so that they run without an AArch64 system beside them.
# Third-party headers come from cmake/aarch64/Find*.cmake: the packages' own CMake files would offer
# this machine's libraries.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# At -O3 the vectorizer of g++ 12 for AArch64 fails on the block formats (internal compiler error in
# vect_transform_reduction).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# "max" has every extension that qemu knows, dot product and FP16 arithmetic among them.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-cpu;max)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/aarch64)
