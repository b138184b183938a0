# Language level, warnings, sanitizers, compiler cache.
option(TRAINYARD_BUILD_TESTS "Build the tests and the benchmarks" ON)
set(TRAINYARD_SANITIZE "" CACHE STRING "Sanitizers, as the -fsanitize= list; empty for none")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Dev or Release" FORCE)
endif()
# Dev keeps the incremental loop short and the stack readable.
set(CMAKE_CXX_FLAGS_DEV "-O1 -g1 -fno-omit-frame-pointer" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_DEV "-O1 -g1 -fno-omit-frame-pointer" CACHE STRING "" FORCE)
# Checks stay on in release: NDEBUG is never defined for our code (see common/base/check.h).
set(CMAKE_CXX_FLAGS_RELEASE "-O2" CACHE STRING "" FORCE)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

add_library(ty_warnings INTERFACE)
# GCC 12 sees overlapping copies in std::string (its bug 105651) and uninitialised members of inactive
# std::variant alternatives (its bug 105562) where there are none.
target_compile_options(ty_warnings INTERFACE -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(ty_warnings INTERFACE -Wshadow -Wconversion -Wno-restrict -Wno-maybe-uninitialized)
else()
  # Clang builds only the fuzz targets. Its -Wconversion also warns of changes of sign, and its -Wshadow of names that
  # sources have in common that are joined. A handler has the name of its call, which it hides.
  target_compile_options(ty_warnings INTERFACE
    -Wno-overloaded-virtual -Wno-missing-braces -Wno-missing-field-initializers -Wno-unused-lambda-capture)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class behind a pointer may hold types of its own file's anonymous namespace. GCC takes the file for a header, since
  # another one includes it.
  target_compile_options(ty_warnings INTERFACE -Wno-subobject-linkage)
endif()

# What tests check is optimized fully. Their own sources are half of all code, and compile in half the time without.
add_library(ty_test_optimization INTERFACE)
target_compile_options(ty_test_optimization INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O0>)
# Some libraries ask for it and others do not. A precompiled header suits only sources with the same choice.
target_compile_options(ty_test_optimization INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-pthread>)

# The compiler then collects its garbage less often, which saves a tenth of the time for a few hundred megabytes.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()

if(TRAINYARD_SANITIZE)
  add_compile_options(-fsanitize=${TRAINYARD_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TRAINYARD_SANITIZE})
endif()

# gold, which belongs to GNU binutils, links in a third of the time.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold TRAINYARD_HAS_GOLD)
if(TRAINYARD_HAS_GOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=gold>)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache must be told that it may answer for sources with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Binaries report this as their version: the release, and the commit if git is available.
set(TRAINYARD_VERSION_STRING "${PROJECT_VERSION}")
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE _commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _rc)
if(_rc EQUAL 0)
  string(APPEND TRAINYARD_VERSION_STRING "+${_commit}")
endif()
