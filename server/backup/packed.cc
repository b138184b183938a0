// The file is an archive as code archives are, whose reader trusts nothing in it.
#include "server/backup/packed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/code/archive.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {
namespace {

constexpr code::Limits kUnlimited = {std::numeric_limits<int64_t>::max(), int64_t{kFilesMax}};

absl::Status Write(const std::string& snapshot, const std::string& path) {
  TY_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(snapshot));
  TY_ASSIGN_OR_RETURN(manifest.files[kManifestName], Look(JoinPath(snapshot, kManifestName)));
  TY_ASSIGN_OR_RETURN(const auto archive, code::ArchiveWriter::Create(path, kUnlimited));
  for (const auto& [name, file] : manifest.files) {
    TY_RETURN_IF_ERROR(CheckSize(snapshot, name, file));
    TY_ASSIGN_OR_RETURN(const UniqueFd opened, OpenRegularFile(JoinPath(snapshot, name), O_RDONLY));
    code::Entry entry;
    entry.path = name;
    entry.size = file.size;
    TY_RETURN_IF_ERROR(archive->Add(entry, opened.get()));
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
