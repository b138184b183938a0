// Fetches the code of jobs, and looks into it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "common/code/archive.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// An entry of an archive, with the hash of a file's content.
struct CodeFile {
  code::Entry entry;
  std::string hash;

  friend bool operator==(const CodeFile&, const CodeFile&) = default;
};

// Returns the path of the job's archive, a file of the cache. It is downloaded if it is not there.
// Returns NOT_FOUND (CODE_NOT_FOUND) if the job has none.
absl::StatusOr<std::string> FetchCode(const Context& context, link::ServerLink& link,
                                      const std::string& job);
// Returns how the folder differed from its commit, which is empty if it did not.
absl::StatusOr<std::string> FetchCodeDiff(const Context& context, link::ServerLink& link,
                                          const v1::Job& job);

// Returns what is in an archive.
absl::StatusOr<std::vector<CodeFile>> ListCode(const std::string& archive);
// Returns the content of a file in an archive, at most `bytes_max` of it. Returns NOT_FOUND if it
// has no such file.
absl::StatusOr<std::string> ReadCodeFile(const std::string& archive, const std::string& path,
                                         size_t bytes_max);

// Prints the files of a job's code, its origin, and how it differed from the commit.
absl::Status PrintCode(const Context& context, link::ServerLink& link, const v1::Job& job);

// Returns from where the code comes: "commit 1a2b3c4d of main, with changes", or an empty text.
std::string OriginText(const v1::CodeOrigin& origin);

}  // namespace trainyard::commands
