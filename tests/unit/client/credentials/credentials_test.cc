// Tests what a client keeps of a server.
#include "client/credentials/credentials.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::credentials {
namespace {

TEST(CredentialsTest, ATokenOrTheFileOfOneIsKeptAndNeverBoth) {
  const testing::TempDir home;
  const CredentialStore store(home.path());
  const rpc::Address server = *ReadServer("lab.example");
  const std::string folder = home.File("trainyard/servers/lab.example_7070");
  ASSERT_TRUE(store.Save(server, {"PEM", "name", "tyk_x"}).ok());
  EXPECT_EQ(store.Load(server)->token, "tyk_x");
  EXPECT_EQ(store.Load(server)->token_file, "");

  rpc::TlsOptions of_pod = {"PEM", "name", "a.b.c"};
  of_pod.token_file = "/var/run/secrets/a folder/token";
  ASSERT_TRUE(store.Save(server, of_pod).ok());
  const auto loaded = store.Load(server);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->token_file, of_pod.token_file);
  EXPECT_EQ(loaded->authority, "PEM");
  EXPECT_EQ(loaded->server_name, "name");
  EXPECT_EQ(loaded->token, "") << "the copy would end within the hour";
  EXPECT_FALSE(FileExists(JoinPath(folder, "token")));

  ASSERT_TRUE(store.Save(server, {"PEM", "name", "tyk_y"}).ok());
  EXPECT_EQ(store.Load(server)->token, "tyk_y");
  EXPECT_FALSE(FileExists(JoinPath(folder, "token_file")));
  ASSERT_EQ(chmod(JoinPath(folder, "token").c_str(), 0644), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(store.Load(server).status()));
}

}  // namespace
}  // namespace trainyard::credentials
