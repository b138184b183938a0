#include "server/tls/header_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace trainyard::tls {
namespace {

constexpr int kData = 0;
constexpr int kHeaders = 1;
constexpr int kContinuation = 9;
constexpr int kEndHeaders = 4;
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(int type, int flags, size_t size) {
  std::string frame;
  for (const size_t byte : {size >> 16, size >> 8, size, size_t(type), size_t(flags), size_t{0},
                            size_t{0}, size_t{0}, size_t{1}}) {
    frame += static_cast<char>(byte);
  }
  return frame + std::string(size, '\xff');
}

TEST(HeaderWatch, OrdinaryRequestsPassInPiecesOfAnySize) {
  std::string bytes = kPreface;
  for (int i = 0; i < 100; ++i) {
    absl::StrAppend(&bytes, Frame(kHeaders, 0, 3000), Frame(kContinuation, kEndHeaders, 3000),
                    Frame(kData, 0, 16'384), Frame(kHeaders, kEndHeaders, 500));
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()}) {
    HeaderWatch watch;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(watch.Take(absl::string_view(bytes).substr(at, piece))) << piece << " " << at;
    }
    EXPECT_EQ(watch.requests(), 200u);
  }
}

TEST(HeaderWatch, HeadersWithoutEndAreNoticed) {
  HeaderWatch watch;
  ASSERT_TRUE(watch.Take(kPreface + Frame(kHeaders, 0, 16'000)));
  ASSERT_TRUE(watch.Take(Frame(kContinuation, 0, 16'000)));
  ASSERT_TRUE(watch.Take(Frame(kContinuation, 0, 16'000)));
  ASSERT_TRUE(watch.Take(Frame(kContinuation, 0, 16'000)));
  EXPECT_FALSE(watch.Take(Frame(kContinuation, 0, 16'000)));
}

TEST(HeaderWatch, EmptyFramesCountToo) {
  HeaderWatch watch;
  std::string bytes = kPreface + Frame(kHeaders, 0, 0);
  for (uint64_t i = 0; i < HeaderWatch::kHeaderBytesMax / 9; ++i) {
    bytes += Frame(kContinuation, 0, 0);
  }
  EXPECT_FALSE(watch.Take(bytes));
}

TEST(HeaderWatch, AFrameThatOnlyClaimsToBeLargeIsNoticedByItsHead) {
  HeaderWatch watch;
  EXPECT_FALSE(watch.Take(kPreface + Frame(kHeaders, kEndHeaders, 70'000).substr(0, 9)));
}

}  // namespace
}  // namespace trainyard::tls
