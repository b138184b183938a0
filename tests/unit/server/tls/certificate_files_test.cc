#include "server/tls/certificate_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/tls/read.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::tls {
namespace {

using ::testing::HasSubstr;

class CertificateFilesTest : public ::testing::Test {
 protected:
  std::unique_ptr<CertificateFiles> Open(CertificateOptions options) {
    options.folder = dir_.File("tls");
    auto files = CertificateFiles::Open(std::move(options), clock_);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : nullptr;
  }
  absl::Status OpenError(CertificateOptions options) {
    options.folder = dir_.File("tls");
    return CertificateFiles::Open(std::move(options), clock_).status();
  }
  std::string Text(const std::string& name) { return ReadFile(dir_.File(name)).value_or(""); }
  mode_t Mode(const std::string& name) {
    struct stat info {};
    EXPECT_EQ(stat(dir_.File(name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  }
  std::vector<Certificate> Chain() { return *ReadCertificates(Text("tls/server.pem")); }
  // Writes the files of a site, whose certificate is for `host`.
  CertificateOptions WriteSite(const std::string& host) {
    const KeyPair authority = MakeAuthority("the site", clock_.Now());
    const auto server = IssueForServer(authority, {host}, clock_.Now());
    CertificateOptions options;
    options.certificate =
        dir_.Write("site.pem", absl::StrCat(server->certificate, authority.certificate));
    options.key = WriteKey(server->key);
    return options;
  }
  std::string WriteKey(const std::string& key) {
    const std::string path = dir_.File("site.key");
    EXPECT_TRUE(WriteFileAtomically(path, key, 0600).ok());
    return path;
  }

  testing::TempDir dir_;
  testing::ManualClock clock_;
};

TEST_F(CertificateFilesTest, TheFirstStartMakesAnAuthorityThatStays) {
  std::string pin;
  {
    const auto files = Open({.names = {"lab.example", "10.0.0.7"}});
    pin = files->pin().fingerprint;
    EXPECT_EQ(Text("tls/fingerprint"), pin + "\n");
  }
  EXPECT_EQ(Mode("tls"), 0700u);
  EXPECT_EQ(Mode("tls/authority.key"), 0600u);
  EXPECT_EQ(Mode("tls/server.key"), 0600u);
  EXPECT_THAT(Chain().front().hosts, ::testing::IsSupersetOf({"lab.example", "10.0.0.7"}));
  const std::string server = Text("tls/server.pem");
  EXPECT_EQ(Open({.names = {"lab.example", "10.0.0.7"}})->pin().fingerprint, pin);
  EXPECT_EQ(Text("tls/server.pem"), server) << "nothing was due";
  EXPECT_EQ(Open({.names = {"new.example"}})->pin().fingerprint, pin);
  EXPECT_THAT(Chain().front().hosts, ::testing::Contains("new.example"));
}

TEST_F(CertificateFilesTest, TheOwnCertificateIsRenewedInTime) {
  const auto files = Open({});
  const std::string first = Text("tls/server.pem");
  const SharedContext context = files->context();
  clock_.Advance(absl::Hours(24 * 50));
  files->Refresh();
  EXPECT_EQ(Text("tls/server.pem"), first);
  EXPECT_EQ(files->context(), context);
  clock_.Advance(absl::Hours(24 * 11));
  files->Refresh();
  EXPECT_NE(Text("tls/server.pem"), first);
  EXPECT_NE(files->context(), context);
  EXPECT_GT(Chain().front().not_after, clock_.Now() + absl::Hours(24 * 89));
}

TEST_F(CertificateFilesTest, DamagedOwnFilesAreMadeAnewButNotTheAuthority) {
  const std::string pin = Open({})->pin().fingerprint;
  dir_.Write("tls/server.pem", "damaged");
  EXPECT_EQ(Open({})->pin().fingerprint, pin);
  dir_.Write("tls/authority.pem", "damaged");
  EXPECT_THAT(OpenError({}).message(), HasSubstr("authority.pem"));
}

TEST_F(CertificateFilesTest, TheSitesFilesAreReadAgainWhenTheyFit) {
  const auto files = Open(WriteSite("one.example"));
  const std::string first = files->pin().fingerprint;
  const SharedContext context = files->context();
  // The certificate is there before its key: the old pair stays.
  const std::string old_key = Text("site.key");
  WriteSite("two.example");
  const std::string new_key = Text("site.key");
  WriteKey(old_key);
  files->Refresh();
  EXPECT_EQ(files->context(), context);
  WriteKey(new_key);
  files->Refresh();
  EXPECT_NE(files->context(), context);
  EXPECT_NE(files->pin().fingerprint, first);
  const SharedContext second = files->context();
  dir_.Write("site.pem", "damaged");
  files->Refresh();
  EXPECT_EQ(files->context(), second);
  std::filesystem::remove(dir_.File("site.pem"));
  files->Refresh();
  EXPECT_EQ(files->context(), second);
}

TEST_F(CertificateFilesTest, FilesThatDoNotSuitKeepTheServerFromStarting) {
  EXPECT_THAT(OpenError({.names = {"a b"}}).message(), HasSubstr("'a b'"));
  CertificateOptions options = WriteSite("one.example");
  EXPECT_THAT(OpenError({.certificate = options.certificate}).message(), HasSubstr("give both"));
  CertificateOptions missing = options;
  missing.key = dir_.File("missing");
  EXPECT_TRUE(absl::IsNotFound(OpenError(missing)));
  CertificateOptions readable = options;
  ASSERT_EQ(chmod(options.key.c_str(), 0644), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(OpenError(readable)));
  ASSERT_EQ(chmod(options.key.c_str(), 0600), 0);
  CertificateOptions damaged = options;
  damaged.client_authorities = dir_.Write("clients.pem", "damaged");
  EXPECT_THAT(OpenError(damaged).message(), HasSubstr("clients.pem"));
}

TEST_F(CertificateFilesTest, SignsForWorkers) {
  const auto files = Open({});
  const auto request = MakeWorkerRequest(MakeKey(), "gpu-1");
  ASSERT_TRUE(request.ok());
  const auto made = files->SignWorker(*request, "gpu-1");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->worker, "gpu-1");
  EXPECT_EQ(ReadCertificates(made->pem)->front().key_fingerprint, made->key_fingerprint);
  EXPECT_FALSE(files->SignWorker(*request, "gpu-2").ok());
}

}  // namespace
}  // namespace trainyard::tls
