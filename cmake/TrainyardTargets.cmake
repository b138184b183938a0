# ty_library, ty_binary, ty_static_binary, ty_test, ty_proto: the only ways in which this project makes targets.
include(GoogleTest)

# ty_library(NAME SRCS a.cc b.h DEPS ty_base absl::status [PRIVATE_DEPS SQLite::SQLite3] [CALLS])
# One library per folder. Includes are written from the repository root. CALLS says that most of the sources include the
# headers of services, which the compiler then reads once for all such libraries.
function(ty_library NAME)
  cmake_parse_arguments(ARG "CALLS" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SRCS})
  set_target_properties(${NAME} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PUBLIC ${ARG_DEPS} PRIVATE ty_warnings ${ARG_PRIVATE_DEPS})
  if(ARG_CALLS)
    ty_precompile_headers(${NAME} services)
  endif()
endfunction()

# ty_binary(trainyard-server SRCS main.cc DEPS ty_server_app)
function(ty_binary NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ty_warnings ${ARG_DEPS})
endfunction()

# ty_static_binary(trainyard-supervisor SRCS main.cc LIBS ty_supervisor ty_run_dir ty_base)
# For a program that is started once an attempt: without shared libraries it starts in a fifth of the time. LIBS are all
# libraries of this project that it needs; besides them it may use Abseil and header-only libraries.
function(ty_static_binary NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;LIBS" ${ARGN})
  file(GLOB absl_archives ${absl_DIR}/../../libabsl_*.a)
  if(TRAINYARD_SANITIZE OR NOT absl_archives)
    ty_binary(${NAME} SRCS ${ARG_SRCS} DEPS ${ARG_LIBS})
    return()
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  set(archives)
  foreach(lib ${ARG_LIBS})
    list(APPEND archives $<TARGET_FILE:${lib}>)
  endforeach()
  # The order of archives that need each other does not matter within a group.
  target_link_libraries(${NAME} PRIVATE
    ty_warnings -static -Wl,--start-group ${archives} ${absl_archives} -Wl,--end-group)
  if(ARG_LIBS)
    add_dependencies(${NAME} ${ARG_LIBS})
  endif()
endfunction()

# Tests run side by side, so threads that wait for one another must soon give their core away. With libgomp's default,
# a test of half a second took five minutes beside another one.
set(TY_TEST_ENVIRONMENT GOMP_SPINCOUNT=1000)

# ty_precompile_headers(NAME SET): lets the target share one precompiled header with all others of the set. GoogleTest and
# what nearly every test includes are a third of what the compiler reads for a test (`plain`); where tests call services,
# these are more than half (`calls`). Libraries that offer or call services share `services`.
function(ty_precompile_headers NAME SET)
  if(NOT CMAKE_UNITY_BUILD OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  set(shared ty_headers_${SET})
  if(NOT TARGET ${shared})
    file(WRITE ${PROJECT_BINARY_DIR}/headers.cc "int main() {}\n")
    add_executable(${shared} EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/headers.cc)
    target_link_libraries(${shared} PRIVATE ty_warnings absl::statusor absl::strings absl::time)
    target_precompile_headers(${shared} PRIVATE
      <algorithm> <functional> <map> <memory> <string> <vector>
      <absl/status/statusor.h> <absl/strings/match.h> <absl/strings/str_cat.h> <absl/time/time.h>)
    if(SET STREQUAL "services")
      target_compile_options(${shared} PRIVATE -pthread)
    else()
      target_link_libraries(${shared} PRIVATE ty_test_optimization GTest::gmock GTest::gtest_main)
      target_precompile_headers(${shared} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    endif()
    if(NOT SET STREQUAL "plain")
      target_link_libraries(${shared} PRIVATE ty_proto)
      target_precompile_headers(${shared} PRIVATE <grpcpp/grpcpp.h>)
      get_property(services GLOBAL PROPERTY TY_SERVICE_HEADERS)
      target_precompile_headers(${shared} PRIVATE ${services})
    endif()
    set_target_properties(${shared} PROPERTIES PCH_WARN_INVALID OFF)
  endif()
  # A precompiled header suits only sources with the same choice, and some libraries ask for threads by themselves.
  if(SET STREQUAL "services")
    target_compile_options(${NAME} PRIVATE -pthread)
  endif()
  target_precompile_headers(${NAME} REUSE_FROM ${shared})
  set_target_properties(${NAME} PROPERTIES PCH_WARN_INVALID OFF)
endfunction()

# ty_test(lifecycle_test SRCS job_fsm_test.cc DEPS ty_server_lifecycle LABELS unit threads [TIMEOUT 60] [PROCESSORS 2])
# A GoogleTest binary; each TEST is one ctest entry. SEPARATE compiles sources one by one that name local things alike;
# CALLS says that most of them include the headers of services. OPTIMIZED is for tests that compute for minutes: the linker
# keeps one copy of what is inline in headers, and that of a test's own sources would be the one without optimization.
# Labels: unit contract integration faults gpu slow, and `threads` for what runs under TSan.
# The target `thread_tests` builds all of that label.
add_custom_target(thread_tests)
function(ty_test NAME)
  cmake_parse_arguments(ARG "SEPARATE;CALLS;OPTIMIZED" "TIMEOUT;PROCESSORS" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  # Where no earlier run has told how long a test takes, ctest begins with those of the highest cost. Tests of whole
  # programs take the longest, most of it in waiting, so others can run beside them.
  set(cost 1)
  if(integration IN_LIST ARG_LABELS OR faults IN_LIST ARG_LABELS)
    set(cost 100)
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ty_warnings ${ARG_DEPS} ty_testing GTest::gmock GTest::gtest_main)
  if(ARG_SEPARATE)
    set_target_properties(${NAME} PROPERTIES UNITY_BUILD OFF)
  endif()
  if(NOT ARG_OPTIMIZED)
    target_link_libraries(${NAME} PRIVATE ty_test_optimization)
    if(ARG_CALLS)
      ty_precompile_headers(${NAME} calls)
    else()
      ty_precompile_headers(${NAME} plain)
    endif()
  endif()
  if(threads IN_LIST ARG_LABELS)
    add_dependencies(thread_tests ${NAME})
  endif()
  # A list among the properties must reach ctest as one word: each of the scripts on the way takes a level of escapes.
  string(REPLACE ";" "\\\\\\\\\\\\\;" labels "${ARG_LABELS}")
  string(REPLACE ";" "\\\\\\\\\\\\\;" environment "${TY_TEST_ENVIRONMENT}")
  gtest_discover_tests(${NAME} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${NAME}."
    PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS}
               COST ${cost} ENVIRONMENT "${environment}"
               SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endfunction()

# ty_proto(ty_proto SRCS trainyard/v1/job.proto ... [GRPC]): messages and, with GRPC, services.
function(ty_proto NAME)
  cmake_parse_arguments(ARG "GRPC" "" "SRCS;DEPS" ${ARGN})
  set(out ${PROJECT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  set(generated)
  foreach(src ${ARG_SRCS})
    string(REGEX REPLACE "\\.proto$" "" stem ${src})
    set(outputs ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
    set(flags)
    if(ARG_GRPC)
      list(APPEND outputs ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
      set_property(GLOBAL APPEND PROPERTY TY_SERVICE_HEADERS "<${stem}.grpc.pb.h>")
      set(flags --grpc_out=${out} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
    endif()
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR}/proto --cpp_out=${out} ${flags} ${src}
      DEPENDS ${PROJECT_SOURCE_DIR}/proto/${src}
      COMMENT "protoc ${src}" VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(${NAME} STATIC ${generated})
  # Each generated file defines the same local names, so the files are compiled one by one.
  set_target_properties(${NAME} PROPERTIES UNITY_BUILD OFF)
  target_include_directories(${NAME} SYSTEM PUBLIC ${out} ${Protobuf_INCLUDE_DIRS})
  target_link_libraries(${NAME} PUBLIC protobuf::libprotobuf ${ARG_DEPS})
  if(ARG_GRPC)
    target_link_libraries(${NAME} PUBLIC gRPC::grpc++)
  endif()
endfunction()
