// Checks of the source text itself: floors, third-party headers, banned calls, form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <re2/re2.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/paths.h"
#include "tests/tidy/cycles.h"
#include "tests/tidy/rules.h"
#include "tests/tidy/source_tree.h"
#include "tests/tidy/symbols.h"

namespace trainyard::tidy {
namespace {

constexpr size_t kLineLengthMax = 100;
// A file that is longer than this serves a second purpose. Lower the limit when the longest file
// shrinks; never raise it.
constexpr size_t kFileLinesMax = 650;

const std::vector<SourceFile>& Tree() {
  static const auto* tree = new std::vector<SourceFile>(ReadSourceTree(testing::SourcePath("")));
  return *tree;
}

bool IsOurs(const std::string& header) {
  for (const char* folder : {"common/", "server/", "worker/", "client/", "tests/"}) {
    if (absl::StartsWith(header, folder)) return true;
  }
  return false;
}

// Fails with all findings at once.
void ExpectNone(const std::vector<std::string>& findings) {
  EXPECT_TRUE(findings.empty()) << findings.size() << " findings:\n"
                                << absl::StrJoin(findings, "\n");
}

TEST(Tidy, TheTreeIsRead) {
  EXPECT_GT(Tree().size(), 100u);
}

TEST(Tidy, FilesIncludeTheirOwnAndLowerFloorsOnly) {
  std::vector<std::string> findings;
  for (const SourceFile& file : Tree()) {
    const Floor* floor = FloorOf(file.path);
    if (floor == nullptr) {
      findings.push_back(
          absl::StrCat(file.path, ": its folder has no floor in tests/tidy/rules.cc"));
      continue;
    }
    for (const Include& include : Includes(file)) {
      const bool is_proto = absl::StartsWith(include.header, "trainyard/");
      if (!IsOurs(include.header) && !is_proto) continue;
      if (!MayInclude(*floor, include.header)) {
        findings.push_back(absl::StrCat(file.path, ":", include.line, ": ", floor->folder,
                                        " may not include ", include.header));
      }
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, UnitsDoNotIncludeEachOtherInACircle) {
  ExpectNone(CyclesOfUnits(Tree()));
}

TEST(Tidy, CirclesOfIncludesAreFound) {
  const std::vector<SourceFile> tree = {{"common/a.h", {"#include \"common/b.h\""}},
                                        {"common/b.h", {"#include \"common/c.h\""}},
                                        {"common/c.h", {}},
                                        {"common/c.cc", {"#include \"common/a.h\""}},
                                        {"common/d.h", {"#include \"common/a.h\""}}};
  EXPECT_THAT(CyclesOfUnits(tree),
              ::testing::ElementsAre(::testing::StartsWith("3 units include each other:")));
}

TEST(Tidy, ThirdPartyHeadersStayInTheirAdapters) {
  std::vector<std::string> findings;
  for (const SourceFile& file : Tree()) {
    for (const Include& include : Includes(file)) {
      for (const Library& library : Libraries()) {
        if (!absl::StartsWith(include.header, library.header_prefix)) continue;
        bool allowed = false;
        for (const std::string& folder : library.folders) allowed |= IsUnder(file.path, folder);
        if (!allowed) {
          findings.push_back(absl::StrCat(file.path, ":", include.line, ": <", include.header,
                                          "> belongs to ", absl::StrJoin(library.folders, ", ")));
        }
      }
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, NoBannedWords) {
  std::vector<std::string> findings;
  for (const SourceFile& file : Tree()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string code = CodeOf(file.lines[i]);
      for (const BannedWord& word : BannedWords()) {
        if (!word.IsWronglyIn(code, file.path)) continue;
        findings.push_back(absl::StrCat(file.path, ":", i + 1, ": ", word.instead()));
      }
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, NoUnfinishedWork) {
  // The word is put together, so that this file does not contain it.
  const RE2 pattern(absl::StrCat("\\b(TO", "DO|FIX", "ME|XX", "X|HA", "CK)\\b"));
  std::vector<std::string> findings;
  for (const SourceFile& file : Tree()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (RE2::PartialMatch(file.lines[i], pattern)) {
        findings.push_back(absl::StrCat(file.path, ":", i + 1, ": ", file.lines[i]));
      }
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, FilesKeepTheirForm) {
  std::vector<std::string> findings;
  for (const SourceFile& file : Tree()) {
    if (file.lines.size() > kFileLinesMax) {
      findings.push_back(
          absl::StrCat(file.path, ": ", file.lines.size(), " lines; split it by idea"));
    }
    if (file.lines.empty() || !file.lines.back().empty()) {
      findings.push_back(absl::StrCat(file.path, ": no newline at the end"));
    }
    bool has_pragma = false;
    bool in_raw_string = false;  // clang-format cannot break these
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      has_pragma |= line == "#pragma once";
      in_raw_string |= absl::StrContains(line, "R\"");
      if (line.size() > kLineLengthMax && !in_raw_string) {
        size_t columns = 0;
        for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
        if (columns > kLineLengthMax) {
          findings.push_back(absl::StrCat(file.path, ":", i + 1, ": ", columns, " columns"));
        }
      }
      in_raw_string &= !absl::StrContains(line, ")\"");
    }
    if (absl::EndsWith(file.path, ".h") && !has_pragma) {
      findings.push_back(absl::StrCat(file.path, ": no #pragma once"));
    }
    if (absl::EndsWith(file.path, ".h") && !absl::StartsWith(file.lines.front(), "//")) {
      findings.push_back(absl::StrCat(file.path, ":1: a header starts with what it is for"));
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, FilesBeginWithASentence) {
  std::vector<std::string> findings;
  for (const SourceFile& file : Tree()) {
    if (absl::EndsWith(file.path, "_test.cc")) continue;  // its name says what it tests
    if (!absl::StartsWith(file.lines.front(), "//")) {
      findings.push_back(absl::StrCat(file.path, ":1: a file begins with what it is for"));
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, CommentsAreSentences) {
  std::vector<SourceFile> files = ReadProtos(testing::SourcePath(""));
  files.insert(files.end(), Tree().begin(), Tree().end());
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    bool continues = false;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const absl::string_view line = absl::StripLeadingAsciiWhitespace(file.lines[i]);
      const bool is_comment = absl::StartsWith(line, "//");
      if (is_comment && !continues && BeginsWithAFragment(line)) {
        findings.push_back(absl::StrCat(file.path, ":", i + 1, ": write a whole sentence: ", line));
      }
      continues = is_comment;
    }
  }
  ExpectNone(findings);
}

TEST(Tidy, NothingIsThereForTestsAlone) {
  ExpectNone(SymbolsForTestsAlone(Tree()));
}

// Tests the checks themselves, on text that breaks each rule.
TEST(TidyRules, FragmentsAreToldFromSentences) {
  EXPECT_TRUE(BeginsWithAFragment("// Of the loop's thread only."));
  EXPECT_TRUE(BeginsWithAFragment("// The same of attempts."));
  EXPECT_TRUE(BeginsWithAFragment("// How many there are."));
  EXPECT_FALSE(BeginsWithAFragment("// However, offers are made."));
  EXPECT_FALSE(BeginsWithAFragment("// Offers are made once a turn."));
  EXPECT_FALSE(BeginsWithAFragment("// The same rule holds for attempts."));
}

TEST(TidyRules, ASymbolThatOnlyTestsUseIsFound) {
  const std::vector<SourceFile> tree = {
      {"common/base/a.h", {"// A.", "int Used();", "int Unused();", "int Shipped() override;", ""}},
      {"common/base/a.cc", {"// A.", "int Used() { return 1; }", "int Unused() { return 2; }", ""}},
      {"server/b.cc", {"// B.", "int b = Used();", ""}},
      {"tests/unit/a_test.cc", {"EXPECT_EQ(Used(), Unused());", "Shipped();", ""}}};
  EXPECT_THAT(SymbolsForTestsAlone(tree),
              ::testing::ElementsAre(::testing::StartsWith("common/base/a.h:3: Unused")));
}

TEST(TidyRules, BannedWordsAreFound) {
  const auto is_banned = [](const std::string& path, const std::string& line) {
    return std::any_of(BannedWords().begin(), BannedWords().end(), [&](const BannedWord& word) {
      return word.IsWronglyIn(CodeOf(line), path);
    });
  };
  EXPECT_TRUE(is_banned("server/core/a.cc", "  absl::SleepFor (absl::Seconds(1));"));
  EXPECT_TRUE(is_banned("server/core/a.cc", "  clock.SleepFor(delay);"));
  EXPECT_TRUE(is_banned("server/core/a.cc", "  usleep(1);"));
  EXPECT_FALSE(is_banned("server/core/a.h", "  virtual void SleepFor(absl::Duration d) = 0;"))
      << "it declares a method of a clock";
  EXPECT_FALSE(is_banned("worker/agent/a.cc", "  clock.SleepFor(delay);"));
  EXPECT_TRUE(is_banned("worker/agent/a.cc", "  const auto now = absl::Now();"));
  EXPECT_FALSE(is_banned("worker/agent/a.cc", "  const auto now = absl::NowOf();"));
  EXPECT_FALSE(is_banned("worker/agent/a.cc", "  // We throw nothing."));
  EXPECT_FALSE(is_banned("worker/agent/a.cc", "  ASSERT(x); static_assert(y);"));
  EXPECT_TRUE(is_banned("worker/agent/a.cc", "  assert (x);"));
}

TEST(TidyRules, CodeOfDropsCommentsAndStrings) {
  EXPECT_EQ(CodeOf("int a = 1;  // absl::Now()"), "int a = 1;  ");
  EXPECT_EQ(CodeOf("Log(\"getenv(\\\" is here\");"), "Log();");
}

TEST(TidyRules, FloorsRefuseWhatTheArchitectureForbids) {
  const auto may = [](const char* path, const char* header) {
    return MayInclude(*FloorOf(path), header);
  };
  EXPECT_TRUE(may("server/core/lifecycle/job_fsm.cc", "common/base/check.h"));
  EXPECT_FALSE(may("server/core/lifecycle/job_fsm.cc", "trainyard/v1/job.pb.h"));
  EXPECT_FALSE(may("server/core/lifecycle/job_fsm.cc", "server/store/store.h"));
  EXPECT_FALSE(may("server/rpc/job_service.cc", "worker/agent/agent_core.h"));
  EXPECT_TRUE(may("worker/trainer/run/train_loop.cc", "worker/trainer/plan/memory.h"));
  EXPECT_FALSE(may("worker/trainer/plan/memory.cc", "worker/trainer/run/train_loop.h"));
  EXPECT_FALSE(may("worker/trainer/run/train_loop.cc", "worker/trainer/report/plan_text.h"));
  EXPECT_FALSE(may("worker/parallel/group.cc", "trainyard/v1/job.pb.h"));
  EXPECT_FALSE(may("worker/engine/graph/graph.cc", "worker/engine/backend/backend.h"));
  EXPECT_FALSE(may("client/commands/ls.cc", "server/core/lifecycle/records.h"));
  EXPECT_TRUE(
      may("tests/unit/server/core/lifecycle/job_fsm_test.cc", "server/core/lifecycle/job_fsm.h"));
}

}  // namespace
}  // namespace trainyard::tidy
