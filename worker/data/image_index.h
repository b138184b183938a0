// Which images a split has: JPEG files in a folder for each class, or members of tar shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/tar.h"

namespace trainyard::data {

struct ImageEntry {
  std::string name;    // below the split's folder; or in its shard
  int32_t shard = -1;  // of ImageIndex::shards; -1 for a file of its own
  int32_t label = 0;
  int64_t offset = 0;  // in the shard
  int64_t size = 0;
};

struct ImageIndex {
  std::string folder;
  std::vector<std::string> shards;   // paths, sorted
  std::vector<std::string> classes;  // sorted; their positions are the labels
  std::vector<ImageEntry> entries;

  // "folder/cat/1.jpg", or "folder/0.tar!cat/1.jpg".
  std::string PathOf(const ImageEntry& entry) const;
  // Over names, sizes and labels, not over contents: what would take hours to read is recognised in
  // seconds, and a file that was damaged without changing its size is not noticed here.
  std::string Digest() const;
};

// Indexes a folder with shards (*.tar), whose members lie in a folder named after their class, or
// one with a folder for each class, searched to any depth, as torchvision's ImageFolder. JPEGs are
// what ends in .jpg or .jpeg, in any case. Sorted by name within sorted classes or shards. Labels
// are positions in `classes`, or, where that is empty, in the sorted classes that are there.
// NOT_FOUND for a folder without images; DATA_LOSS (CORRUPT_FILE) for a class that is not one of
// `classes`, a member without class and a broken shard.
absl::StatusOr<ImageIndex> ReadImageIndex(const std::string& folder,
                                          const std::vector<std::string>& classes);

// The members of a shard, from the index file beside it (<shard>.index), which is written where it
// is missing, older than the shard, of another size, or damaged. A folder that cannot be written to
// costs time only.
absl::StatusOr<std::vector<TarMember>> ReadShardMembers(const std::string& shard);

}  // namespace trainyard::data
