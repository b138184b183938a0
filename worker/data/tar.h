// Lists the members of a tar archive: POSIX ustar and pax, GNU long names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

// A regular file in an archive.
struct TarMember {
  std::string name;
  int64_t offset = 0;  // of its bytes in the archive
  int64_t size = 0;

  friend bool operator==(const TarMember&, const TarMember&) = default;
};

// Returns the bytes [offset, offset + size) of an archive, or fewer at its end.
using ReadRange = std::function<absl::StatusOr<std::string>(int64_t offset, int64_t size)>;

// Lists the regular files of an archive of `archive_bytes` bytes, in its order. Folders, links and
// devices are skipped. It reads only headers. Returns DATA_LOSS with the byte's position, the value
// and what was expected, also for an archive without its end mark, because it was truncated.
absl::StatusOr<std::vector<TarMember>> ListTar(int64_t archive_bytes, const ReadRange& read);
// Lists an archive that lies in memory.
absl::StatusOr<std::vector<TarMember>> ListTar(absl::string_view archive);

}  // namespace trainyard::data
