#include "common/curl/loopback.h"

#include <gtest/gtest.h>

namespace trainyard::curl {
namespace {

TEST(Loopback, OnlyPlainAddressesOfThisHostAre) {
  for (const char* url : {"http://localhost", "http://localhost:80/a", "https://127.0.0.1:1/?q",
                          "https://[::1]:443/", "http://[::1]"}) {
    EXPECT_TRUE(IsLoopbackUrl(url)) << url;
  }
  for (const char* url :
       {"", "localhost", "ftp://localhost", "http://127.0.0.1.lab.example/", "http://127.0.0.2/",
        "http://127.example", "http://localhost.example", "http://localhost@evil.example/",
        "http://evil\\@localhost", "http://evil.example/http://localhost", "http://[::1",
        "http://[::2]:80"}) {
    EXPECT_FALSE(IsLoopbackUrl(url)) << url;
  }
}

}  // namespace
}  // namespace trainyard::curl
