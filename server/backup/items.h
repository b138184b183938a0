// Tells what of a snapshot is one object of a bucket: a file, or a piece of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/s3/manifest_store.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {

// So many small items are on their way at once, which hides the way to the store and takes at most
// 256 MiB of memory.
inline constexpr size_t kItemsAtOnce = 8;

// A file or a piece by its content; many files of a snapshot may have the same.
struct Item {
  std::string path;  // of one of the files
  s3::Blob blob;
  int64_t offset = 0;  // in the file
  bool is_piece = false;
};

// Returns the size of the piece that begins there.
int64_t PieceSize(const FileEntry& file, int64_t offset);

// Returns the items of a manifest by the hex digits of their hashes, or INVALID_ARGUMENT if one of
// those is none.
absl::StatusOr<std::map<std::string, Item>> ItemsOf(const Manifest& manifest);

}  // namespace trainyard::backup
