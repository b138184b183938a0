// Reads the source tree and splits its lines into code and comments.
#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"

namespace trainyard::tidy {
namespace {

using Endings = std::vector<std::string>;

bool EndsWithAny(const std::string& path, const Endings& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return absl::EndsWith(path, ending); });
}

std::vector<SourceFile> ReadFiles(const std::string& root, const std::vector<std::string>& folders,
                                  const Endings& endings) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(JoinPath(root, folder))) {
      const std::string path = entry.path().string();
      if (!entry.is_regular_file() || !EndsWithAny(path, endings)) continue;
      const auto content = ReadFile(path);
      if (!content.ok()) continue;
      files.push_back({path.substr(root.size() + 1), absl::StrSplit(*content, '\n')});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace

std::vector<SourceFile> ReadSourceTree(const std::string& root) {
  return ReadFiles(root, {"common", "server", "worker", "client", "tests"},
                   {".cc", ".h", ".cu", ".cuh", ".inc", ".def"});
}

std::vector<SourceFile> ReadProtos(const std::string& root) {
  return ReadFiles(root, {"proto"}, {".proto"});
}

std::vector<Include> Includes(const SourceFile& file) {
  std::vector<Include> includes;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    absl::string_view line = file.lines[i];
    if (!absl::ConsumePrefix(&line, "#include ") || line.size() < 3) continue;
    const char close = line.front() == '<' ? '>' : '"';
    line.remove_prefix(1);
    includes.push_back({i + 1, std::string(line.substr(0, line.find(close)))});
  }
  return includes;
}

std::string CodeOf(const std::string& line) {
  std::string code;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"' && (i == 0 || line[i - 1] != '\'')) {
      in_string = true;
    } else if (c == '/' && i + 1 < line.size() && line[i + 1] == '/') {
      break;
    } else {
      code += c;
    }
  }
  return code;
}

}  // namespace trainyard::tidy
