// Writes, reads and unpacks code archives: folders of users that travel with their jobs. An archive
// is an uncompressed tar file (docs/adr/0023-code-archives.md). The same folder always gives the
// same bytes, so an archive is known by the digest of its bytes.
//
// Whoever reads one trusts nothing in it: a user may send any bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"

namespace trainyard::code {

// Code is text. What is larger than this is data, which belongs into the folder of data sets.
inline constexpr int64_t kContentBytesMax = int64_t{256} << 20;
inline constexpr int64_t kEntriesMax = 50'000;
// The archive with its headers and the rest of its blocks.
inline constexpr int64_t kArchiveBytesMax = int64_t{320} << 20;
inline constexpr size_t kPathBytesMax = 1024;
inline constexpr size_t kNameBytesMax = 255;  // as file systems have it

struct Limits {
  int64_t content_bytes = kContentBytesMax;
  int64_t entries = kEntriesMax;
};

struct Entry {
  enum class Kind { kFile, kFolder, kLink };
  Kind kind = Kind::kFile;
  // Relative to the folder: "src/train.py". It has no empty part, and none that is '.' or '..'.
  std::string path;
  bool is_executable = false;
  int64_t size = 0;    // of a file
  std::string target;  // of a link; it stays within the folder

  friend bool operator==(const Entry&, const Entry&) = default;
};

// Returns OK if the text is a path that an entry may have.
absl::Status CheckPath(absl::string_view path);
// Returns OK if a link at `path` with this target stays within the folder, whatever other links
// are there: the target is relative, and each '..' of it stands at its beginning.
absl::Status CheckTarget(absl::string_view path, absl::string_view target);

// Writes an archive. The caller adds entries in the order of their paths, as bytes.
class ArchiveWriter {
 public:
  // Creates the file, or empties it.
  static absl::StatusOr<std::unique_ptr<ArchiveWriter>> Create(const std::string& path,
                                                               const Limits& limits = {});
  ~ArchiveWriter();

  // Adds an entry. `content` is the file of a kFile, opened for reading at its beginning; it must
  // give `entry.size` bytes. Returns ABORTED if it gives fewer, because it has just changed, and
  // RESOURCE_EXHAUSTED (CODE_TOO_LARGE) past a limit.
  absl::Status Add(const Entry& entry, int content = -1);
  // Ends the archive, and returns its digest: "sha256:<64 hex digits>".
  absl::StatusOr<std::string> Finish();

 private:
  struct State;
  explicit ArchiveWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Gives the bytes of the file that is being visited.
class Content {
 public:
  virtual ~Content() = default;
  // Returns at most 64 KiB, and an empty text at the end.
  virtual absl::StatusOr<absl::string_view> Next() = 0;
};

// Calls `visit` for each entry, in the order of the archive, and stops at its first error. The
// entry has been checked. What `visit` does not read is skipped. Returns DATA_LOSS (CORRUPT_FILE)
// for what is no tar file or breaks a rule above, and RESOURCE_EXHAUSTED (CODE_TOO_LARGE) past a
// limit. `archive` is read from where it stands.
using Visit = std::function<absl::Status(const Entry& entry, Content& content)>;
absl::Status ReadArchive(int archive, const Visit& visit, const Limits& limits = {});

// Unpacks into `folder`, which exists and is empty, with the rights of the calling thread. Nothing
// that exists is replaced. Links are made last, so that no other entry can lead through one.
absl::Status Unpack(int archive, const std::string& folder, const Limits& limits = {});

}  // namespace trainyard::code
