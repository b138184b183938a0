#include "common/tls/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/tls/digest.h"
#include "common/tls/issue.h"

namespace trainyard::tls {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(Certificate, ReadsAChainInItsOrder) {
  const KeyPair authority = MakeAuthority("lab", kNow);
  const auto server = IssueForServer(authority, {"lab.example", "10.1.2.3", "::1"}, kNow);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto chain = ReadCertificates(absl::StrCat(server->certificate, authority.certificate));
  ASSERT_TRUE(chain.ok()) << chain.status();
  ASSERT_EQ(chain->size(), 2u);
  EXPECT_THAT((*chain)[0].hosts,
              ::testing::ElementsAre(std::string(kServerName), "lab.example", "10.1.2.3", "::1"));
  EXPECT_FALSE((*chain)[0].is_authority);
  EXPECT_EQ((*chain)[0].not_before, kNow - kBackdated);
  EXPECT_EQ((*chain)[0].not_after, kNow + kServerLifetime);
  EXPECT_TRUE((*chain)[1].is_authority);
  EXPECT_THAT((*chain)[1].subject, HasSubstr("authority of lab"));
  EXPECT_NE((*chain)[0].fingerprint, (*chain)[1].fingerprint);
}

TEST(Certificate, DamagedTextsAreRefused) {
  const std::string pem = MakeAuthority("lab", kNow).certificate;
  EXPECT_FALSE(ReadCertificates("").ok());
  EXPECT_FALSE(ReadCertificates("no certificate").ok());
  EXPECT_FALSE(ReadCertificates(pem.substr(0, pem.size() / 2)).ok());
  EXPECT_FALSE(ReadCertificates(std::string(100'000, 'a')).ok());
  std::string changed = pem;
  changed[changed.size() / 2] = '!';
  EXPECT_FALSE(ReadCertificates(changed).ok());
  EXPECT_FALSE(ReadCertificates(absl::StrCat(pem, changed)).ok()) << "the second one is damaged";
  std::string many;
  for (int i = 0; i < 11; ++i) many += pem;
  EXPECT_THAT(ReadCertificates(many).status().message(), HasSubstr("more than 10"));
}

TEST(Certificate, AKeyOfAnotherCertificateIsNoticed) {
  const KeyPair one = MakeAuthority("one", kNow);
  const KeyPair two = MakeAuthority("two", kNow);
  EXPECT_TRUE(CheckKeyPair(one.certificate, one.key).ok());
  EXPECT_FALSE(CheckKeyPair(one.certificate, two.key).ok());
  EXPECT_FALSE(CheckKeyPair(one.certificate, "").ok());
  EXPECT_FALSE(CheckKeyPair("", one.key).ok());
}

TEST(Certificate, AFingerprintIsReadAsPeopleCopyIt) {
  const auto chain = ReadCertificates(MakeAuthority("lab", kNow).certificate);
  ASSERT_TRUE(chain.ok());
  const std::string& fingerprint = chain->front().fingerprint;
  EXPECT_EQ(fingerprint.size(), 95u);
  const std::string bare = absl::StrReplaceAll(fingerprint, {{":", ""}});
  for (const std::string& text :
       {fingerprint, absl::AsciiStrToLower(fingerprint), bare, absl::StrCat("SHA256:", bare),
        absl::StrCat(" sha256:", absl::AsciiStrToLower(fingerprint), "\n")}) {
    const auto read = ReadFingerprint(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.status();
    EXPECT_EQ(*read, fingerprint);
  }
  for (const std::string& text :
       {std::string(), bare.substr(1), bare + "0", std::string(64, 'g'), std::string(1000, 'a')}) {
    EXPECT_FALSE(ReadFingerprint(text).ok()) << text;
  }
}

TEST(Digest, IsSha256AndSecretsDiffer) {
  EXPECT_EQ(absl::BytesToHexString(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(SecretBytes(32).size(), 32u);
  EXPECT_NE(SecretBytes(32), SecretBytes(32));
}

}  // namespace
}  // namespace trainyard::tls
