// Finds the images of a split: JPEG files in a folder for each class, or members of tar shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/tar.h"

namespace trainyard::data {

struct ImageEntry {
  std::string name;    // below the split's folder, or in its shard
  int32_t shard = -1;  // an index of ImageIndex::shards; -1 for a file of its own
  int32_t label = 0;
  int64_t offset = 0;  // in the shard
  int64_t size = 0;
};

struct ImageIndex {
  std::string folder;
  std::vector<std::string> shards;   // paths, sorted
  std::vector<std::string> classes;  // sorted; their positions are the labels
  std::vector<ImageEntry> entries;

  // Returns "folder/cat/1.jpg", or "folder/0.tar!cat/1.jpg".
  std::string PathOf(const ImageEntry& entry) const;
  // Returns a digest over names, sizes and labels, but not contents. So a data set that takes hours
  // to read is recognised in seconds, but damage that leaves a file's size unchanged is not
  // noticed.
  std::string Digest() const;
};

// Indexes a folder with shards (*.tar), whose members lie in a folder named after their class, or a
// folder with a folder for each class, which is searched to any depth, as torchvision's ImageFolder
// does. A JPEG is a file whose name ends in .jpg or .jpeg, in any case. Entries are sorted by name
// within sorted classes or shards. Labels are positions in `classes`, or, if that is empty, in the
// sorted classes that exist. Returns NOT_FOUND for a folder without images, NOT_FOUND
// (DATASET_INCOMPLETE) if only some of the folders for classes have images, and DATA_LOSS
// (CORRUPT_FILE) for a class that is not one of `classes`, a member without class or a broken
// shard.
absl::StatusOr<ImageIndex> ReadImageIndex(const std::string& folder,
                                          const std::vector<std::string>& classes);

// Returns the members of a shard, from the index file beside it (<shard>.index). That file is
// written if it is missing, older than the shard, of another size, or damaged. If the folder cannot
// be written to, only time is lost. Returns FAILED_PRECONDITION (NOT_A_REGULAR_FILE) if the index
// is a FIFO or a device, on which a rank would wait for ever.
absl::StatusOr<std::vector<TarMember>> ReadShardMembers(const std::string& shard);

}  // namespace trainyard::data
