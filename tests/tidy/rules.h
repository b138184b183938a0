// The floors (layers) of the architecture as a table: which folders each folder may include, and
// which folders may include the headers of each library. A new folder or library needs a line here,
// so that its floor is a decision.
#pragma once

#include <re2/re2.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::tidy {

// A folder and the folders of ours (besides itself and what lies below it) that its files may
// include.
struct Floor {
  std::string folder;
  std::vector<std::string> may_include;
};

// The longest matching folder counts.
const std::vector<Floor>& Floors();
// Returns nullptr if no folder of the table contains `path`.
const Floor* FloorOf(absl::string_view path);
bool MayInclude(const Floor& floor, absl::string_view header);

// A library's headers and the only folders that may include them.
struct Library {
  std::string header_prefix;
  std::vector<std::string> folders;
};
const std::vector<Library>& Libraries();

// A word that code must not contain outside of the named files, and what to use instead.
class BannedWord {
 public:
  // `pattern` is a regular expression of RE2, and `allowed_in` has prefixes of paths.
  BannedWord(const std::string& pattern, std::vector<std::string> allowed_in, std::string instead)
      : pattern_(std::make_shared<RE2>(pattern)),
        allowed_in_(std::move(allowed_in)),
        instead_(std::move(instead)) {}

  // Returns true if the code part of a line in the file `path` contains the word, and must not.
  bool IsWronglyIn(absl::string_view code, absl::string_view path) const;
  const std::string& instead() const { return instead_; }

 private:
  std::shared_ptr<const RE2> pattern_;
  std::vector<std::string> allowed_in_;
  std::string instead_;
};
const std::vector<BannedWord>& BannedWords();

// Returns true if `path` is `folder`, lies in it, or is a file that begins with it.
bool IsUnder(absl::string_view path, absl::string_view folder);

// Returns true if a comment's first line, from its slashes on, begins as fragments do that leave
// the reader to guess the subject or the verb.
bool BeginsWithAFragment(absl::string_view line);

}  // namespace trainyard::tidy
