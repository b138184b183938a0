// Tests which files lead to a cluster.
#include "server/provision/kubernetes/kubeconfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::provision::kubernetes {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFile[] = R"(apiVersion: v1
kind: Config
current-context: lab
contexts:
- name: lab
  context: {cluster: main, user: robot, namespace: ml}
- name: bare
  context: {cluster: main, user: certified}
- name: lost
  context: {cluster: nowhere, user: robot}
clusters:
- name: main
  cluster:
    server: https://10.0.0.1:6443/
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t
users:
- name: robot
  user: {token: s3cret-word}
- name: certified
  user:
    client-certificate-data: Y2VydA==
    client-key-data: a2V5
)";

std::string WhyNot(const std::string& text, const std::string& context = "") {
  const auto config = ParseKubeconfig(text, context, "/nowhere");
  EXPECT_FALSE(config.ok()) << text;
  // It may be a file of somebody else.
  EXPECT_THAT(config.status().message(), Not(HasSubstr("s3cret")));
  return std::string(config.status().message());
}

std::string With(const std::string& from, const std::string& to) {
  EXPECT_TRUE(absl::StrContains(kFile, from)) << from;
  return absl::StrReplaceAll(kFile, {{from, to}});
}

TEST(Kubeconfig, TheCurrentContextLeadsToACluster) {
  const auto config = ParseKubeconfig(kFile, "", "/nowhere");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->access.url, "https://10.0.0.1:6443");
  EXPECT_EQ(config->access.authorities, "-----BEGIN CERTIFICATE-----");
  EXPECT_EQ(config->access.token, "s3cret-word");
  EXPECT_EQ(config->access.token_file, "");
  EXPECT_EQ(config->space, "ml");
}

TEST(Kubeconfig, AContextMayBeChosen) {
  const auto config = ParseKubeconfig(kFile, "bare", "/nowhere");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->access.certificate, "cert");
  EXPECT_EQ(config->access.key, "key");
  EXPECT_EQ(config->access.token, "");
  EXPECT_EQ(config->space, "");
}

TEST(Kubeconfig, FilesBeginAtTheFolder) {
  const testing::TempDir folder;
  (void)folder.Write("ca.crt", "-----BEGIN CERTIFICATE-----\nabc\n");
  const std::string text = absl::StrReplaceAll(
      kFile, {{"certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
               "certificate-authority: ca.crt"},
              {"token: s3cret-word", "tokenFile: token"}});
  const auto config = ParseKubeconfig(text, "", folder.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->access.authorities, HasSubstr("abc"));
  EXPECT_EQ(config->access.token_file, folder.File("token"));
  // A file that is no certificate is not read into a message, and not used.
  (void)folder.Write("ca.crt", "root:s3cret:0\n");
  const auto other = ParseKubeconfig(text, "", folder.path());
  EXPECT_THAT(other.status().message(), HasSubstr("has no PEM text"));
}

TEST(Kubeconfig, WhatCannotBeUsedIsSaid) {
  EXPECT_THAT(WhyNot("s3cret: [", ""), HasSubstr("no YAML of the kind Config"));
  EXPECT_THAT(WhyNot("kind: Pod"), HasSubstr("no YAML of the kind Config"));
  EXPECT_THAT(WhyNot(kFile, "other"), HasSubstr("no context of the name that was asked for"));
  EXPECT_THAT(WhyNot(kFile, "lost"), HasSubstr("no cluster of the name that the context names"));
  EXPECT_THAT(WhyNot(With("current-context: lab\n", "")), HasSubstr("say --context"));
  EXPECT_THAT(WhyNot(With("https://", "http://")), HasSubstr("begins with https://"));
  EXPECT_THAT(WhyNot(With("certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
                          "insecure-skip-tls-verify: true")),
              HasSubstr("would show our token to anybody"));
  EXPECT_THAT(WhyNot(With("token: s3cret-word", "exec: {command: aws}")),
              HasSubstr("gets tokens by exec, and the server runs no program"));
  EXPECT_THAT(WhyNot(With("token: s3cret-word", "auth-provider: {name: gcp}")),
              HasSubstr("gets tokens by auth-provider"));
  EXPECT_THAT(WhyNot(With("token: s3cret-word", "username: s3cret")),
              HasSubstr("'username' of its user is not supported"));
  EXPECT_THAT(WhyNot(With("{token: s3cret-word}", "{}")), HasSubstr("has no token"));
  EXPECT_THAT(WhyNot(With("    client-key-data: a2V5\n", ""), "bare"), HasSubstr("only one of"));
  EXPECT_THAT(WhyNot(With("data: Y2VydA==", "data: '*s3cret*'"), "bare"),
              HasSubstr("client-certificate-data is not in base64"));
  EXPECT_THAT(WhyNot(With("    server:", "    proxy-url: http://a\n    server:")),
              HasSubstr("proxy-url is not supported"));
}

TEST(Kubeconfig, OthersMustNotWriteTheFile) {
  const testing::TempDir folder;
  const std::string path = folder.Write("config", kFile);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(ReadKubeconfig(path, "").ok()) << ReadKubeconfig(path, "").status();
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_THAT(ReadKubeconfig(path, "").status().message(), HasSubstr("can write it"));
  EXPECT_THAT(ReadKubeconfig(folder.File("none"), "").status().message(),
              HasSubstr("no such file on the server's host"));
  EXPECT_THAT(ReadKubeconfig("config", "").status().message(), HasSubstr("has to begin with /"));
}

}  // namespace
}  // namespace trainyard::provision::kubernetes
