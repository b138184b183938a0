// Follows the event files that a program writes for TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/program/event_records.h"

namespace trainyard::program {

// Looks for files of events in a folder and below it. Those that are there at first are of earlier
// attempts, and are followed from their ends. The class is not thread-safe.
class EventFolder {
 public:
  static constexpr size_t kFilesMax = 256;
  static constexpr int64_t kRecordBytesMax = int64_t{1} << 20;

  // Notes what is there already.
  explicit EventFolder(std::string path);

  // Appends the scalars of the records that have come since the last call. A tag of a file in
  // another folder than the first gets the name of that folder before it: "validation/loss". If
  // `looks_for_files`, new files are looked for.
  void Read(bool looks_for_files, std::vector<Scalar>& scalars);
  // Returns what its user should know, for the log of the rank.
  std::vector<std::string> TakeTroubles();

 private:
  struct File {
    int64_t offset = 0;
    bool is_unreadable = false;
    bool is_told = false;
  };

  void FindFiles(bool from_end);
  void ReadFile(const std::string& name, File& file, std::vector<Scalar>& scalars);
  // Takes the records of a chunk. Returns false if there is nothing more to read now.
  bool TakeRecords(absl::string_view chunk, const std::string& name, File& file,
                   std::vector<Scalar>& scalars);
  void Tell(const std::string& name, File& file, absl::string_view what);
  std::string PrefixOf(const std::string& name);

  const std::string path_;
  std::map<std::string, File> files_;  // by their names below the folder
  bool has_main_ = false;
  std::string main_folder_;  // of the first file that had a scalar
  std::vector<std::string> troubles_;
};

}  // namespace trainyard::program
