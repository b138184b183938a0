// Reads files through a buffer that is kept, since large files have many blocks.
#include "common/tls/file_digest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"

namespace trainyard::tls {

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  constexpr size_t kBlockBytes = size_t{1} << 20;
  TY_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path, O_RDONLY));
  const auto block = std::make_unique_for_overwrite<char[]>(kBlockBytes);
  Sha256Hasher hasher;
  while (true) {
    const ssize_t got = read(file.get(), block.get(), kBlockBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    if (got == 0) return hasher.Text();
    hasher.Update(absl::string_view(block.get(), static_cast<size_t>(got)));
  }
}

}  // namespace trainyard::tls
