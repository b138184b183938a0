# cmake -DNM=nm -DLIBRARY=libcuda.so -DOUTPUT=stub.c -P WriteDriverStub.cmake
# Writes C in which every function of CUDA's driver library answers that there is no device. Only kernels "load":
# cuDNN compiles some of its plans, and looks whether the result can be loaded; no plan is ever run.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T cu[A-Za-z0-9_]+" symbols "${symbols}")
if(NOT symbols)
  message(FATAL_ERROR "${LIBRARY} has no functions of CUDA's driver")
endif()
set(text "/* Written from the symbols of CUDA's driver library. */\n")
foreach(symbol ${symbols})
  string(SUBSTRING ${symbol} 3 -1 name)
  if(name STREQUAL "cuLibraryLoadData" OR name STREQUAL "cuLibraryGetKernel")
    string(APPEND text "int ${name}(void** made) { *made = (void*)&${name}; return 0; }\n")
  else()
    string(APPEND text "int ${name}(void) { return 100; /* CUDA_ERROR_NO_DEVICE */ }\n")
  endif()
endforeach()
file(WRITE ${OUTPUT} "${text}")
