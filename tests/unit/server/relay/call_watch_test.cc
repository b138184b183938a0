#include "server/relay/call_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace trainyard::relay {
namespace {

constexpr int kData = 0;
constexpr int kHeaders = 1;
constexpr int kReset = 3;
constexpr int kContinuation = 9;
constexpr int kEndStream = 1;
constexpr int kEndHeaders = 4;
constexpr absl::Duration kNow = absl::Hours(1);
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(int type, int flags, size_t size, size_t stream = 1) {
  std::string frame;
  for (const size_t byte : {size >> 16, size >> 8, size, size_t(type), size_t(flags), stream >> 24,
                            stream >> 16, stream >> 8, stream}) {
    frame += static_cast<char>(byte);
  }
  return frame + std::string(size, '\xff');
}

std::string Call(size_t stream) {
  return Frame(kHeaders, kEndHeaders | kEndStream, 20, stream);
}
std::string Answer(size_t stream) {
  return Frame(kHeaders, kEndHeaders, 20, stream) + Frame(kData, 0, 100, stream) +
         Frame(kHeaders, kEndHeaders | kEndStream, 10, stream);
}

class CallWatchTest : public ::testing::Test {
 protected:
  bool Take(const std::string& bytes) { return watch_.TakeRequests(bytes, kNow); }
  // Returns true if the client may begin one more call in another connection.
  bool HasRoom() {
    const bool has_room = calls_.Begin(kNow);
    calls_.End();
    return has_room;
  }

  ClientCalls calls_{3};
  CallWatch watch_{calls_};
};

TEST_F(CallWatchTest, OrdinaryRequestsPassInPiecesOfAnySize) {
  std::string bytes = kPreface;
  std::string answers;
  for (size_t i = 0; i < 100; ++i) {
    const size_t stream = 2 * i + 1;
    absl::StrAppend(&bytes, Frame(kHeaders, 0, 3000, stream),
                    Frame(kContinuation, kEndHeaders, 3000, stream),
                    Frame(kData, 0, 16'384, stream), Frame(kHeaders, kEndHeaders, 500, stream));
    absl::StrAppend(&answers, Answer(stream));
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()}) {
    ClientCalls calls(100);
    CallWatch watch(calls);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(watch.TakeRequests(absl::string_view(bytes).substr(at, piece), kNow))
          << piece << " " << at;
    }
    EXPECT_EQ(watch.requests(), 200u);
    EXPECT_FALSE(calls.IsIdle(kNow));
    for (size_t at = 0; at < answers.size(); at += piece) {
      watch.TakeAnswers(absl::string_view(answers).substr(at, piece));
    }
    EXPECT_TRUE(calls.IsIdle(kNow));
  }
}

TEST_F(CallWatchTest, HeadersWithoutEndAreNoticed) {
  ASSERT_TRUE(Take(kPreface + Frame(kHeaders, 0, 16'000)));
  ASSERT_TRUE(Take(Frame(kContinuation, 0, 16'000)));
  ASSERT_TRUE(Take(Frame(kContinuation, 0, 16'000)));
  ASSERT_TRUE(Take(Frame(kContinuation, 0, 16'000)));
  EXPECT_FALSE(Take(Frame(kContinuation, 0, 16'000)));
}

TEST_F(CallWatchTest, EmptyFramesCountToo) {
  std::string bytes = kPreface + Frame(kHeaders, 0, 0);
  for (uint64_t i = 0; i < CallWatch::kHeaderBytesMax / 9; ++i) {
    bytes += Frame(kContinuation, 0, 0);
  }
  EXPECT_FALSE(Take(bytes));
}

TEST_F(CallWatchTest, AFrameThatOnlyClaimsToBeLargeIsNoticedByItsHead) {
  EXPECT_FALSE(Take(kPreface + Frame(kHeaders, kEndHeaders, 70'000).substr(0, 9)));
}

TEST_F(CallWatchTest, CallsAreUnderWayUntilTheyAreAnswered) {
  EXPECT_TRUE(Take(kPreface + Call(1) + Call(3) + Call(5)));
  EXPECT_FALSE(HasRoom());
  watch_.TakeAnswers(Answer(3));
  EXPECT_TRUE(HasRoom());
  // The server may refuse a call before all of it has come.
  watch_.TakeAnswers(Frame(kReset, 0, 4, 1));
  EXPECT_TRUE(Take(Call(7) + Call(9)));
  EXPECT_FALSE(Take(Call(11)));
}

TEST_F(CallWatchTest, OneEndOfACallCounts) {
  EXPECT_TRUE(Take(kPreface + Call(1) + Call(3) + Call(5)));
  watch_.TakeAnswers(Answer(1) + Answer(1) + Frame(kReset, 0, 4, 1) + Answer(99));
  EXPECT_TRUE(Take(Frame(kReset, 0, 4, 1) + Frame(kReset, 0, 4, 99)));
  EXPECT_TRUE(Take(Call(7)));
  EXPECT_FALSE(Take(Call(9)));
}

TEST_F(CallWatchTest, CallsThatAreTakenBackCountOn) {
  EXPECT_TRUE(Take(kPreface + Call(1) + Call(3)));
  EXPECT_TRUE(Take(Frame(kReset, 0, 4, 1) + Frame(kReset, 0, 4, 3) + Call(5)));
  EXPECT_FALSE(Take(Call(7)));
  watch_.TakeAnswers(Answer(1));
  EXPECT_FALSE(HasRoom());
}

TEST_F(CallWatchTest, AConnectionThatEndsTakesItsCallsBack) {
  {
    CallWatch brief(calls_);
    EXPECT_TRUE(brief.TakeRequests(kPreface + Call(1) + Call(3) + Call(5), kNow));
  }
  EXPECT_FALSE(HasRoom());
  EXPECT_TRUE(calls_.IsIdle(kNow + absl::Seconds(1)));
}

TEST_F(CallWatchTest, WhatBeginsNoCallCountsAsNone) {
  // Streams of the server's numbers, streams that are over, and the end of a request's headers.
  EXPECT_TRUE(Take(kPreface + Frame(kHeaders, kEndHeaders, 20, 9)));
  EXPECT_TRUE(Take(Call(2) + Call(7) + Call(9) + Call(10)));
  EXPECT_TRUE(Take(Call(11) + Call(13)));
  EXPECT_FALSE(Take(Call(15)));
}

}  // namespace
}  // namespace trainyard::relay
