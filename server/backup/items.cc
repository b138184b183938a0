// Lists files as a manifest of a bucket has them.
#include "server/backup/items.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/tls/digest.h"

namespace trainyard::backup {

int64_t PieceSize(const FileEntry& file, int64_t offset) {
  return std::min(kPieceBytes, file.size - offset);
}

absl::StatusOr<std::map<std::string, Item>> ItemsOf(const Manifest& manifest) {
  std::map<std::string, Item> items;
  for (const auto& [name, file] : manifest.files) {
    int64_t offset = 0;
    for (const std::string& digits : file.pieces) {
      const int64_t size = PieceSize(file, offset);
      items[digits] = {name, {digits, size}, offset, /*is_piece=*/true};
      offset += size;
    }
    if (!file.pieces.empty()) continue;
    TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(file.sha256));
    items[digits] = {name, {digits, file.size}};
  }
  return items;
}

}  // namespace trainyard::backup
