// Tests how the page is served, and how a browser signs in on a port.
#include "server/http/page.h"

#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/page_files.h"
#include "server/http/sign_in.h"
#include "tests/unit/server/http/http_fixture.h"

namespace trainyard::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHtml[] = "Accept: text/html,application/xhtml+xml\r\n";
constexpr char kToken[] = "tyk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";

TEST_F(DoorTest, TheFirstPageIsAtEveryPathOfABrowser) {
  for (const char* path : {"/", "/jobs/12", "/compare?jobs=1,2", "/index.html"}) {
    const std::string answer = Ask("anna", Get(path, kHtml));
    EXPECT_EQ(StatusOf(answer), 200) << path;
    EXPECT_THAT(answer, AllOf(HasSubstr("Content-Type: text/html; charset=utf-8"),
                              HasSubstr("<script type=\"module\""),
                              HasSubstr("Content-Security-Policy: default-src 'none'; script-src "
                                        "'self'; style-src 'self'"),
                              HasSubstr("Cache-Control: no-cache")));
  }
  EXPECT_EQ(StatusOf(Ask("anna", Get("/jobs/12", "Accept: application/json\r\n"))), 404)
      << "programs are told that there is nothing";
  EXPECT_EQ(StatusOf(Ask("anna", Get("/jobs/12"))), 404);
}

TEST_F(DoorTest, FilesWithHashesAreKeptByBrowsers) {
  int scripts = 0;
  for (const PageFile& file : PageFiles()) {
    if (!absl::StartsWith(file.path, "/assets/")) continue;
    const std::string plain = Ask("anna", Get(std::string(file.path)));
    EXPECT_EQ(StatusOf(plain), 200) << file.path;
    EXPECT_TRUE(absl::EndsWith(plain, file.bytes));
    EXPECT_THAT(plain.substr(0, 1000), HasSubstr("max-age=31536000, immutable"));
    const std::string compressed =
        Ask("anna", Get(std::string(file.path), "Accept-Encoding: gzip, br\r\n"));
    EXPECT_TRUE(absl::EndsWith(compressed, file.compressed));
    EXPECT_THAT(compressed.substr(0, 1000), HasSubstr("Content-Encoding: gzip"));
    if (absl::EndsWith(file.path, ".js")) {
      ++scripts;
      EXPECT_LT(file.compressed.size(), size_t{80} * 1024) << "the page is to be there at once";
    }
  }
  EXPECT_GE(scripts, 1);
}

TEST_F(DoorTest, ABrowserSignsInWithAToken) {
  const std::string body = absl::StrCat("{\"token\": \"", kToken, "\"}");
  const auto sign_in = [this](const std::string& text, const std::string& type) {
    RawClient client = OpenStranger();
    client.Send(absl::StrCat("POST /session HTTP/1.1\r\nHost: lab.example\r\nConnection: close\r\n",
                             "Content-Type: ", type, "\r\nContent-Length: ", text.size(),
                             "\r\n\r\n", text));
    return client.ReadAll();
  };
  const std::string made = sign_in(body, "application/json");
  EXPECT_EQ(StatusOf(made), 204) << made;
  EXPECT_THAT(made, HasSubstr(absl::StrCat("Set-Cookie: __Host-trainyard=", kToken,
                                           "; Path=/; Max-Age=2592000; Secure; HttpOnly; "
                                           "SameSite=Strict")));
  EXPECT_EQ(StatusOf(sign_in(body, "text/plain")), 415) << "a form of another site";
  EXPECT_EQ(StatusOf(sign_in("{\"token\": \"x; Path=/\"}", "application/json")), 400);
  EXPECT_EQ(StatusOf(sign_in("[", "application/json")), 400);
  EXPECT_EQ(StatusOf(sign_in(std::string(2000, ' '), "application/json")), 401)
      << "strangers send no large bodies";
}

TEST(SignIn, OnlyPagesOfThisServerUseTheCookie) {
  Request request;
  request.headers = {{"host", "lab.example:7070"},
                     {"cookie", absl::StrCat("a=b; __Host-trainyard=", kToken)}};
  const auto adopted = [&request] {
    Request copy = request;
    AdoptCookie(copy);
    return std::string(copy.Header("authorization"));
  };
  EXPECT_EQ(adopted(), absl::StrCat("Bearer ", kToken));
  request.headers["sec-fetch-site"] = "cross-site";
  EXPECT_EQ(adopted(), "");
  request.headers["sec-fetch-site"] = "same-origin";
  EXPECT_EQ(adopted(), absl::StrCat("Bearer ", kToken));
  request.headers["origin"] = "https://lab.example:9999";
  EXPECT_EQ(adopted(), "");
  request.headers["origin"] = "https://lab.example:7070";
  EXPECT_EQ(adopted(), absl::StrCat("Bearer ", kToken));
  request.headers["cookie"] = "__Host-trainyard=no token";
  EXPECT_EQ(adopted(), "");
  request.headers["cookie"] = absl::StrCat("__Host-trainyard=", kToken);
  request.headers["authorization"] = "Bearer other";
  EXPECT_EQ(adopted(), "Bearer other") << "a header that is there stays";
}

}  // namespace
}  // namespace trainyard::http
