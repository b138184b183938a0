#include "common/tls/issue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/tls/read.h"

namespace trainyard::tls {
namespace {

using ::testing::HasSubstr;

const absl::Time kToday = absl::FromUnixSeconds(1'800'000'000);

std::string RequestOf(const std::string& key, absl::string_view worker) {
  const auto request = MakeWorkerRequest(key, worker);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.value_or("");
}

TEST(Issue, AWorkerGetsACertificateForItsKeyAndItsName) {
  const KeyPair authority = MakeAuthority("lab", kToday);
  const std::string key = MakeKey();
  const auto signed_pem = SignWorkerRequest(authority, RequestOf(key, "gpu-1"), "gpu-1", kToday);
  ASSERT_TRUE(signed_pem.ok()) << signed_pem.status();
  const auto chain = ReadCertificates(*signed_pem);
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(chain->front().worker, "gpu-1");
  EXPECT_TRUE(chain->front().hosts.empty()) << "a worker cannot pose as a server";
  EXPECT_FALSE(chain->front().is_authority);
  EXPECT_EQ(chain->front().not_after, kToday + kWorkerLifetime);
  EXPECT_TRUE(CheckKeyPair(*signed_pem, key).ok());
}

TEST(Issue, ARequestForAnotherWorkerIsRefused) {
  const KeyPair authority = MakeAuthority("lab", kToday);
  const auto refused = SignWorkerRequest(authority, RequestOf(MakeKey(), "gpu-2"), "gpu-1", kToday);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("'gpu-2'"));
}

TEST(Issue, ADamagedRequestIsRefused) {
  const KeyPair authority = MakeAuthority("lab", kToday);
  const std::string request = RequestOf(MakeKey(), "gpu-1");
  EXPECT_FALSE(SignWorkerRequest(authority, "", "gpu-1", kToday).ok());
  EXPECT_FALSE(SignWorkerRequest(authority, std::string(1 << 20, 'a'), "gpu-1", kToday).ok());
  EXPECT_FALSE(SignWorkerRequest(authority, request.substr(0, 200), "gpu-1", kToday).ok());
  EXPECT_FALSE(SignWorkerRequest(authority, MakeKey(), "gpu-1", kToday).ok());
  EXPECT_FALSE(SignWorkerRequest(authority, request, "Not A Name", kToday).ok());
  // A byte of the signature is another one: the end of the text holds it.
  std::string forged = request;
  const size_t at = forged.find("\n-----END") - 12;
  forged[at] = forged[at] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(SignWorkerRequest(authority, forged, "gpu-1", kToday).ok());
}

TEST(Issue, NamesOfHostsAreChecked) {
  const KeyPair authority = MakeAuthority("lab", kToday);
  for (const char* host : {"lab", "lab.example", "*.lab.example", "10.0.0.1", "2001:db8::1"}) {
    EXPECT_TRUE(IsHost(host)) << host;
    EXPECT_TRUE(IssueForServer(authority, {host}, kToday).ok()) << host;
  }
  for (const char* host :
       {"", "a b", "lab,URI:spiffe://trainyard/worker/x", "lab..example", "a/b"}) {
    EXPECT_FALSE(IsHost(host)) << host;
    EXPECT_FALSE(IssueForServer(authority, {host}, kToday).ok()) << host;
  }
}

TEST(Issue, ACertificateIsRenewedAtTwoThirdsOfItsLife) {
  const absl::Time end = kToday + absl::Hours(30);
  EXPECT_FALSE(IsDueForRenewal(kToday, end, kToday + absl::Hours(19)));
  EXPECT_TRUE(IsDueForRenewal(kToday, end, kToday + absl::Hours(20)));
  EXPECT_TRUE(IsDueForRenewal(kToday, end, end + absl::Hours(1)));
}

TEST(Issue, AVeryLongHostNameStillGetsAnAuthority) {
  EXPECT_TRUE(ReadCertificates(MakeAuthority(std::string(255, 'a'), kToday).certificate).ok());
}

}  // namespace
}  // namespace trainyard::tls
