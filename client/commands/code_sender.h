// Sends the code of programs to the server before their jobs.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/code/archive_cache.h"
#include "client/commands/context.h"
#include "client/spec_loader/spec_file.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Returns the folder of files that can be made again: $XDG_CACHE_HOME/trainyard, or
// ~/.cache/trainyard.
std::string CacheHome(const Context& context);

// Puts digests in the place of folders, and sends what the server does not have. A folder that many
// specs name is looked at once. It borrows its arguments, and is not thread-safe.
class CodeSender {
 public:
  // With no link, nothing is sent.
  CodeSender(const Context& context, link::ServerLink* link);

  // Takes the spec of `file`: a folder in program.code is relative to it. A digest stays, and its
  // archive is sent if it came with the spec. Does nothing for a spec without code.
  absl::Status Send(const spec_loader::SpecFile& file, v1::JobSpec& spec,
                    v1::SubmitOptions& options);
  // Sends an archive that came with a spec, and how its folder differed from the commit.
  absl::Status SendArchive(const spec_loader::SpecCode& code);
  // Does the same for one folder, and returns the digest of its archive.
  absl::StatusOr<std::string> SendFolder(const std::string& folder, v1::CodeOrigin& origin);

 private:
  struct Sent {
    std::string digest;
    v1::CodeOrigin origin;
  };
  absl::StatusOr<Sent> Take(const std::string& folder);
  // Sends of an archive and of its differences what the server does not have. Returns true if that
  // was the archive.
  absl::StatusOr<bool> SendMissing(const std::string& digest, const std::string& path,
                                   const v1::CodeOrigin& origin, const std::string& diff);
  absl::Status Upload(const std::string& digest, int64_t size, const std::string& path,
                      const std::string& text);

  const Context& context_;
  link::ServerLink* const link_;
  code::ArchiveCache cache_;
  std::map<std::string, Sent> sent_;  // by folder
};

}  // namespace trainyard::commands
