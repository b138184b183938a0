# Third-party libraries. All are Debian 12 packages, listed in scripts/install_deps.sh.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)           # module mode: the config of 3.21 is not packaged
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(Boost 1.81 REQUIRED)        # headers alone: Asio and Beast
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)               # libjpeg-turbo
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(pugixml REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
find_package(OpenMP REQUIRED COMPONENTS CXX)  # the runtime of Debian's oneDNN
# Without the config file of dnnl, which asks for OpenCL.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(GLOO_LIBRARY gloo REQUIRED)
find_path(GLOO_INCLUDE_DIR gloo/allreduce.h REQUIRED)
find_package(LibArchive REQUIRED)
find_library(GIT2_LIBRARY git2 REQUIRED)
find_path(GIT2_INCLUDE_DIR git2.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
# This library reads the stacks of ranks that are stuck. Without it they are reported without their stacks.
find_library(DW_LIBRARY dw)
find_path(DW_INCLUDE_DIR elfutils/libdwfl.h)

add_library(ty_dnnl INTERFACE)
target_include_directories(ty_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(ty_dnnl INTERFACE ${DNNL_LIBRARY} OpenMP::OpenMP_CXX)

add_library(ty_gloo INTERFACE)
target_include_directories(ty_gloo SYSTEM INTERFACE ${GLOO_INCLUDE_DIR})
target_link_libraries(ty_gloo INTERFACE ${GLOO_LIBRARY} Threads::Threads)

# spdlog is used from its headers, for the one file that logs, so that programs without shared libraries log
# too.
add_library(ty_spdlog INTERFACE)
target_compile_definitions(ty_spdlog INTERFACE FMT_HEADER_ONLY)
target_link_libraries(ty_spdlog INTERFACE spdlog::spdlog_header_only)

add_library(ty_zstd INTERFACE)
target_include_directories(ty_zstd SYSTEM INTERFACE ${ZSTD_INCLUDE_DIR})
target_link_libraries(ty_zstd INTERFACE ${ZSTD_LIBRARY})

add_library(ty_git2 INTERFACE)
target_include_directories(ty_git2 SYSTEM INTERFACE ${GIT2_INCLUDE_DIR})
target_link_libraries(ty_git2 INTERFACE ${GIT2_LIBRARY})

add_library(ty_xxhash INTERFACE)
target_include_directories(ty_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_link_libraries(ty_xxhash INTERFACE ${XXHASH_LIBRARY})

if(TRAINYARD_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
