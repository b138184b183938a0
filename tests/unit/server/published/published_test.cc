// Tests the experiments that come with every catalogue, and makes published.json of jobs/*.yaml.
#include "server/published/published.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/spec/resolve.h"
#include "tests/testing/paths.h"

namespace trainyard::published {
namespace {

// The head of a spec file is the note of the saved spec, but for the commands, which name the file.
std::string NoteOf(const std::string& text) {
  std::string note;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "#")) break;
    if (absl::StartsWith(line, " yaml-language-server:") || absl::StartsWith(line, "   ")) continue;
    absl::StrAppend(&note, absl::StripPrefix(line, " "), "\n");
  }
  return note;
}

v1::ListSavedSpecsResponse SpecsOfJobs() {
  const std::string folder = testing::SourcePath("jobs");
  auto names = *ListDirectory(folder);
  std::sort(names.begin(), names.end());
  v1::ListSavedSpecsResponse specs;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (!absl::EndsWith(name, ".yaml")) continue;
    const auto file = spec_loader::ReadSpecFile(path);
    EXPECT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->mistakes.empty()) << name;
    // The programs need the folder of code beside them, and a sweep is not run as one job.
    if (file->spec.has_program() || file->spec.has_sweep()) continue;
    v1::SavedSpec& saved = *specs.add_specs();
    saved.set_name(SpecName({std::string(absl::StripSuffix(name, ".yaml")), 0}));
    saved.set_note(NoteOf(file->text));
    saved.add_tags("published");
    *saved.mutable_spec() = file->spec;
  }
  return specs;
}

// After a change of jobs/*.yaml, TRAINYARD_UPDATE_GOLDEN=1 writes the file.
TEST(Published, IsMadeOfTheFilesInJobs) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string expected;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(SpecsOfJobs(), &expected, options).ok());
  const std::string path = testing::SourcePath("server/published/published.json");
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(path, expected).ok());
    return;
  }
  const auto committed = ReadFile(path);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(*committed, expected) << "TRAINYARD_UPDATE_GOLDEN=1 writes it";
}

TEST(Published, EachCanBeSavedAndRun) {
  const auto specs = PublishedSpecs();
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_GT(specs->specs_size(), 10);
  for (const v1::SavedSpec& saved : specs->specs()) {
    const auto id = ParseSpecName(saved.name());
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(id->version, 0);
    EXPECT_FALSE(saved.note().empty()) << saved.name();
    EXPECT_TRUE(spec::ResolveSpec(saved.spec()).ok()) << saved.name();
  }
}

}  // namespace
}  // namespace trainyard::published
