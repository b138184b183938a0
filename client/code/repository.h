// Asks libgit2 about a folder: what its patterns leave out, and from which commit it comes. It
// works without a repository as well.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::code {

// Differences are kept up to this size.
inline constexpr size_t kDiffBytesMax = size_t{64} << 10;

// A folder that is looked at. It is not thread-safe. Paths are relative to the folder.
class Repository {
 public:
  // `folder` is an absolute path. A repository that does not look into the folder, because it
  // ignores the folder itself, counts as none.
  static absl::StatusOr<std::unique_ptr<Repository>> Open(const std::string& folder);
  ~Repository();

  // Adds the patterns of a `.trainyardignore` in `folder`. They outweigh those of git.
  absl::Status AddRules(absl::string_view folder, absl::string_view rules);
  // Returns true if the patterns leave the path out. Files that git tracks are left out by
  // `.trainyardignore` alone, and folders with such files are not left out by git's patterns.
  bool IsIgnored(const std::string& path, bool is_folder);
  // Returns true if git knows the file, or the folder is a submodule.
  bool IsTracked(const std::string& path) const;

  // Returns the files outside of the folder that decide what is left out.
  std::vector<std::string> RuleFiles() const;
  // Returns the commit, the branch and the address of the remote repository, without passwords, and
  // whether tracked files differ. `diff` gets the differences, up to kDiffBytesMax. All is empty
  // without a repository or a commit.
  v1::CodeOrigin Origin(std::string& diff);

 private:
  struct State;
  explicit Repository(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns an address without what stands before the '@' of https://user:password@host/.
std::string WithoutPassword(absl::string_view url);

}  // namespace trainyard::code
