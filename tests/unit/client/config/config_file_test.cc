// Tests how the user's config file is read and changed.
#include "client/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Config : public ::testing::Test {
 protected:
  ConfigFile Load(const std::string& text) {
    auto file = ConfigFile::Load(dir_.Write("config.yaml", text));
    EXPECT_TRUE(file.ok()) << file.status();
    return *file;
  }
  std::string Mistake(const std::string& text) {
    const auto file = ConfigFile::Load(dir_.Write("config.yaml", text));
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(file.status().message());
  }
  // Saves the file, and returns its text.
  std::string Saved(const ConfigFile& file) {
    EXPECT_TRUE(file.Save().ok());
    return ReadFile(file.path()).value_or("");
  }

  trainyard::testing::TempDir dir_;
};

TEST_F(Config, AFileThatIsNotThereIsEmpty) {
  const auto file = ConfigFile::Load(dir_.File("none/config.yaml"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Current(), "");
  EXPECT_THAT(file->Names(), IsEmpty());
}

TEST_F(Config, ContextsAreRead) {
  const ConfigFile file =
      Load("current: lab\ncontexts:\n  lab: {server: \"ssh://lab\"}\n  home: {server: unix:/a}\n");
  EXPECT_EQ(file.Current(), "lab");
  EXPECT_THAT(file.Names(), ElementsAre("lab", "home"));
  EXPECT_EQ(file.Get("lab", "server").value(), "ssh://lab");
  EXPECT_EQ(file.Get("home", "server").value(), "unix:/a");
}

TEST_F(Config, AnUnknownContextIsNotFoundWithTheNearestOne) {
  const ConfigFile file = Load("contexts: {lab: {server: a}, home: {server: b}}\n");
  const auto server = file.Get("lob", "server");
  EXPECT_TRUE(absl::IsNotFound(server.status()));
  EXPECT_THAT(std::string(server.status().message()),
              AllOf(HasSubstr("there is no context 'lob'"), HasSubstr("did you mean 'lab'?"),
                    HasSubstr("there are: lab, home")));
}

TEST_F(Config, MistakesAreToldWithTheirPlace) {
  EXPECT_THAT(Mistake("- a\n"), HasSubstr("config.yaml:1:1: this is no mapping"));
  EXPECT_THAT(Mistake("current: [a]\n"), HasSubstr(":1:10: 'current' must be the name"));
  EXPECT_THAT(Mistake("contexts: lab\n"), HasSubstr(":1:11: 'contexts' must be a mapping"));
  EXPECT_THAT(Mistake("contexts:\n  lab: ssh://lab\n"),
              HasSubstr(":2:3: context 'lab' must be a mapping with a `server`"));
  EXPECT_THAT(Mistake("contexts: {a: {}, a: {}}\n"), HasSubstr(":1:19: "));
  EXPECT_THAT(std::string(Load("contexts:\n  lab: {}\n").Get("lab", "server").status().message()),
              HasSubstr(":2:8: context 'lab' has no server"));
}

TEST_F(Config, AContextIsAddedUsedAndRemoved) {
  auto file = ConfigFile::Load(dir_.File("new/trainyard/config.yaml"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Set("lab", "server", "ssh://anna@lab:22/x").ok());
  ASSERT_TRUE(file->Use("lab").ok());
  EXPECT_EQ(Saved(*file), "contexts:\n  lab:\n    server: ssh://anna@lab:22/x\ncurrent: lab\n");
  const auto again = ConfigFile::Load(file->path());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->Get("lab", "server").value(), "ssh://anna@lab:22/x");
  ASSERT_TRUE(file->Remove("lab").ok());
  EXPECT_EQ(file->Current(), "");
  EXPECT_EQ(Saved(*file), "contexts: {}\n");
}

TEST_F(Config, WhatThisVersionDoesNotKnowStays) {
  ConfigFile file = Load(
      "# servers of the lab\n\ncolour: [red, \"1\", {a: true}]\ncontexts:\n  lab:\n"
      "    server: 'ssh://lab'\n    fingerprint: \"aa:bb\"  # from the admin\n    nothing:\n");
  ASSERT_TRUE(file.Set("home", "server", "unix:/a b").ok());
  ASSERT_TRUE(file.Use("home").ok());
  EXPECT_EQ(Saved(file),
            "# servers of the lab\n\ncolour: [red, \"1\", {a: true}]\ncontexts:\n  lab:\n"
            "    server: \"ssh://lab\"\n    fingerprint: \"aa:bb\"\n    nothing: null\n  home:\n"
            "    server: \"unix:/a b\"\ncurrent: home\n");
}

TEST_F(Config, OnlyNamesThatAreEasyToTypeAreTaken) {
  ConfigFile file = Load("");
  for (const char* name : {"", "-a", "a b", "a/b", ".a", "a\n", "\xc3\xa4"}) {
    EXPECT_EQ(file.Set(name, "server", "unix:/a").code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_TRUE(file.Set(std::string(63, 'a'), "server", "unix:/a").ok());
  EXPECT_FALSE(file.Set(std::string(64, 'a'), "server", "unix:/a").ok());
}

TEST_F(Config, TheFileIsForItsOwnerAloneAndALinkStaysALink) {
  const std::string real = dir_.Write("real.yaml", "current: x\n");
  ASSERT_EQ(chmod(real.c_str(), 0644), 0);
  ASSERT_EQ(symlink(real.c_str(), dir_.File("link.yaml").c_str()), 0);
  auto file = ConfigFile::Load(dir_.File("link.yaml"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Set("lab", "server", "ssh://lab").ok());
  ASSERT_TRUE(file->Save().ok());
  struct stat info {};
  ASSERT_EQ(lstat(dir_.File("link.yaml").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  ASSERT_EQ(stat(real.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_THAT(ReadFile(real).value_or(""), HasSubstr("ssh://lab"));
}

}  // namespace
}  // namespace trainyard::config
