// Makes files with calls that follow no link at the end of a path. Links come last, so the folders
// on the way to a file are those that were made here.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/code/archive.h"

namespace trainyard::code {
namespace {

absl::Status MakeFolders(const std::string& folder, absl::string_view path) {
  for (size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
    const std::string parent = JoinPath(folder, path.substr(0, slash));
    if (mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, "cannot create directory", parent);
    }
  }
  return absl::OkStatus();
}

absl::Status MakeFile(const Entry& entry, Content& content, const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                                                  entry.is_executable ? 0755 : 0644));
  int64_t bytes = 0;
  while (true) {
    TY_ASSIGN_OR_RETURN(const absl::string_view block, content.Next());
    if (block.empty()) break;
    TY_RETURN_IF_ERROR(WriteFully(fd.get(), block, path));
    bytes += static_cast<int64_t>(block.size());
  }
  if (bytes == entry.size) return absl::OkStatus();
  return error::CorruptFile("the code archive", absl::StrCat("it ends within '", entry.path, "'"));
}

}  // namespace

absl::Status Unpack(int archive, const std::string& folder, const Limits& limits) {
  std::vector<Entry> links;
  const auto visit = [&](const Entry& entry, Content& content) -> absl::Status {
    if (entry.kind == Entry::Kind::kLink) {
      links.push_back(entry);
      return absl::OkStatus();
    }
    TY_RETURN_IF_ERROR(MakeFolders(folder, entry.path));
    const std::string path = JoinPath(folder, entry.path);
    if (entry.kind == Entry::Kind::kFile) return MakeFile(entry, content, path);
    if (mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return absl::OkStatus();
    return ErrnoStatus(errno, "cannot create directory", path);
  };
  TY_RETURN_IF_ERROR(ReadArchive(archive, visit, limits));
  // A link may stand on the way to another link, which is then refused: nothing leads through one.
  for (const Entry& link : links) TY_RETURN_IF_ERROR(MakeFolders(folder, link.path));
  for (const Entry& link : links) {
    const std::string path = JoinPath(folder, link.path);
    if (symlink(link.target.c_str(), path.c_str()) != 0) {
      return ErrnoStatus(errno, "cannot create the link", path);
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::code
