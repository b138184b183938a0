# NVIDIA's toolkit, if it is installed: nvcc, cuDNN, cuBLASLt and NCCL. Without it everything else builds and
# passes.
set(TRAINYARD_CUDA AUTO CACHE STRING "The CUDA backend: AUTO (where nvcc, cuDNN and NCCL are found), ON or OFF")
set_property(CACHE TRAINYARD_CUDA PROPERTY STRINGS AUTO ON OFF)

set(TRAINYARD_HAS_CUDA FALSE)
set(_missing)
if(NOT TRAINYARD_CUDA STREQUAL "OFF")
  find_program(TRAINYARD_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(TRAINYARD_NVCC)
    cmake_path(GET TRAINYARD_NVCC PARENT_PATH _cuda_bin)
    cmake_path(GET _cuda_bin PARENT_PATH _cuda_root)
  endif()
  set(_roots HINTS ${_cuda_root} ENV CUDNN_ROOT ENV NCCL_ROOT PATH_SUFFIXES include lib lib64)
  find_path(CUDNN_INCLUDE_DIR cudnn.h ${_roots})
  find_library(CUDNN_LIBRARY cudnn ${_roots})
  find_path(NCCL_INCLUDE_DIR nccl.h ${_roots})
  find_library(NCCL_LIBRARY nccl ${_roots})
  find_library(CUBLASLT_LIBRARY cublasLt ${_roots})
  foreach(_part TRAINYARD_NVCC CUDNN_INCLUDE_DIR CUDNN_LIBRARY NCCL_INCLUDE_DIR NCCL_LIBRARY CUBLASLT_LIBRARY)
    if(NOT ${_part})
      list(APPEND _missing ${_part})
    endif()
  endforeach()
  if(NOT _missing)
    set(TRAINYARD_HAS_CUDA TRUE)
  elseif(TRAINYARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRAINYARD_CUDA is ON, but these were not found: ${_missing}")
  endif()
endif()

if(NOT TRAINYARD_HAS_CUDA)
  message(STATUS "CUDA backend: not built (${TRAINYARD_CUDA}; not found: ${_missing})")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${TRAINYARD_NVCC})
endif()
# The kernels are compiled for Hopper and its successors. The preset `cuda`, which ships for GPUs, adds
# Ampere: each further architecture compiles every kernel once more.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA backend: built with CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
# CMake before 3.26 does not know that nvcc speaks C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# This has only declarations, against which the backend's host code is compiled. Programs choose
# what stands behind them: ty_cuda, or in tests ty_cuda_on_cpu.
add_library(ty_cuda_headers INTERFACE)
target_include_directories(ty_cuda_headers SYSTEM INTERFACE
  ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR} ${NCCL_INCLUDE_DIR})

# The libraries themselves. The runtime is linked statically; the others are opened when a program starts.
add_library(ty_cuda INTERFACE)
target_link_libraries(ty_cuda INTERFACE
  ty_cuda_headers ${CUDNN_LIBRARY} ${CUBLASLT_LIBRARY} ${NCCL_LIBRARY} CUDA::cudart_static)

# ty_kernels(ty_engine_cuda_kernels SRCS norm.cu norm.h): kernels compiled by nvcc, and as NAME_on_cpu by the C++ compiler, for
# the tests' emulation of a device.
function(ty_kernels NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  set(compiled ${ARG_SRCS})
  list(FILTER compiled INCLUDE REGEX "\\.cu$")
  add_library(${NAME} STATIC ${ARG_SRCS})
  target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PUBLIC ty_cuda_headers ${ARG_DEPS})
  target_compile_options(${NAME} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-O3 -lineinfo --expt-relaxed-constexpr -Werror=all-warnings -Xcompiler=-Wall,-Wextra>)
  set_target_properties(${NAME} PROPERTIES POSITION_INDEPENDENT_CODE ON)

  if(NOT TRAINYARD_BUILD_TESTS)
    return()
  endif()
  # A source file has one language in a folder: so the emulation compiles a file that includes it.
  set(wrapped)
  foreach(source ${compiled})
    set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/${source}.on_cpu.cc)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"\n")
    list(APPEND wrapped ${wrapper})
  endforeach()
  add_library(${NAME}_on_cpu STATIC ${wrapped})
  # nvcc compiles each kernel's file by itself, so the same names may occur in several files.
  set_target_properties(${NAME}_on_cpu PROPERTIES UNITY_BUILD OFF)
  target_include_directories(${NAME}_on_cpu PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME}_on_cpu PUBLIC ty_cuda_headers ty_cub_on_cpu ty_cuda_on_cpu ${ARG_DEPS})
  target_compile_options(${NAME}_on_cpu PRIVATE
    -include ${PROJECT_SOURCE_DIR}/tests/testing/cuda_on_cpu/device.h -Wno-unknown-pragmas)
endfunction()

# ty_cuda_without_driver: the libraries, and a driver that knows no device in place of the machine's: cuDNN then makes all
# its plans for a device that is described to it. A program that links it never finds a GPU.
add_custom_command(
  OUTPUT ${PROJECT_BINARY_DIR}/generated/driver_stub.c
  COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLIBRARY=${CUDA_cuda_driver_LIBRARY}
          -DOUTPUT=${PROJECT_BINARY_DIR}/generated/driver_stub.c -P ${PROJECT_SOURCE_DIR}/cmake/WriteDriverStub.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/cmake/WriteDriverStub.cmake ${CUDA_cuda_driver_LIBRARY}
  COMMENT "Writing a CUDA driver without devices" VERBATIM)
add_library(ty_driver_stub SHARED EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/generated/driver_stub.c)
# When a program starts, this library is loaded under the driver's own name, so cuDNN finds it when it opens
# the driver.
set_target_properties(ty_driver_stub PROPERTIES
  OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/driver_stub)
add_library(ty_cuda_without_driver INTERFACE)
target_link_libraries(ty_cuda_without_driver INTERFACE
  ty_cuda -Wl,--push-state,--no-as-needed ty_driver_stub -Wl,--pop-state)
