// The file is an archive as code archives are, whose reader trusts nothing in it.
#include "server/backup/packed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/code/archive.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {
namespace {

constexpr code::Limits kUnlimited = {std::numeric_limits<int64_t>::max(), int64_t{kFilesMax}};

absl::Status Write(const std::string& snapshot, const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListTree(snapshot, kFilesMax));
  std::sort(names.begin(), names.end());
  TY_ASSIGN_OR_RETURN(const auto archive, code::ArchiveWriter::Create(path, kUnlimited));
  for (const std::string& name : names) {
    const std::string from = JoinPath(snapshot, name);
    TY_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(from, O_RDONLY));
    code::Entry entry;
    entry.path = name;
    TY_ASSIGN_OR_RETURN(entry.size, FileSize(from));
    TY_RETURN_IF_ERROR(archive->Add(entry, file.get()));
  }
  TY_RETURN_IF_ERROR(archive->Finish().status());
  TY_ASSIGN_OR_RETURN(const UniqueFd written, OpenFile(path, O_RDONLY));
  return fsync(written.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "cannot sync", path);
}

}  // namespace

absl::Status Pack(const std::string& snapshot, const std::string& path) {
  const std::string partial = absl::StrCat(path, ".partial");
  absl::Status written = Write(snapshot, partial);
  if (written.ok() && rename(partial.c_str(), path.c_str()) != 0) {
    written = ErrnoStatus(errno, "cannot rename", partial);
  }
  if (!written.ok()) {
    unlink(partial.c_str());
    return written;
  }
  return SyncDirectory(path.substr(0, std::max<size_t>(1, path.rfind('/'))));
}

absl::Status Unpack(const std::string& path, const std::string& folder) {
  TY_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path, O_RDONLY));
  return Annotate(code::Unpack(file.get(), folder, kUnlimited), absl::StrCat("'", path, "'"));
}

}  // namespace trainyard::backup
