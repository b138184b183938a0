// The witness is a script of the shell, which keeps its descriptors when it becomes the trainer.
#include "tests/faults/witness.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

constexpr char kScript[] = R"(
attempt=${TRAINYARD_RUN_DIR##*/}
parent=${TRAINYARD_RUN_DIR%/*}
job=${parent##*/}
exec 9>>"$folder/lock-$job-$TRAINYARD_RANK"
flock -n 9 || echo "$job $attempt $TRAINYARD_RANK" >> "$folder/overlaps"
echo "$job $attempt $TRAINYARD_RANK" >> "$folder/starts"
)";

}  // namespace

Witness::Witness(const std::string& prelude) : trainer_(folder_.File("witness")) {
  const std::string script =
      absl::StrCat("#!/bin/sh\nfolder='", folder_.path(), "'\n", kScript, prelude, "\nexec ",
                   BinaryPath("trainyard-trainer"), " \"$@\"\n");
  EXPECT_TRUE(WriteFileAtomically(trainer_, script, 0755).ok());
}

std::vector<std::string> Witness::Lines(const std::string& name) const {
  return absl::StrSplit(ReadFile(folder_.File(name)).value_or(""), '\n', absl::SkipEmpty());
}

std::vector<std::string> Witness::Starts() const {
  return Lines("starts");
}

int64_t Witness::StartedTwice() const {
  const std::vector<std::string> starts = Starts();
  const std::set<std::string> distinct(starts.begin(), starts.end());
  return static_cast<int64_t>(starts.size() - distinct.size());
}

int64_t Witness::Overlaps() const {
  return static_cast<int64_t>(Lines("overlaps").size());
}

}  // namespace trainyard::testing
