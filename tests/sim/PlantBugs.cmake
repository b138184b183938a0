# Makes the patched copy of the sources that bugs are planted in:
#   cmake -DSOURCE=<repository> -DBUGS=<folder of patches> -DSTAGE=<scratch folder> -DOUTPUT=<folder> -P PlantBugs.cmake
# All patches are applied to one copy, in order of their names. A file of OUTPUT is written only when it changes, so that
# only what a patch or its source has changed is compiled again. OUTPUT/bug_list.cc lists the bugs, by name and first line.
cmake_minimum_required(VERSION 3.22)
file(GLOB patches ${BUGS}/*.patch)
list(SORT patches)
file(REMOVE_RECURSE ${STAGE})
file(MAKE_DIRECTORY ${STAGE})
set(all)
set(bugs)
foreach(patch ${patches})
  cmake_path(GET patch STEM name)
  file(READ ${patch} text)
  string(FIND "${text}" "Planted(\"${name}\")" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "the planted bug ${name} never asks for itself by Planted(\"${name}\")")
  endif()
  file(STRINGS ${patch} headers REGEX "^\\+\\+\\+ b/")
  foreach(header ${headers})
    string(REGEX REPLACE "^\\+\\+\\+ b/([^ \t]+).*" "\\1" file "${header}")
    if(NOT file MATCHES "\\.cc$" OR NOT EXISTS ${SOURCE}/${file})
      message(FATAL_ERROR "the planted bug ${name} patches ${file}, which is not a .cc file of this repository")
    endif()
    if(NOT file IN_LIST all)
      list(APPEND all ${file})
      cmake_path(GET file PARENT_PATH folder)
      file(COPY ${SOURCE}/${file} DESTINATION ${STAGE}/${folder})
    endif()
  endforeach()
  execute_process(
    COMMAND patch -p1 --forward --batch --no-backup-if-mismatch --fuzz=0 --input=${patch}
    WORKING_DIRECTORY ${STAGE} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the planted bug ${name} no longer applies; write tests/sim/bugs/${name}.patch anew:\n${said}")
  endif()
  file(STRINGS ${patch} sentence LIMIT_COUNT 1)
  string(APPEND bugs "      {\"${name}\", \"${sentence}\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT}/bug_list.cc @ONLY CONTENT [[
// Written by tests/sim/PlantBugs.cmake.
#include "tests/sim/bugs.h"

namespace trainyard::sim {

const std::vector<Bug>& Bugs() {
  static const auto* bugs = new std::vector<Bug>{
@bugs@  };
  return *bugs;
}

}  // namespace trainyard::sim
]])
foreach(file ${all})
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY ${OUTPUT}/${folder})
  file(COPY_FILE ${STAGE}/${file} ${OUTPUT}/${file} ONLY_IF_DIFFERENT)
endforeach()
