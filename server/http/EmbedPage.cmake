# Writes the files of the page as a source: cmake -DPAGE=server/http/page/dist -DOUTPUT=page_files.cc -P EmbedPage.cmake
file(GLOB_RECURSE files RELATIVE ${PAGE} ${PAGE}/*)
list(SORT files)
set(arrays)
set(rows)
set(number 0)
get_filename_component(folder ${OUTPUT} DIRECTORY)

# to_bytes(FILE NAME): appends the bytes of a file to `arrays`.
function(to_bytes FILE NAME)
  file(READ ${FILE} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" hex "${hex}")
  string(REPLACE "\n" "\"\n\"" hex "${hex}")
  string(APPEND arrays "constexpr char ${NAME}[] =\n\"${hex}\";\n")
  set(arrays "${arrays}" PARENT_SCOPE)
endfunction()

foreach(file ${files})
  get_filename_component(extension ${file} LAST_EXT)
  if(extension STREQUAL ".html")
    set(type "text/html; charset=utf-8")
  elseif(extension STREQUAL ".js")
    set(type "text/javascript; charset=utf-8")
  elseif(extension STREQUAL ".css")
    set(type "text/css; charset=utf-8")
  elseif(extension STREQUAL ".svg")
    set(type "image/svg+xml")
  else()
    message(FATAL_ERROR "${file}: nobody knows the content type of '${extension}'; add it here")
  endif()
  # Without the name and the time of the file, so that each build writes the same.
  execute_process(COMMAND gzip -9 -n -c ${PAGE}/${file} OUTPUT_FILE ${folder}/page_file.gz COMMAND_ERROR_IS_FATAL ANY)
  to_bytes(${PAGE}/${file} kFile${number})
  to_bytes(${folder}/page_file.gz kCompressed${number})
  string(APPEND rows "      {\"/${file}\", \"${type}\", BytesOf(kFile${number}), BytesOf(kCompressed${number})},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Holds the files of the page. EmbedPage.cmake has written it.
#include \"server/http/page_files.h\"

namespace trainyard::http {
namespace {

${arrays}
template <size_t kSize>
absl::string_view BytesOf(const char (&bytes)[kSize]) {
  return {bytes, kSize - 1};
}

}  // namespace

std::vector<PageFile> ListEmbeddedFiles() {
  return {
${rows}  };
}

}  // namespace trainyard::http
")
