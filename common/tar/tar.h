// Reads and writes tar files as streams. The reader trusts nothing in an archive and judges
// nothing either: whoever reads decides which entries there may be.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::tar {

// The head of an entry.
struct Head {
  enum class Kind { kFile, kFolder, kLink, kHardLink, kOther };
  Kind kind = Kind::kFile;
  std::string path;  // as it stands there, without a slash at its end
  bool is_executable = false;
  int64_t size = 0;    // of a file, in bytes
  std::string target;  // of a link
};

// Returns the next bytes of an archive, which are valid until the next call, and an empty text at
// its end.
using Source = std::function<absl::StatusOr<absl::string_view>()>;
// Takes the next bytes of an archive.
using Sink = std::function<absl::Status(absl::string_view bytes)>;

// Returns a source that reads a file from where it stands. `fd` must stay open.
Source SourceOf(int fd, std::string path);

// Reads an archive. The class is not thread-safe.
class Reader {
 public:
  // `name` is that of the archive in messages: "the code archive".
  Reader(Source source, std::string name);
  ~Reader();

  // Goes on to the next entry, past what was not read of the last one, and returns its head; or
  // nothing at the end. Returns DATA_LOSS (CORRUPT_FILE) for what is no tar file, and the errors of
  // the source.
  absl::StatusOr<std::optional<Head>> Next();
  // Returns at most 64 KiB of the present file, which are valid until the next call, and an empty
  // text at its end. There may be more or fewer bytes than its head says.
  absl::StatusOr<absl::string_view> Read();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes an archive in GNU's form, which keeps the bytes of names as they are in any locale. Times
// and owners are left out, so the same entries always give the same bytes. The class is not
// thread-safe.
class Writer {
 public:
  // `name` is that of the archive in messages.
  static absl::StatusOr<std::unique_ptr<Writer>> Create(Sink sink, std::string name);
  ~Writer();

  // Begins an entry. The last one must have got as many bytes as its head says.
  absl::Status Begin(const Head& head);
  // Takes the next bytes of the present file.
  absl::Status Write(absl::string_view bytes);
  // Ends the archive.
  absl::Status Finish();

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::tar
