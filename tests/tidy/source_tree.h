// The project's own source files, as lines, for the checks of this folder.
#pragma once

#include <string>
#include <vector>

namespace trainyard::tidy {

struct SourceFile {
  std::string path;  // from the repository root: "server/core/yard/yard.cc"
  std::vector<std::string> lines;
};

// A file that is included, as it stands between the quotes or brackets.
struct Include {
  size_t line = 0;  // from 1
  std::string header;
};

// Returns all sources and headers of the project's folders, in order of path.
std::vector<SourceFile> ReadSourceTree(const std::string& root);
// Returns all .proto files, in order of path.
std::vector<SourceFile> ReadProtos(const std::string& root);

std::vector<Include> Includes(const SourceFile& file);

// The line without string literals and without a // comment, so that words in prose are not taken
// for code.
std::string CodeOf(const std::string& line);

}  // namespace trainyard::tidy
