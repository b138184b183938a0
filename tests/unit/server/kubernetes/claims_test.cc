// Tests what is refused before anybody is asked.
#include "server/kubernetes/claims.h"

#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "common/base/token_form.h"
#include "tests/unit/server/kubernetes/pod_token.h"

namespace trainyard::kubernetes {
namespace {

using access::PodUse;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const absl::Time kEnd = kNow + absl::Minutes(10);

std::string ReasonOf(const std::string& token, PodUse use = PodUse::kClient) {
  return ErrorReason(CheckClaims(token, use, kNow).status());
}

TEST(ClaimsTest, ATokenOfTheRightAudienceIsWorthAsking) {
  EXPECT_EQ(*CheckClaims(PodToken("trainyard", kEnd, "a"), PodUse::kClient, kNow), kEnd);
  EXPECT_EQ(*CheckClaims(PodToken("trainyard-worker", kEnd, "a"), PodUse::kWorker, kNow), kEnd);
  const nlohmann::json end = absl::ToUnixSeconds(kEnd);
  EXPECT_EQ(*CheckClaims(TokenOf({{"aud", "trainyard"}, {"exp", end}}), PodUse::kClient, kNow),
            kEnd);
  EXPECT_EQ(*CheckClaims(TokenOf({{"aud", {"a", "b", "trainyard"}}, {"exp", end}}), PodUse::kClient,
                         kNow),
            kEnd);
}

TEST(ClaimsTest, ATokenForOneUseIsOfNoUseForTheOther) {
  EXPECT_EQ(ReasonOf(PodToken("trainyard-worker", kEnd, "a")), "TOKEN_FOR_OTHERS");
  EXPECT_EQ(ReasonOf(PodToken("trainyard", kEnd, "a"), PodUse::kWorker), "TOKEN_FOR_OTHERS");
  EXPECT_EQ(ReasonOf(PodToken("https://kubernetes.default.svc", kEnd, "a")), "TOKEN_FOR_OTHERS");
  EXPECT_EQ(ReasonOf(TokenOf({{"exp", absl::ToUnixSeconds(kEnd)}})), "TOKEN_FOR_OTHERS");
}

TEST(ClaimsTest, ATokenEnds) {
  EXPECT_EQ(ReasonOf(PodToken("trainyard", kNow, "a")), "TOKEN_EXPIRED");
  EXPECT_EQ(ReasonOf(TokenOf({{"aud", "trainyard"}})), "TOKEN_UNKNOWN");
  for (const nlohmann::json& end :
       {nlohmann::json("soon"), nlohmann::json(-1), nlohmann::json(1e300), nlohmann::json(0)}) {
    EXPECT_EQ(ReasonOf(TokenOf({{"aud", "trainyard"}, {"exp", end}})), "TOKEN_UNKNOWN") << end;
  }
}

TEST(ClaimsTest, GarbageIsNoToken) {
  const std::string good = PodToken("trainyard", kEnd, "a");
  for (const std::string& text :
       {std::string(), std::string("a.b.c"), std::string(".."), good + ".", good + ".x",
        good.substr(0, good.rfind('.')), "x" + std::string(1, '\0') + good, " " + good,
        TokenOf(nlohmann::json::array({1, 2})), TokenOf("text"), TokenOf(nullptr),
        good + std::string(kPodTokenBytesMax, 'a')}) {
    EXPECT_EQ(ReasonOf(text), "TOKEN_UNKNOWN") << text.substr(0, 100);
  }
}

}  // namespace
}  // namespace trainyard::kubernetes
